"""Encode several columns as one key, the concatenated bytes of their values, and decode it.

A byte before each fixed-size value states whether it is present. Strings are preceded by their length in 4 bytes. Equal
floats have equal bytes: zero has no sign, and there is one NaN. No code iterates over rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.keyed.columns import Strings

_LENGTH_BYTES = 4


def encoded(columns: list[pa.Array]) -> Strings:
    """Return the keys of rows with these columns."""
    count = len(columns[0])
    fields = [_field(column) for column in columns]
    lengths = np.full(count, 0, np.int64)
    for lengths_of, _ in fields:
        lengths += lengths_of
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    data = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    for lengths_of, bytes_ in fields:
        data[_places(at, lengths_of)] = bytes_
        at += lengths_of
    return Strings(offsets, data, False)


def decoded(keys: Strings, kinds: list[pa.DataType]) -> list[pa.Array]:
    """Return the columns of keys."""
    at = keys.offsets[:-1].copy()
    columns = []
    for kind in kinds:
        is_there = keys.data[at] == 1 if len(at) else np.empty(0, bool)
        at += 1
        if _is_text(kind):
            heads = keys.data[_places(at, np.full(len(at), _LENGTH_BYTES))].reshape(-1, _LENGTH_BYTES)
            lengths = np.ascontiguousarray(heads).view(np.uint32).reshape(-1).astype(np.int64)
            at += _LENGTH_BYTES
            offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
            bytes_ = keys.data[_places(at, lengths)]
            at += lengths
            large = pa.large_string() if kind in (pa.string(), pa.large_string()) else pa.large_binary()
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(bytes_)]
            column = pa.Array.from_buffers(large, len(lengths), buffers).cast(kind)
        else:
            width = _width(kind)
            bytes_ = np.ascontiguousarray(keys.data[_places(at, np.full(len(at), width))])
            at += width
            if pa.types.is_boolean(kind):
                column = pa.array(bytes_.astype(bool))
            else:
                column = pa.Array.from_buffers(kind, len(is_there), [None, pa.py_buffer(bytes_)])
        columns.append(column if is_there.all() else _with_nulls(column, is_there))
    return columns


def _field(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the number of bytes of each row, and all bytes."""
    count, kind = len(column), column.type
    is_there = column.is_valid().to_numpy(zero_copy_only=False)
    if _is_text(kind):
        filled = column.cast(pa.large_binary()).fill_null(b"")
        _, words, data = filled.buffers()
        offsets = np.frombuffer(words, np.int64)[filled.offset : filled.offset + count + 1]
        inner = np.diff(offsets)
        if len(inner) and int(inner.max()) >= 2**32:
            raise InputError("a key of 4 GiB or more: expected shorter ones")
        lengths = inner + 1 + _LENGTH_BYTES
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])[:-1]
        bytes_ = np.empty(int(lengths.sum()), np.uint8)
        bytes_[starts] = is_there
        heads = inner.astype(np.uint32).view(np.uint8)
        bytes_[_places(starts + 1, np.full(count, _LENGTH_BYTES))] = heads
        if count and data is not None:
            bytes_[_places(starts + 1 + _LENGTH_BYTES, inner)] = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
        return lengths, bytes_
    width = _width(kind)
    rows = np.empty((count, 1 + width), np.uint8)
    rows[:, 0] = is_there
    rows[:, 1:] = _numbers(column).view(np.uint8).reshape(count, width)
    rows[~is_there, 1:] = 0
    return np.full(count, 1 + width), rows.reshape(-1)


def _numbers(column: pa.Array) -> NDArray[Any]:
    """Return the values as numbers of their width, with arbitrary numbers for nulls."""
    kind = column.type
    if pa.types.is_boolean(kind):
        flags: NDArray[Any] = column.fill_null(False).to_numpy(zero_copy_only=False)
        return flags.astype(np.uint8)
    if pa.types.is_floating(kind):
        array: NDArray[Any] = column.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        array[np.isnan(array)] = np.nan
        array[array == 0] = 0.0
        return array
    integers = column.view(pa.int32() if kind.bit_width == 32 else pa.int64()) if pa.types.is_temporal(kind) else column
    numbers: NDArray[Any] = np.ascontiguousarray(integers.fill_null(0).to_numpy(zero_copy_only=False))
    return numbers


def _width(kind: pa.DataType) -> int:
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return int(kind.bit_width) // 8
    raise InputError(f"a key column of {kind}: expected integers, floats, booleans, dates, times, strings or binaries")


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenated ranges ``starts[i] … starts[i] + lengths[i] - 1`` of all i."""
    ends = np.cumsum(lengths)
    places: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    places += np.arange(len(places))
    return places


def _with_nulls(column: pa.Array, is_there: NDArray[np.bool_]) -> pa.Array:
    return pa.compute.if_else(pa.array(is_there), column, pa.scalar(None, column.type))
