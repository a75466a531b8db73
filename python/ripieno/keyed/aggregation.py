"""Aggregate rows of tables by key, block by block: each block becomes one row of partial results for each of its keys.

Partial results are sums, minima and maxima of 64-bit numbers, so equal keys of blocks and of ranks combine by the
operations of keyed data. A sum of integers is kept as a high and a low part, so it is exact, and an overflow is found.
Floats are compared in the order of SQL, where NaN follows all numbers: as integers that have the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.keyed import arrow, columns, composite
from ripieno.keyed.columns import Keys, Strings
from ripieno.keyed.key_values import KeyValues

#: Aggregations of a column. "count" counts values that are present, "nulls" the missing ones.
OPERATIONS = ("sum", "mean", "min", "max", "count", "nulls", "distinct")

#: Combines the values of equal keys by an operation, on this rank or over all ranks.
Combining = Callable[[KeyValues, Any], KeyValues]

_LOW_BITS = 32
_LOW_MASK = (1 << _LOW_BITS) - 1
#: Stored partial results are combined when their rows exceed this number and twice the rows of the last result.
_PENDING_ROWS = 1 << 18


class _Part(NamedTuple):
    """A partial result of a column: "rows" of the key, "valid" values, "sum", "high" and "low", "min" or "max"."""

    column: str | None
    kind: str

    @property
    def op(self) -> str:
        return self.kind if self.kind in ("min", "max") else "sum"


_ROWS = _Part(None, "rows")
_Parts = dict[_Part, NDArray[Any]]


class _Request(NamedTuple):
    """A column of the result."""

    name: str
    column: str | None
    op: str


class Aggregation:
    """Aggregations of the rows that were added, by key. Keys with nulls are keys.

    Parameters
    ----------
    keys : sequence of str
        Columns that together form the key.
    aggregations : mapping of str to "count" or (str, str)
        As for `KeyedFrame.aggregated`.
    schema : Schema
        The columns of the tables.
    threads : int
        Threads that combine rows.

    Attributes
    ----------
    is_plain : bool
        Whether the key is one column that is stored as it is, because no null is in it.
    has_null_keys : bool
        Whether a key of the added rows has a null.
    """

    def __init__(
        self, keys: Sequence[str], aggregations: Mapping[str, Any], schema: pa.Schema, *, threads: int = 1
    ) -> None:
        self._keys = list(keys)
        if not self._keys:
            raise InputError("keys: none: expected names of columns")
        for name in self._keys:
            check_column(schema, name)
        self._kinds = [plain_type(schema.field(name).type) for name in keys]
        self._requests = [_Request(name, *each) for name, each in columns_and_operations(aggregations).items()]
        twice = next((each.name for each in self._requests if each.name in self._keys), None)
        if twice is not None:
            raise InputError(f"aggregation {twice!r}: a key has that name: expected another one")
        used = dict.fromkeys(each.column for each in self._requests if each.column is not None)
        for column in used:
            check_column(schema, column)
        self._types = {column: plain_type(schema.field(column).type) for column in used}
        self._parts = list(dict.fromkeys([_ROWS, *(part for each in self._requests for part in self._parts_of(each))]))
        self._threads = threads
        self._pending: list[tuple[Keys, _Parts]] = []
        self._combined_rows = 0
        self.has_null_keys = False
        self.is_plain = len(self._kinds) == 1 and _is_plain(self._kinds[0])
        # Different values are the keys of an aggregation without results.
        self._distinct = {
            column: Aggregation([*keys, column], {}, schema, threads=threads)
            for column in dict.fromkeys(each.column for each in self._requests if each.op == "distinct")
            if column is not None
        }

    def add(self, table: pa.Table) -> None:
        """Aggregate the rows of a table."""
        if not table.num_rows:
            return
        for each in self._distinct.values():
            each.add(table)
        keys = [single_chunk(table[name]) for name in self._keys]
        if any(each.null_count for each in keys):
            self.has_null_keys = True
            self.use_composite_keys()
        numbers: _Parts = {_ROWS: np.ones(table.num_rows, np.int64)}
        for column in self._types:
            numbers |= self._numbers(column, single_chunk(table[column]))
        self._pending.append(self._completed(*self._combine(self._encoded(keys), numbers, self._locally)))
        if sum(columns.key_count(each) for each, _ in self._pending) > max(_PENDING_ROWS, 2 * self._combined_rows):
            self._pending = [self._merged()]
            self._combined_rows = columns.key_count(self._pending[0][0])

    def use_composite_keys(self) -> None:
        """Store keys in the form that also has nulls, as all ranks must do if one does."""
        if self.is_plain:
            self._pending = [(composite.encoded(self._decoded(keys)), parts) for keys, parts in self._pending]
            self.is_plain = False

    def result(self, combine: Combining | None = None, combine_at_owner: Combining | None = None) -> pa.Table:
        """Return one row for each key.

        Parameters
        ----------
        combine, combine_at_owner : callable, optional
            Combine rows over all ranks, to the result of this call, and to the owner of each key. Every rank calls them
            in the same order. By default the result has the rows of this rank.

        Returns
        -------
        Table
            Rows in ascending order of the keys, nulls last.

        Raises
        ------
        InputError
            A sum of integers exceeds 64 bits.
        """
        combine = combine or self._locally
        keys, parts = self._combine(*self._merged(), _in_order(combine))
        decoded = dict(zip(self._keys, self._decoded(keys), strict=True))
        table = dict(decoded)
        counts: dict[str | None, pa.Array] = {
            column: self._distinct_counts(keys, each, combine, combine_at_owner or combine)
            for column, each in self._distinct.items()
        }
        for name, column, op in self._requests:
            table[name] = counts[column] if op == "distinct" else self._result(column, op, parts, decoded)
        return sorted_by(pa.table(table), self._keys)

    def _distinct_counts(
        self, keys: Keys, found: Aggregation, combine: Combining, combine_at_owner: Combining
    ) -> pa.Array:
        """Return the number of different values for each key."""
        pairs, _ = found._combine(*found._merged(), combine_at_owner)
        *own, values = found._decoded(pairs)
        names = [f"key {at}" for at in range(len(own))]
        table = pa.table([*own, values], names=[*names, "value"])
        counted = Aggregation(names, {"count": ("value", "count")}, table.schema, threads=self._threads)
        if not self.is_plain:
            counted.use_composite_keys()
        counted.add(table)
        counted_keys, parts = counted._combine(*counted._merged(), _in_order(combine))
        assert _are_equal(counted_keys, keys), "every key has at least one pair"
        return pa.array(np.ascontiguousarray(parts[_Part("value", "valid")]))

    def _parts_of(self, request: _Request) -> list[_Part]:
        """Return the partial results that a column of the result needs."""
        _, column, op = request
        if column is None or op == "distinct":
            return []
        kind = self._types[column]
        valid = _Part(column, "valid")
        if op in ("count", "nulls"):
            return [valid]
        if not _is_numeric(kind) and not pa.types.is_temporal(kind):
            raise InputError(f"column {column!r} of {kind}: expected numbers, booleans, dates or times")
        if op in ("min", "max"):
            return [_Part(column, op), valid]
        if pa.types.is_temporal(kind):
            raise InputError(f"{op} of column {column!r} of {kind}: expected numbers; of times min, max and count")
        if pa.types.is_floating(kind):
            return [_Part(column, "sum"), valid]
        return [_Part(column, "high"), _Part(column, "low"), valid]

    def _numbers(self, column: str, given: pa.Array) -> _Parts:
        """Return the numbers of a block to combine. A part that follows from others is missing."""
        wanted = {part.kind for part in self._parts if part.column == column}
        found: _Parts = {}
        is_valid = given.is_valid().to_numpy(zero_copy_only=False) if given.null_count else None
        if is_valid is not None and "valid" in wanted:
            found[_Part(column, "valid")] = is_valid.astype(np.int64)
        if not wanted & {"sum", "high", "min", "max"}:
            return found
        numbers = _as_numbers(given)
        if "sum" in wanted:
            found[_Part(column, "sum")] = numbers
        if "high" in wanted:
            if _may_overflow(numbers):
                found[_Part(column, "high")], found[_Part(column, "low")] = _split(numbers)
            else:
                found[_Part(column, "low")] = numbers
        ordered = _ordered(numbers) if wanted & {"min", "max"} else numbers
        for op in wanted & {"min", "max"}:
            identity = _identity(ordered.dtype, op)
            found[_Part(column, op)] = ordered if is_valid is None else np.where(is_valid, ordered, identity)
        return found

    def _completed(self, keys: Keys, parts: _Parts) -> tuple[Keys, _Parts]:
        """Return the partial results of a block with the parts that follow from others."""
        for part in self._parts:
            if part.kind == "valid" and part not in parts:
                parts[part] = parts[_ROWS]
            low = _Part(part.column, "low")
            if part.kind == "high" and part not in parts:
                parts[part], parts[low] = _split(parts[low])
        return keys, {part: parts[part] for part in self._parts}

    def _merged(self) -> tuple[Keys, _Parts]:
        """Return the partial results of all rows, one row for each key."""
        if not self._pending:
            dtypes = {part: self._dtype(part) for part in self._parts}
            empty = self._encoded([pa.array([], kind) for kind in self._kinds])
            return empty, {part: np.empty(0, dtype) for part, dtype in dtypes.items()}
        if len(self._pending) == 1:
            return self._pending[0]
        parts = {part: np.concatenate([each[part] for _, each in self._pending]) for part in self._parts}
        return self._combine(columns.joined_keys([keys for keys, _ in self._pending]), parts, self._locally)

    def _dtype(self, part: _Part) -> Any:
        if part.kind == "sum":
            return np.float64
        is_unsigned = part.kind in ("min", "max") and self._types[str(part.column)] == pa.uint64()
        return np.uint64 if is_unsigned else np.int64

    @staticmethod
    def _combine(keys: Keys, parts: _Parts, combine: Combining) -> tuple[Keys, _Parts]:
        """Combine the rows of equal keys. Parts with one operation and dtype are combined together."""
        together: dict[tuple[str, str], list[_Part]] = {}
        for part, numbers in parts.items():
            together.setdefault((part.op, numbers.dtype.name), []).append(part)
        combined, found = keys, _Parts()
        for (op, _), members in sorted(together.items()):
            rows = combine(KeyValues.of_columns(keys, np.stack([parts[each] for each in members], axis=1)), op)
            assert not found or _are_equal(rows.key_column, combined), "equal rows are combined in one order"
            combined = rows.key_column
            found |= {part: rows.values[:, at] for at, part in enumerate(members)}
        return combined, found

    def _locally(self, rows: KeyValues, op: Any) -> KeyValues:
        combined: KeyValues = rows.combined(op, threads=self._threads)
        return combined

    def _encoded(self, keys: list[pa.Array]) -> Keys:
        if not self.is_plain:
            return composite.encoded(keys)
        if composite.is_text(keys[0].type):
            return columns.keys_of(keys[0].cast(_large(keys[0].type)))
        return _as_numbers(keys[0]).astype(np.int64, copy=False)

    def _decoded(self, keys: Keys) -> list[pa.Array]:
        if not self.is_plain:
            assert isinstance(keys, Strings), "composite keys are bytes"
            return composite.decoded(keys, self._kinds)
        if isinstance(keys, Strings):
            return [arrow.array_of_keys(keys).cast(self._kinds[0])]
        return [_of_kind(keys, self._kinds[0])]

    def _result(self, column: str | None, op: str, parts: _Parts, keys: Mapping[str, pa.Array]) -> pa.Array:
        """Return a column of the result."""
        if column is None:
            return pa.array(np.ascontiguousarray(parts[_ROWS]))
        valid = parts[_Part(column, "valid")]
        if op in ("count", "nulls"):
            return pa.array(np.ascontiguousarray(valid if op == "count" else parts[_ROWS] - valid))
        missing = valid == 0
        if op in ("min", "max"):
            return _of_kind(parts[_Part(column, op)], self._types[column], missing)
        if _Part(column, "sum") in parts:
            total = parts[_Part(column, "sum")]
        else:
            high, low = parts[_Part(column, "high")], parts[_Part(column, "low")]
            high, low = high + (low >> _LOW_BITS), low & _LOW_MASK
            if op == "mean":
                total = high * float(1 << _LOW_BITS) + low
            else:
                is_unsigned = pa.types.is_unsigned_integer(self._types[column]) or self._types[column] == pa.bool_()
                total = _joined(high, low, column, is_unsigned=is_unsigned, keys=keys)
        if op == "mean":
            total = total / np.maximum(valid, 1)
        return pa.array(np.ascontiguousarray(total), mask=missing)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column without dictionary or view."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def single_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return the column in one chunk, without dictionary or view."""
    kind = plain_type(column.type)
    if kind != column.type:
        column = column.cast(kind)
    pieces = column.combine_chunks()
    return pieces if isinstance(pieces, pa.Array) else pa.concat_arrays(pieces.chunks)


def check_column(schema: pa.Schema, name: str) -> None:
    """Raise InputError if there is not exactly one column of this name."""
    if schema.names.count(name) != 1:
        raise InputError(f"column {name!r}: expected one, there are {', '.join(map(repr, schema.names))}")


def sorted_by(table: pa.Table, names: Sequence[str], *, descending: Sequence[str] = ()) -> pa.Table:
    """Return the rows in ascending order of some columns, nulls last, or in descending order of the given ones."""
    # Arrow does not sort float16.
    sortable = [table[name].cast(pa.float32()) if table[name].type == pa.float16() else table[name] for name in names]
    order = [(name, "descending" if name in descending else "ascending") for name in names]
    return table.take(pc.sort_indices(pa.table(sortable, names=list(names)), order))


def columns_and_operations(aggregations: Mapping[str, Any]) -> dict[str, tuple[str | None, str]]:
    """Return the column, None for "count", and the operation of each aggregation, by its name.

    Raises
    ------
    InputError
        An aggregation is malformed.
    """
    if not isinstance(aggregations, Mapping):
        expected = 'expected a dict such as {"total": ("price", "sum")}'
        raise InputError(f"aggregations: a {type(aggregations).__name__}: {expected}")
    return {name: _column_and_operation(name, each) for name, each in aggregations.items()}


def _column_and_operation(name: Any, aggregation: Any) -> tuple[str | None, str]:
    if not isinstance(name, str):
        raise InputError(f"aggregation {name!r}: expected a name")
    if isinstance(aggregation, str) and aggregation == "count":
        return None, "count"
    is_pair = isinstance(aggregation, tuple | list) and len(aggregation) == 2
    if not is_pair or not all(isinstance(each, str) for each in aggregation) or aggregation[1] not in OPERATIONS:
        expected = f'expected "count", or a column and one of {", ".join(OPERATIONS)}'
        raise InputError(f"aggregation {aggregation!r}: {expected}")
    return aggregation[0], aggregation[1]


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether all values of a type, without null, are int64 or strings."""
    is_whole = _is_numeric(kind) and not pa.types.is_floating(kind) and kind != pa.uint64()
    return is_whole or pa.types.is_temporal(kind) or composite.is_text(kind)


def _in_order(combine: Combining) -> Combining:
    """Return a function that combines rows, and sorts the result by key."""
    return lambda rows, op: combine(rows, op).sorted()


def _are_equal(one: Keys, other: Keys) -> bool:
    if isinstance(one, Strings) and isinstance(other, Strings):
        return np.array_equal(one.used, other.used) and np.array_equal(np.diff(one.offsets), np.diff(other.offsets))
    return np.array_equal(np.asarray(one), np.asarray(other))


def _large(kind: pa.DataType) -> pa.DataType:
    return pa.large_string() if kind in (pa.string(), pa.large_string()) else pa.large_binary()


def _as_numbers(given: pa.Array) -> NDArray[Any]:
    """Return the values as int64, uint64 or float64. Nulls are 0."""
    kind = given.type
    if pa.types.is_temporal(kind):
        given = given.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    filled = given.fill_null(pa.scalar(False if pa.types.is_boolean(kind) else 0).cast(given.type))
    array: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    wide = np.float64 if array.dtype.kind == "f" else np.uint64 if array.dtype == np.uint64 else np.int64
    return array.astype(wide, copy=False)


def _of_kind(numbers: NDArray[Any], kind: pa.DataType, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return 64-bit numbers, in the order of `_ordered` for floats, as a column of their type."""
    if pa.types.is_floating(kind):
        floats = _flipped(numbers).view(np.float64)
        return pa.array(floats, mask=missing).cast(kind)
    array = pa.array(np.ascontiguousarray(numbers), mask=missing)
    if pa.types.is_temporal(kind):
        return array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return array.cast(kind)


def _ordered(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return integers in the order of the numbers. NaN follows all others."""
    if numbers.dtype != np.float64:
        return numbers
    return _flipped(np.where(np.isnan(numbers), np.nan, numbers).view(np.int64))


def _flipped(bits: NDArray[Any]) -> NDArray[np.int64]:
    """Convert the bits of float64 to integers of the same order, or back."""
    flipped: NDArray[np.int64] = np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)
    return flipped


def _identity(dtype: np.dtype[Any], op: str) -> Any:
    """Return the identity of a minimum or maximum."""
    return np.iinfo(dtype).max if op == "min" else np.iinfo(dtype).min


def _may_overflow(numbers: NDArray[Any]) -> bool:
    """Return whether a sum of some of these integers may exceed 64 bits."""
    largest = max(abs(int(numbers.min())), abs(int(numbers.max())))
    return largest * len(numbers) > np.iinfo(numbers.dtype).max


def _split(numbers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bits above the lowest 32 with the sign, and the lowest 32."""
    low = numbers & numbers.dtype.type(_LOW_MASK)
    return (numbers >> numbers.dtype.type(_LOW_BITS)).astype(np.int64), low.astype(np.int64)


def _joined(
    high: NDArray[np.int64], low: NDArray[np.int64], column: str, *, is_unsigned: bool, keys: Mapping[str, pa.Array]
) -> NDArray[Any]:
    """Return sums from their parts, or raise if one exceeds 64 bits."""
    least, above = (0, 1 << _LOW_BITS) if is_unsigned else (-(1 << _LOW_BITS - 1), 1 << _LOW_BITS - 1)
    wrong = np.flatnonzero((high < least) | (high >= above))
    if len(wrong):
        at = int(wrong[0])
        key = ", ".join(f"{name} {values[at].as_py()!r}" for name, values in keys.items())
        total = int(high[at]) * (1 << _LOW_BITS) + int(low[at])
        raise InputError(
            f"sum of column {column!r}: {len(wrong)} of {len(high)} exceed 64 bits, such as {total} of {key}: convert "
            "the column to float64, or ask for its mean"
        )
    dtype = np.uint64 if is_unsigned else np.int64
    joined: NDArray[Any] = high.astype(dtype) << dtype(_LOW_BITS) | low.astype(dtype)
    return joined
