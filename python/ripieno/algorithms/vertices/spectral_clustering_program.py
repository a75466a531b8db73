"""The worker program of spectral clustering: the spectral embedding of a graph, then K-means of the coordinates.

Each worker clusters a contiguous range of the vertices, ascending by id. The draws of K-means depend on the number of a
vertex, not on the number of workers.

Source: von Luxburg, "A tutorial on spectral clustering", Statistics and Computing 17, 2007, section 4, the normalized
algorithm of Shi and Malik.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.lloyd import Clustering, lloyd
from ripieno.algorithms.kmeans.program import check_cluster_count
from ripieno.algorithms.kmeans.rows import WeightedRows, mean_variance
from ripieno.algorithms.kmeans.seeding import seed_centroids
from ripieno.algorithms.kmeans.whole import WholeCentroids, passes_of
from ripieno.algorithms.vertices import spectral_program
from ripieno.graph import Graph

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

# The defaults of `KMeans`.
KMEANS_INIT, KMEANS_MAX_ITER, KMEANS_TOL = "k-means||", 300, 1e-4


@dataclass(frozen=True)
class SpectralClusteringOptions:
    """Options of the workers. `seeds` has one seed per run of K-means."""

    embedding: spectral_program.SpectralOptions
    n_clusters: int
    seeds: Sequence[int]


@dataclass(frozen=True)
class SpectralClusteringPart:
    """One worker's part of the result, and the part that all workers share.

    Parameters
    ----------
    ids : (m,) int64
        Vertices that this worker clustered.
    labels : (m,) int32
        Their clusters.
    inertia
        Sum of the squared distances of all vertices to their centroids.
    eigenvalues, residual, step_count, resumed_from
        As in `SpectralPart`.
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int32]
    inertia: float
    eigenvalues: NDArray[np.float64]
    residual: float
    step_count: int
    resumed_from: int | None


def fit(comm: Communicator, graph: Graph, options: SpectralClusteringOptions) -> SpectralClusteringPart:
    """Embed the vertices and cluster their coordinates.

    Raises
    ------
    InputError
        On every rank: as in `spectral_program.fit`, or fewer vertices than clusters.
    """
    embedding = spectral_program.fit(comm, graph, options.embedding)
    ids: NDArray[np.int64] = np.sort(np.concatenate(comm.allgather(embedding.ids)))
    check_cluster_count(options.n_clusters, len(ids))
    begin, end = (len(ids) * rank // comm.world_size for rank in (comm.rank, comm.rank + 1))
    mine = ids[begin:end]
    coordinates = comm.sparse(embedding.ids, mine, size=int(ids[-1]) + 1).reduce(embedding.coordinates, "sum")
    rows = WeightedRows(coordinates, None, begin, len(ids))
    runs = [_run(comm, rows, options.n_clusters, seed) for seed in options.seeds]
    clustering = min(runs, key=lambda run: run.inertia)
    return SpectralClusteringPart(
        mine,
        clustering.labels,
        clustering.inertia,
        embedding.eigenvalues,
        embedding.residual,
        embedding.step_count,
        embedding.resumed_from,
    )


def _run(comm: Communicator, rows: WeightedRows, n_clusters: int, seed: int) -> Clustering:
    """Run K-means from one start. It saves no state: a resumed embedding may have other signs or another basis."""
    centroids = seed_centroids(
        comm, rows, init=KMEANS_INIT, n_clusters=n_clusters, seed=seed, on_progress=lambda chosen: None
    )
    passes = passes_of(rows, n_clusters, comm.threads, assign="exact", bounds="auto")
    return lloyd(
        WholeCentroids(comm, rows, centroids, passes, IterationClock()),
        max_iter=KMEANS_MAX_ITER,
        tol=KMEANS_TOL * mean_variance(comm, rows),
        on_iteration=lambda *measures: None,
    )
