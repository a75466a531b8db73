"""Local clustering coefficients as an estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.own_rows import graph_for_fit
from ripieno.algorithms.reported import PlainReport, reported
from ripieno.algorithms.vertices import clustering_program as program
from ripieno.algorithms.vertices.order import VertexOrder
from ripieno.algorithms.worker_estimator import IterativeEstimator

if TYPE_CHECKING:
    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator


class ClusteringCoefficients(IterativeEstimator):
    """Local clustering coefficients and triangles: the share of pairs of neighbors that have an edge.

    The neighbors of a vertex are the ends of its edges in either direction. With d neighbors, d (d - 1) edges between
    them are possible in a directed graph; an edge of an undirected graph counts in both directions.

    Parameters
    ----------
    **common : FitParameters
        Where the fit runs and is saved: `workers`, `threads`, `engine`, `on_failure`, `checkpoint` and `every`.

    Attributes
    ----------
    vertices_ : ndarray of shape (n,)
        The vertices: ids or names in ascending order, or the nodes of a networkx graph in their order.
    coefficients_ : ndarray of shape (n,), float64
        Coefficient of each vertex, from 0 to 1; 0 for fewer than two neighbors.
    triangles_, degrees_ : ndarray of shape (n,), int64
        Numbers of triangles and of neighbors of each vertex, ignoring directions.
    n_iter_ : int
        Number of blocks in which workers exchanged lists of neighbors.
    report_ : PlainReport
        Time breakdown of each rank; see docs/dashboard.md.
    resumed_from_ : int or None
        Number of completed blocks at which the fit resumed, after a worker failure or from `checkpoint`; None if it did
        not resume.

    Notes
    -----
    Loops, weights and parallel edges are ignored. For undirected graphs, the coefficients equal those of
    `networkx.clustering`; for directed graphs networkx computes another coefficient.

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
    n_iter_: int
    report_: PlainReport
    resumed_from_: int | None

    _block_edges = program.BLOCK_EDGES

    @reported
    def fit(
        self, graph: Any, y: object = None, *, comm: Communicator | None = None, rows: Rows | None = None
    ) -> ClusteringCoefficients:
        """Count the triangles.

        Parameters
        ----------
        graph : Graph, or any input of `Graph`
        y : ignored
        comm : Communicator, optional
            Ranks that make this call together, instead of newly started workers. All ranks get the result.
        rows : {"own", "shared"}, optional
            With `comm`: "own" if each rank passes its own edges; "shared" if all ranks pass the same graph. Default:
            ranks compare their graphs and raise an error if these differ. The result covers all vertices.

        Returns
        -------
        ClusteringCoefficients
            The estimator itself.

        Raises
        ------
        InputError
            Invalid input or parameter. InputError is a ValueError; its message names the problem.
        CollectiveMismatch
            The ranks of `comm` make different calls, have different parameters, or pass different rows without `rows`.
        RankFailed
            A worker died.
        """
        graph = graph_for_fit(graph, comm=comm, rows=rows)
        parts = self._run(program.fit, graph, self._block_edges, self._checkpoint_options(), comm=comm)
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        self.vertices_ = vertices.names
        self.triangles_ = vertices.put([part.triangles for part in parts])
        self.degrees_ = vertices.put([part.degrees for part in parts])
        links, degrees = vertices.put([part.links for part in parts]), self.degrees_
        self.coefficients_ = np.where(degrees > 1, links / np.maximum(degrees * (degrees - 1), 1), 0.0)
        self.n_iter_, self.resumed_from_ = parts[0].block_count, parts[0].resumed_from
        return self
