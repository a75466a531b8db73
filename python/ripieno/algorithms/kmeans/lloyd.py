"""Lloyd's iteration on distributed rows: assign locally, sum globally, move the centroids on every rank.

Every rank moves its own copy of the centroids by the same sums, so an iteration needs only one allreduce.
Cost: n·k·d per iteration shared by the workers, and an allreduce of k·(d+1) float64.
Source: Lloyd, "Least squares quantization in PCM", IEEE Trans. Inf. Theory 1982; the stopping and re-seeding rules are
scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.near import NO_LOSS, AssignmentLoss, NearPasses
from ripieno.algorithms.kmeans.rows import WeightedRows, lowest, values_at

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


#: Label of a row without a centroid.
NO_CENTROID = -1
#: Maximum bytes of bounds per coordinate of a row.
BOUND_BYTES_PER_VALUE = 4


@dataclass(frozen=True)
class Clustering:
    """The result of a run. Labels and distances cover this worker's rows; the other fields are equal on every rank.

    Parameters
    ----------
    centroids : (k, d)
    labels : (n,) int32
        Nearest centroid of each of this worker's rows.
    squared_distances : (n,) float64
        Squared distance to that centroid.
    inertia
        Weighted sum of the squared distances of all rows.
    iteration_count
        Number of iterations.
    bounds_bytes
        Memory of this worker's bounds.
    loss
        Loss of near assignment to the centroids.
    """

    centroids: NDArray[Any]
    labels: NDArray[np.int32]
    squared_distances: NDArray[np.float64]
    inertia: float
    iteration_count: int
    bounds_bytes: int
    loss: AssignmentLoss = NO_LOSS


@dataclass(frozen=True)
class LloydState:
    """The state of a run: iteration count, centroids (k, d) before the last iteration, and their inertia."""

    iteration: int
    centroids_before: NDArray[Any]
    inertia: float


def lloyd(
    comm: Communicator,
    rows: WeightedRows,
    centroids: NDArray[Any],
    *,
    max_iter: int,
    tol: float,
    bounds: str = "auto",
    assign: str = "exact",
    clock: IterationClock,
    on_iteration: Callable[[int, float, float, float, AssignmentLoss], None],
    resume_from: LloydState | None = None,
    save: Callable[[LloydState], None] | None = None,
) -> Clustering:
    """Iterate until no label changes, the centroids' squared shift is within `tol`, or `max_iter` is reached.

    Parameters
    ----------
    comm
        The workers.
    rows
        This worker's rows.
    centroids : (k, d), changed in place
        Initial centroids, equal on every rank.
    max_iter
        Maximum number of iterations.
    tol
        Squared Frobenius norm of the centroids' shift at which to stop.
    bounds
        One of `KMEANS_BOUNDS`; the results are equal.
    assign
        One of `KMEANS_ASSIGNS`; near assignment does not use bounds.
    clock
        Clock that separates computation from communication.
    on_iteration
        Called with the iteration number, from 1, its inertia before the move, the squared shift, the share of
        row-centroid pairs compared, and the loss of the assignment.
    resume_from
        State of an earlier run, in which `centroids` are the centroids after its last iteration. Its iteration is less
        than `max_iter`.
    save
        Called after each iteration except the last.
    """
    near = NearPasses(rows, len(centroids), comm.threads) if assign == "near" else None
    has_bounds = bounds == "auto" and near is None and not isinstance(rows.points, kernels.SparsePoints)
    bounds_bytes = len(rows) * rows.points.shape[1] * BOUND_BYTES_PER_VALUE
    pass_bounds = kernels.PassBounds(bounds_bytes) if has_bounds else None
    loss, sampled = NO_LOSS, np.zeros(3)
    labels, previous = (np.full(len(rows), NO_CENTROID, np.int32) for _ in range(2))
    distances = np.empty(len(rows))
    if resume_from is not None:
        if near is None:
            kernels.assign(rows.points, resume_from.centroids_before, labels, distances, threads=comm.threads)
        else:
            near.assign_accumulate(resume_from.centroids_before, labels, distances)
    for iteration in range(1 if resume_from is None else resume_from.iteration + 1, max_iter + 1):
        labels, previous = previous, labels
        with clock.computing():
            if near is None:
                sums, weight_sums, inertia = kernels.assign_accumulate(
                    rows.points,
                    centroids,
                    rows.weights,
                    labels,
                    distances,
                    threads=comm.threads,
                    bounds=pass_bounds,
                )
                compared = len(rows) * (1.0 if pass_bounds is None else pass_bounds.compared)
            else:
                sums, weight_sums, inertia = near.assign_accumulate(centroids, labels, distances)
                compared = len(rows) * near.compared
                sampled = near.sampled(centroids, distances, iteration)
            changed = float(not np.array_equal(labels, previous))
        with clock.communicating():
            sums, weight_sums, inertia, changed, compared, sampled = comm.allreduce(
                (sums, weight_sums, inertia, changed, compared, sampled)
            )
            loss = loss if near is None else near.measured(sampled)
            reseeded = reseed_empty(comm, rows, labels, distances, sums, weight_sums)
        centroids_before = None if save is None else centroids.copy()
        with clock.computing():
            squared_shift = kernels.recenter(centroids, sums, weight_sums)
        on_iteration(iteration, inertia, squared_shift, compared / rows.total, loss)
        if not changed or squared_shift <= tol:
            break
        if save is not None and centroids_before is not None and iteration < max_iter:
            save(LloydState(iteration, centroids_before, inertia))
    if changed or reseeded:
        # The centroids have moved since the labels were computed.
        if near is not None:
            near.assign_accumulate(centroids, labels, distances)
            loss = near.measured(comm.allreduce(near.sampled(centroids, distances, 0)))
        elif pass_bounds is None:
            kernels.assign(rows.points, centroids, labels, distances, threads=comm.threads)
        else:
            kernels.assign_accumulate(
                rows.points, centroids, None, labels, distances, threads=comm.threads, bounds=pass_bounds
            )
        # Not a dot product, because its summation order depends on the BLAS library, which may differ between hosts.
        inertia = comm.allreduce(float(np.sum(rows.row_weights * distances)))
    bounds_bytes = 0 if pass_bounds is None else pass_bounds.bytes
    return Clustering(centroids, labels, distances, inertia, iteration, bounds_bytes, loss)


@dataclass(frozen=True)
class ReseedRows:
    """Rows that move to empty clusters.

    Parameters
    ----------
    numbers : (m,)
        Numbers of the empty clusters, ascending.
    clusters : (m,)
        Previous cluster of each row.
    parts : (m, d)
        Rows times their weights.
    """

    numbers: NDArray[np.int64]
    clusters: NDArray[np.int32]
    parts: NDArray[np.float64]

    def correct(self, sums: NDArray[np.float64], numbers: NDArray[Any]) -> None:
        """Apply the moves to `sums`, (m, d): the sums of the clusters with the given numbers."""
        if not len(self.numbers):
            return
        order = np.argsort(numbers)
        for affected, change in ((self.clusters, _subtract_parts), (self.numbers, _set_parts)):
            positions = np.searchsorted(numbers, affected, sorter=order)
            found = np.flatnonzero(positions < len(numbers))
            found = found[numbers[order[positions[found]]] == affected[found]]
            change(sums, order[positions[found]], self.parts[found])


def _subtract_parts(sums: NDArray[np.float64], positions: NDArray[np.int64], parts: NDArray[np.float64]) -> None:
    np.subtract.at(sums, positions, parts)


def _set_parts(sums: NDArray[np.float64], positions: NDArray[np.int64], parts: NDArray[np.float64]) -> None:
    sums[positions] = parts


def reseed_empty(
    comm: Communicator,
    rows: WeightedRows,
    labels: NDArray[np.int32],
    squared_distances: NDArray[np.float64],
    sums: NDArray[np.float64],
    weight_sums: NDArray[np.float64],
) -> int:
    """Move one of the rows farthest from their centroids to each empty cluster; return the number of moved rows.

    `sums` (k, d) and `weight_sums` (k,) are global sums. They are changed in place, equally on every rank.
    """
    moved = rows_for_empty_clusters(comm, rows, labels, squared_distances, weight_sums)
    moved.correct(sums, np.arange(len(sums)))
    return len(moved.numbers)


def rows_for_empty_clusters(
    comm: Communicator,
    rows: WeightedRows,
    labels: NDArray[np.int32],
    squared_distances: NDArray[np.float64],
    weight_sums: NDArray[np.float64],
) -> ReseedRows:
    """Select rows for empty clusters: the rows that are farthest from their centroids.

    The first empty cluster gets the farthest row of all workers, and so on; ties go to the lower row. The row leaves
    its previous cluster. Rows of weight zero and rows that coincide with their centroid do not move. `weight_sums` (k,)
    are global sums. They are changed in place, equally on every rank.
    """
    empty = np.flatnonzero(weight_sums == 0)
    if not len(empty):
        return ReseedRows(empty, np.empty(0, np.int32), np.empty((0, rows.points.shape[1])))
    distances = np.where(rows.row_weights > 0, squared_distances, 0.0)
    numbers = lowest(comm, rows, -distances, len(empty))
    farthest, clusters, weights, points = values_at(
        comm, rows, numbers, distances, labels, rows.row_weights, rows.points
    )
    count = int(np.count_nonzero(farthest))
    empty, clusters, weights = empty[:count], clusters[:count], weights[:count]
    np.subtract.at(weight_sums, clusters, weights)
    weight_sums[empty] = weights
    return ReseedRows(empty, clusters, points[:count] * weights[:, None])


def nearest_rows(
    comm: Communicator, rows: WeightedRows, clustering: Clustering, clusters: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """Return the global numbers of the rows nearest to some centroids, nearest first: (m, count), padded with -1."""
    mine = np.flatnonzero(np.isin(clustering.labels, clusters))
    gathered = comm.allgather(
        _nearest_per_label(clustering.labels[mine], clustering.squared_distances[mine], rows.numbers(mine), count)
    )
    labels, distances, numbers = (np.concatenate(part) for part in zip(*gathered, strict=True))
    labels, _, numbers = _nearest_per_label(labels, distances, numbers, count)
    nearest = np.full((len(clusters), count), -1)
    for row, cluster in enumerate(clusters):
        found = numbers[labels == cluster]
        nearest[row, : len(found)] = found
    return nearest


def _nearest_per_label(
    labels: NDArray[np.int32], distances: NDArray[np.float64], numbers: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
    """Return the `count` entries of least distance per label, ordered by label, distance and number."""
    order = np.lexsort((numbers, distances, labels))
    labels = labels[order]
    rank_in_label = np.arange(len(labels)) - np.searchsorted(labels, labels)
    selected = rank_in_label < count
    return labels[selected], distances[order][selected], numbers[order][selected]
