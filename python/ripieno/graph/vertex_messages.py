"""Deliver messages to any vertices: regroup them by the owners of their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.graph.edge_files import LARGEST_ID
from ripieno.graph.messages import Messages, blank, checked_rows
from ripieno.keyed.combiners import Combiner
from ripieno.keyed.emitter import Emitter
from ripieno.keyed.groups import Groups
from ripieno.keyed.key_values import KeyValues
from ripieno.keyed.regroup import regroup

if TYPE_CHECKING:
    from ripieno.graph.partitioned import PartitionedGraph

# The number of unknown vertices that an error names.
_NAMED = 5


def deliver(graph: PartitionedGraph, targets: Any, values: Any, combiner: Combiner, missing: str) -> Messages:
    """Run `PartitionedGraph.send_messages`, which documents the parameters."""
    check_missing(missing)
    targets = vertex_ids(targets)
    values = checked_rows(values, len(targets), combiner, "send_messages")
    combine, threads = combiner.combine, graph.comm.threads
    # Messages keep their dtype, as along edges.
    emitter = Emitter(graph.comm.world_size, combine, threads=threads, partitioner=graph.owner_of, widen=False)
    emitter.add(KeyValues(targets, values))
    arrived, _ = regroup(graph.comm, emitter)
    places = np.searchsorted(graph.vertices, arrived.keys)
    known = places < len(graph.vertices)
    known[known] = graph.vertices[places[known]] == arrived.keys[known]
    if missing == "error":
        _check_all_known(graph, arrived.keys[~known])
    count, shape = len(graph.vertices), arrived.values.shape[1:]
    if isinstance(arrived, Groups):
        lengths = np.diff(arrived.offsets)
        places, known = np.repeat(places, lengths), np.repeat(known, lengths)
        order = np.flatnonzero(known)[np.argsort(places[known], kind="stable")]
        return Messages.grouped(places[order], arrived.values[order], count)
    rows = blank((count, *shape), arrived.values.dtype, combiner)
    rows[places[known]] = arrived.values[known]
    received = np.zeros(count, np.bool_)
    received[places[known]] = True
    return Messages(received, rows)


def _check_all_known(graph: PartitionedGraph, unknown: NDArray[np.int64]) -> None:
    """Raise an `InputError` on every rank if any rank has messages to unknown vertices."""
    count = graph.comm.allreduce(len(unknown))
    if count:
        named = np.sort(np.concatenate(graph.comm.allgather(np.sort(unknown)[:_NAMED])))[:_NAMED]
        raise InputError(
            f"send_messages: messages for {count} vertices that the graph does not have: "
            f"{', '.join(map(str, named))}{', …' if count > len(named) else ''}; expected vertices, or missing='drop'"
        )


def vertex_ids(targets: Any) -> NDArray[np.int64]:
    """Return `targets` as (m,) int64 ids."""
    ids = np.asarray(targets)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise InputError(f"send_messages: targets of type {ids.dtype} and shape {ids.shape}, expected ids in a row")
    wrong = np.flatnonzero((ids < 0) | (ids > LARGEST_ID))
    if len(wrong):
        raise InputError(f"send_messages: target {ids[wrong[0]]} of message {wrong[0]}, expected 0 … {LARGEST_ID}")
    return ids.astype(np.int64)


def check_missing(missing: str) -> None:
    """Raise an `InputError` unless `missing` is a known option."""
    if missing not in ("error", "drop"):
        raise InputError(f"missing={missing!r}: expected 'error' or 'drop'")
