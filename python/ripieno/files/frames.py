"""Interpret Arrow tables as data: find the pandas index columns, and read columns of lists as a matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.errors import InputError

#: The kinds of dtypes of real numbers.
NUMBERS = "biuf"
#: The kinds of dtypes of strings and bytes.
TEXTS = "UST"
#: The kinds of dtypes that NumPy converts to real numbers with a loss: complex numbers, periods and dates.
NO_NUMBERS = "cmM"
#: Arrow's names of booleans that are stored as bytes, and of UUIDs.
BOOL8 = "arrow.bool8"
UUID = "arrow.uuid"
_UNNAMED = re.compile(r"__index_level_\d+__")


def index_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of a schema that are a pandas index: row labels, not values of the rows."""
    try:
        described = (schema.pandas_metadata or {}).get("index_columns", ())
    except (AttributeError, ValueError):
        # Another program has stored metadata under the same key.
        described = ()
    # A range index has no column, only a start, stop and step.
    named = {name for name in described if isinstance(name, str)}
    return tuple(name for name in schema.names if name in named or _UNNAMED.fullmatch(name))


def check_names(names: Sequence[Any], where: str, hint: str = "") -> None:
    """Raise `InputError` if two columns have the same name. The message ends with the hint."""
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise InputError(f"{where} has several columns named {twice!r}: expected different names{hint}")


def without_index(table: pa.Table) -> pa.Table:
    """Return a table without its pandas index columns."""
    index = index_columns(table.schema)
    return table.drop_columns(list(index)) if index else table


def frame_as_table(frame: Any, content: str) -> tuple[pa.Table, str]:
    """Return the table of a frame, without the index of pandas, and its name for messages.

    Raises
    ------
    InputError
        It has no columns that Arrow supports. The message states that `content` is expected.
    """
    where = f"the {type(frame).__module__.partition('.')[0]} {type(frame).__name__}"
    try:
        is_pandas = hasattr(frame, "iloc")
        return pa.Table.from_pandas(frame, preserve_index=False) if is_pandas else pa.table(frame), where
    except (pa.ArrowException, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{where} is not a frame of {content}: {error}") from error


def arrow_stream_as_table(X: Any) -> Any:
    """Return an Arrow stream, or record batches, as a table, and other data unchanged.

    An Arrow stream can be read only once.

    Raises
    ------
    InputError
        X is an iterator.
    """
    if isinstance(X, list | tuple) and X and all(isinstance(each, pa.RecordBatch) for each in X):
        return pa.Table.from_batches(X)
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    if hasattr(X, "__arrow_c_stream__") and not hasattr(X, "__array__") and not hasattr(X, "num_rows"):
        return pa.table(X)
    if isinstance(X, Iterator):
        raise InputError(
            f"X: a {type(X).__name__} has no columns before it is read: expected an array of all rows, a list of "
            "record batches, or a pyarrow.RecordBatchReader"
        )
    return X


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are strings, also as categories."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def number_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that `as_numbers` gives values of a type."""
    if pa.types.is_dictionary(kind):
        return number_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.bool_() if kind.extension_name == BOOL8 else number_type(kind.storage_type)
    return pa.float64() if pa.types.is_decimal(kind) else kind


def as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return categories as their values, extension types as their storage, and decimals as the nearest float64."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return as_numbers(column.cast(kind.value_type))
    if isinstance(kind, pa.BaseExtensionType):
        stored = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        return stored.cast(pa.bool_()) if kind.extension_name == BOOL8 else as_numbers(stored)
    # Arrow's own conversion of decimals is not to the nearest number.
    return column.cast(pa.string()).cast(pa.float64()) if pa.types.is_decimal(kind) else column


def plain_ids(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return categories as their values, whole decimals as int64 if they fit, and UUIDs as text; others unchanged."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        # Arrow selects no views of strings.
        kind = pa.large_string() if is_text(kind) else kind.value_type
        return plain_ids(pa.chunked_array([c.dictionary.cast(kind).take(c.indices) for c in column.chunks], kind))
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name != UUID:
            return as_numbers(column)
        return pa.chunked_array([[None if each is None else str(each) for each in column.to_pylist()]], pa.string())
    if pa.types.is_decimal(kind) and kind.scale <= 0:
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int64())
    return column


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of numbers."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


def list_column(schema: pa.Schema, where: str) -> pa.Field | None:
    """Return the column of lists that is the matrix, such as the embeddings in a vector database, or None.

    Additional columns of text and integers identify the rows.

    Raises
    ------
    InputError
        There are several columns of lists, or additional columns of fractions.
    """
    lists = [field for field in schema if is_list(field.type)]
    if not lists:
        return None
    others = [field.name for field in schema if pa.types.is_floating(field.type)]
    if len(lists) > 1 or others:
        names = ", ".join(repr(name) for name in [*(field.name for field in lists), *others])
        raise InputError(f"{where}: columns {names} could each be the matrix: expected one column of lists")
    return lists[0]


def list_matrix(column: pa.ChunkedArray, width: int, where: str, first: int = 0) -> NDArray[Any]:
    """Return lists as the rows of a matrix, (n, width). In messages, the first row has the number `first`.

    Raises
    ------
    InputError
        A list is missing, or has another length.
    """
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.chunk(0) if lists.num_chunks else pa.array([], column.type)
    lengths = pc.list_value_length(lists).fill_null(-1).to_numpy()
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        found = lengths[wrong[0]]
        actual = "a missing value" if found < 0 else f"a list of {found} values"
        raise InputError(f"{where}, row {first + wrong[0]}: {actual}, expected lists of {width} values")
    values: NDArray[Any] = lists.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(len(lists), width)


def arrow_type_of(dtype: np.dtype[Any]) -> pa.DataType:
    """Return the Arrow type of values of a dtype; binary if they are neither numbers nor text."""
    if dtype.kind in "UT":
        return pa.string()
    if dtype.kind not in NUMBERS:
        return pa.binary()
    return pa.float64() if dtype.itemsize > 8 else pa.from_numpy_dtype(dtype.newbyteorder("="))


def arrow_array(values: NDArray[Any]) -> pa.Array:
    """Return a one-dimensional array as Arrow values, without a copy if they are contiguous, aligned and native."""
    if values.dtype.kind in TEXTS:
        # PyArrow ends NumPy's strings at their first NUL.
        return pa.array(values.astype(object), arrow_type_of(values.dtype))
    if values.dtype.kind not in NUMBERS:
        return pa.array(values)
    kind = arrow_type_of(values.dtype)
    return pa.array(np.require(values, kind.to_pandas_dtype(), ["C", "ALIGNED"]), kind)
