"""Lloyd's iteration on distributed rows: assign rows to centroids, add over all workers, and move the centroids.

One loop serves all stores of centroids: each worker has all of them (`ripieno.algorithms.kmeans.whole`), or a share
(`ripieno.algorithms.kmeans.divided_store`). A store assigns rows by one of its strategies.
Source: Lloyd, "Least squares quantization in PCM", IEEE Trans. Inf. Theory 1982; the stopping and re-seeding rules are
scikit-learn's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.near import AssignmentLoss
from ripieno.algorithms.kmeans.rows import WeightedRows, lowest, values_at

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


#: Label of a row without a centroid.
NO_CENTROID = -1


@dataclass(frozen=True)
class Clustering:
    """The result of a run. Centroids, labels and distances may cover this worker only; other fields are equal on all.

    Parameters
    ----------
    centroids : (k, d), or (m, d) if they are divided
        All centroids, or this worker's share.
    labels : (n,) int32
        Nearest centroid of each of this worker's rows.
    squared_distances : (n,) float64
        Squared distance of each row to that centroid.
    inertia
        Weighted sum of the squared distances of all rows.
    iteration_count
        Number of iterations.
    bounds_bytes
        Memory of this worker's bounds.
    loss
        Loss of near assignment to the centroids.
    numbers : (m,) uint32 or None
        Numbers of this worker's centroids if they are divided.
    """

    centroids: NDArray[Any]
    labels: NDArray[np.int32]
    squared_distances: NDArray[np.float64]
    inertia: float
    iteration_count: int
    bounds_bytes: int
    loss: AssignmentLoss
    numbers: NDArray[np.uint32] | None = None


@dataclass(frozen=True)
class PassTotals:
    """Measures of a pass over all workers' rows.

    Parameters
    ----------
    weight_sums : (k,) float64
        Weight of each cluster.
    inertia
        Weighted sum of the squared distances.
    has_changed
        Whether a label changed.
    compared
        Share of row-centroid pairs compared.
    loss
        Loss of the assignment.
    """

    weight_sums: NDArray[np.float64]
    inertia: float
    has_changed: bool
    compared: float
    loss: AssignmentLoss


class CentroidStore(ABC):
    """The centroids of a run and the strategy that assigns rows to them. All ranks make each call.

    Parameters
    ----------
    comm
        The workers.
    rows
        This worker's rows.
    clock
        Clock that separates computation from communication.

    Attributes
    ----------
    own : (k, d), or (m, d) if they are divided
        This worker's centroids.
    numbers : (m,) uint32 or None
        Their numbers if they are divided.
    bounds_bytes : int
        Memory of this worker's bounds.
    stages : dict or None
        Seconds of the last pass by stage, for divided centroids.
    """

    own: NDArray[Any]
    numbers: NDArray[np.uint32] | None = None
    bounds_bytes = 0
    stages: dict[str, float] | None = None

    def __init__(self, comm: Communicator, rows: WeightedRows, clock: IterationClock) -> None:
        self.comm, self.rows, self.clock = comm, rows, clock

    def clustering(
        self,
        labels: NDArray[np.int32],
        squared_distances: NDArray[np.float64],
        inertia: float,
        iteration_count: int,
        loss: AssignmentLoss,
    ) -> Clustering:
        """Return the result of a run that ended with these centroids."""
        bounds_bytes, numbers = self.bounds_bytes, self.numbers
        return Clustering(self.own, labels, squared_distances, inertia, iteration_count, bounds_bytes, loss, numbers)

    @abstractmethod
    def accumulate(
        self,
        labels: NDArray[np.int32],
        previous_labels: NDArray[np.int32],
        squared_distances: NDArray[np.float64],
        iteration: int,
    ) -> PassTotals:
        """Assign the rows in an iteration: write their labels and squared distances."""

    @abstractmethod
    def move(self, labels: NDArray[np.int32], weight_sums: NDArray[np.float64], moved: ReseedRows) -> float:
        """Move the centroids to the means of their rows, and return their squared shift."""

    @abstractmethod
    def assign(
        self, labels: NDArray[np.int32], squared_distances: NDArray[np.float64], iteration: int
    ) -> AssignmentLoss:
        """Assign the rows after the iterations before `iteration`; `labels` has the last labels."""

    @abstractmethod
    def saved(self, labels: NDArray[np.int32]) -> tuple[Any, NDArray[Any] | None, NDArray[np.int32] | None]:
        """Return the state to save: the centroids, and the centroids before the last move or the labels."""


def lloyd(
    store: CentroidStore,
    *,
    max_iter: int,
    tol: float,
    on_iteration: Callable[[int, PassTotals, float], None],
    done: int = 0,
    labels: NDArray[np.int32] | None = None,
    save: Callable[[int, NDArray[np.int32]], None] | None = None,
) -> Clustering:
    """Iterate until no label changes, the centroids' squared shift is within `tol`, or `max_iter` is reached.

    Parameters
    ----------
    store
        The initial centroids, which the iterations move.
    max_iter
        Maximum number of iterations.
    tol
        Squared Frobenius norm of the centroids' shift at which to stop.
    on_iteration
        Called with the iteration number, from 1, the totals before the move, and the squared shift.
    done
        Number of iterations of an earlier run, less than `max_iter`.
    labels : (n,) int32
        Labels of this worker's rows in the last iteration of the earlier run.
    save
        Called after each iteration except the last with its number, its inertia, and the labels of this worker's rows.
    """
    comm, rows = store.comm, store.rows
    labels = np.full(len(rows), NO_CENTROID, np.int32) if labels is None else labels.copy()
    previous, distances = np.empty_like(labels), np.empty(len(rows))
    for iteration in range(done + 1, max_iter + 1):
        labels, previous = previous, labels
        totals = store.accumulate(labels, previous, distances, iteration)
        with store.clock.communicating():
            moved = rows_for_empty_clusters(comm, rows, labels, distances, totals.weight_sums)
        squared_shift = store.move(labels, totals.weight_sums, moved)
        on_iteration(iteration, totals, squared_shift)
        if not totals.has_changed or squared_shift <= tol:
            break
        if save is not None and iteration < max_iter:
            save(iteration, labels)
    if totals.has_changed or len(moved.numbers):
        # The centroids have moved since the labels were computed.
        return clustering_at(store, iteration, labels, distances)
    return store.clustering(labels, distances, totals.inertia, iteration, totals.loss)


def clustering_at(
    store: CentroidStore,
    iteration_count: int,
    labels: NDArray[np.int32] | None = None,
    distances: NDArray[np.float64] | None = None,
) -> Clustering:
    """Return the result of a run that ended with the store's centroids; `labels` has the last labels, if known."""
    rows = store.rows
    labels = np.empty(len(rows), np.int32) if labels is None else labels
    distances = np.empty(len(rows)) if distances is None else distances
    loss = store.assign(labels, distances, iteration_count + 1)
    # Not a dot product, because its summation order depends on the BLAS library, which may differ between hosts.
    inertia = store.comm.allreduce(float(np.sum(rows.row_weights * distances)))
    return store.clustering(labels, distances, inertia, iteration_count, loss)


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
