"""Breadth-first search as an estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.own_rows import graph_for_fit
from ripieno.algorithms.reported import PlainReport, reported
from ripieno.algorithms.vertices import bfs_program as program
from ripieno.algorithms.vertices.order import VertexOrder, vertex_id
from ripieno.algorithms.worker_estimator import IterativeEstimator
from ripieno.kernels.lookup import positions_of

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.algorithms.parameters import FitParameters
    from ripieno.comm.communicator import Communicator


class BFS(IterativeEstimator):
    """Breadth-first search: the number of edges from a source to each other vertex, along edge directions.

    Parameters
    ----------
    source : int or node
        Start of the search: the id or name of a vertex, or a node of a networkx graph.
    **common : FitParameters
        Where the fit runs and is saved: `workers`, `threads`, `engine`, `on_failure`, `checkpoint` and `every`.

    Attributes
    ----------
    distances_ : ndarray of shape (n,), int64
        Number of edges on a shortest path to each vertex; -1 if no path exists.
    parents_ : ndarray of shape (n,), int64
        Position in `vertices_` of the predecessor on such a path, the first if several exist; -1 if none exists.
    vertices_ : ndarray of shape (n,)
        The vertices: ids or names in ascending order, or the nodes of a networkx graph in their order.
    n_iter_ : int
        Largest distance.
    report_ : PlainReport
        Time breakdown of each rank; see docs/dashboard.md.
    resumed_from_ : int or None
        Number of completed steps at which the fit resumed, after a worker failure or from `checkpoint`; None if it did
        not resume.

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
    n_iter_: int
    report_: PlainReport
    resumed_from_: int | None

    def __init__(
        self,
        source: Any,
        **common: Unpack[FitParameters],
    ) -> None:
        super().__init__(**common)
        self.source = source

    @reported
    def fit(self, graph: Any, y: object = None, *, comm: Communicator | None = None, rows: Rows | None = None) -> BFS:
        """Search from the source.

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
        BFS
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
        parts = self._run(
            program.fit, graph, vertex_id("source", self.source, graph), self._checkpoint_options(), comm=comm
        )
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        self.vertices_ = vertices.names
        self.distances_ = vertices.put([part.distances for part in parts])
        parents = vertices.put([part.parents for part in parts])
        ids = vertices.put([part.ids for part in parts])
        self.parents_ = np.where(parents == program.NOT_REACHED, parents, positions_of(parents, ids))
        self.n_iter_, self.resumed_from_ = int(self.distances_.max()), parts[0].resumed_from
        return self
