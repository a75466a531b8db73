"""Regroup: rows with equal keys come together on one rank, combined.

Equal keys are combined on their way in (*local reduction*), their rows leave for their home ranks once, and are
combined there with those of other ranks as they come. Cost: local reduction, the exchange of sizes, in which ranks also
agree, and the combined rows once.
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
    """As `Communicator.regroup`, with statistics beside the result.

    Parameters
    ----------
    rows : KeyValues, Table or Emitter
        An emitter is empty afterwards.
    on_block : callable, optional
        As for `Communicator.regroup`.
    exchange : dict, optional
        How rows travel: "wave_bytes", "eager_bytes" and "pulls". Not for tables.
    options
        Those of `Communicator.regroup`; an emitter has its own, so none beside it.

    Returns
    -------
    KeyValues, Groups or Table; or None
    dict
        What `Emitter.regroup` tells.
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
    """The call that `regroup` makes, for the native communicator; the options are checked here."""
    if isinstance(rows, Table):
        return table_regrouping(rows, on_block=on_block, **options)
    if isinstance(rows, KeyValues):
        if options.get("combine") is None:
            options["combine"] = "sum"
        emitter = Emitter(world_size, threads=threads, **options)
    elif isinstance(rows, Emitter):
        if options:
            raise InputError(f"{', '.join(options)} beside an emitter, which has its own")
        emitter = rows
    else:
        raise InputError(f"regroup of a {type(rows).__name__}: expected KeyValues or a Table")

    def call(native: Any) -> tuple[Any, dict[str, Any]]:
        if isinstance(rows, KeyValues):
            emitter.add(rows)
        return emitter.regroup(native, on_block, **(exchange or {}))

    return call
