"""Spectral clustering of the vertices of a graph as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ripieno import log
from ripieno.algorithms.column_choice import ColumnChoice
from ripieno.algorithms.vertices import spectral_clustering_program as program
from ripieno.algorithms.vertices.order import VertexOrder
from ripieno.algorithms.vertices.parameters import SpectralClusteringParameters
from ripieno.algorithms.vertices.spectral import warn_if_unfinished
from ripieno.algorithms.vertices.spectral_program import SpectralOptions
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator
from ripieno.algorithms.worker_estimator import SEED_LIMIT

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno.comm.communicator import Communicator
    from ripieno.graph import Graph


class SpectralClustering(SpectralClusteringParameters, VertexEstimator):
    """Spectral clustering: K-means of the spectral embedding of a graph's vertices.

    Attributes
    ----------
    labels_ : ndarray of shape (n,), int32
        The cluster of each vertex. Clusters are numbered in the order of their first vertices.
    eigenvalues_ : ndarray of shape (n_components,), float64
        Eigenvalues of the normalized Laplacian, ascending. The number of zeros is the number of components of the
        graph. A gap after the k-th eigenvalue suggests k clusters.
    inertia_ : float
        Sum of the squared distances of the embedded vertices to the centroids of their clusters.
    n_iter_ : int
        Number of products.

    Notes
    -----
    Equals `sklearn.cluster.SpectralClustering(affinity="precomputed", assign_labels="kmeans")` of the sum of the
    adjacency matrix and its transpose: every edge counts in both directions, and loops are ignored. `SpectralEmbedding`
    with ``drop_first=False`` returns the coordinates. As in scikit-learn, there is no ``predict``: to include new
    vertices, fit the extended graph.

    References
    ----------
    von Luxburg, "A tutorial on spectral clustering", Statistics and Computing 17, 2007, section 4.
    Shi and Malik, "Normalized cuts and image segmentation", IEEE TPAMI 22(8), 2000.
    Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section I.A.2.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import SpectralClustering
    >>> two_triangles = np.array([[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3], [2, 3]])
    >>> SpectralClustering(2, random_state=0).fit(two_triangles).labels_
    array([0, 0, 0, 1, 1, 1], dtype=int32)
    """

    vertices_: NDArray[Any]
    labels_: NDArray[np.int32]
    eigenvalues_: NDArray[np.float64]
    inertia_: float
    residual_: float

    _program = program.fit

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        seed = self._seed(comm)
        count = self.n_clusters if self.n_components is None else self.n_components
        embedding = self._worker_options(SpectralOptions, count=count, seed=seed)
        seeds = np.random.default_rng(seed).integers(SEED_LIMIT, size=self.n_init).tolist()
        return (program.SpectralClusteringOptions(embedding, self.n_clusters, seeds),)

    def _store_parts(self, parts: Sequence[Any], graph: Graph) -> None:
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        self.vertices_ = vertices.names
        self.labels_ = _numbered_by_first(vertices.put([part.labels for part in parts]))
        first = parts[0]
        self.eigenvalues_, self.inertia_ = first.eigenvalues, first.inertia
        self.residual_, self.n_iter_, self.resumed_from_ = first.residual, first.step_count, first.resumed_from
        warn_if_unfinished(self)
        found = int(self.labels_.max()) + 1
        if found < self.n_clusters:
            log.warn(
                f"found {found} distinct clusters, fewer than n_clusters={self.n_clusters}: vertices may have equal "
                "coordinates",
                ConvergenceWarning,
            )

    def fit_predict(self, graph: Any, y: object = None, **choice: Unpack[ColumnChoice]) -> NDArray[np.int32]:
        """Cluster the vertices and return their labels, (n,)."""
        return self.fit(graph, **choice).labels_


def _numbered_by_first(labels: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return labels 0, 1, … in the order of their first occurrence."""
    _, firsts, clusters = np.unique(labels, return_index=True, return_inverse=True)
    numbers = np.empty(len(firsts), np.int32)
    numbers[np.argsort(firsts)] = np.arange(len(firsts))
    renumbered: NDArray[np.int32] = numbers[clusters]
    return renumbered
