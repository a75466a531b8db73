"""Provide `PartitionedGraph`: a graph on the ranks of a communicator, with messages and repartitioning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ripieno.errors import InputError
from ripieno.graph.block import Block
from ripieno.graph.columns import Columns
from ripieno.graph.edge_messages import Along, EdgeMessages
from ripieno.graph.edges import Edges, Redistribution
from ripieno.graph.layout import End, VertexLayout
from ripieno.graph.messages import Messages, checked_mask, checked_rows
from ripieno.graph.owners import VertexPartitioner, renamed
from ripieno.graph.superstep import Supersteps, run
from ripieno.graph.vertex_messages import deliver
from ripieno.keyed.combiners import CONCAT, Combine, Combiner, combiner_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


class PartitionedGraph(VertexLayout):
    """A graph with vertices that the ranks of `comm` own. `Graph.from_edges` and `Graph.partition` create it.

    Every rank calls each method, with the arguments of its own vertices and with equal options. In addition to the
    attributes of `VertexLayout`, which describe the vertices and edges of this rank, it has:

    Attributes
    ----------
    values : Columns
        Named arrays with a row per vertex of this rank: ``graph.values["rank"] = np.ones(len(graph.vertices))``.
    labels : (n,) array, or None
        The names or networkx nodes of these vertices.
    """

    def __init__(
        self,
        comm: Communicator,
        edges: Edges,
        *,
        partitioner: VertexPartitioner,
        by: End,
        once: bool,
        labels: NDArray[Any] | None = None,
    ) -> None:
        super().__init__(comm, edges, partitioner=partitioner, by=by, once=once)
        self.values = Columns(len(self.vertices))
        self._all_labels = labels
        self.labels = None if labels is None else labels[self.vertices]
        self._known_edge_messages: EdgeMessages | None = None
        self._known_with_targets: PartitionedGraph | None = None

    def __repr__(self) -> str:
        return (
            f"<PartitionedGraph of {self.vertex_count} vertices and {self.edge_count} edges, here "
            f"{len(self.vertices)} and {self.matrix[2].entry_count} by {self.by}>"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "its vertices and edges lie on all ranks already: send its values, the result of its allgather, or the "
            "rp.Graph that it was made from, which each rank can partition again"
        )

    # Messages

    def send_messages(
        self, targets: Any, values: Any, combine: Combine = "sum", *, missing: Literal["error", "drop"] = "error"
    ) -> Messages:
        """Send messages to any vertices. Messages for one vertex are combined on the sender, and again at its owner.

        Parameters
        ----------
        targets : (m,) integers
            The target vertex of each message.
        values : (m,) or (m, width) array
            The messages. dtype and width are the same on every rank, also on a rank without messages.
        combine : {"sum", "prod", "mul", "min", "max", "and", "or", "xor", "concat"} or callable
            How to combine two messages for a vertex; "concat" keeps all. A callable takes two blocks of rows and
            returns one, as NumPy's ufuncs do. Sums of float32 and shorter floats are computed in float64 and rounded
            once.
        missing : {"error", "drop"}
            Whether messages to unknown vertices raise an error or are dropped.

        Returns
        -------
        Messages
            The messages for the vertices that this rank owns, in the order of the vertices.

        Raises
        ------
        InputError
            Targets or values are wrong; then nothing has been sent. Or there are messages to unknown vertices; then
            every rank raises.
        """
        return deliver(self, targets, values, combiner_of(combine), missing)

    def send_along_edges(
        self, values: Any, combine: Combine = "sum", *, along: Along | None = None, where: Any = None
    ) -> Messages:
        """Send a value of each vertex along its out-edges.

        The first call configures the communication pattern, and later calls reuse it. Messages of one rank's edges to
        one vertex are combined before they are sent.

        Parameters
        ----------
        values : (n,) or (n, width) array
            A row for each vertex that this rank owns; dtype and width are the same on every rank.
        combine : {"sum", "prod", "mul", "min", "max", "and", "or", "xor", "concat"} or callable
            As for `send_messages`. Sums across ranks are added in the dtype of `values`. "concat" keeps the messages in
            source order. For it the first call copies edges that lie with their sources to their targets, and keeps
            both.
        along : callable, optional
            Computes an edge's message from its source's value. It receives the values of the edges' sources, (m, …),
            and the weights of these edges, (m, 1, …), ones without weights, and returns (m, …). Without it values are
            sent unchanged.
        where : (n,) bool, optional
            The vertices that send; all by default. Either every rank passes it or none.

        Returns
        -------
        Messages
            The messages for the vertices that this rank owns, in the order of the vertices.

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
        """Run `send_along_edges`. If `few` edges of all ranks carry messages, send them as messages to vertices."""
        if combiner.name == CONCAT:
            return self._with_targets._edge_messages.listed(values, along, where)
        if combiner.function is not None or (few and self.by == "source"):
            return deliver(self, *self._edge_messages.per_edge(values, along, where), combiner, "error")
        return self._edge_messages.combined(values, combiner, along, where)

    # These properties communicate. The lock of a `cached_property` would deadlock ranks that share a process.

    @property
    def _edge_messages(self) -> EdgeMessages:
        if self._known_edge_messages is None:
            self._known_edge_messages = EdgeMessages(self)
        return self._known_edge_messages

    @property
    def _with_targets(self) -> PartitionedGraph:
        if self.by == "target":
            return self
        if self._known_with_targets is None:
            self._known_with_targets = self.regroup(by="target")
        return self._known_with_targets

    # Moving edges and vertices

    def send_edges(self, edges: Edges | None = None, *, by: End = "target") -> Edges:
        """Send edges to the owner of one of their ends.

        Parameters
        ----------
        edges : Edges, optional
            Any edges, with weights on every rank or on none; by default the edges on this rank.
        by : {"source", "target"}
            The end that determines the destination.

        Returns
        -------
        Edges
            The received edges, sorted by that end, then by the other.

        Raises
        ------
        InputError
            `by` is invalid; nothing has been sent.
        """
        if by not in ("source", "target"):
            raise InputError(f"by={by!r}: expected 'source' or 'target'")
        edges = self._some_edges() if edges is None else edges
        self.comm._allgather_values(f"send_edges, by={by}")
        return edges.sent(self.comm, self._owners(edges.targets if by == "target" else edges.sources)).sorted(by)

    def regroup(
        self,
        *,
        partitioner: VertexPartitioner | None = None,
        by: End | None = None,
        home: VertexPartitioner | None = None,
    ) -> PartitionedGraph:
        """Return the same graph with other owners of its vertices, or with its edges at their other end.

        Values of vertices and edges move to the new owners.

        Parameters
        ----------
        partitioner : {"hash", "blocks"} or callable, optional
            As for `Graph.from_edges`; unchanged by default.
        by : {"source", "target"}, optional
            The end that determines the location of edges; unchanged by default.
        home
            Deprecated name of `partitioner`.

        Returns
        -------
        PartitionedGraph
        """
        edges = replace(self._some_edges(), lone=self.vertices)
        partitioner = renamed(partitioner, home) or self._owners.partitioner
        by = by or self.by
        moved = PartitionedGraph(self.comm, edges, partitioner=partitioner, by=by, once=False, labels=self._all_labels)
        send = Redistribution(self.comm, moved.owner_of(self.vertices))
        order = np.argsort(send(self.vertices))
        for name, rows in self.values.items():
            moved.values[name] = send(rows)[order]
        return moved

    def allgather(self, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return all vertices, ascending, and their rows of a column of values, on every rank."""
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
        """Run supersteps until every vertex has halted and no message is in flight.

        In each superstep every rank calls ``fn(block)`` once, with the columns of its active vertices. In the first
        superstep all vertices are active; later a vertex is active if it has not halted or has received a message.
        Through the `Block`, `fn` works on whole columns: it reads and writes values, sends messages, which arrive in
        the next superstep, contributes to aggregators and votes to halt. Ranks without an active vertex call `fn`, too.

        Parameters
        ----------
        fn : callable
        combine : {"sum", "prod", "mul", "min", "max", "and", "or", "xor", "concat"} or callable
            How to combine messages for one vertex, as for `send_messages`.
        message : dtype
            Dtype of a message. For messages of several numbers, with a shape: ``"3f8"`` or ``(np.float64, (3,))``.
        along : callable, optional
            Computes the message of an edge, as for `send_along_edges`.
        aggregators : dict of str to op, or to (op, zero), optional
            Names for `Block.aggregate`, with op one of sum, prod, min, max, and, or, xor. ``zero`` is a number or array
            with the dtype and shape of a contribution; the default is float64, or bool for and, or, xor.
        max_supersteps : int, optional
            Maximum number of supersteps, even if vertices have not halted; see `Supersteps.halted`. By default there is
            no limit.
        missing : {"error", "drop"}
            Whether messages to unknown vertices raise an error or are dropped.

        Returns
        -------
        Supersteps
            The number of supersteps, whether all vertices halted, the last aggregates, and times. Results are in the
            graph's `values`.

        Raises
        ------
        InputError
            An argument is wrong, or `fn` passes wrong values to its block.
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
