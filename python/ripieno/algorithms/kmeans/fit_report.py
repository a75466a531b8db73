"""What K-means reports of a fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.clock import IterationTime
from ripieno.algorithms.journal import FitReport


@dataclass(frozen=True)
class KMeansIteration(IterationTime):
    """One iteration of the run that was kept, and how long it took.

    Parameters
    ----------
    inertia
        Before the centroids shifted.
    squared_shift
        Squared Frobenius norm of their shift.
    compared
        Of all pairs of rows and centroids, the part that was not ruled out.
    recall
        The part of a sample of rows that have no nearer centroid; 1 of an exact assignment.
    gap
        By how much the sample's inertia is greater than exactly assigned, relative to that.
    """

    inertia: float
    squared_shift: float
    compared: float
    recall: float
    gap: float


@dataclass(frozen=True, kw_only=True)
class KMeansReport(FitReport):
    """What happened in a fit, for the report and for whoever asks where the time went.

    Parameters
    ----------
    iterations
        Of the run that was kept, as far as they were made here.
    row_count, column_count, dtype
        The data as it was computed with.
    hosts, threads
        Of each rank.
    load_s, seed_s
        Seconds of reading and of choosing the first centroids, on the slowest rank.
    total_s
        Seconds from the call of fit to its end, including the start of workers.
    history
        Inertia and squared shift of each iteration of the run that was kept, also of those before an interruption.
    cluster_sizes : (k,) int64
        Rows of each cluster.
    exemplar_clusters : (m,) int64
        The largest clusters, largest first.
    exemplar_rows : (m, count) int64
        Global numbers of the rows nearest to their centroids; -1 where there are fewer.
    bounds_bytes
        Of each rank, the memory of its bounds.
    traffic
        Of each rank, what its communicator counted.
    stages
        Of divided centroids, rank 0's seconds in each iteration, by stage; waiting for others included.
    ranks
        Where the time of each rank went.
    about
        What it is of.
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
        """Rows assigned and added up per second of iterating."""
        return self.row_count * len(self.iterations) / max(self.iterate_s, 1e-9)
