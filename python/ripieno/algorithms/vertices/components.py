"""Connected components as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.vertices import components_program as program
from ripieno.algorithms.vertices.order import labels_and_sizes
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator

if TYPE_CHECKING:
    from ripieno.graph import Graph


class ConnectedComponents(VertexEstimator):
    """Connected components of a graph, ignoring the direction of edges.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        First vertex of each vertex's component, in the order of `vertices_`.
    n_components_ : int
        Number of components.
    sizes_ : ndarray of shape (n_components_,), int64
        Number of vertices of each component, in descending order.
    n_iter_ : int
        Number of exchanges of names between neighbors.

    References
    ----------
    Kiveris et al., "Connected components in MapReduce and beyond", SoCC 2014, section 3.
    Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, sections I.A.2 and III.C.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import ConnectedComponents
    >>> model = ConnectedComponents().fit(np.array([[0, 2], [7, 2], [4, 5]]))
    >>> model.vertices_, model.labels_
    (array([0, 2, 4, 5, 7]), array([0, 0, 4, 4, 0]))
    """

    vertices_: NDArray[Any]
    labels_: NDArray[Any]
    sizes_: NDArray[np.int64]
    n_components_: int

    _program = program.fit

    def _store_parts(self, parts: Sequence[Any], graph: Graph) -> None:
        self.vertices_, self.labels_, self.sizes_ = labels_and_sizes(parts, graph)
        self.n_components_ = len(self.sizes_)
        self.n_iter_, self.resumed_from_ = parts[0].round_count, parts[0].resumed_from
