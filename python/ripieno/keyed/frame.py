"""Provide `KeyedFrame`: rows of named columns, some of which form the key, and aggregations per key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.keyed import composite
from ripieno.keyed.columns import Strings
from ripieno.keyed.key_values import KeyValues

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

#: Aggregations of a column. "count" counts values that are present, "nulls" the missing ones.
OPERATIONS = ("sum", "mean", "min", "max", "count", "nulls")

#: Treatment of rows with a missing key.
NULLS = ("error", "drop", "keep")

#: Combines the values of equal keys by an operation, on this rank or over all ranks.
Combining = Callable[[KeyValues, Any], Any]


class _Part(NamedTuple):
    """One value per row to combine by key, and the operation that combines it."""

    op: str
    numbers: NDArray[Any]


class KeyedFrame:
    """Rows of named columns. Some of the columns together form the key.

    Parameters
    ----------
    data : object with ``__arrow_c_stream__`` or ``__arrow_c_array__``
        A PyArrow table or record batch, a polars or pandas frame, or a DuckDB relation.
    keys : str or sequence of str
        Columns of integers, floats, booleans, dates, times, strings or binaries. Floats compare as numbers; all NaNs
        are one key.
    nulls : {"error", "drop", "keep"}
        Treatment of rows with a missing value in their key: raise an error, drop them, or keep null as a key.

    Attributes
    ----------
    keys : list of str

    Examples
    --------
    >>> import pyarrow as pa, ripieno as rp
    >>> trips = pa.table({"city": ["Bonn", "Köln", "Bonn"], "night": [True, False, True], "km": [3.0, 4.0, None]})
    >>> frame = rp.KeyedFrame(trips, ["city", "night"])
    >>> frame.aggregated({"km": ("km", "mean"), "trips": "count", "lost": ("km", "nulls")}).to_arrow().to_pydict()
    {'city': ['Bonn', 'Köln'], 'night': [True, False], 'km': [3.0, 4.0], 'trips': [2, 1], 'lost': [1, 0]}
    """

    def __init__(
        self, data: Any, keys: str | Sequence[str], *, nulls: Literal["error", "drop", "keep"] = "error"
    ) -> None:
        try:
            table = pa.table(data)
        except (TypeError, ValueError) as error:
            raise InputError(f"a {type(data).__name__}: expected a table or frame of Arrow ({error})") from None
        self.keys: list[str] = [keys] if isinstance(keys, str) else list(keys)
        if not self.keys:
            raise InputError("keys: none: expected names of columns")
        for name in self.keys:
            _check_column(table, name)
        if nulls not in NULLS:
            raise InputError(f"nulls={nulls!r}: expected one of {', '.join(NULLS)}")
        self._table = _without_nulls(table, self.keys, nulls)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"<KeyedFrame: {len(self)} rows by {', '.join(self.keys)}>"

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table."""
        return self._table

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(self._table)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame. Integers and booleans with nulls become objects or floats there."""
        return self._table.to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def aggregated(self, aggregations: Mapping[str, str | tuple[str, str]]) -> KeyedFrame:
        """Return one row for each key, computed from these rows only.

        `Communicator.aggregate` uses the rows of all ranks.

        Parameters
        ----------
        aggregations : dict of str to "count" or (str, str)
            The columns of the result. Each value is a column name with "sum", "mean", "min", "max", "count" or "nulls";
            a plain "count" counts rows. Nulls count only for "nulls". Without any value a sum is 0, and mean, minimum
            and maximum are null. Sums of integers are int64 or uint64, sums of floats are float64.

        Returns
        -------
        KeyedFrame
            Rows in ascending order of the bytes of the keys.
        """
        return self.aggregated_by(aggregations, lambda rows, op: rows.combined(op))

    def aggregated_by(self, aggregations: Mapping[str, Any], combine: Combining) -> KeyedFrame:
        """Compute `aggregated` with `combine`, which is called in the same order on every rank."""
        parsed = [(name, *_parsed(self._table, each)) for name, each in aggregations.items()]
        keys = composite.encoded([_single_chunk(self._table[name]) for name in self.keys])
        parts: dict[tuple[str, int], _Part] = {}
        for place, (_, column, op) in enumerate(parsed):
            for index, part in enumerate(_parts(self._table, column, op)):
                parts[op, place * 2 + index] = part
        found, columns = _combined(keys, parts, combine)
        kinds = [self._table.schema.field(name).type for name in self.keys]
        table = dict(zip(self.keys, composite.decoded(found, [_plain(kind) for kind in kinds]), strict=True))
        for place, (name, column, op) in enumerate(parsed):
            kind = None if column is None else self._table.schema.field(column).type
            table[name] = _result_column(op, kind, [columns.get((op, place * 2 + index)) for index in range(2)])
        result = KeyedFrame.__new__(KeyedFrame)
        result.keys, result._table = list(self.keys), pa.table(table)
        return result

    def of_columns(self, schema: pa.Schema) -> KeyedFrame:
        """Return an empty frame with these columns and the same keys."""
        return KeyedFrame(schema.empty_table(), self.keys)


def _combined(
    keys: Strings, parts: dict[tuple[str, int], _Part], combine: Combining
) -> tuple[Strings, dict[tuple[str, int], NDArray[Any]]]:
    """Return the sorted keys and the combined parts. Parts with one operation and dtype are combined together."""
    together: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for key, part in parts.items():
        together.setdefault((part.op, part.numbers.dtype.name), []).append(key)
    columns: dict[tuple[str, int], NDArray[Any]] = {}
    found: Any = None
    for (op, _), members in sorted(together.items()) or [(("sum", ""), [])]:
        values = np.stack([parts[key].numbers for key in members], axis=1) if members else None
        rows = combine(KeyValues.of_columns(keys, values), op).sorted()
        found = rows.key_column
        for index, key in enumerate(members):
            columns[key] = rows.values[:, index]
    return found, columns


def _parts(table: pa.Table, column: str | None, op: str) -> list[_Part]:
    """Return the inputs of an aggregation: its numbers and, if it ignores nulls, the count of valid values."""
    if column is None:
        return [_Part("sum", np.ones(table.num_rows, np.int64))]
    given = _single_chunk(table[column])
    is_valid = given.is_valid().to_numpy(zero_copy_only=False)
    counts = _Part("sum", is_valid.astype(np.int64))
    if op == "count":
        return [counts]
    if op == "nulls":
        return [_Part("sum", (~is_valid).astype(np.int64))]
    numbers = _numbers(given, column)
    if op in ("min", "max"):
        return [_Part(op, np.where(is_valid, numbers, _identity(numbers.dtype, op))), counts]
    if pa.types.is_temporal(given.type):
        raise InputError(f"{op} of column {column!r} of {given.type}: expected numbers; of times min, max and count")
    wide = (
        np.float64
        if op == "mean" or numbers.dtype.kind == "f"
        else np.uint64
        if numbers.dtype.kind == "u"
        else np.int64
    )
    return [_Part("sum", np.where(is_valid, numbers, 0).astype(wide)), counts]


def _result_column(op: str, kind: pa.DataType | None, parts: list[NDArray[Any] | None]) -> pa.Array:
    """Return a column of the result, from the combined inputs of its aggregation."""
    own, counts = parts
    assert own is not None
    if counts is None or op == "sum":
        return pa.array(np.ascontiguousarray(own))
    missing = counts == 0
    if op == "mean":
        return pa.array(own / np.maximum(counts, 1), mask=missing)
    assert kind is not None
    if pa.types.is_temporal(kind):
        integers = pa.array(np.ascontiguousarray(own), mask=missing)
        return integers.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    found = pa.array(np.ascontiguousarray(own), mask=missing)
    return found.cast(pa.bool_()) if pa.types.is_boolean(kind) else found


def _numbers(given: pa.Array, name: str) -> NDArray[Any]:
    kind = given.type
    if pa.types.is_temporal(kind):
        given = given.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"column {name!r} of {kind}: expected numbers, booleans, dates or times")
    filled = given.fill_null(False if pa.types.is_boolean(kind) else 0)
    array: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def _identity(dtype: np.dtype[Any], op: str) -> Any:
    """Return the identity of a minimum or maximum."""
    if dtype.kind == "f":
        return dtype.type(np.inf if op == "min" else -np.inf)
    return np.iinfo(dtype).max if op == "min" else np.iinfo(dtype).min


def _parsed(table: pa.Table, aggregation: Any) -> tuple[str | None, str]:
    """Return the column and the operation of an aggregation."""
    if aggregation == "count":
        return None, "count"
    is_pair = isinstance(aggregation, tuple | list) and len(aggregation) == 2
    if not is_pair or aggregation[1] not in OPERATIONS:
        expected = f'expected "count", or a column and one of {", ".join(OPERATIONS)}'
        raise InputError(f"aggregation {aggregation!r}: {expected}")
    _check_column(table, aggregation[0])
    return aggregation[0], aggregation[1]


def _check_column(table: pa.Table, name: str) -> None:
    if table.column_names.count(name) != 1:
        raise InputError(f"column {name!r}: expected one, there are {', '.join(map(repr, table.column_names))}")


def _without_nulls(table: pa.Table, keys: list[str], nulls: str) -> pa.Table:
    count = sum(table[name].null_count for name in keys)
    if not count or nulls == "keep":
        return table
    if nulls == "drop":
        return table.select(table.column_names).filter(_are_valid(table, keys))
    name = next(name for name in keys if table[name].null_count)
    row = int(np.flatnonzero(table[name].is_null().to_numpy())[0])
    raise InputError(
        f"column {name!r}: {table[name].null_count} of {table.num_rows} are null, the first in row {row}: drop these "
        'rows with nulls="drop", or let null be a key with nulls="keep"'
    )


def _are_valid(table: pa.Table, keys: list[str]) -> Any:
    valid = pc.is_valid(table[keys[0]])
    for name in keys[1:]:
        valid = pc.and_(valid, pc.is_valid(table[name]))
    return valid


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column without dictionary or view."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def _single_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return the column in one chunk, without dictionary or view."""
    kind = _plain(column.type)
    if kind != column.type:
        column = column.cast(kind)
    pieces = column.combine_chunks()
    return pieces if isinstance(pieces, pa.Array) else pa.concat_arrays(pieces.chunks)
