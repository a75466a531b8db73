"""Community detection as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.vertices import communities_program as program
from ripieno.algorithms.vertices.order import labels_and_sizes
from ripieno.algorithms.vertices.parameters import CommunityParameters
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import Graph


class CommunityDetection(CommunityParameters, VertexEstimator):
    """Communities of a graph by label propagation, with a deterministic rule.

    Each vertex begins with a label of its own. In an iteration each vertex takes the most frequent label among its
    neighbors, or the first of several such labels in the order of `vertices_`. In a directed graph a neighbor counts
    once for each edge, in either direction.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Label of each vertex: the vertex that began with it.
    n_communities_ : int
        Number of different labels.
    sizes_ : ndarray of shape (n_communities_,), int64
        Number of vertices of each label, in descending order.
    n_iter_ : int
        Number of iterations. The fit ends when no label changes, or after `max_iter`.

    Notes
    -----
    Weights are ignored. Parallel edges count once or separately, depending on `duplicates` of `Graph`.

    References
    ----------
    Iosup et al., "The LDBC Graphalytics benchmark", arXiv 2011.15028, section 2.3.2.
    Raghavan, Albert and Kumara, "Near linear time algorithm to detect community structures in large-scale networks",
    Physical Review E 76, 2007.

    Examples
    --------
    >>> import networkx as nx
    >>> from ripieno.algorithms import CommunityDetection
    >>> model = CommunityDetection().fit(nx.barbell_graph(4, 0))
    >>> model.labels_
    array([0, 0, 0, 0, 4, 4, 4, 4])
    """

    vertices_: NDArray[Any]
    labels_: NDArray[Any]
    sizes_: NDArray[np.int64]
    n_communities_: int

    _program = program.fit

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        return int(self.max_iter), self._checkpoint_options()

    def _store_parts(self, parts: Sequence[Any], graph: Graph) -> None:
        self.vertices_, self.labels_, self.sizes_ = labels_and_sizes(parts, graph)
        self.n_communities_ = len(self.sizes_)
        self.n_iter_, self.resumed_from_ = parts[0].iteration_count, parts[0].resumed_from
