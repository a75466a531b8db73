"""Handle blocks of complete keys: reduce them on their rank, join them at the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ripieno.errors import InputError
from ripieno.keyed import Groups, KeyValues, Table
from ripieno.launch.job.accumulators import AccumulatorTotals, Addition, Amounts, fold
from ripieno.mapreduce.object_pairs import ObjectPairs, are_objects
from ripieno.mapreduce.tasks import size_bytes

EXPECTED = "expected KeyValues, (keys, values), ObjectPairs, a Table or a dict of ids to arrays, or None"


class Reducer:
    """Reduces blocks as they become complete, in the same order in every run.

    Attributes
    ----------
    blocks : list
        The results of `reduce`, or the blocks themselves.
    amounts : dict
        The amounts for accumulators from `reduce`.
    seconds : float
        Seconds spent in `reduce`.
    in_bytes : int
        Bytes of its inputs.
    """

    def __init__(
        self,
        reduce: Callable[..., Any] | None,
        totals: AccumulatorTotals,
        additions: dict[int, Addition],
        rank: int,
    ) -> None:
        self._reduce = reduce
        self._totals = totals
        self._additions = additions
        self._rank = rank
        self.blocks: list[Any] = []
        self.amounts: Amounts = {}
        self.seconds = 0.0
        self.in_bytes = 0

    def take(self, block: KeyValues | Groups | Table | ObjectPairs) -> None:
        """Reduce a block."""
        if len(block) == 0:
            return
        self.in_bytes += bytes_of(block)
        if self._reduce is None:
            self.blocks.append(block)
            return
        begin = time.perf_counter()
        try:
            with self._totals.collecting() as added:
                output = _reduced(self._reduce, block)
                try:
                    result = as_keyed(output)
                except InputError as error:
                    raise InputError(f"reduce returned {error}{_hint(block)}") from error
        except Exception as error:
            error.add_note(f"in reduce, of a block of {len(block)} keys on rank {self._rank}")
            raise
        fold(self.amounts, added, self._additions)
        if result is not None:
            self.blocks.append(result)
        self.seconds += time.perf_counter() - begin


def as_keyed(output: Any) -> Any:
    """Return an output of `map` or `reduce` as keyed data, others unchanged.

    A pair of columns is `KeyValues`, a pair of other objects `ObjectPairs`, and a dict a `Table`.
    """
    if isinstance(output, tuple) and len(output) == 2:
        return ObjectPairs(*output) if are_objects(*output) else KeyValues(*output)
    return Table(output) if isinstance(output, dict) else output


def joined(blocks: Sequence[Any]) -> Any:
    """Return the blocks of all ranks as one if they are keyed data of one kind; otherwise their list."""
    kinds = {type(block) for block in blocks}
    if kinds == {KeyValues}:
        return KeyValues.joined(blocks)
    if kinds == {ObjectPairs}:
        return ObjectPairs.joined(blocks)
    if kinds == {Groups}:
        return Groups.joined(blocks)
    if kinds == {Table}:
        return _joined_tables(blocks)
    return list(blocks) or None


def bytes_of(value: Any) -> int:
    """Return the size in bytes of keyed data, and of any other object that reports a size."""
    if isinstance(value, Table):
        return sum(partition.nbytes for partition in value.values())
    if isinstance(value, Groups):
        return KeyValues(value.key_column).nbytes + value.offsets.nbytes + getattr(value.values, "nbytes", 0)
    return size_bytes(value) or 0


def _reduced(reduce: Callable[..., Any], block: KeyValues | Groups | Table | ObjectPairs) -> Any:
    if isinstance(block, Table):
        return {number: reduce(number, array) for number, array in block.items()}
    if isinstance(block, Groups):
        return reduce(block.keys, block.values, block.offsets)
    return reduce(block.keys, block.values)


def _hint(block: KeyValues | Groups | Table | ObjectPairs) -> str:
    if isinstance(block, Table):
        return ""
    return " (a pair means keys and values, a dict means a table: put other results into a list)"


def _joined_tables(blocks: Sequence[Table]) -> Table:
    combiner = blocks[0].combiner
    partitions: dict[int, Any] = {}
    for block in blocks:
        for number, array in block.items():
            if number in partitions:
                raise InputError(f"reduce: id {number} on several ranks: expected each id once, the one that was given")
            partitions[number] = array
    return Table(partitions, combiner.combine)
