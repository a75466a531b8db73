"""Connected components as an estimator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.own_rows import graph_for_fit
from ripieno.algorithms.reported import PlainReport, reported
from ripieno.algorithms.vertices import components_program as program
from ripieno.algorithms.vertices.order import VertexOrder
from ripieno.algorithms.worker_estimator import IterativeEstimator

if TYPE_CHECKING:
    from ripieno._types import OnFailure, Rows
    from ripieno.comm.communicator import Communicator
    from ripieno.launch import Job
    from ripieno.launch.engine.contract import Engine


class ConnectedComponents(IterativeEstimator):
    """Which vertices are connected, whatever the direction of edges.

    Parameters
    ----------
    workers : int, default=1
        How many ranks do the work; a single local one is the calling process.
    threads : int or None, default=None
        Threads of each worker; by default an even share of the machine's cores, or the cores of an engine's slot.
    engine : str, Engine or Job, default="local"
        Where workers run, as for `ripieno.launch`; or a running job, whose workers then do the work, all of them.
    checkpoint : path, default=None
        A folder that rank 0 sees. The search is kept there while it runs, once a second at most, and goes on from there
        if it is made of the same graph again, with any number of workers.
    every : int or None, default=None
        The fit is kept after every so many rounds, in the folder and, of `on_failure`, in memory; each time costs a
        write to the disk. None: in the folder once a second at most, in memory after each.
    on_failure : {"raise", "shrink", "respawn"}, default="raise"
        What becomes of a fit whose workers die or fall silent, as for `ripieno.launch`: it fails, or begins again with
        those that are left, or with as many as before; and goes on from what it has kept. A running job has its own.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Of each vertex the first vertex, in the order of `vertices_`, of its component.
    vertices_ : ndarray of shape (n,)
        Which vertices these are: ids ascending, or the nodes of a networkx graph in their order.
    n_components_ : int
        How many components there are.
    sizes_ : ndarray of shape (n_components_,), int64
        Vertices of each, largest first.
    n_iter_ : int
        Rounds in which workers told each other of neighbours.
    report_ : PlainReport
        Where the time of each rank went; see docs/dashboard.md.
    resumed_from_ : int or None
        After how many rounds the fit went on when workers had died, of `on_failure`, or from `checkpoint`.

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
    n_iter_: int
    report_: PlainReport
    resumed_from_: int | None

    def __init__(
        self,
        *,
        workers: int = 1,
        threads: int | None = None,
        engine: str | Engine | Job = "local",
        checkpoint: str | os.PathLike[str] | None = None,
        every: int | None = None,
        on_failure: OnFailure = "raise",
    ) -> None:
        super().__init__(
            checkpoint=checkpoint,
            every=every,
            workers=workers,
            threads=threads,
            engine=engine,
            on_failure=on_failure,
        )

    @reported
    def fit(
        self, graph: Any, y: object = None, *, comm: Communicator | None = None, rows: Rows | None = None
    ) -> ConnectedComponents:
        """Find the components.

        Parameters
        ----------
        graph : Graph, or whatever a `Graph` can be made of
        y : ignored
        comm : Communicator, optional
            Ranks that all make this call, instead of workers that are started for it; all get the result.
        rows : {"own", "shared"}, optional
            With `comm`: whether each rank passes edges of its own, or all ranks pass the same graph. By default the
            ranks compare what they pass; different graphs are an error. The result is that of all vertices.

        Returns
        -------
        ConnectedComponents
            The estimator itself.

        Raises
        ------
        InputError
            Bad input or a bad parameter. It is a ValueError whose message says what is wrong.
        CollectiveMismatch
            The ranks of `comm` make different calls, have different parameters, or pass different rows without `rows`.
        RankFailed
            A worker died.
        """
        graph = graph_for_fit(graph, comm=comm, rows=rows)
        parts = self._run(program.fit, graph, self._keeping(), comm=comm)
        vertices = VertexOrder.of([part.ids for part in parts], graph)
        labels = vertices.put([part.labels for part in parts])
        self.vertices_ = vertices.names
        self.labels_ = labels if graph.labels is None else graph.labels[labels]
        self.sizes_ = np.sort(np.unique(labels, return_counts=True)[1])[::-1]
        self.n_components_ = len(self.sizes_)
        self.n_iter_, self.resumed_from_ = parts[0].round_count, parts[0].resumed_from
        return self
