"""Run supersteps: vertices compute on received messages, send new ones, and halt until the next message.

Every rank calls one function per superstep with the columns of its active vertices. Messages are sent after the
function has returned. One allreduce (plus one per other type or operation of aggregators) determines whether any vertex
is active or any message is in flight.

Source: Malewicz et al., "Pregel: a system for large-scale graph processing", SIGMOD 2010, sections 2 and 3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.graph.aggregators import Aggregators
from ripieno.graph.block import Block
from ripieno.graph.edge_messages import Along
from ripieno.graph.messages import Messages
from ripieno.graph.vertex_messages import check_missing, deliver
from ripieno.keyed.combiners import Combiner
from ripieno.wire.arrays import is_native

if TYPE_CHECKING:
    from ripieno.graph.partitioned import PartitionedGraph

#: If fewer than one edge in this many carries a message, only the edges with messages are processed.
SPARSE_RATIO = 32


@dataclass(frozen=True)
class Superstep:
    """Statistics of one superstep.

    Parameters
    ----------
    active, messages : int
        Active vertices, and the messages that they sent, counted per edge.
    compute_s, exchange_s : float
        Seconds of this rank in the function, and in agreement and communication.
    """

    active: int
    messages: int
    compute_s: float
    exchange_s: float


@dataclass(frozen=True)
class Supersteps:
    """Result of a loop of supersteps.

    Parameters
    ----------
    halted : bool
        Whether all vertices had halted and no message was in flight. Otherwise max_supersteps was reached.
    aggregates : dict of str to number or array
        The combined contributions of the last superstep.
    steps : list of Superstep
    """

    halted: bool
    aggregates: dict[str, Any]
    steps: list[Superstep] = field(repr=False)

    def __len__(self) -> int:
        return len(self.steps)


def run(
    graph: PartitionedGraph,
    fn: Callable[[Block], object],
    *,
    combiner: Combiner,
    message: np.dtype[Any],
    along: Along | None,
    aggregators: Mapping[str, Any],
    max_supersteps: int | None,
    missing: str,
) -> Supersteps:
    """Run the loop of `PartitionedGraph.superstep`, which documents the parameters."""
    check_missing(missing)
    if max_supersteps is not None and (not isinstance(max_supersteps, Integral) or max_supersteps < 0):
        raise InputError(f"max_supersteps={max_supersteps!r}: expected None or a whole number >= 0")
    if len(message.shape) > 1 or not (is_native(message.base) or message.base == np.bool_):
        raise InputError(f"message={message}: expected a type that comm.allreduce takes, alone or (width,) of it")
    totals = Aggregators(aggregators)
    graph.comm._allgather_values(
        f"superstep, combine={combiner.text}, message={message}, aggregators={totals}, max_supersteps={max_supersteps}"
        f", missing={missing}"
    )
    delivery = MessageDelivery(graph, combiner, message, along, missing)
    halted = np.zeros(len(graph.vertices), np.bool_)
    messages, steps = delivery.no_messages(), []
    for number in count():
        if number == max_supersteps:
            return Supersteps(False, totals.results, steps)
        started = time.perf_counter()
        halted &= ~messages.received
        block = Block(graph, number, np.flatnonzero(~halted), messages, message, totals)
        returned = fn(block)
        if returned is not None:
            raise InputError(f"superstep {number}: the function returned {type(returned).__name__}, expected nothing")
        halted[block.places[block.halting]] = True
        computed = time.perf_counter()
        active_count, active, *sent = totals.finish(
            graph.comm, [int(np.count_nonzero(~halted)), len(block), *delivery.sent_counts(block)]
        )
        messages = delivery.deliver(block, *sent)
        message_count = sum(sent[1:])
        steps.append(Superstep(active, message_count, computed - started, time.perf_counter() - computed))
        if not active_count and not message_count:
            return Supersteps(True, totals.results, steps)
    raise AssertionError("supersteps are counted without end")


class MessageDelivery:
    """Delivers the messages of a superstep's blocks to their vertices.

    The parameters are documented at `PartitionedGraph.superstep`.
    """

    def __init__(
        self, graph: PartitionedGraph, combiner: Combiner, message: np.dtype[Any], along: Along | None, missing: str
    ) -> None:
        self._graph, self._combiner, self._form = graph, combiner, message
        self._along, self._missing = along, missing

    def no_messages(self) -> Messages:
        """Return the messages of a superstep without senders."""
        return Messages.none(len(self._graph.vertices), self._form.base, self._form.shape, self._combiner)

    def sent_counts(self, block: Block) -> list[int]:
        """Return the counts of vertices that send along edges, of their edges, and of messages to named vertices."""
        targeted = sum(len(targets) for targets, _ in block.targeted)
        if block.along is None:
            return [0, 0, targeted]
        senders = block.along[1]
        return [int(np.count_nonzero(senders)), int(senders @ self._graph.out_degrees), targeted]

    def deliver(self, block: Block, sender_count: int, edge_count: int, targeted_count: int) -> Messages:
        """Return the messages for the vertices that this rank owns. The counts are totals of all ranks."""
        received = self.no_messages()
        if edge_count:
            received = self._along_edges(*(block.along or self._no_senders()), sender_count, edge_count)
        if targeted_count:
            none = (np.empty(0, np.int64), np.empty((0, *self._form.shape), self._form.base))
            targets, rows = (np.concatenate(each) for each in zip(none, *block.targeted, strict=True))
            others = deliver(self._graph, targets, rows, self._combiner, self._missing)
            received = received.with_others(others, self._combiner) if edge_count else others
        return received

    def _no_senders(self) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the input of a rank without vertices that send along edges."""
        count = len(self._graph.vertices)
        return np.zeros((count, *self._form.shape), self._form.base), np.zeros(count, np.bool_)

    def _along_edges(
        self, rows: NDArray[Any], where: NDArray[np.bool_], sender_count: int, edge_count: int
    ) -> Messages:
        """Return the messages of edges, in the message dtype."""
        mask = None if sender_count == self._graph.vertex_count else where
        few = edge_count * SPARSE_RATIO < self._graph.edge_count
        arrivals = self._graph._along_edges(rows, self._combiner, self._along, mask, few=few)
        values, form = arrivals.values, self._form
        if values.shape[1:] != form.shape or not np.can_cast(values.dtype, form.base, "same_kind"):
            raise InputError(
                f"along returned rows of type {values.dtype} and shape {values.shape[1:]}: expected message={form}"
            )
        return Messages(arrivals.received, values.astype(form.base, copy=False), arrivals.offsets)
