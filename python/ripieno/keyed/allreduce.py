"""Provide allreduce of keyed data: all ranks get the combined rows of each key, or the combined partition of each id.

There are three algorithms. Costs are for p ranks with n bytes each, and a result of u bytes:

- "allgather": every rank gets the rows of all ranks and combines them. About (p-1)·n bytes arrive at each rank.
- "regroup-allgather": the owner of each key combines its rows, then results are gathered. About n + u bytes arrive.
- "bidirectional-exchange": in each of log2 p rounds, pairs of ranks exchange all rows that they have combined. About
  n·log2 p to (p-1)·n bytes arrive.

All combine in rank order. First, each rank sends a summary of its data to every rank, with 8 bytes per number.
Source: Zhang, Ruan, Qiu, "Harp: collective communication on Hadoop", IC2E 2015, section IV, table I.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.keyed import gather, table_calls
from ripieno.keyed.columns import KeyedSchema
from ripieno.keyed.combiners import CONCAT, Combine, Combiner
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.options import options_of
from ripieno.keyed.regroup import regrouping
from ripieno.keyed.table import Table, pack_partials
from ripieno.wire import objects
from ripieno.wire.arrays import accumulator

ALGORITHMS = ("allgather", "regroup-allgather", "bidirectional-exchange")

#: Time of a native call that Python prepares, and of a call that combines rows or partitions.
_CALL_S, _COMBINE_CALL_S = 30e-6, 100e-6
#: Time to combine a byte of rows, by hashing, and a byte of a partition.
_ROWS_S_PER_BYTE, _PARTITIONS_S_PER_BYTE = 4e-9, 1e-9

T = TypeVar("T")


class DataSizes(NamedTuple):
    """The data of all ranks before an allreduce.

    Attributes
    ----------
    partition_bytes : int
        The bytes of the largest row or partition.
    largest_bytes, total_bytes : int
        The bytes of the rank with the most data, and of all ranks.
    combine_s_per_byte : float
        The time to combine a byte.
    """

    partition_bytes: int
    largest_bytes: int
    total_bytes: int
    combine_s_per_byte: float


def estimates(world_size: int, amounts: DataSizes, alpha_s: float, beta_s_per_byte: float) -> dict[str, float]:
    """Return the estimated seconds of each algorithm, if all ranks have about the same keys.

    With few keys, the owner of one receives more than an even share.
    """
    p, (partition, largest, total, gamma) = world_size, amounts
    hops = (p - 1).bit_length()
    rounds = p.bit_length() - 1 + (0 if p & (p - 1) == 0 else 2)
    imbalance = max(1.0, p * partition / max(1, largest))
    moved = beta_s_per_byte + gamma
    gathered_s = 3 * (_CALL_S + hops * alpha_s)
    return {
        "allgather": gathered_s + _COMBINE_CALL_S + total * moved,
        "regroup-allgather": gathered_s
        + (2 * (_CALL_S + (p - 1) * alpha_s) + _COMBINE_CALL_S + largest * (imbalance * moved + beta_s_per_byte)),
        "bidirectional-exchange": rounds
        * (2 * (_CALL_S + alpha_s + _COMBINE_CALL_S) + largest * (beta_s_per_byte + 2 * gamma)),
    }


def chosen(native: Any, amounts: DataSizes) -> str:
    """Return the algorithm with the smallest estimate. It is the same on every rank."""
    curve = _native.packet_curve(native)
    found = estimates(native.world_size, amounts, curve.alpha_s, curve.beta_s_per_byte)
    return min(found, key=lambda name: found[name])


def of_key_values(
    rows: KeyValues, combine: Combine | None, world_size: int, threads: int, algorithm: str | None
) -> Callable[[Any], KeyValues]:
    """Return the call that merges the rows of all ranks on every rank.

    Raises
    ------
    InputError
        The algorithm is unknown, or the combination does not support the values.
    """
    if combine == CONCAT:
        raise InputError("op='concat': allgather brings all rows to every rank")
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise InputError(f"algorithm={algorithm!r} of key-values: expected one of {', '.join(ALGORITHMS)}")
    options = options_of("sum" if combine is None else combine)
    combiner = options.combiner
    rows = rows.widened(combiner)
    options.check(rows.values)

    def combined(given: KeyValues) -> KeyValues:
        found = given.combined(combiner.combine, threads=threads)
        assert isinstance(found, KeyValues), "only concat makes groups"
        return found

    def call(native: Any) -> KeyValues:
        summary = gather.summary(native, _call_text("key-values", combiner, algorithm), rows)
        nbytes = summary.nbytes
        by = algorithm or chosen(
            native, DataSizes(summary.row_bytes, int(nbytes.max()), int(nbytes.sum()), _ROWS_S_PER_BYTE)
        )
        if by == "regroup-allgather":
            regrouped, _ = regrouping(rows, world_size, threads, combine=combine)(native)
            return gather.allgathered(native, regrouped)
        # Partial sums have the dtype of the accumulator, as in a regroup.
        own = combined(_accumulating(rows, combiner))
        if by == "allgather":
            found = combined(gather.allgathered(native, own))
        else:
            found = exchanged(native, own, lambda low, high: combined(KeyValues.joined([low, high])))
        return _rounded(found, summary.schema)

    return call


def of_table(table: Table, algorithm: str | None) -> Callable[[Any], Table]:
    """Return the call that merges the partitions of all ranks on every rank.

    Tables of the same ids, shapes and dtypes are reduced as arrays, unless the algorithm is "allgather". Any algorithm
    of an allreduce of arrays is then possible.
    """

    def call(native: Any) -> Table:
        packed = pack_partials(table)
        summary = table_calls.summary(native, _call_text("a table", table.combiner, algorithm), table, packed)
        is_plain = table.combiner.function is None and table.combiner.name != CONCAT and not packed.key_values
        if summary.is_same_layout and is_plain and algorithm != "allgather":
            return table_calls.reduced(native, table.combiner, packed, algorithm)
        by = algorithm or chosen(native, DataSizes(*summary[1:], _PARTITIONS_S_PER_BYTE))
        if by == "allgather":
            return table_calls.allgathered(native, table)
        if by == "regroup-allgather":
            return table_calls.allgathered(native, table_calls.regrouped(native, table)[0])
        if by == "bidirectional-exchange":
            merged = exchanged(
                native, packed, lambda low, high: pack_partials(table_calls.united(table.combiner, [low, high]))
            )
            return table_calls.united(table.combiner, [merged])
        raise InputError(
            f"algorithm={algorithm!r} of tables that differ between ranks: expected one of {', '.join(ALGORITHMS)}"
        )

    return call


def exchanged(native: Any, own: T, merge: Callable[[T, T], T]) -> T:
    """Return the combination of all ranks' values in rank order, from a bidirectional exchange.

    In round `i`, pairs of ranks that differ in bit `i` of their numbers exchange their values. Both merge the value of
    the lower ranks with the value of the higher ranks. Beyond a power of two, the first ranks form pairs: the second of
    a pair sends its value to the first before the rounds, and receives the result afterwards.
    """
    rank, p = native.rank, native.world_size
    surplus = p - (1 << p.bit_length() - 1)
    is_second = rank < 2 * surplus and rank % 2 == 1
    number = rank // 2 if rank < 2 * surplus else rank - surplus

    def step(out: list[int], into: list[int]) -> T:
        arrived: dict[int, T] = objects.neighbour_exchange(native, dict.fromkeys(out, own), None, into)
        return next(iter(arrived.values()), own)

    partner = [rank ^ 1] if rank < 2 * surplus else []
    if surplus:
        arrived = step(partner if is_second else [], [] if is_second else partner)
        own = merge(own, arrived) if partner and not is_second else own
    for bit in range(p.bit_length() - 1):
        other = number ^ 1 << bit
        peer = [] if is_second else [2 * other if other < surplus else other + surplus]
        arrived = step(peer, peer)
        if peer:
            own = merge(own, arrived) if number < other else merge(arrived, own)
    return step([] if is_second else partner, partner if is_second else []) if surplus else own


def _call_text(operand: str, combiner: Combiner, algorithm: str | None) -> str:
    by = "" if algorithm is None else f", algorithm={algorithm!r}"
    return f"allreduce of {operand}, combine={combiner.text}{by}"


def _accumulating(rows: KeyValues, combiner: Combiner) -> KeyValues:
    """Return the rows with values in the dtype of the combination's accumulator."""
    if rows.values is None or combiner.function is not None:
        return rows
    dtype = accumulator(rows.values.dtype, combiner.name)
    return rows if dtype == rows.values.dtype else KeyValues.of_columns(rows.key_column, rows.values.astype(dtype))


def _rounded(rows: KeyValues, schema: KeyedSchema) -> KeyValues:
    """Return the rows with values in the dtype of `schema`."""
    if rows.values is None or rows.values.dtype.name == schema.dtype:
        return rows
    with np.errstate(over="ignore"):
        # A total above the range is infinite, without a warning, as in `regroup`.
        return KeyValues.of_columns(rows.key_column, rows.values.astype(np.dtype(schema.dtype)))
