"""Community detection as an estimator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno._checks import check_count
from ripieno.algorithms.own_rows import graph_for_fit
from ripieno.algorithms.reported import PlainReport, reported
from ripieno.algorithms.vertices import communities_program as program
from ripieno.algorithms.vertices.order import VertexOrder
from ripieno.algorithms.worker_estimator import IterativeEstimator

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.algorithms.parameters import FitParameters
    from ripieno.comm.communicator import Communicator


class CommunityDetection(IterativeEstimator):
    """Communities of a graph by label propagation, with a deterministic rule.

    Each vertex begins with a label of its own. In an iteration all vertices take the most frequent label among their
    neighbors, and the first of several. In a directed graph a neighbor counts once for each edge, in either direction.

    Parameters
    ----------
    max_iter : int, default=10
        Maximum number of iterations. Labels may alternate without end.
    **common : FitParameters
        Where the fit runs and is saved: `workers`, `threads`, `engine`, `on_failure`, `checkpoint` and `every`.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Label of each vertex: the vertex that began with it.
    vertices_ : ndarray of shape (n,)
        The vertices: ids or names in ascending order, or the nodes of a networkx graph in their order.
    n_communities_ : int
        Number of different labels.
    sizes_ : ndarray of shape (n_communities_,), int64
        Number of vertices of each label, in descending order.
    n_iter_ : int
        Number of iterations. The fit ends when no label changes, or after `max_iter`.
    report_ : PlainReport
        Time breakdown of each rank; see docs/dashboard.md.
    resumed_from_ : int or None
        Number of completed iterations at which the fit resumed, after a worker failure or from `checkpoint`; None if it
        did not resume.

    Notes
    -----
    Weights are ignored. Parallel edges count once, or each, as `Graph` states for `duplicates`.

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
    n_iter_: int
    report_: PlainReport
    resumed_from_: int | None

    def __init__(
        self,
        *,
        max_iter: int = 10,
        **common: Unpack[FitParameters],
    ) -> None:
        super().__init__(**common)
        self.max_iter = max_iter

    @reported
    def fit(
        self, graph: Any, y: object = None, *, comm: Communicator | None = None, rows: Rows | None = None
    ) -> CommunityDetection:
        """Find the communities.

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
        CommunityDetection
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
        check_count("max_iter", self.max_iter)
        graph = graph_for_fit(graph, comm=comm, rows=rows)
        parts = self._run(program.fit, graph, int(self.max_iter), self._checkpoint_options(), comm=comm)
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        labels = vertices.put([part.labels for part in parts])
        self.vertices_ = vertices.names
        self.labels_ = labels if graph.labels is None else graph.labels[labels]
        self.sizes_ = np.sort(np.unique(labels, return_counts=True)[1])[::-1]
        self.n_communities_ = len(self.sizes_)
        self.n_iter_, self.resumed_from_ = parts[0].iteration_count, parts[0].resumed_from
        return self
