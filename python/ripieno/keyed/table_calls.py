"""Provide collectives of tables: they merge the partitions of all ranks with equal ids.

Tables with the same ids, shapes and dtypes on all ranks are reduced like arrays, in one flat array per dtype. In a
regroup each partition goes to its owner. The owner combines partitions in rank order. Ranks send the text of the call
with the partitions, and compare it. Cost of regroup: each partition once. Cost of allgather: each partition to every
rank.
Source: Zhang, Ruan, Qiu, "Harp: collective communication on Hadoop", IC2E 2015, section IV, table I.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ripieno.errors import InputError
from ripieno.keyed import agreement, partitioners
from ripieno.keyed.combiners import Combine, Combiner
from ripieno.keyed.options import refuse_options
from ripieno.keyed.partitioners import Partitioner
from ripieno.keyed.table import PackedPartitions, Table, pack_partials, unpack
from ripieno.wire import objects
from ripieno.wire.arrays import native_elements


def table_regrouping(
    table: Table,
    *,
    combine: Combine | None = None,
    partitioner: Partitioner = None,
    local_reduction: bool = True,
    **options: Any,
) -> Callable[[Any], tuple[Table, dict[str, Any]]]:
    """Return the call of `regroup` on a table. Tables are reduced locally when they are filled, and stay in memory."""
    partitioner = partitioners.checked(partitioner)
    if partitioner == "balanced":
        raise InputError("partitioner='balanced' of a table: expected 'hash' or a function of an array of ids")
    refuse_options(table, **options, local_reduction=None if local_reduction else False)
    combined = table if combine is None else Table(table, combine)
    return lambda native: regrouped(native, combined, partitioner)


def regrouped(native: Any, table: Table, partitioner: Partitioner = None) -> tuple[Table, dict[str, Any]]:
    """Return the partitions that this rank owns: by ``id % world_size``, or by the partitioner."""
    begin_s, sent_before = time.perf_counter(), native.statistics()["bytes_sent"]
    ids = np.array(list(table), np.int64)
    if callable(partitioner):
        owners = partitioners.owners_of(partitioner, ids, native.world_size)
    else:
        owners = ids % native.world_size
    by = partitioners.description_of(partitioner, "hash")
    call = f"regroup of a table by {by}, combine={table.combiner.text}"
    by_owner = [ids[owners == rank].tolist() for rank in range(native.world_size)]
    leaving = [(call, pack_partials(table, owner_ids)) for owner_ids in by_owner]
    arrived = objects.alltoall(native, leaving, None)
    arrived_s, sent_after = time.perf_counter(), native.statistics()["bytes_sent"]
    result = _agreed(table.combiner, arrived)
    statistics = {
        "rows_added": len(table),
        "rows_in": len(table),
        "keys": len(result),
        "bytes_sent": sent_after - sent_before,
        "exchange_s": arrived_s - begin_s,
        "merge_s": time.perf_counter() - arrived_s,
    }
    return result, statistics


class TableSummary(NamedTuple):
    """The tables of all ranks.

    Attributes
    ----------
    is_same_layout : bool
        Whether all ranks have the same ids, shapes and dtypes.
    partition_bytes, largest_bytes, total_bytes : int
        The bytes of the largest partition, of the rank with the most data, and of all ranks.
    """

    is_same_layout: bool
    partition_bytes: int
    largest_bytes: int
    total_bytes: int


def summary(native: Any, call: str, table: Table, packed: PackedPartitions) -> TableSummary:
    """Return the summary of all ranks' tables. All must make the same call. Cost: an allgather of 32 bytes per rank.

    Raises
    ------
    CollectiveMismatch
        On every rank: ranks make different calls.
    """
    layout = agreement.text_hash(repr((packed.ids, packed.layout, sorted(packed.key_values))))
    sizes_bytes = [partition.nbytes for partition in table.values()]
    found = agreement.numbers(native, call, (layout, max(sizes_bytes, default=0), sum(sizes_bytes)))
    is_same = bool((found[:, 0] == layout).all())
    return TableSummary(is_same, int(found[:, 1].max()), int(found[:, 2].max()), int(found[:, 2].sum()))


def reduced(native: Any, combiner: Combiner, packed: PackedPartitions, algorithm: str | None) -> Table:
    """Return the combination of partitions that have the same layout on all ranks."""
    arrays = {dtype: np.array(flat) for dtype, flat in packed.flat_arrays.items()}
    for flat in arrays.values():
        native.collective(("allreduce", combiner.name), native_elements(flat)[0], algorithm)
    return united(combiner, [packed._replace(flat_arrays=arrays)])


def allgathered(native: Any, table: Table, algorithm: str | None = None) -> Table:
    """Return the partitions of all ranks, with equal ids combined in rank order."""
    call = f"allgather of a table, combine={table.combiner.text}"
    return _agreed(table.combiner, objects.allgather(native, (call, pack_partials(table)), algorithm))


def united(combiner: Combiner, parts: Iterable[PackedPartitions]) -> Table:
    """Return one table of packed partitions, with equal ids combined in the given order."""
    table = Table(combine=combiner.combine)
    for packed in parts:
        dtypes = {number: dtype for number, (dtype, _) in zip(packed.ids, packed.layout, strict=True)}
        for number, partition in unpack(packed).items():
            table.merge_partial(number, partition, dtypes.get(number))
    return table


def _agreed(combiner: Combiner, arrived: Sequence[tuple[str, PackedPartitions]]) -> Table:
    """Return one table of the packed partitions of all ranks, which must make the same call."""
    agreement.check([call for call, _ in arrived])
    return united(combiner, [packed for _, packed in arrived])
