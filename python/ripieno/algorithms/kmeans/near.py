"""Near assignment among very many centroids, and what it loses, measured in each iteration on a sample of the rows.

Centroids that lie together are a group, and a row meets those of a few groups (see `ripieno.kernels`). Some rows, drawn
by their global numbers, are also assigned exactly. By what they lose, later iterations probe more groups or fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.kmeans.rows import WeightedRows

#: How rows find their centroids.
ASSIGNS = ("exact", "near")
#: Groups that a row probes in the first iteration, and at least.
FIRST_PROBES = 32
FEWEST_PROBES = 2
#: With a greater relative gap of the inertia the next iteration probes twice as many groups, with a tenth of it half.
#: A first pass loses far more than all that follow, as rows have no centroid to go on from: it changes nothing.
MOST_GAP = 0.005
#: Rows that are assigned exactly in each iteration, all workers together.
SAMPLE_ROWS = 1024
SAMPLE_STREAM = 1 << 35


@dataclass(frozen=True)
class AssignmentLoss:
    """What an assignment loses, by the sample.

    Parameters
    ----------
    recall
        The part of rows that have no nearer centroid.
    gap
        By how much the inertia is greater than that of the exact assignment, relative to it.
    """

    recall: float
    gap: float


NO_LOSS = AssignmentLoss(1.0, 0.0)


class Probes:
    """How many groups a row probes, by what was lost on samples of the rows.

    Parameters
    ----------
    rows
        This worker's rows.
    n_clusters
        How many centroids there are.
    """

    def __init__(self, rows: WeightedRows, n_clusters: int) -> None:
        self._rows = rows
        self._group_count = kernels.NearIndex.group_count(n_clusters)
        self.count = min(FIRST_PROBES, self._group_count)
        self._is_first = True

    @property
    def compared(self) -> float:
        """About which part of all centroids a row meets."""
        return self.count / self._group_count

    def sample(self, number: int) -> NDArray[np.int64]:
        """This worker's rows in sample `number`."""
        rows = self._rows
        drawn = np.random.default_rng([SAMPLE_STREAM, number]).integers(rows.total, size=min(rows.total, SAMPLE_ROWS))
        return np.sort(rows.places(drawn)[1])

    def sums(
        self, sample: NDArray[np.int64], found: NDArray[np.float64], exact: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Of rows of a sample: those that lose nothing, weighted costs as they were found, and exactly.

        Sums over all workers are what `measured` wants.
        """
        weights = self._rows.row_weights[sample]
        return np.array([np.count_nonzero(found <= exact), np.sum(weights * found), np.sum(weights * exact)])

    def measured(self, sums: NDArray[np.float64]) -> AssignmentLoss:
        """What the last pass lost, by all workers' `sums`; the next pass probes accordingly."""
        same, found, exact = (float(each) for each in sums)
        gap = found / exact - 1 if exact > 0 else (np.inf if found > 0 else 0.0)
        if gap > MOST_GAP and not self._is_first:
            self.count = min(2 * self.count, self._group_count)
        elif gap < MOST_GAP / 10 and not self._is_first:
            self.count = min(self.count, max(FEWEST_PROBES, self.count // 2))
        self._is_first = False
        return AssignmentLoss(same / min(self._rows.total, SAMPLE_ROWS), gap)


class NearPasses(Probes):
    """Near passes over this worker's rows, with all centroids at hand.

    Parameters
    ----------
    rows, n_clusters
        As of `Probes`.
    threads
        Threads to compute with.
    """

    def __init__(self, rows: WeightedRows, n_clusters: int, threads: int) -> None:
        super().__init__(rows, n_clusters)
        self._threads = threads
        self._index = kernels.NearIndex()

    def assign_accumulate(
        self, centroids: NDArray[Any], labels: NDArray[np.int32], squared_distances: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """A pass, as `ripieno.kernels.assign_accumulate_near`."""
        rows = self._rows
        return kernels.assign_accumulate_near(
            rows.points,
            centroids,
            rows.weights,
            labels,
            squared_distances,
            self._index,
            probes=self.count,
            threads=self._threads,
        )

    def sampled(
        self, centroids: NDArray[Any], squared_distances: NDArray[np.float64], number: int
    ) -> NDArray[np.float64]:
        """The `sums` of sample `number`."""
        own = self.sample(number)
        nearest, exact = np.empty(len(own), np.int32), np.empty(len(own))
        kernels.assign(self._rows.points[own], centroids, nearest, exact, threads=self._threads)
        return self.sums(own, squared_distances[own], exact)
