"""Convert Arrow columns to keys and values, and back, without a copy if the layouts agree.

The layouts agree for integers and floating-point numbers, fixed-size lists, and strings and bytes with 64-bit offsets.
32-bit offsets are widened: a copy of n words, but not of the characters. The following need a copy: integer keys of
less than 64 bits, dictionaries (decoded), string views, columns of several chunks (merged), and unaligned numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.frames import arrow_array
from ripieno.keyed.columns import EXPECTED_KEYS, EXPECTED_VALUES, Keys, Strings, aligned


def columns_of(data: Any, names: Sequence[str]) -> list[pa.Array]:
    """Return the named columns of a table or frame."""
    try:
        table = pa.table(data)
    except (TypeError, ValueError) as error:
        raise InputError(f"a {type(data).__name__}: expected a table or frame of Arrow ({error})") from None
    for name in names:
        if table.column_names.count(name) != 1:
            raise InputError(f"column {name!r}: expected one, there are {', '.join(map(repr, table.column_names))}")
    return [_in_one_piece(table[name]) for name in names]


def keys_of(given: Any, name: str) -> Keys:
    """Return an Arrow column, or a list or array of strings, as keys."""
    column = _checked(_column(given, name), name)
    kind = column.type
    if pa.types.is_null(kind):
        return np.empty(0, np.int64)
    if pa.types.is_integer(kind):
        array = column.to_numpy()
        if kind == pa.uint64() and len(array) and int(array.max()) >= 2**63:
            raise InputError(f"{name}: {array.max()}: expected whole numbers below 2**63")
        return aligned(array, np.int64)
    if _is(kind, pa.types.is_string_view, pa.types.is_binary_view, pa.types.is_fixed_size_binary):
        column = column.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
        kind = column.type
    if _is(kind, pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary):
        return _strings(column, is_text=_is(kind, pa.types.is_string, pa.types.is_large_string))
    raise InputError(f"{name}: {kind}: {EXPECTED_KEYS}")


def values_of(given: Any, name: str) -> NDArray[Any]:
    """Return an Arrow column of numbers, or of equally long lists of numbers, as rows."""
    column = _checked(_column(given, name), name)
    kind, width = column.type, None
    if pa.types.is_fixed_size_list(kind):
        column, width = _checked(column.flatten(), name), kind.list_size
    elif _is(kind, pa.types.is_list, pa.types.is_large_list):
        lengths = np.diff(column.offsets.to_numpy())
        ragged = np.flatnonzero(lengths != lengths[:1])
        if len(ragged):
            row = ragged[0]
            raise InputError(f"{name}: row 0 has {lengths[0]} elements, row {row} has {lengths[row]}: expected equal")
        column, width = _checked(column.flatten(), name), int(lengths[0]) if len(lengths) else 1
    if not _is(column.type, pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean):
        raise InputError(f"{name}: {kind}: {EXPECTED_VALUES}, or lists of these")
    # Arrow stores booleans as bits.
    array: NDArray[Any] = column.to_numpy(zero_copy_only=not pa.types.is_boolean(column.type))
    return array if width is None else array.reshape(-1, width)


def array_of_keys(keys: Keys) -> pa.Array:
    """Return keys as an Arrow array on the same memory: int64, large_string or large_binary."""
    if not isinstance(keys, Strings):
        return pa.array(keys)
    kind = pa.large_string() if keys.is_text else pa.large_binary()
    return pa.Array.from_buffers(kind, keys.count, [None, pa.py_buffer(keys.offsets), pa.py_buffer(keys.data)])


def array_of_values(values: NDArray[Any]) -> pa.Array:
    """Return values as an Arrow array on the same memory; rows of several elements as fixed-size lists."""
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def _strings(column: pa.Array, is_text: bool) -> Strings:
    if len(column) == 0:
        return Strings(np.zeros(1, np.int64), np.empty(0, np.uint8), is_text)
    _, offsets, data = column.buffers()
    is_large = _is(column.type, pa.types.is_large_string, pa.types.is_large_binary)
    words = np.frombuffer(offsets, np.int64 if is_large else np.int32)
    words = words[column.offset : column.offset + len(column) + 1]
    bytes_ = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return Strings(aligned(words, np.int64), bytes_, is_text)


def _column(given: Any, name: str) -> pa.Array:
    try:
        if isinstance(given, pa.Array | pa.ChunkedArray):
            return _in_one_piece(given)
        if hasattr(given, "__arrow_c_stream__"):
            return _in_one_piece(pa.chunked_array(given))
        return _in_one_piece(arrow_array(given) if isinstance(given, np.ndarray) else pa.array(given))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name}: a {type(given).__name__}: {error}: {EXPECTED_KEYS}") from None


def _in_one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        raise InputError(f"a column of {column.type} and {len(column)} rows: characters need 64-bit offsets: cast it")
    return column


def _decoded(column: pa.DictionaryArray | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([_decoded(chunk) for chunk in column.chunks] or [pa.array([], column.type.value_type)])
    words = column.dictionary
    if _is(words.type, pa.types.is_string_view, pa.types.is_binary_view):
        # Arrow's take does not support views.
        words = words.cast(pa.large_string() if pa.types.is_string_view(words.type) else pa.large_binary())
    return words.take(column.indices)


def _checked(column: pa.Array, name: str) -> pa.Array:
    """Return `column`, checked to have no missing values."""
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        nulls = f"{column.null_count} of {len(column)} are null, the first in row {row}"
        raise InputError(f"{name}: {nulls}: fill or drop them")
    return column


def _is(kind: pa.DataType, *tests: Any) -> bool:
    return any(test(kind) for test in tests)
