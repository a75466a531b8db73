"""Provide `Messages`: the received messages of a rank's vertices, and their combination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from ripieno.errors import InputError
from ripieno.keyed.combiners import CONCAT, Combiner, combine_blocks
from ripieno.keyed.groups import offsets_of
from ripieno.wire.arrays import identity, reducible, required

#: Integers are counted in an array of their span if it has up to this many entries, or one for each value.
MIN_SPAN = 1 << 16


@dataclass(frozen=True)
class Messages:
    """Messages for the n vertices that a rank owns.

    Parameters
    ----------
    received : (n,) bool
        Whether each vertex received a message.
    values : (n, …)
        The combined messages of each vertex. A vertex without messages has the identity of the operation (0 for a sum,
        the largest number for a minimum), or zeros if a callable combines. With combine="concat", (m, …): all messages,
        grouped by vertex.
    offsets : (n + 1,) int64, or None
        With combine="concat": the start of each vertex's messages, and the end of the last.
    """

    received: NDArray[np.bool_]
    values: NDArray[Any]
    offsets: NDArray[np.int64] | None = None

    @staticmethod
    def none(count: int, dtype: np.dtype[Any], shape: tuple[int, ...], combiner: Combiner) -> Messages:
        """Return no messages for `count` vertices, with rows of this dtype and shape."""
        received = np.zeros(count, np.bool_)
        if combiner.name == CONCAT:
            return Messages(received, np.empty((0, *shape), dtype), np.zeros(count + 1, np.int64))
        return Messages(received, blank((count, *shape), dtype, combiner))

    @staticmethod
    def grouped(places: NDArray[np.int64], rows: NDArray[Any], count: int) -> Messages:
        """Return messages for the vertices at `places`, which ascend. The messages of one vertex are contiguous."""
        lengths = np.bincount(places, minlength=count)
        return Messages(lengths > 0, rows, offsets_of(lengths))

    def with_others(self, others: Messages, combiner: Combiner) -> Messages:
        """Return these messages followed by `others` for the same vertices."""
        if self.offsets is not None and others.offsets is not None:
            count = len(self.received)
            both_offsets = (self.offsets, others.offsets)
            places = np.concatenate([np.repeat(np.arange(count), np.diff(offsets)) for offsets in both_offsets])
            order = np.argsort(places, kind="stable")
            return Messages.grouped(places[order], np.concatenate([self.values, others.values])[order], count)
        received = self.received | others.received
        if combiner.function is None:
            return Messages(received, combiner.blockwise(self.values, others.values))
        values = np.where(_as_rows(self.received, self.values), self.values, others.values)
        both = self.received & others.received
        values[both] = combine_blocks(combiner, self.values[both], others.values[both])
        return Messages(received, values)

    def of(self, places: NDArray[np.int64]) -> Messages:
        """Return the messages of the vertices at `places`, ascending, with all vertices that received a message."""
        if self.offsets is None:
            return Messages(self.received[places], self.values[places])
        lengths = np.diff(self.offsets)[places]
        return Messages(self.received[places], self.values, offsets_of(lengths))


def most_frequent(values: NDArray[Any], offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the most frequent value of each group, and the smallest of equally frequent values.

    Parameters
    ----------
    values : (m,) array
    offsets : (k + 1,) int64
        The start of each group in `values`, and the end of the last, as in messages with combine="concat".

    Returns
    -------
    (g,) int64, (g,) array
        The indices of nonempty groups, ascending, and the value of each.
    """
    if not len(values):
        return np.empty(0, np.int64), values
    minimum = values.min()
    span = int(values.max()) - int(minimum) + 1 if values.dtype.kind in "iu" else None
    if span is None or span > max(len(values), MIN_SPAN):
        distinct = np.unique(values)
        places, found = most_frequent(np.searchsorted(distinct, values), offsets)
        return places, distinct[found]
    # A difference of signed values may wrap; it is exact as an unsigned number.
    codes = (values - minimum).view(f"u{values.dtype.itemsize}").astype(np.int64)
    given = csr_array((np.ones(len(values), np.int32), codes, offsets), shape=(len(offsets) - 1, span))
    # The product counts equal values of a group without sorting them.
    counts = given @ eye_array(span, format="csr", dtype=np.int32)
    places = np.flatnonzero(np.diff(counts.indptr)).astype(np.int64)
    # The largest number belongs to the most frequent value, and to the smallest of several.
    numbers = counts.data.astype(np.int64) * span + (span - 1 - counts.indices)
    best = span - 1 - np.maximum.reduceat(numbers, counts.indptr[places]) % span
    return places, best.astype(values.dtype) + minimum


def checked_rows(values: Any, count: int, combiner: Combiner, name: str) -> NDArray[Any]:
    """Return `values` as an array of `count` rows that can be combined."""
    if isinstance(values, Sequence):
        values = np.asarray(values)
    has_op = combiner.function is None and combiner.name != CONCAT
    rows = reducible(values, combiner.name, name) if has_op else required(values, name)
    if rows.ndim == 0 or len(rows) != count:
        raise InputError(f"{name}: values of shape {rows.shape}, expected {count} rows")
    return np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("="))


def checked_mask(where: Any, count: int, name: str) -> NDArray[np.bool_]:
    """Return `where` as (count,) booleans."""
    mask = np.asarray(where)
    if mask.shape != (count,) or mask.dtype != np.bool_:
        raise InputError(f"{name}: where of type {mask.dtype} and shape {mask.shape}, expected booleans, ({count},)")
    return mask


def blank(shape: tuple[int, ...], dtype: np.dtype[Any], combiner: Combiner) -> NDArray[Any]:
    """Return rows with the identity of the operation, or zeros if a callable combines."""
    if combiner.function is not None:
        return np.zeros(shape, dtype)
    return np.full(shape, identity(combiner.name, dtype), dtype)


def _as_rows(mask: NDArray[np.bool_], values: NDArray[Any]) -> NDArray[np.bool_]:
    return mask.reshape(-1, *(1,) * (values.ndim - 1))
