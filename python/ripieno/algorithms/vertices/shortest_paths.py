"""Weighted shortest paths as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.vertices import shortest_paths_program as program
from ripieno.algorithms.vertices.order import paths_of, vertex_id
from ripieno.algorithms.vertices.parameters import ShortestPathsParameters
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import Graph


class ShortestPaths(ShortestPathsParameters, VertexEstimator):
    """Weighted shortest paths from a source to each other vertex, along edge directions, by delta-stepping.

    Attributes
    ----------
    distances_ : ndarray of shape (n,), float64
        Least sum of weights on a path to each vertex; infinite if no path exists.
    parents_ : ndarray of shape (n,), int64
        Position in `vertices_` of the predecessor on such a path; -1 if none exists.
    n_iter_ : int
        Number of steps.

    Notes
    -----
    Weights are at least 0. Without weights every edge has the weight 1. Among parallel edges,
    the least weight counts. Distances and parents do not depend on the number of workers.

    References
    ----------
    Meyer and Sanders, "Delta-stepping: a parallelizable shortest path algorithm", Journal of Algorithms 49, 2003.

    Examples
    --------
    >>> from ripieno.algorithms import ShortestPaths
    >>> model = ShortestPaths(0).fit(([0, 0, 2, 4], [2, 3, 3, 0], [0.5, 3.0, 1.0, 1.0]))
    >>> model.vertices_, model.distances_, model.parents_
    (array([0, 2, 3, 4]), array([0. , 0.5, 1.5, inf]), array([-1,  0,  1, -1]))
    """

    # Vertices without a path have an infinite distance.
    _unbounded_results = ("distances_",)

    vertices_: NDArray[Any]
    distances_: NDArray[np.float64]
    parents_: NDArray[np.int64]

    _program = program.fit

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        delta = None if self.delta is None else float(self.delta)
        return vertex_id("source", self.source, graph), delta, self._checkpoint_options()

    def _store_parts(self, parts: Sequence[Any], graph: Graph) -> None:
        self.vertices_, self.distances_, self.parents_ = paths_of(parts, graph)
        self.n_iter_, self.resumed_from_ = parts[0].step_count, parts[0].resumed_from
