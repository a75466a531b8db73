"""Provide collectives of keyed data: they merge the parts of all ranks by keys or ids, not by position."""

from __future__ import annotations

from typing import Any

from ripieno.errors import InputError
from ripieno.keyed import allreduce, gather, table_calls
from ripieno.keyed.combiners import Combine, combiner_of
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.table import Table
from ripieno.wire.calls import StagedCall

#: Types for these calls. Any other value is an array or an object.
KEYED = (KeyValues, Table)


def allreduced(
    value: KeyValues | Table, op: Combine | None, world_size: int, threads: int, algorithm: str | None
) -> StagedCall[Any]:
    """Return the call that merges the parts of all ranks on every rank; None as `op` is the value's own operation."""
    if isinstance(value, Table):
        if op is not None and combiner_of(op).name != value.combiner.name:
            raise InputError(f"op={op!r}: this table combines by {value.combiner.name}: leave op out")
        return StagedCall(allreduce.of_table(value, algorithm))
    return StagedCall(allreduce.of_key_values(value, op, world_size, threads, algorithm))


def allgathered(value: KeyValues | Table, algorithm: str | None) -> StagedCall[Any]:
    """Return the call that gathers the parts of all ranks on every rank."""
    if isinstance(value, Table):
        return StagedCall(lambda native: table_calls.allgathered(native, value, algorithm))
    return StagedCall(lambda native: gather.allgathered(native, value, algorithm))
