"""Whole centroids: every worker holds all of them, and moves its own copy by the same sums.

Cost: n·k·d per iteration shared by the workers, and an allreduce of k·(d+1) float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.lloyd import CentroidStore, PassTotals, ReseedRows
from ripieno.algorithms.kmeans.near import NO_LOSS, AssignmentLoss, NearPasses
from ripieno.algorithms.kmeans.rows import WeightedRows

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Maximum bytes of bounds per coordinate of a row.
BOUND_BYTES_PER_VALUE = 4


class ExactPasses:
    """Exact passes over this worker's rows, with all centroids in memory.

    Parameters
    ----------
    rows
        This worker's rows.
    threads
        Number of threads.
    bounds
        Bounds that skip centroids that the previous pass excluded for a row, or None.
    """

    def __init__(self, rows: WeightedRows, threads: int, bounds: kernels.PassBounds | None = None) -> None:
        self._rows, self._threads, self._bounds = rows, threads, bounds

    @property
    def compared(self) -> float:
        """Return the share of row-centroid pairs compared."""
        return 1.0 if self._bounds is None else self._bounds.compared

    @property
    def bounds_bytes(self) -> int:
        """Return the memory of the bounds."""
        return 0 if self._bounds is None else self._bounds.bytes

    def assign_accumulate(
        self, centroids: NDArray[Any], labels: NDArray[np.int32], squared_distances: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Run a pass, as `ripieno.kernels.assign_accumulate`."""
        rows, bounds = self._rows, self._bounds
        return kernels.assign_accumulate(
            rows.points, centroids, rows.weights, labels, squared_distances, threads=self._threads, bounds=bounds
        )

    def assign(
        self, centroids: NDArray[Any], labels: NDArray[np.int32], squared_distances: NDArray[np.float64]
    ) -> None:
        """Run a pass without sums."""
        if self._bounds is None:
            self.start(centroids, labels, squared_distances)
        else:
            self.assign_accumulate(centroids, labels, squared_distances)

    def start(self, centroids: NDArray[Any], labels: NDArray[np.int32], squared_distances: NDArray[np.float64]) -> None:
        """Run a pass before the first iteration, without bounds, because many labels change in that iteration."""
        kernels.assign(self._rows.points, centroids, labels, squared_distances, threads=self._threads)

    def sampled(
        self, centroids: NDArray[Any], squared_distances: NDArray[np.float64], number: int
    ) -> NDArray[np.float64]:
        """Return zeros: no loss is measured."""
        return np.zeros(3)

    def measured(self, sums: NDArray[np.float64]) -> AssignmentLoss:
        """Return no loss."""
        return NO_LOSS


class WholeCentroids(CentroidStore):
    """All centroids on each worker.

    Parameters
    ----------
    comm, rows, clock
        As in `CentroidStore`.
    centroids : (k, d), changed in place
        The centroids, equal on every rank.
    passes
        The strategy: exact, with or without bounds, or near.
    keeps_before
        Whether `saved` requires the centroids before the last move.
    """

    def __init__(
        self,
        comm: Communicator,
        rows: WeightedRows,
        centroids: NDArray[Any],
        passes: ExactPasses | NearPasses,
        clock: IterationClock,
        *,
        keeps_before: bool = False,
    ) -> None:
        super().__init__(comm, rows, clock)
        self.own, self._passes = centroids, passes
        self._before = centroids.copy() if keeps_before else None
        self._sums = np.empty((0, 0))

    def labels_at(self, centroids: NDArray[Any]) -> NDArray[np.int32]:
        """Return the labels of this worker's rows at other centroids, before the first pass."""
        labels = np.empty(len(self.rows), np.int32)
        self._passes.start(centroids, labels, np.empty(len(labels)))
        return labels

    def accumulate(
        self,
        labels: NDArray[np.int32],
        previous_labels: NDArray[np.int32],
        squared_distances: NDArray[np.float64],
        iteration: int,
    ) -> PassTotals:
        passes, centroids = self._passes, self.own
        with self.clock.computing():
            sums = passes.assign_accumulate(centroids, labels, squared_distances)
            compared = len(self.rows) * passes.compared
            sampled = passes.sampled(centroids, squared_distances, iteration)
            changed = float(not np.array_equal(labels, previous_labels))
            self.bounds_bytes = passes.bounds_bytes
        with self.clock.communicating():
            self._sums, weight_sums, inertia, changed, compared, sampled = self.comm.allreduce(
                (*sums, changed, compared, sampled)
            )
        return PassTotals(weight_sums, inertia, bool(changed), compared / self.rows.total, passes.measured(sampled))

    def move(self, labels: NDArray[np.int32], weight_sums: NDArray[np.float64], moved: ReseedRows) -> float:
        if self._before is not None:
            self._before[:] = self.own
        with self.clock.computing():
            moved.correct(self._sums, np.arange(len(self._sums)))
            return kernels.recenter(self.own, self._sums, weight_sums)

    def assign(
        self, labels: NDArray[np.int32], squared_distances: NDArray[np.float64], iteration: int
    ) -> AssignmentLoss:
        self._passes.assign(self.own, labels, squared_distances)
        self.bounds_bytes = self._passes.bounds_bytes
        return self._passes.measured(self.comm.allreduce(self._passes.sampled(self.own, squared_distances, 0)))

    def saved(self, labels: NDArray[np.int32]) -> tuple[NDArray[Any], NDArray[Any] | None, None]:
        return self.own, self._before, None


def passes_of(
    rows: WeightedRows, n_clusters: int, threads: int, *, assign: str, bounds: str, gaps: Iterable[float] = ()
) -> ExactPasses | NearPasses:
    """Return the strategy; `assign` and `bounds` are parameters of `KMeans`, `gaps` are as in `NearPasses`."""
    if assign == "near":
        return NearPasses(rows, n_clusters, threads, gaps)
    if bounds == "none" or isinstance(rows.points, kernels.SparsePoints):
        return ExactPasses(rows, threads)
    limit_bytes = len(rows) * rows.points.shape[1] * BOUND_BYTES_PER_VALUE
    return ExactPasses(rows, threads, kernels.PassBounds(limit_bytes))
