"""What collectives make of keyed data: the parts of all ranks meet by their keys or ids, not by their places."""

from __future__ import annotations

from typing import Any

from ripieno.errors import InputError
from ripieno.keyed import gather, table_calls
from ripieno.keyed.combiners import CONCAT, Combine, combiner_of
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.regroup import regrouping
from ripieno.keyed.table import Table
from ripieno.wire.calls import StagedCall

#: What these calls are for; any other value is an array or an object.
KEYED = (KeyValues, Table)


def allreduced(value: KeyValues | Table, op: Combine | None, world_size: int, threads: int) -> StagedCall[Any]:
    """The call by which every rank gets the parts of all ranks, equal keys combined by `op`, None being its own."""
    if isinstance(value, Table):
        if op is not None and combiner_of(op).name != value.combiner.name:
            raise InputError(f"op={op!r}: this table combines by {value.combiner.name}: leave op out")
        return StagedCall(lambda native: table_calls.allreduced(native, value))
    if op == CONCAT:
        raise InputError("op='concat': allgather brings all rows to every rank")
    regroup_rows = regrouping(value, world_size, threads, combine=op)
    return StagedCall(lambda native: gather.allgathered(native, regroup_rows(native)[0]))


def allgathered(value: KeyValues | Table) -> StagedCall[Any]:
    """The call by which every rank gets the parts of all ranks."""
    if isinstance(value, Table):
        return StagedCall(lambda native: table_calls.allgathered(native, value))
    return StagedCall(lambda native: gather.allgathered(native, value))
