"""Weighted shortest paths as an estimator."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.own_rows import graph_for_fit
from ripieno.algorithms.reported import PlainReport, reported
from ripieno.algorithms.vertices import shortest_paths_program as program
from ripieno.algorithms.vertices.order import VertexOrder, vertex_id
from ripieno.algorithms.worker_estimator import IterativeEstimator
from ripieno.errors import InputError
from ripieno.kernels.lookup import positions_of

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.algorithms.parameters import FitParameters
    from ripieno.comm.communicator import Communicator


class ShortestPaths(IterativeEstimator):
    """Weighted shortest paths from a source to each other vertex, along edge directions, by delta-stepping.

    Parameters
    ----------
    source : int or node
        Start of the paths: the id or name of a vertex, or a node of a networkx graph.
    delta : float or None, default=None
        A step follows the edges of all vertices whose distances exceed the least one by at most `delta`. A smaller
        number follows fewer edges twice, a larger one takes fewer steps. Default: about the mean weight of an edge.
    **common : FitParameters
        Where the fit runs and is saved: `workers`, `threads`, `engine`, `on_failure`, `checkpoint` and `every`.

    Attributes
    ----------
    distances_ : ndarray of shape (n,), float64
        Least sum of weights on a path to each vertex; infinite if no path exists.
    parents_ : ndarray of shape (n,), int64
        Position in `vertices_` of the predecessor on such a path; -1 if none exists.
    vertices_ : ndarray of shape (n,)
        The vertices: ids or names in ascending order, or the nodes of a networkx graph in their order.
    n_iter_ : int
        Number of steps.
    report_ : PlainReport
        Time breakdown of each rank; see docs/dashboard.md.
    resumed_from_ : int or None
        Number of completed steps at which the fit resumed, after a worker failure or from `checkpoint`; None if it did
        not resume.

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

    vertices_: NDArray[Any]
    distances_: NDArray[np.float64]
    parents_: NDArray[np.int64]
    n_iter_: int
    report_: PlainReport
    resumed_from_: int | None

    def __init__(
        self,
        source: Any,
        *,
        delta: float | None = None,
        **common: Unpack[FitParameters],
    ) -> None:
        super().__init__(**common)
        self.source = source
        self.delta = delta

    @reported
    def fit(
        self, graph: Any, y: object = None, *, comm: Communicator | None = None, rows: Rows | None = None
    ) -> ShortestPaths:
        """Find the shortest paths.

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
        ShortestPaths
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
        if self.delta is not None and (not isinstance(self.delta, Real) or not 0 < self.delta < np.inf):
            raise InputError(f"delta={self.delta!r}: expected a finite number > 0, or None")
        graph = graph_for_fit(graph, comm=comm, rows=rows)
        source, delta = vertex_id("source", self.source, graph), None if self.delta is None else float(self.delta)
        parts = self._run(program.fit, graph, source, delta, self._checkpoint_options(), comm=comm)
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        self.vertices_ = vertices.names
        self.distances_ = vertices.put([part.distances for part in parts])
        parents = vertices.put([part.parents for part in parts])
        ids = vertices.put([part.ids for part in parts])
        self.parents_ = np.where(parents == program.NO_PARENT, parents, positions_of(parents, ids))
        self.n_iter_, self.resumed_from_ = parts[0].step_count, parts[0].resumed_from
        return self
