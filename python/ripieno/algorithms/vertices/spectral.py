"""Spectral embedding of a graph as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ripieno import log
from ripieno.algorithms.column_choice import ColumnChoice
from ripieno.algorithms.vertices import spectral_program as program
from ripieno.algorithms.vertices.order import VertexOrder
from ripieno.algorithms.vertices.parameters import EmbeddingParameters
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno.comm.communicator import Communicator
    from ripieno.graph import Graph


class SpectralEmbedding(EmbeddingParameters, VertexEstimator):
    """Spectral embedding: eigenvectors of the normalized Laplacian as coordinates, by block Lanczos iteration.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, n_components), float64
        Eigenvectors divided by the square roots of the degrees; the largest entry of each in magnitude is positive.
    eigenvalues_ : ndarray of shape (n_components,), float64
        Eigenvalues of the normalized Laplacian, ascending.
    n_iter_ : int
        Number of products.

    Notes
    -----
    Equals `sklearn.manifold.spectral_embedding` of the sum of the adjacency matrix and its transpose: every edge counts
    in both directions, and loops are ignored. The same input, workers and random state give bitwise equal results.

    References
    ----------
    Golub and Van Loan, "Matrix computations", 4th edition, section 10.3.6.
    Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section I.A.2.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import SpectralEmbedding
    >>> two_triangles = np.array([[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 3], [2, 3]])
    >>> model = SpectralEmbedding(1, random_state=0).fit(two_triangles)
    >>> len(set(np.sign(model.embedding_[:3, 0]))), len(set(np.sign(model.embedding_[:, 0])))
    (1, 2)
    """

    vertices_: NDArray[Any]
    embedding_: NDArray[np.float64]
    eigenvalues_: NDArray[np.float64]
    residual_: float

    _program = program.fit

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        options = self._worker_options(
            program.SpectralOptions, count=self.n_components + bool(self.drop_first), seed=self._seed(comm)
        )
        return (options,)

    def _store_parts(self, parts: Sequence[Any], graph: Graph) -> None:
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        coordinates = vertices.put([part.coordinates for part in parts])[:, bool(self.drop_first) :]
        largest = np.abs(coordinates).argmax(axis=0)
        self.vertices_ = vertices.names
        self.embedding_ = coordinates * np.sign(coordinates[largest, np.arange(self.n_components)])
        first = parts[0]
        self.eigenvalues_ = first.eigenvalues[bool(self.drop_first) :]
        self.residual_, self.n_iter_, self.resumed_from_ = first.residual, first.step_count, first.resumed_from
        warn_if_unfinished(self)

    def fit_transform(self, graph: Any, y: object = None, **choice: Unpack[ColumnChoice]) -> NDArray[np.float64]:
        """Compute the embedding and return the coordinates, (n, n_components)."""
        return self.fit(graph, **choice).embedding_


def warn_if_unfinished(model: Any) -> None:
    """Warn if the eigenvectors of a fitted model did not reach its `tol`."""
    if model.residual_ > model.tol:
        log.warn(
            f"after max_iter={model.max_iter} products the residual is {model.residual_:.3g}, more than "
            f"tol={model.tol:.3g}: allow more iterations, or a higher tol",
            ConvergenceWarning,
        )
