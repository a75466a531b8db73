"""Breadth-first search as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.vertices import bfs_program as program
from ripieno.algorithms.vertices.order import paths_of, vertex_id
from ripieno.algorithms.vertices.parameters import SourceParameters
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import Graph


class BFS(SourceParameters, VertexEstimator):
    """Breadth-first search: the number of edges from a source to each other vertex, along edge directions.

    Attributes
    ----------
    distances_ : ndarray of shape (n,), int64
        Number of edges on a shortest path to each vertex; -1 if no path exists.
    parents_ : ndarray of shape (n,), int64
        Position in `vertices_` of the predecessor on such a path, the first if several exist; -1 if none exists.
    n_iter_ : int
        Largest distance.

    References
    ----------
    Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section I.A.2.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import BFS
    >>> model = BFS(0).fit(np.array([[0, 2], [2, 3], [4, 0]]))
    >>> model.vertices_, model.distances_, model.parents_
    (array([0, 2, 3, 4]), array([ 0,  1,  2, -1]), array([-1,  0,  1, -1]))
    """

    vertices_: NDArray[Any]
    distances_: NDArray[np.int64]
    parents_: NDArray[np.int64]

    _program = program.fit

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        return vertex_id("source", self.source, graph), self._checkpoint_options()

    def _store_parts(self, parts: Sequence[Any], graph: Graph) -> None:
        self.vertices_, self.distances_, self.parents_ = paths_of(parts, graph)
        self.n_iter_, self.resumed_from_ = int(self.distances_.max()), parts[0].resumed_from
