"""Connected components as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.vertices import components_program as program
from ripieno.algorithms.vertices.order import VertexOrder
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator

if TYPE_CHECKING:
    from ripieno.graph import Graph


class ConnectedComponents(VertexEstimator):
    """Connected components of a graph, ignoring the direction of edges.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        First vertex of each vertex's component, in the order of `vertices_`.
    vertices_ : ndarray of shape (n,)
        The vertices: ids or names in ascending order, or the nodes of a networkx graph in their order.
    n_components_ : int
        Number of components.
    sizes_ : ndarray of shape (n_components_,), int64
        Number of vertices of each component, in descending order.
    n_iter_ : int
        Number of rounds in which workers exchanged names of neighbors.
    report_ : PlainReport
        Time breakdown of each rank; see docs/dashboard.md.
    resumed_from_ : int or None
        Number of completed rounds at which the fit resumed, after a worker failure or from `checkpoint`; None if it did
        not resume.

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
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        labels = vertices.put([part.labels for part in parts])
        self.vertices_ = vertices.names
        self.labels_ = labels if graph.labels is None else graph.labels[labels]
        self.sizes_ = np.sort(np.unique(labels, return_counts=True)[1])[::-1]
        self.n_components_ = len(self.sizes_)
        self.n_iter_, self.resumed_from_ = parts[0].round_count, parts[0].resumed_from
