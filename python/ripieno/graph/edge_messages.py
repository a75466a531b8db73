"""Send messages along all edges, over a communication pattern that ranks configure once.

Edges that lie with their sources combine messages before sending (one row per rank and target). Edges that lie with
their targets fetch the values of their sources (one row per rank and source). Both use one sparse reduction. Ranks send
its indices once, at configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripieno.errors import InputError
from ripieno.graph.messages import Messages, blank
from ripieno.keyed.combiners import Combiner, combiner_of
from ripieno.wire.arrays import accumulator

if TYPE_CHECKING:
    from ripieno.graph.partitioned import PartitionedGraph

#: Computes an edge's message from the value of its source and its own weight: (m, …) and (m, 1, …) in, (m, …) out.
Along = Callable[[NDArray[Any], NDArray[np.float64]], Any]

# Operations and dtypes of the native module's product.
_INTEGERS = {np.dtype(code) for code in ("i4", "i8", "u8")}
_NUMBERS = _INTEGERS | {np.dtype[Any](code) for code in ("f4", "f8")}
_PRODUCT_TYPES: dict[str, Collection[np.dtype[Any]]] = {
    "sum": _NUMBERS,
    "min": _NUMBERS,
    "max": _NUMBERS,
    "or": _INTEGERS,
}

# Reduces whether any message arrives.
_ANY = combiner_of("or")


class EdgeMessages:
    """The configured pattern along the edges of a graph. Every rank creates one.

    Parameters
    ----------
    graph : PartitionedGraph
    """

    def __init__(self, graph: PartitionedGraph) -> None:
        self._graph = graph
        self._rows, self._columns, self._matrix = graph.matrix
        size = graph.largest + 1
        self._at_source = graph.by == "source"
        if self._at_source:
            self._places = np.searchsorted(graph.vertices, self._columns)
            self._reached = np.flatnonzero(graph.in_degrees)
            self._reduction = graph.comm.sparse(self._rows, graph.vertices[self._reached], size=size)
        else:
            self._places = np.searchsorted(graph.vertices, self._rows)
            self._sending = np.flatnonzero(graph.out_degrees)
            self._reduction = graph.comm.sparse(graph.vertices[self._sending], self._columns, size=size)

    def combined(
        self, values: NDArray[Any], combiner: Combiner, along: Along | None, where: NDArray[np.bool_] | None
    ) -> Messages:
        """Send `values` of the vertices in `where` along their edges, and combine the messages at each target."""
        x, sends = self._at_columns(values, where)
        rows = self._row_values(x, sends, combiner, along)
        result = blank((len(self._graph.vertices), *rows.shape[1:]), rows.dtype, combiner)
        self._to_owners(result, rows, combiner.name)
        if sends is None:
            return Messages(self._graph.in_degrees > 0, result)
        # int32, because products support it.
        any_sends = self._row_values(sends.astype(np.int32), None, _ANY, None)
        received = np.zeros(len(result), np.bool_)
        self._to_owners(received, any_sends.astype(np.bool_), _ANY.name)
        return Messages(received, result)

    def per_edge(
        self, values: NDArray[Any], along: Along | None, where: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the target and message of each edge of this rank with a source that is in `where`."""
        x, sends = self._at_columns(values, where)
        offsets = self._entries[0]
        if sends is None:
            return np.repeat(self._rows, np.diff(offsets)), self._messages(x, along)
        entries = self._entries_of(np.flatnonzero(sends))
        return self._rows[np.searchsorted(offsets, entries, "right") - 1], self._messages(x, along, entries)

    def listed(self, values: NDArray[Any], along: Along | None, where: NDArray[np.bool_] | None) -> Messages:
        """Return all messages of each vertex, by source, for edges that lie with their targets."""
        x, sends = self._at_columns(values, where)
        messages = self._messages(x, along)
        order, places = self._by_target
        if sends is not None:
            sent = sends[self._entries[1][order]]
            order, places = order[sent], places[sent]
        return Messages.grouped(places, messages[order], len(self._graph.vertices))

    def _at_columns(
        self, values: NDArray[Any], where: NDArray[np.bool_] | None
    ) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """Return the source values of this rank's edges, in column order, and a mask of the columns that send."""
        if self._at_source:
            return values[self._places], None if where is None else where[self._places]
        # Each row has one contributor, its owner, so the operation does not matter.
        fetched = self._reduction.reduce(values[self._sending], "max")
        return fetched, None if where is None else self._reduction.reduce(where[self._sending], "or")

    def _row_values(
        self, x: NDArray[Any], sends: NDArray[np.bool_] | None, combiner: Combiner, along: Along | None
    ) -> NDArray[Any]:
        """Combine the messages of this rank's edges per row, from the columns that send."""
        if self._is_product(x.dtype, combiner.name, along):
            if sends is not None:
                x = np.where(sends.reshape(-1, *(1,) * (x.ndim - 1)), x, blank((), x.dtype, combiner))
            out = np.empty((len(self._rows), *x.shape[1:]), x.dtype)
            self._matrix.product(np.ascontiguousarray(x), out, combiner.name, self._graph.comm.threads)
            return out
        messages = self._messages(x, along)
        offsets, sources, _ = self._entries
        if sends is not None:
            messages[~sends[sources]] = blank((), messages.dtype, combiner)
        combined = combiner.ufunc.reduceat(
            messages, offsets[:-1], axis=0, dtype=accumulator(messages.dtype, combiner.name)
        )
        return np.asarray(combined.astype(messages.dtype, copy=False))

    def _is_product(self, dtype: np.dtype[Any], op: str, along: Along | None) -> bool:
        """Whether the native module can compute these messages. Its sums use the weights, if there are any."""
        if dtype not in _PRODUCT_TYPES.get(op, ()):
            return False
        takes_weights = op == "sum" and self._graph.weighted
        return not takes_weights if along is None else along is np.multiply and op == "sum" and dtype == np.float64

    def _messages(
        self, x: NDArray[Any], along: Along | None, entries: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[Any]:
        """Return the messages of all or some edges of this rank, in entry order."""
        _, sources, weights = self._entries
        messages = x[sources[entries]]
        if along is None:
            return messages
        computed = np.array(along(messages, weights[entries].reshape(-1, *(1,) * (x.ndim - 1))))
        if computed.ndim == 0 or len(computed) != len(messages):
            raise InputError(
                f"along returned an array of shape {computed.shape}, expected {len(messages)} rows, one per edge"
            )
        return computed

    def _entries_of(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entries of some columns, at a cost proportional to their number."""
        order, begins = self._by_source
        lengths = begins[columns + 1] - begins[columns]
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        entries: NDArray[np.int64] = order[np.arange(total) + np.repeat(begins[columns] - ends + lengths, lengths)]
        return entries

    @cached_property
    def _entries(self) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float64]]:
        """The first edge of each row, the column of each edge, and its weight."""
        offsets, sources, weights = self._matrix.entries()
        return offsets.astype(np.int64), sources, np.ones(len(sources)) if weights is None else weights

    @cached_property
    def _by_source(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The entries by column, and the first entry of each column."""
        columns = self._numbered(self._entries[1]).tocsc()
        return columns.data, columns.indptr.astype(np.int64)

    @cached_property
    def _by_target(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The entries by target, then by source, and the index of each target."""
        offsets, sources, _ = self._entries
        ranks = np.searchsorted(np.sort(self._columns), self._columns)
        rows = np.argsort(self._places)
        order = self._numbered(ranks[sources]).tocsc().tocsr()[rows].data
        return order, np.repeat(self._places[rows], np.diff(offsets)[rows])

    def _numbered(self, columns: NDArray[Any]) -> csr_array:
        """Return a matrix of entry numbers in these columns. SciPy transposes it with a counting sort."""
        offsets = self._entries[0]
        return csr_array((np.arange(len(columns)), columns, offsets), shape=(len(self._rows), len(self._columns)))

    def _to_owners(self, result: NDArray[Any], rows: NDArray[Any], op: Any) -> None:
        """Send the results of all ranks' rows to the owners of their vertices."""
        if self._at_source:
            result[self._reached] = self._reduction.reduce(rows, op)
        else:
            result[self._places] = rows
