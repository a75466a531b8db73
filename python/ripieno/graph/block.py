"""Provide `Block`: the active vertices of a rank in a superstep, with the calls that a vertex function can make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.graph.aggregators import Aggregators
from ripieno.graph.columns import SomeRows, of_type
from ripieno.graph.messages import Messages, checked_mask
from ripieno.graph.vertex_messages import vertex_ids

if TYPE_CHECKING:
    from ripieno.graph.partitioned import PartitionedGraph


class Block:
    """The k active vertices of a rank in a superstep, as columns.

    Attributes
    ----------
    number : int
        Number of the superstep, from 0.
    vertices : (k,) int64
        Their ids, ascending.
    places : (k,) int64
        Their indices in the graph's `vertices`.
    values
        Their rows of the graph's columns. ``block.values["rank"]`` is a copy; assignment overwrites the rows.
    received : (k,) bool
        Whether each vertex received a message.
    messages : (k, …)
        The combined messages of each vertex. A vertex without messages has the identity of the operation: 0 for a sum,
        the largest number for a minimum. With combine="concat": all messages, grouped by vertex.
    offsets : (k + 1,) int64, or None
        With combine="concat": the start of each vertex's messages.
    aggregates : dict of str to number or array
        The combined contributions of all ranks in the previous superstep.
    """

    def __repr__(self) -> str:
        return f"<Block of superstep {self.number}: {len(self.vertices)} active vertices>"

    def __init__(
        self,
        graph: PartitionedGraph,
        number: int,
        places: NDArray[np.int64],
        messages: Messages,
        form: np.dtype[Any],
        aggregators: Aggregators,
    ) -> None:
        messages = messages.of(places)
        self._graph, self._form, self._aggregators = graph, form, aggregators
        self.number, self.places, self.vertices = number, places, graph.vertices[places]
        self.values = SomeRows(graph.values, places)
        self.received, self.messages, self.offsets = messages.received, messages.values, messages.offsets
        self.aggregates = aggregators.results
        self.halting = np.zeros(len(places), np.bool_)
        # Outgoing messages: a row and a send flag for each vertex that this rank owns; pairs of targets and rows.
        self.along: tuple[NDArray[Any], NDArray[np.bool_]] | None = None
        self.targeted: list[tuple[NDArray[np.int64], NDArray[Any]]] = []

    def __len__(self) -> int:
        return len(self.places)

    def halt(self, where: Any = True) -> None:
        """Deactivate all vertices, or those selected by the mask `where`, (k,), until they receive a message."""
        self.halting = self._mask(where, "halt")

    def send_along_edges(self, values: Any, where: Any = True) -> None:
        """Send a row per vertex, (k, …), or one number, along the out-edges of all vertices, or of the ones in `where`.

        Call it at most once per superstep.
        """
        if self.along is not None:
            raise InputError(f"send_along_edges: twice in superstep {self.number}, expected once, with where=")
        mask = np.zeros(len(self._graph.vertices), np.bool_)
        mask[self.places] = self._mask(where, "send_along_edges")
        rows = np.zeros((len(mask), *self._form.shape), self._form.base)
        rows[self.places] = self._rows(values, len(self), "send_along_edges")
        self.along = rows, mask

    def send_messages(self, targets: Any, values: Any) -> None:
        """Send messages, (m, …) or one number, to any vertices `targets`, (m,)."""
        targets = vertex_ids(targets)
        self.targeted.append((targets, self._rows(values, len(targets), "send_messages")))

    def aggregate(self, name: str, contributions: Any) -> None:
        """Contribute to an aggregator: one value in the form of its `zero`, or any number of rows of this form."""
        self._aggregators.add(name, contributions)

    def _mask(self, where: Any, name: str) -> NDArray[np.bool_]:
        return np.full(len(self), where) if isinstance(where, bool) else checked_mask(where, len(self), name)

    def _rows(self, values: Any, row_count: int, name: str) -> NDArray[Any]:
        rows, shape = of_type(values, self._form.base, f"{name}: messages"), (row_count, *self._form.shape)
        if rows.ndim and rows.shape != shape:
            raise InputError(f"{name}: messages of shape {rows.shape}, expected {shape}")
        return np.broadcast_to(rows, shape).astype(self._form.base)
