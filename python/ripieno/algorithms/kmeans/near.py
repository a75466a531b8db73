"""Near assignment for very many centroids, with its loss measured on a sample of the rows in each iteration.

Nearby centroids form groups, and a row is compared with the centroids of a few groups (see `ripieno.kernels`). Sampled
rows, drawn by global row number, are also assigned exactly. The loss of their assignment determines how many groups
later iterations probe.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.kmeans.rows import WeightedRows

#: Number of groups that a row probes in the first iteration, and the minimum in later iterations.
FIRST_PROBE_COUNT = 32
MIN_PROBE_COUNT = 2
#: Above this relative gap of the inertia, the next iteration probes twice as many groups; below a tenth of it, half as
#: many. The first pass is ignored: its loss is far greater, because rows have no previous centroid.
MAX_GAP = 0.005
#: Number of rows assigned exactly in each iteration, over all workers.
SAMPLE_ROW_COUNT = 1024
SAMPLE_STREAM = 1 << 35


@dataclass(frozen=True)
class AssignmentLoss:
    """The loss of an assignment on the sample.

    Parameters
    ----------
    recall
        Share of rows without a nearer centroid.
    gap
        Relative excess of the inertia over exact assignment.
    """

    recall: float
    gap: float


NO_LOSS = AssignmentLoss(1.0, 0.0)


class Probes:
    """The number of groups that a row probes, adapted to the loss on samples of the rows.

    Parameters
    ----------
    rows
        This worker's rows.
    n_clusters
        Number of centroids.
    gaps
        The gaps of the iterations before, when a fit resumes.
    """

    def __init__(self, rows: WeightedRows, n_clusters: int, gaps: Iterable[float] = ()) -> None:
        self._rows = rows
        self._group_count = kernels.NearIndex.group_count(n_clusters)
        self.count = min(FIRST_PROBE_COUNT, self._group_count)
        self._is_first = True
        for gap in gaps:
            self._adapt(gap)

    @property
    def compared(self) -> float:
        """Return the approximate share of all centroids that a row is compared with."""
        return self.count / self._group_count

    def sample(self, number: int) -> NDArray[np.int64]:
        """Return this worker's rows in sample `number`."""
        rows = self._rows
        drawn = np.random.default_rng([SAMPLE_STREAM, number]).integers(
            rows.total, size=min(rows.total, SAMPLE_ROW_COUNT)
        )
        return np.sort(rows.places(drawn)[1])

    def sums(
        self, sample: NDArray[np.int64], near: NDArray[np.float64], exact: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return sums over sampled rows: rows without loss, and weighted squared distances, near and exact.

        `measured` expects these sums added over all workers.
        """
        weights = self._rows.row_weights[sample]
        return np.array([np.count_nonzero(near <= exact), np.sum(weights * near), np.sum(weights * exact)])

    def measured(self, sums: NDArray[np.float64]) -> AssignmentLoss:
        """Return the loss of the last pass from all workers' `sums`, and adapt the next pass."""
        same, near, exact = (float(each) for each in sums)
        gap = near / exact - 1 if exact > 0 else (np.inf if near > 0 else 0.0)
        self._adapt(gap)
        return AssignmentLoss(same / min(self._rows.total, SAMPLE_ROW_COUNT), gap)

    def _adapt(self, gap: float) -> None:
        """Choose the number of groups of the next pass."""
        if gap > MAX_GAP and not self._is_first:
            self.count = min(2 * self.count, self._group_count)
        elif gap < MAX_GAP / 10 and not self._is_first:
            self.count = min(self.count, max(MIN_PROBE_COUNT, self.count // 2))
        self._is_first = False


class NearPasses(Probes):
    """Near passes over this worker's rows, with all centroids in memory. They use no bounds.

    Parameters
    ----------
    rows, n_clusters, gaps
        As in `Probes`.
    threads
        Number of threads.
    """

    bounds_bytes = 0

    def __init__(self, rows: WeightedRows, n_clusters: int, threads: int, gaps: Iterable[float] = ()) -> None:
        super().__init__(rows, n_clusters, gaps)
        self._threads = threads
        self._index = kernels.NearIndex()

    def assign_accumulate(
        self, centroids: NDArray[Any], labels: NDArray[np.int32], squared_distances: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Run a pass, as `ripieno.kernels.assign_accumulate_near`."""
        return self._run(centroids, labels, squared_distances, self.count)

    def _run(
        self,
        centroids: NDArray[Any],
        labels: NDArray[np.int32],
        squared_distances: NDArray[np.float64],
        probe_count: int,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        rows = self._rows
        return kernels.assign_accumulate_near(
            rows.points,
            centroids,
            rows.weights,
            labels,
            squared_distances,
            self._index,
            probes=probe_count,
            threads=self._threads,
        )

    def assign(
        self, centroids: NDArray[Any], labels: NDArray[np.int32], squared_distances: NDArray[np.float64]
    ) -> None:
        """Run a pass without sums."""
        self.assign_accumulate(centroids, labels, squared_distances)

    def start(self, centroids: NDArray[Any], labels: NDArray[np.int32], squared_distances: NDArray[np.float64]) -> None:
        """Run a pass before the first iteration, with as many groups as without previous labels."""
        self._run(centroids, labels, squared_distances, max(self.count, min(FIRST_PROBE_COUNT, self._group_count)))

    def sampled(
        self, centroids: NDArray[Any], squared_distances: NDArray[np.float64], number: int
    ) -> NDArray[np.float64]:
        """Return the `sums` of sample `number`."""
        rows = self.sample(number)
        nearest, exact = np.empty(len(rows), np.int32), np.empty(len(rows))
        kernels.assign(self._rows.points[rows], centroids, nearest, exact, threads=self._threads)
        return self.sums(rows, squared_distances[rows], exact)
