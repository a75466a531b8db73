"""Local clustering coefficients as an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.vertices import clustering_program as program
from ripieno.algorithms.vertices.order import VertexOrder
from ripieno.algorithms.vertices.vertex_estimator import VertexEstimator

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.graph import Graph


class ClusteringCoefficients(VertexEstimator):
    """Local clustering coefficients and triangles: the share of pairs of neighbors that have an edge.

    The neighbors of a vertex are the ends of its edges in either direction. With d neighbors, d (d - 1) edges between
    them are possible in a directed graph; an edge of an undirected graph counts in both directions.

    Attributes
    ----------
    coefficients_ : ndarray of shape (n,), float64
        Coefficient of each vertex, from 0 to 1; 0 for fewer than two neighbors.
    triangles_, degrees_ : ndarray of shape (n,), int64
        Numbers of triangles and of neighbors of each vertex, ignoring directions.
    n_iter_ : int
        Number of exchanged blocks of lists of neighbors.

    Notes
    -----
    Loops, weights and parallel edges are ignored. For undirected graphs, the coefficients equal the results
    of `networkx.clustering`; for directed graphs networkx computes another coefficient.

    References
    ----------
    Iosup et al., "The LDBC Graphalytics benchmark", arXiv 2011.15028, section 2.3.2.
    Latapy, "Main-memory triangle computations for very large (sparse (power-law)) graphs", Theoretical Computer Science
    407, 2008.

    Examples
    --------
    >>> import networkx as nx
    >>> from ripieno.algorithms import ClusteringCoefficients
    >>> model = ClusteringCoefficients().fit(nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3)]))
    >>> model.coefficients_.round(3), model.triangles_
    (array([1.   , 1.   , 0.333, 0.   ]), array([1, 1, 1, 0]))
    """

    vertices_: NDArray[Any]
    coefficients_: NDArray[np.float64]
    triangles_: NDArray[np.int64]
    degrees_: NDArray[np.int64]

    _program = program.fit

    _block_edges = program.BLOCK_EDGES

    def _arguments(self, graph: Graph, comm: Communicator | None) -> tuple[Any, ...]:
        return self._block_edges, self._checkpoint_options()

    def _store_parts(self, parts: Sequence[Any], graph: Graph) -> None:
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        self.vertices_ = vertices.names
        self.triangles_ = vertices.put([part.triangles for part in parts])
        self.degrees_ = vertices.put([part.degrees for part in parts])
        links, degrees = vertices.put([part.links for part in parts]), self.degrees_
        self.coefficients_ = np.where(degrees > 1, links / np.maximum(degrees * (degrees - 1), 1), 0.0)
        self.n_iter_, self.resumed_from_ = parts[0].block_count, parts[0].resumed_from
