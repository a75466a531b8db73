"""Encode several columns as one key, the concatenated bytes of their values, and decode such keys.

A byte before each fixed-size value states its presence. The 4-byte length of a string precedes it. Equal floats have
equal bytes: zero has no sign, and there is one NaN. No code iterates over rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.keyed.columns import Strings

_LENGTH_BYTES = 4


def encoded(columns: list[pa.Array]) -> Strings:
    """Return the keys of rows with these columns."""
    count = len(columns[0])
    fields: list[pa.Array] = []
    fixed: list[NDArray[np.uint8]] = []
    for column in columns:
        fixed.append(_fixed_part(column))
        if is_text(column.type):
            fields += [_binaries(np.concatenate(fixed, axis=1)), column.cast(pa.large_binary()).fill_null(b"")]
            fixed = []
    if fixed:
        fields.append(_binaries(np.concatenate(fixed, axis=1)))
    keys = fields[0] if len(fields) == 1 else pc.binary_join_element_wise(*fields, pa.scalar(b"", pa.large_binary()))
    _, offsets, data = keys.buffers()
    return Strings(
        np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + count + 1],
        np.frombuffer(data or b"", np.uint8),
        False,
    )


def decoded(keys: Strings, kinds: list[pa.DataType]) -> list[pa.Array]:
    """Return the columns of keys."""
    at = keys.offsets[:-1].copy()
    columns = []
    for kind in kinds:
        is_there = keys.data[at] == 1 if len(at) else np.empty(0, bool)
        at += 1
        if is_text(kind):
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


def _fixed_part(column: pa.Array) -> NDArray[np.uint8]:
    """Return the part of each row with the same length in all rows: for strings, their presence and length."""
    count, kind = len(column), column.type
    is_there = column.is_valid().to_numpy(zero_copy_only=False)
    if is_text(kind):
        numbers = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        if count and int(numbers.max()) >= 2**32:
            raise InputError("a key of 4 GiB or more: expected shorter ones")
        numbers = numbers.astype(np.uint32)
    else:
        numbers = _numbers(column)
    rows = np.empty((count, 1 + numbers.itemsize), np.uint8)
    rows[:, 0] = is_there
    rows[:, 1:] = np.ascontiguousarray(numbers).view(np.uint8).reshape(count, numbers.itemsize)
    if column.null_count:
        rows[~is_there, 1:] = 0
    return rows


def _binaries(rows: NDArray[np.uint8]) -> pa.Array:
    """Return rows of bytes as a column, on the same memory."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(rows.reshape(-1))]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


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
    return 1 if pa.types.is_boolean(kind) else int(kind.bit_width) // 8


def check_key(name: str, kind: pa.DataType) -> None:
    """Raise InputError unless columns of a type can be keys."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not (is_number or is_time(kind) or is_text(kind)):
        raise InputError(
            f"key column {name!r} of {kind}: expected integers, floats, booleans, dates, times, strings or binaries"
        )


def is_time(kind: pa.DataType) -> bool:
    """Whether the values of a type are dates, times or durations, stored as one integer."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether the values of a type are strings or binaries."""
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the concatenated ranges ``starts[i] … starts[i] + lengths[i] - 1`` of all i."""
    ends = np.cumsum(lengths)
    places: NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    places += np.arange(len(places))
    return places


def _with_nulls(column: pa.Array, is_there: NDArray[np.bool_]) -> pa.Array:
    return pc.if_else(pa.array(is_there), column, pa.scalar(None, column.type))
