"""A graph that lives on the ranks of a communicator: messages between its vertices, moves of what lies where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ripieno.errors import InputError
from ripieno.graph.block import Block
from ripieno.graph.columns import Columns
from ripieno.graph.edge_messages import Along, EdgeMessages
from ripieno.graph.edges import Dealer, Edges
from ripieno.graph.homes import Home
from ripieno.graph.layout import End, VertexLayout
from ripieno.graph.messages import Messages, checked_mask, checked_rows
from ripieno.graph.superstep import Supersteps, run
from ripieno.graph.vertex_messages import deliver
from ripieno.keyed.combiners import CONCAT, Combine, Combiner, combiner_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


class PartitionedGraph(VertexLayout):
    """A graph whose vertices have homes on the ranks of `comm`; `Graph.from_edges` and `Graph.partition` make one.

    Every rank calls each method, with the arguments of its own vertices and with equal options. Attributes are those of
    `VertexLayout`, which describes the vertices and edges of this rank, and

    Attributes
    ----------
    values : Columns
        Named arrays, a row per vertex at home here: ``graph.values["rank"] = np.ones(len(graph.vertices))``.
    labels : (n,) array, or None
        The nodes of the networkx graph that these vertices are.
    """

    def __init__(
        self, comm: Communicator, edges: Edges, *, home: Home, by: End, once: bool, labels: NDArray[Any] | None = None
    ) -> None:
        super().__init__(comm, edges, home=home, by=by, once=once)
        self.values = Columns(len(self.vertices))
        self._all_labels = labels
        self.labels = None if labels is None else labels[self.vertices]
        self._known_way: EdgeMessages | None = None
        self._known_with_targets: PartitionedGraph | None = None

    def __repr__(self) -> str:
        return (
            f"<PartitionedGraph of {self.vertex_count} vertices and {self.edge_count} edges, here "
            f"{len(self.vertices)} and {self.matrix[2].entry_count} by {self.by}>"
        )

    # Messages

    def send_messages(
        self, targets: Any, values: Any, combine: Combine = "sum", *, missing: Literal["error", "drop"] = "error"
    ) -> Messages:
        """Send messages to any vertices; those for one vertex are combined, here first and at its home again.

        Parameters
        ----------
        targets : (m,) integers
            The vertex that each message is for.
        values : (m,) or (m, width) array
            The messages. dtype and width are the same on every rank, also where a rank has none.
        combine : {"sum", "prod", "mul", "min", "max", "and", "or", "xor", "concat"} or callable
            How two messages for a vertex become one; "concat": they stay apart. A callable is called with two blocks
            of rows and gives one, as NumPy's ufuncs do. Sums of float32 and shorter floats are computed in float64 and
            rounded once.
        missing : {"error", "drop"}
            Whether messages for vertices that the graph does not have are an error, or dropped.

        Returns
        -------
        Messages
            The messages for the vertices at home here, in the order of the vertices.

        Raises
        ------
        InputError
            Targets or values are wrong, and nothing has been sent; or, on every rank, there are messages for vertices
            that the graph does not have.
        """
        return deliver(self, targets, values, combiner_of(combine), missing)

    def send_along_edges(
        self, values: Any, combine: Combine = "sum", *, along: Along | None = None, where: Any = None
    ) -> Messages:
        """Send a value of each vertex along the edges out of it.

        The first call configures the way, and all others use it again. Messages of one rank's edges to one vertex are
        combined before they leave.

        Parameters
        ----------
        values : (n,) or (n, width) array
            A row for each vertex at home here; dtype and width are the same on every rank.
        combine : {"sum", "prod", "mul", "min", "max", "and", "or", "xor", "concat"} or callable
            As for `send_messages`; sums of different ranks' edges are added in the dtype of `values`. "concat" keeps
            the messages in the order of their sources. For it the first call brings edges that lie with their sources
            to their targets, where they are kept, too.
        along : callable, optional
            Makes an edge's message of its source's value. It is called with the values of the sources of edges, (m, …),
            and the weights of these edges, (m, 1, …), ones without weights, and gives (m, …). Without it values arrive
            as they are.
        where : (n,) bool, optional
            Which vertices send; all by default. Either no rank names it, or every one.

        Returns
        -------
        Messages
            The messages for the vertices at home here, in the order of the vertices.

        Raises
        ------
        InputError
            An argument is wrong; nothing has been sent.
        """
        combiner = combiner_of(combine)
        values = checked_rows(values, len(self.vertices), combiner, "send_along_edges")
        if where is not None:
            where = checked_mask(where, len(self.vertices), "send_along_edges")
        return self._along_edges(values, combiner, along, where)

    def _along_edges(
        self,
        values: NDArray[Any],
        combiner: Combiner,
        along: Along | None,
        where: NDArray[np.bool_] | None,
        *,
        few: bool = False,
    ) -> Messages:
        """As `send_along_edges`; with `few` edges of all ranks their messages travel as those to named vertices."""
        if combiner.name == CONCAT:
            return self._with_targets._way.listed(values, along, where)
        if combiner.function is not None or (few and self.by == "source"):
            return deliver(self, *self._way.per_edge(values, along, where), combiner, "error")
        return self._way.combined(values, combiner, along, where)

    # Ranks talk to each other in these. The lock of a `cached_property` would make ranks of one process wait for
    # each other for ever.

    @property
    def _way(self) -> EdgeMessages:
        if self._known_way is None:
            self._known_way = EdgeMessages(self)
        return self._known_way

    @property
    def _with_targets(self) -> PartitionedGraph:
        if self.by == "target":
            return self
        if self._known_with_targets is None:
            self._known_with_targets = self.regroup(by="target")
        return self._known_with_targets

    # Edges and vertices that move

    def send_edges(self, edges: Edges | None = None, *, by: End = "target") -> Edges:
        """Send edges to the home of one of their ends.

        Parameters
        ----------
        edges : Edges, optional
            Any edges, with weights on every rank or on none; by default those that lie here.
        by : {"source", "target"}
            The end at whose home each arrives.

        Returns
        -------
        Edges
            Those that have come here, by that end, then by the other.

        Raises
        ------
        InputError
            `by` is neither end; nothing has been sent.
        """
        if by not in ("source", "target"):
            raise InputError(f"by={by!r}: expected 'source' or 'target'")
        edges = self._some_edges() if edges is None else edges
        self.comm._said_by_all(f"send_edges, by={by}")
        return edges.sent(self.comm, self._homes(edges.targets if by == "target" else edges.sources)).sorted(by)

    def regroup(self, *, home: Home | None = None, by: End | None = None) -> PartitionedGraph:
        """The same graph with other homes of its vertices, or with its edges at their other end; values move along.

        Parameters
        ----------
        home : {"hash", "blocks"} or callable, optional
            As for `Graph.from_edges`; by default as it is.
        by : {"source", "target"}, optional
            The end at whose home edges lie; by default as it is.

        Returns
        -------
        PartitionedGraph
        """
        edges = replace(self._some_edges(), lone=self.vertices)
        home, by = home or self._homes.home, by or self.by
        moved = PartitionedGraph(self.comm, edges, home=home, by=by, once=False, labels=self._all_labels)
        send = Dealer(self.comm, moved.home_of(self.vertices))
        order = np.argsort(send(self.vertices))
        for name, rows in self.values.items():
            moved.values[name] = send(rows)[order]
        return moved

    def allgather(self, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """All vertices, ascending, and their rows of a column of values, on every rank."""
        counts = self.comm.allgather(len(self.vertices))
        ids, rows = (self.comm.allgather(each, counts=counts) for each in (self.vertices, self.values[name]))
        order = np.argsort(ids)
        return ids[order], rows[order]

    # Supersteps

    def superstep(
        self,
        fn: Callable[[Block], None],
        *,
        combine: Combine = "sum",
        message: DTypeLike = np.float64,
        along: Along | None = None,
        aggregators: Mapping[str, Any] | None = None,
        max_supersteps: int | None = None,
        missing: Literal["error", "drop"] = "error",
    ) -> Supersteps:
        """Run supersteps until every vertex has halted and no message is under way.

        In each superstep every rank calls ``fn(block)`` once, with the columns of its active vertices. In the first
        superstep all vertices are active, later those that have not halted or got a message. Through the `Block`, `fn`
        reads and writes values, sends messages, which arrive in the next superstep, contributes to aggregators and
        votes to halt, for whole columns. It is also called on ranks without an active vertex.

        Parameters
        ----------
        fn : callable
        combine : {"sum", "prod", "mul", "min", "max", "and", "or", "xor", "concat"} or callable
            How messages for one vertex become one, as for `send_messages`.
        message : dtype
            Type of a message; with a shape, ``"3f8"`` or ``(np.float64, (3,))``, if a message is several numbers.
        along : callable, optional
            Changes a message that is sent along an edge, as for `send_along_edges`.
        aggregators : dict of str to op, or to (op, zero), optional
            The names that `Block.aggregate` contributes to, with op one of sum, prod, min, max, and, or, xor. ``zero``
            is a number or array whose dtype and shape a contribution has; by default float64, or bool with and, or,
            xor.
        max_supersteps : int, optional
            Stop after this number, whether or not vertices have halted; `Supersteps.halted` says which. By default
            there is no limit.
        missing : {"error", "drop"}
            Whether messages for vertices that the graph does not have are an error, or dropped.

        Returns
        -------
        Supersteps
            Their number, whether all halted, the last aggregates, and the times of each. Results are in the graph's
            `values`.

        Raises
        ------
        InputError
            An argument is wrong, or `fn` gives wrong values to its block.
        RankFailed
            `fn` raised on another rank.

        References
        ----------
        Malewicz et al., "Pregel: a system for large-scale graph processing", SIGMOD 2010, sections 2 and 3.
        """
        return run(
            self,
            fn,
            combiner=combiner_of(combine),
            message=np.dtype(message),
            along=along,
            aggregators=aggregators or {},
            max_supersteps=max_supersteps,
            missing=missing,
        )
