"""Regroup rows: move equal keys to one rank and combine them.

A rank combines equal keys when they are added (*local reduction*). It sends their rows to their owners once, and the
owners combine them with the rows of other ranks on arrival. Cost: local reduction, the exchange of sizes, which also
checks that ranks agree, and one transfer of the combined rows.
Source: Zhang, Ruan, Qiu, "Harp: collective communication on Hadoop", IC2E 2015, section IV; Zhang et al., "Social image
clustering with iterative MapReduce (Twister)", section 5.1 (local reduction).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ripieno.errors import InputError
from ripieno.keyed.emitter import Emitter
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.table import Table
from ripieno.keyed.table_calls import table_regrouping
from ripieno.wire.calls import Caller, StagedCall


def regroup(
    comm: Caller,
    rows: KeyValues | Table | Emitter,
    *,
    on_block: Callable[[Any], None] | None = None,
    exchange: dict[str, int] | None = None,
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """Run `Communicator.regroup`, and return statistics in addition to the result.

    Parameters
    ----------
    rows : KeyValues, Table or Emitter
        An emitter is empty afterwards.
    on_block : callable, optional
        As for `Communicator.regroup`.
    exchange : dict, optional
        Options of the exchange: "wave_bytes", "eager_bytes" and "pulls". Not for tables.
    options
        Options of `Communicator.regroup`. An emitter has its own options and accepts none here.

    Returns
    -------
    KeyValues, Groups or Table; or None
    dict
        The statistics of `Emitter.regroup`.
    """
    call = regrouping(rows, comm.world_size, comm.threads, on_block=on_block, exchange=exchange, **options)
    return comm._do(StagedCall(call))


def regrouping(
    rows: Any,
    world_size: int,
    threads: int,
    *,
    on_block: Callable[[Any], None] | None = None,
    exchange: dict[str, int] | None = None,
    **options: Any,
) -> Callable[[Any], tuple[Any, dict[str, Any]]]:
    """Return the native call of `regroup`, with checked options."""
    if isinstance(rows, Table):
        return table_regrouping(rows, on_block=on_block, **options)
    if isinstance(rows, KeyValues):
        if options.get("combine") is None:
            options["combine"] = "sum"
        emitter = Emitter(world_size, threads=threads, **options)
    elif isinstance(rows, Emitter):
        if options:
            raise InputError(f"{', '.join(options)}: an emitter has its own: omit it")
        emitter = rows
    else:
        raise InputError(f"regroup of a {type(rows).__name__}: expected KeyValues or a Table")

    def call(native: Any) -> tuple[Any, dict[str, Any]]:
        if isinstance(rows, KeyValues):
            emitter.add(rows)
        return emitter.regroup(native, on_block, **(exchange or {}))

    return call
