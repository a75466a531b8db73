"""The report of a K-means fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.clock import IterationTime
from ripieno.algorithms.iteration_log import FitReport


@dataclass(frozen=True)
class KMeansIteration(IterationTime):
    """One iteration of the kept run, with its duration.

    Parameters
    ----------
    inertia
        Inertia before the centroids moved.
    squared_shift
        Squared Frobenius norm of the centroids' shift.
    compared
        Share of row-centroid pairs that bounds did not rule out.
    recall
        Share of sampled rows without a nearer centroid; 1 for exact assignment.
    gap
        Relative excess of the sample's inertia over exact assignment.
    """

    inertia: float
    squared_shift: float
    compared: float
    recall: float
    gap: float


@dataclass(frozen=True, kw_only=True, repr=False)
class KMeansReport(FitReport):
    """The report of a fit: results and time breakdown. `FitReport` describes the other fields.

    Parameters
    ----------
    iterations
        Iterations of the kept run that this fit made.
    seed_s
        Seconds of choosing the first centroids, on the slowest rank.
    history
        Inertia and squared shift of each iteration of the kept run, including iterations before an interruption.
    cluster_sizes : (k,) int64
        Number of rows of each cluster.
    exemplar_clusters : (m,) int64
        The largest clusters, largest first.
    exemplar_rows : (m, count) int64
        Global numbers of the rows nearest to their centroids; -1 fills clusters with fewer rows.
    bounds_bytes
        Memory of each rank's bounds.
    stages
        For divided centroids: rank 0's seconds in each iteration by stage, including waits for other ranks.
    """

    iterations: tuple[KMeansIteration, ...]
    seed_s: float
    history: tuple[tuple[float, float], ...]
    cluster_sizes: NDArray[np.int64]
    exemplar_clusters: NDArray[np.int64]
    exemplar_rows: NDArray[np.int64]
    bounds_bytes: tuple[int, ...]
    stages: tuple[dict[str, float], ...] = ()

    @property
    def rows_per_s(self) -> float:
        """Return the rows assigned and accumulated per second of iteration time."""
        return self.row_count * len(self.iterations) / max(self.iterate_s, 1e-9)
