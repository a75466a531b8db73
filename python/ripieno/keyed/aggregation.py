"""Aggregate rows of tables by key, slice by slice, into one row of partial results for each key.

Partial results are sums, minima and maxima of 64-bit numbers. The operations of keyed data combine them for equal keys
of slices and of ranks. Minima and maxima of floats follow the order of SQL, where NaN is larger than all numbers; they
are stored as integers of the same order. If keys repeat in a slice, Arrow first combines the slice in one pass over its
key columns.

The first rows are stored in the smallest form. Three facts require a larger one: a null in a key, a null in a column,
and integers with a sum that may exceed 64 bits. Such a sum has a high and a low part, so it is exact, and an overflow
is detected. Before ranks exchange rows, each rank adopts the facts of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.keyed import arrow, columns, composite
from ripieno.keyed.columns import Keys, Strings
from ripieno.keyed.emitter import Emitter
from ripieno.keyed.key_values import KeyValues

#: Aggregations of a column. "count" counts values that are present, "nulls" the missing ones.
OPERATIONS = ("sum", "mean", "min", "max", "count", "nulls", "distinct")

#: Combines the values of equal keys by an operation, on this rank or over all ranks. The emitter is empty afterwards.
Combining = Callable[[Emitter, Any], KeyValues]

_LOW_BITS = 32
_LOW_MASK = (1 << _LOW_BITS) - 1
#: Rows of a slice. Sums of floats depend on it, not on the number of threads.
_SLICE_ROWS = 1 << 17
#: Rows of the first slice of a table. If Arrow combines it to at most half of its rows, it combines the others, too.
_TRIAL_ROWS = 1 << 15


class _Part(NamedTuple):
    """A partial result of a column: "rows" of the key, "valid" values, "sum", "high" and "low", "min" or "max"."""

    column: str | None
    kind: str

    @property
    def op(self) -> str:
        return self.kind if self.kind in ("min", "max") else "sum"


_ROWS = _Part(None, "rows")
_Parts = dict[_Part, NDArray[Any]]


class _AggregationRequest(NamedTuple):
    """A column of the result."""

    name: str
    column: str | None
    op: str


class Facts(NamedTuple):
    """The facts about added rows that determine their stored form.

    Attributes
    ----------
    has_null_keys : bool
        Whether a key has a null.
    with_nulls : frozenset of str
        Columns of values with a null.
    bounds : dict of str to int
        For each column of integers, a bound of the magnitude of their sum.
    """

    has_null_keys: bool
    with_nulls: frozenset[str]
    bounds: dict[str, int]

    @classmethod
    def joined(cls, facts: Sequence[Facts]) -> Facts:
        """Return the facts about all rows."""
        bounds = {column: sum(each.bounds[column] for each in facts) for column in facts[0].bounds}
        with_nulls: frozenset[str] = frozenset().union(*(each.with_nulls for each in facts))
        return cls(any(each.has_null_keys for each in facts), with_nulls, bounds)


class _Form(NamedTuple):
    """The form of stored rows.

    Attributes
    ----------
    is_plain : bool
        Whether the key is one column, stored unchanged.
    parts : tuple of _Part
        The stored partial results. A missing "valid" equals the rows, and a missing "high" means that "low" is the sum.
    """

    is_plain: bool
    parts: tuple[_Part, ...]


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
    world_size : int
        The ranks that own keys.

    Attributes
    ----------
    facts : Facts
        Facts about the added rows.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregations: Mapping[str, Any],
        schema: pa.Schema,
        *,
        threads: int = 1,
        world_size: int = 1,
    ) -> None:
        self._keys = list(keys)
        if not self._keys:
            raise InputError("keys: none: expected names of columns")
        for name in self._keys:
            check_column(schema, name)
        self._kinds = [plain_type(schema.field(name).type) for name in keys]
        for name, kind in zip(self._keys, self._kinds, strict=True):
            composite.check_key(name, kind)
        self._requests = [
            _AggregationRequest(name, *each) for name, each in columns_and_operations(aggregations).items()
        ]
        twice = next((each.name for each in self._requests if each.name in self._keys), None)
        if twice is not None:
            raise InputError(f"aggregation {twice!r}: a key has that name: expected another one")
        used = dict.fromkeys(each.column for each in self._requests if each.column is not None)
        for column in used:
            check_column(schema, column)
        self._types = {column: plain_type(schema.field(column).type) for column in used}
        self._parts = list(dict.fromkeys([_ROWS, *(part for each in self._requests for part in self._parts_of(each))]))
        self._threads, self._world_size = threads, world_size
        sums = [part.column for part in self._parts if part.kind == "low" and part.column is not None]
        self.facts = Facts(False, frozenset(), dict.fromkeys(sums, 0))
        self._form, self._emitters = self._form_of(self.facts), dict[tuple[str, str], Emitter]()
        # Different values are the keys of an aggregation without results.
        self._distinct = {
            column: Aggregation([*keys, column], {}, schema, threads=threads, world_size=world_size)
            for column in dict.fromkeys(each.column for each in self._requests if each.op == "distinct")
            if column is not None
        }

    def add(self, table: pa.Table) -> None:
        """Aggregate the rows of a table."""
        for each in self._distinct.values():
            each.add(table)
        keys = [_key_chunk(table[name]) for name in self._keys]
        values = {column: single_chunk(table[column]) for column in self._types}
        if table.num_rows:
            with_nulls = frozenset(column for column, given in values.items() if given.null_count)
            bounds = {column: _bound(values[column]) for column in self.facts.bounds}
            found = Facts(any(each.null_count for each in keys), with_nulls, bounds)
            self.adopt(Facts.joined([self.facts, found]))
            for rows in self._combined_slices(keys, values):
                self._store(*rows)

    def adopt(self, facts: Facts) -> None:
        """Store rows in the form for these facts, which cover the rows of all ranks."""
        self.facts, form = facts, self._form_of(facts)
        if form != self._form and self._emitters:
            keys, parts = self._taken(combined_locally)
            decoded = self._decoded(keys)
            self._form = form
            self._store(decoded, parts)
        self._form = form

    def result(self, combine: Combining | None = None, combine_at_owner: Combining | None = None) -> pa.Table:
        """Return one row for each key. No rows can be added afterwards.

        Parameters
        ----------
        combine, combine_at_owner : callable, optional
            Combine rows over all ranks, to the result of this call, and to the owner of each key. Every rank calls them
            in the same order, after all have adopted the facts of all. By default the result has the rows of this rank.

        Returns
        -------
        Table
            Rows in ascending order of the keys, nulls last.

        Raises
        ------
        InputError
            A sum of integers exceeds 64 bits.
        """
        combine = combine or combined_locally
        keys, parts = self._taken(combine)
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
        """Return the number of different values for each key, in the order of `keys`."""
        pairs, _ = found._taken(combine_at_owner)
        *own, values = found._decoded(pairs)
        emitter = self._emitter("sum", self._encoded(own), _are_valid(values))
        counted = combine(emitter, "sum")
        if not _are_equal(counted.key_column, keys):
            order = KeyValues.of_columns(keys, np.arange(columns.key_count(keys))).sorted()
            counted = counted.sorted()
            assert _are_equal(counted.key_column, order.key_column), "every key has at least one pair"
            counts = np.empty_like(counted.values)
            counts[order.values] = counted.values
            return pa.array(counts)
        return pa.array(counted.values)

    def _parts_of(self, request: _AggregationRequest) -> list[_Part]:
        """Return the possible partial results for a column of the result."""
        _, column, op = request
        if column is None or op == "distinct":
            return []
        kind = self._types[column]
        valid = _Part(column, "valid")
        if op in ("count", "nulls"):
            return [valid]
        if not _is_numeric(kind) and not composite.is_time(kind):
            raise InputError(f"column {column!r} of {kind}: expected numbers, booleans, dates or times")
        if op in ("min", "max"):
            return [_Part(column, op), valid]
        if pa.types.is_temporal(kind):
            raise InputError(f"{op} of column {column!r} of {kind}: expected numbers; of times min, max and count")
        if pa.types.is_floating(kind):
            return [_Part(column, "sum"), valid]
        return [_Part(column, "high"), _Part(column, "low"), valid]

    def _form_of(self, facts: Facts) -> _Form:
        """Return the smallest form that stores rows with these facts."""

        def is_needed(part: _Part) -> bool:
            column = str(part.column)
            if part.kind == "high":
                is_large = self._types[column] == pa.uint64()
                return facts.bounds[column] > int(np.iinfo(np.uint64 if is_large else np.int64).max)
            return part.kind != "valid" or column in facts.with_nulls

        is_plain = len(self._kinds) == 1 and _is_plain(self._kinds[0]) and not facts.has_null_keys
        return _Form(is_plain, tuple(filter(is_needed, self._parts)))

    def _combined_slices(
        self, keys: list[pa.Array], values: dict[str, pa.Array]
    ) -> Iterator[tuple[list[pa.Array], _Parts]]:
        """Return keys and partial results of the rows of a table, combined if keys repeat."""
        row_count, trial = len(keys[0]), slice(0, _TRIAL_ROWS)
        slices = [trial, *(slice(at, at + _SLICE_ROWS) for at in range(_TRIAL_ROWS, row_count, _SLICE_ROWS))]

        def numbers_of(rows: slice) -> _Parts:
            own = {name: each[rows] for name, each in values.items()}
            parts: _Parts = {_ROWS: np.ones(len(keys[0][rows]), np.int64)}
            for part in self._form.parts:
                if part.column is not None:
                    parts[part] = self._numbers(part, own[part.column])
            return parts

        def rows_of(rows: slice) -> tuple[list[pa.Array], _Parts]:
            return [_decoded(each[rows]) for each in keys], numbers_of(rows)

        def combined(rows: slice) -> tuple[list[pa.Array], _Parts]:
            return self._combined_by_arrow([each[rows] for each in keys], numbers_of(rows))

        # Arrow has no groups of float16.
        if pa.float16() in self._kinds:
            yield from map(rows_of, slices)
            return
        first = combined(slices[0])
        yield first
        repeats = 2 * len(first[0][0]) <= min(row_count, _TRIAL_ROWS)
        if not repeats:
            yield from map(rows_of, slices[1:])
        elif self._threads == 1:
            yield from map(combined, slices[1:])
        else:
            with ThreadPoolExecutor(self._threads) as pool:
                yield from pool.map(combined, slices[1:])

    def _combined_by_arrow(self, keys: list[pa.Array], parts: _Parts) -> tuple[list[pa.Array], _Parts]:
        """Combine the rows of a slice with equal keys."""
        names = [f"key {at}" for at in range(len(keys))]
        given = dict(zip(names, keys, strict=True))
        aggregations: list[tuple[Any, str]] = [([], "count_all")]
        for at, (part, numbers) in enumerate(parts.items()):
            if part != _ROWS:
                given[str(at)] = pa.array(numbers)
                aggregations.append((str(at), part.op))
        found = pa.table(given).group_by(names, use_threads=False).aggregate(aggregations)

        def combined(at: int, part: _Part) -> NDArray[Any]:
            name = "count_all" if part == _ROWS else f"{at}_{part.op}"
            numbers: NDArray[Any] = found[name].to_numpy()
            return numbers

        own = [single_chunk(found[name]) for name in names]
        return own, {part: combined(at, part) for at, part in enumerate(parts)}

    def _numbers(self, part: _Part, column: pa.Array) -> NDArray[Any]:
        """Return a partial result of each row of a column."""
        if part.kind == "valid":
            return _are_valid(column).astype(np.int64)
        numbers = _as_numbers(column)
        if part.op in ("min", "max"):
            ordered = _ordered(numbers)
            if not column.null_count:
                return ordered
            return np.where(_are_valid(column), ordered, _identity(ordered.dtype, part.op))
        if part.kind == "sum" or not self._is_split(part.column):
            return numbers
        return _split(numbers)[part.kind == "low"]

    def _is_split(self, column: str | None) -> bool:
        return _Part(column, "high") in self._form.parts

    def _store(self, keys: list[pa.Array], parts: _Parts) -> None:
        """Add partial results, stored in any form, to the results of equal keys."""
        encoded = self._encoded(keys)
        numbers = {part: self._converted(part, parts) for part in self._form.parts}
        for group, members in self._groups().items():
            values = np.stack([numbers[each] for each in members], axis=1)
            if group in self._emitters:
                self._emitters[group].add(KeyValues.of_columns(encoded, values))
            else:
                self._emitters[group] = self._emitter(group[0], encoded, values)

    def _converted(self, part: _Part, parts: _Parts) -> NDArray[Any]:
        """Return a partial result of rows with a stored form that lacks it."""
        if part.kind == "valid" and part not in parts:
            return parts[_ROWS]
        if part.kind in ("high", "low") and self._is_split(part.column) and _Part(part.column, "high") not in parts:
            return _split(parts[_Part(part.column, "low")])[part.kind == "low"]
        return parts[part]

    def _groups(self) -> dict[tuple[str, str], list[_Part]]:
        """Return the stored partial results by operation and dtype. One call combines a group."""
        groups: dict[tuple[str, str], list[_Part]] = {}
        for part in self._form.parts:
            groups.setdefault((part.op, self._dtype(part)), []).append(part)
        return groups

    def _dtype(self, part: _Part) -> str:
        if part.kind == "sum":
            return "float64"
        is_whole = part.kind in ("min", "max") or (part.kind == "low" and not self._is_split(part.column))
        return "uint64" if is_whole and self._types[str(part.column)] == pa.uint64() else "int64"

    def _emitter(self, op: Any, keys: Keys, values: NDArray[Any]) -> Emitter:
        emitter = Emitter(self._world_size, op, threads=self._threads)
        emitter.add(KeyValues.of_columns(keys, values))
        return emitter

    def _taken(self, combine: Combining) -> tuple[Keys, _Parts]:
        """Return the keys and the stored partial results, combined. No rows are stored afterwards."""
        if not self._emitters:
            empty = {part: np.empty(0, self._dtype(part)) for part in self._form.parts}
            self._store([pa.array([], kind) for kind in self._kinds], empty)
        groups = self._groups()
        rows = [combine(self._emitters[group], group[0]) for group in groups]
        self._emitters = {}
        if not all(_are_equal(each.key_column, rows[0].key_column) for each in rows[1:]):
            rows = [each.sorted() for each in rows]
            assert all(_are_equal(each.key_column, rows[0].key_column) for each in rows), "the keys are the same"
        parts: Iterable[tuple[_Part, NDArray[Any]]] = (
            (part, each.values[:, at])
            for members, each in zip(groups.values(), rows, strict=True)
            for at, part in enumerate(members)
        )
        return rows[0].key_column, dict(parts)

    def _encoded(self, keys: list[pa.Array]) -> Keys:
        if not self._form.is_plain:
            return composite.encoded(keys)
        if composite.is_text(keys[0].type):
            return columns.keys_of(keys[0].cast(_large(keys[0].type)))
        return _as_numbers(keys[0]).astype(np.int64, copy=False)

    def _decoded(self, keys: Keys) -> list[pa.Array]:
        if not self._form.is_plain:
            assert isinstance(keys, Strings), "composite keys are bytes"
            return composite.decoded(keys, self._kinds)
        if isinstance(keys, Strings):
            return [arrow.array_of_keys(keys).cast(self._kinds[0])]
        return [_of_kind(keys, self._kinds[0])]

    def _result(self, column: str | None, op: str, parts: _Parts, keys: Mapping[str, pa.Array]) -> pa.Array:
        """Return a column of the result."""
        if column is None:
            return pa.array(np.ascontiguousarray(parts[_ROWS]))
        valid = self._converted(_Part(column, "valid"), parts)
        if op in ("count", "nulls"):
            return pa.array(np.ascontiguousarray(valid if op == "count" else parts[_ROWS] - valid))
        missing = valid == 0
        if op in ("min", "max"):
            return _of_kind(parts[_Part(column, op)], self._types[column], missing)
        if _Part(column, "sum") in parts:
            total = parts[_Part(column, "sum")]
        else:
            total = self._whole_total(column, op, parts, keys)
        if op == "mean":
            total = total / np.maximum(valid, 1)
        return pa.array(np.ascontiguousarray(total), mask=missing)

    def _whole_total(self, column: str, op: str, parts: _Parts, keys: Mapping[str, pa.Array]) -> NDArray[Any]:
        """Return the sums of a column of integers, as floats for a mean."""
        is_unsigned = pa.types.is_unsigned_integer(self._types[column]) or self._types[column] == pa.bool_()
        low = parts[_Part(column, "low")]
        if not self._is_split(column):
            total: NDArray[Any] = low.astype(np.float64 if op == "mean" else np.uint64 if is_unsigned else np.int64)
            return total
        high = parts[_Part(column, "high")]
        high, low = high + (low >> _LOW_BITS), low & _LOW_MASK
        if op == "mean":
            total = high * float(1 << _LOW_BITS) + low
            return total
        return _joined(high, low, column, is_unsigned=is_unsigned, keys=keys)


def combined_locally(emitter: Emitter, op: Any = None) -> KeyValues:
    """Return the rows of this rank, combined. The emitter is empty afterwards."""
    combined = emitter.combined()
    assert isinstance(combined, KeyValues), "only concat makes groups"
    return combined


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


def _key_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of keys in one chunk, with its dictionary if only the rows may be null."""
    if pa.types.is_dictionary(column.type):
        # The entries of all chunks may exceed the type of their numbers.
        kind = pa.dictionary(pa.int64(), column.type.value_type)
        pieces = (column.cast(kind) if column.num_chunks > 1 else column).combine_chunks()
        if isinstance(pieces, pa.DictionaryArray) and not pieces.dictionary.null_count:
            return pieces
    return single_chunk(column)


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


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


def _are_equal(one: Keys, other: Keys) -> bool:
    if isinstance(one, Strings) and isinstance(other, Strings):
        return np.array_equal(one.used, other.used) and np.array_equal(np.diff(one.offsets), np.diff(other.offsets))
    return np.array_equal(np.asarray(one), np.asarray(other))


def _are_valid(column: pa.Array) -> NDArray[np.bool_]:
    are_valid: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return are_valid


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


def _bound(column: pa.Array) -> int:
    """Return a bound of the magnitude of the sum of any of these integers."""
    numbers = _as_numbers(column)
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) * len(numbers)


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
