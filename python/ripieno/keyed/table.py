"""Provide `Table`: a mapping of ids to arrays that combines arrays with equal ids."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.keyed import columns
from ripieno.keyed.combiners import CONCAT, Combine, combine_blocks, combiner_of
from ripieno.keyed.key_values import KeyValues
from ripieno.wire.arrays import accumulator, reducible, split

#: An array, or KeyValues. `Any` lets callers that know the type omit a check.
Partition = NDArray[Any] | Any

# Added partitions are combined once they have this many bytes, and at least as many as the combined partition. So
# adding takes linear time.
_PENDING_BYTES = 1 << 20


class Table(MutableMapping[int, Partition]):
    """A mapping of ids to partitions, iterated by ascending id. Adding to an existing id combines the partitions.

    ``table[id] = partition`` replaces, ``table.add(id, partition)`` combines. Partitions are neither copied nor
    changed, and the caller must not change them. Key-values, and arrays with "concat", are combined when they are read
    or when their size has doubled. So adding takes time proportional to the added rows.

    Parameters
    ----------
    partitions : mapping of int to array or KeyValues, optional
        Ids are 64-bit integers. Arrays have any shape and a dtype that `Communicator.allreduce` accepts. Different ids
        may have different shapes and dtypes.
    combine : {"sum", "prod", "min", "max", "and", "or", "xor", "concat"} or callable
        How to combine two partitions of an id: elementwise, or by a function of two arrays that returns one of the same
        shape and dtype. Sums and products of floats below 64 bits accumulate in float64, also over ranks, and are
        rounded when they are read. "concat" appends the rows of one to the rows of the other; their lengths may differ.
        Key-values are concatenated and combined by key.

    Raises
    ------
    InputError
        An id is not an integer, a partition is not an array, or `combine` is unknown or does not support the dtype.

    Examples
    --------
    >>> import numpy as np
    >>> import ripieno as rp
    >>> table = rp.Table({3: np.ones(2), 1: np.zeros((2, 2))}, combine="sum")
    >>> table.add(3, np.array([1.0, 2.0]))
    >>> list(table), table[3]
    ([1, 3], array([2., 3.]))
    """

    def __init__(self, partitions: Mapping[int, Any] | None = None, combine: Combine = "sum") -> None:
        self.combiner = combiner_of(combine)
        self._entries: dict[int, _PartitionEntry] = {}
        if partitions is not None and not isinstance(partitions, Mapping):
            raise InputError(f"Table of a {type(partitions).__name__}: expected a dict of ids to arrays")
        for number, partition in (partitions or {}).items():
            self[number] = partition

    def add(self, number: int, partition: Any) -> None:
        """Store `partition` under an id, combined with the existing partition.

        Raises
        ------
        InputError
            Its shape or dtype differs from the existing partition.
        """
        number = _checked_id(number)
        self.merge(number, self._checked(number, partition))

    def merge(self, number: int, added: Partition) -> None:
        """Add a checked partition of another table with the same combiner."""
        entry = self._entries.get(number)
        if entry is None:
            self._entries[number] = _PartitionEntry(added)
            return
        existing = entry.whole
        self._check_fits(number, existing, added)
        if isinstance(existing, np.ndarray) and self.combiner.name != CONCAT:
            wide = self._wide(existing.dtype)
            if wide == existing.dtype:
                entry.whole = combine_blocks(self.combiner, existing, added)
            else:
                entry.accumulate(self.combiner.ufunc, added.astype(wide))
        elif len(existing) == 0:
            entry.whole = added
        elif len(added):
            entry.pending.append(added)
            entry.pending_bytes += added.nbytes
            if entry.pending_bytes >= max(existing.nbytes, _PENDING_BYTES):
                self._combine(entry)

    def merge_partial(self, number: int, added: Partition, dtype: np.dtype[Any] | None) -> None:
        """Add a partial result of another table with the same combiner, for a partition of `dtype`; see `partial`."""
        if dtype is None or added.dtype == dtype:
            self.merge(number, added)
            return
        if number not in self._entries:
            # Not read before it is rounded.
            self._entries[number] = _PartitionEntry(np.empty(added.shape, dtype))
            self._entries[number].accumulated, self._entries[number].is_rounded = np.array(added), False
            return
        entry = self._entries[number]
        self._check_fits(number, entry.whole, np.broadcast_to(np.zeros((), dtype), added.shape))
        entry.accumulate(self.combiner.ufunc, added)

    def partial(self, number: int) -> Partition:
        """Return a partition in the dtype in which it accumulates."""
        whole = self[number]
        if not isinstance(whole, np.ndarray):
            return whole
        accumulated = self._entries[number].accumulated
        return whole.astype(self._wide(whole.dtype), copy=False) if accumulated is None else accumulated

    def __getitem__(self, number: int) -> Partition:
        entry = self._entries[number]
        if entry.pending:
            self._combine(entry)
        if not entry.is_rounded:
            assert entry.accumulated is not None, "only accumulated partitions are rounded"
            entry.whole = entry.accumulated.astype(entry.whole.dtype)
            entry.is_rounded = True
        return entry.whole

    def __setitem__(self, number: int, partition: Any) -> None:
        number = _checked_id(number)
        self._entries[number] = _PartitionEntry(self._checked(number, partition))

    def __delitem__(self, number: int) -> None:
        del self._entries[number]

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        nbytes = sum(partition.nbytes for partition in self.values())
        return f"<Table: {len(self)} partitions, {nbytes} bytes, combine={self.combiner.name}>"

    def __reduce__(self) -> Any:
        return _unpacked, (pack(self), self.combiner.combine)

    def _wide(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype in which partitions of `dtype` accumulate."""
        return dtype if self.combiner.function else accumulator(dtype, self.combiner.name)

    def _checked(self, number: int, partition: Any) -> Partition:
        named = self.combiner.function is None and self.combiner.name != CONCAT
        op, name = self.combiner.name if named else "min", f"partition {number}"
        if isinstance(partition, KeyValues):
            partition = partition.widened(self.combiner)
            if partition.values is not None:
                reducible(partition.values, op, name)
            return partition
        if isinstance(partition, bytes | bytearray):
            partition = np.frombuffer(partition, np.uint8)
        # Any dtype is accepted here: sums of booleans count them.
        array = reducible(partition, "min", name)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        return reducible(columns.widened(array, op) if named else array, op, name)

    def _check_fits(self, number: int, existing: Partition, added: Partition) -> None:
        is_concat = self.combiner.name == CONCAT
        if isinstance(existing, KeyValues) and isinstance(added, KeyValues):
            fits = existing.schema == added.schema or not (len(existing) and len(added))
        else:
            skip = 1 if is_concat else 0
            schemas = [(type(each), getattr(each, "dtype", None), np.shape(each)[skip:]) for each in (existing, added)]
            fits = schemas[0] == schemas[1] and not (is_concat and np.ndim(existing) == 0)
        if not fits:
            raise InputError(
                f"partition {number}: {_described(added)} and {_described(existing)}: expected equal shapes and dtypes"
            )

    def _combine(self, entry: _PartitionEntry) -> None:
        """Combine the pending partitions of an entry into one."""
        pieces: list[Any] = [entry.whole, *entry.pending]
        if isinstance(entry.whole, KeyValues):
            entry.whole = KeyValues.joined(pieces)
            if self.combiner.name != CONCAT:
                entry.whole = entry.whole.combined(self.combiner.combine)
        else:
            entry.whole = np.concatenate(pieces)
        entry.pending, entry.pending_bytes = [], 0


class _PartitionEntry:
    """The partitions added under an id: the combined partition `whole`, and `pending` ones in the order of addition.

    Sums and products of floats below 64 bits are `accumulated` in float64. `whole` is rounded when it is read.
    """

    def __init__(self, whole: Partition) -> None:
        self.whole = whole
        self.accumulated: NDArray[np.float64] | None = None
        self.is_rounded = True
        self.pending: list[Partition] = []
        self.pending_bytes = 0

    def accumulate(self, ufunc: np.ufunc, added: NDArray[Any]) -> None:
        """Add to the accumulated partition, in the dtype of `added`."""
        if self.accumulated is None:
            self.accumulated = np.array(self.whole, added.dtype)
        ufunc(self.accumulated, added, out=self.accumulated)
        self.is_rounded = False


class PackedPartitions(NamedTuple):
    """Packed partitions: the arrays of each dtype form one flat array, in the order of `ids`.

    Partial results have the dtype in which they accumulate.

    Attributes
    ----------
    ids : list of int
        Ids of the arrays, ascending.
    layout : list of (dtype, tuple of int)
        Dtype and shape of each partition.
    flat_arrays : dict of dtype to array
        Flat arrays by the dtype of the partitions.
    key_values : dict of int to KeyValues
    """

    ids: list[int]
    layout: list[tuple[np.dtype[Any], tuple[int, ...]]]
    flat_arrays: dict[np.dtype[Any], NDArray[Any]]
    key_values: dict[int, KeyValues]


def pack(partitions: Mapping[int, Partition], sent: Callable[[int], Any] | None = None) -> PackedPartitions:
    """Pack partitions into one flat array per dtype. A single array of its dtype is not copied.

    `sent` returns the array to send for an id, by default the partition.
    """
    packed = PackedPartitions([], [], {}, {})
    pieces: dict[np.dtype[Any], list[NDArray[Any]]] = {}
    for number in sorted(partitions):
        partition = partitions[number]
        if isinstance(partition, KeyValues):
            packed.key_values[number] = partition
            continue
        packed.ids.append(number)
        packed.layout.append((partition.dtype, partition.shape))
        pieces.setdefault(partition.dtype, []).append((partition if sent is None else sent(number)).reshape(-1))
    for dtype, arrays in pieces.items():
        packed.flat_arrays[dtype] = np.concatenate(arrays) if len(arrays) > 1 else arrays[0]
    return packed


def pack_partials(table: Table, ids: Iterable[int] | None = None) -> PackedPartitions:
    """Pack the partial results of a table, by default of all ids, to be combined with those of other ranks."""
    return pack({number: table[number] for number in (table if ids is None else ids)}, table.partial)


def unpack(packed: PackedPartitions) -> dict[int, Partition]:
    """Return the partitions as views of the flat arrays."""
    partitions: dict[int, Partition] = dict(packed.key_values)
    sizes: dict[np.dtype[Any], list[int]] = {dtype: [] for dtype in packed.flat_arrays}
    for dtype, shape in packed.layout:
        sizes[dtype].append(int(np.prod(shape, dtype=np.int64)))
    pieces = {dtype: iter(split(flat, sizes[dtype])) for dtype, flat in packed.flat_arrays.items()}
    for number, (dtype, shape) in zip(packed.ids, packed.layout, strict=True):
        partitions[number] = next(pieces[dtype]).reshape(shape)
    return partitions


def _unpacked(packed: PackedPartitions, combine: Combine) -> Table:
    return Table(unpack(packed), combine)


def _checked_id(number: Any) -> int:
    try:
        found = operator.index(number)
    except TypeError:
        raise InputError(f"partition {number!r}: expected a whole number as its id") from None
    if not -(2**63) <= found < 2**63:
        raise InputError(f"partition {found}: expected an id of 64 bits")
    return found


def _described(partition: Partition) -> str:
    if isinstance(partition, KeyValues):
        return repr(partition)
    return f"shape {partition.shape} and dtype {partition.dtype}"
