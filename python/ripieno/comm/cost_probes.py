"""Costs of a communicator's links, memory and cores, by short calls between few pairs of its ranks.

Of each kind of link up to three pairs exchange messages that grow, one pair after the other, so that neither cores nor
wires are shared. What an uplink carries is seen only when all hosts of two racks exchange at once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

import ripieno._native as _native
from ripieno.comm.rack_probes import Pair, exchange_round
from ripieno.simulation.link_costs import LinkCost, MeasuredCosts

if TYPE_CHECKING:
    from ripieno.comm.costs import Costs

#: Pairs of a kind: the first, one in the middle, the last.
PAIR_COUNT = 3
SHORT_BYTES = 8
#: The least and the most of a long message, and for how many of them there shall be time.
LEAST_BYTES, MOST_BYTES, CALL_COUNT = 64 << 10, 4 << 20, 8
#: What is added and copied, and the part of all time that this gets.
VECTOR_BYTES, VECTOR_SHARE = 1 << 20, 0.1
#: Exchanges of all pairs over uplinks.
ROUND_COUNT = 3
#: An uplink that carries this part of what the cables of its hosts do is never in the way.
FULL_SHARE = 0.85


def measure(comm: Costs, budget_s: float) -> MeasuredCosts:
    """What `Communicator.tune` gives. Collective."""
    nodes, racks = list(comm.nodes), list(comm.racks)
    begin_s = time.time()
    comm.barrier()
    passes = _native.memory_pass(1, VECTOR_BYTES, VECTOR_SHARE * budget_s)
    add_s, copy_s = comm.allreduce(np.array(passes), op="max") / VECTOR_BYTES
    pairs = {kind: _spread(found) for kind, found in _pairs(nodes, racks).items()}
    crowd = _crowd(nodes, racks)
    # An uplink's crowd counts as one more pair.
    shares = sum(map(len, pairs.values())) + bool(crowd)
    share_s = (1 - VECTOR_SHARE) * budget_s / max(1, shares)
    links = {kind: _link(comm, found, share_s) for kind, found in pairs.items()}
    uplink_bytes_per_s = None
    if crowd and (between := links["uplink"]) is not None:
        uplink_bytes_per_s = _uplink(comm, crowd, links["cable"] or between, share_s)
    return MeasuredCosts(
        hosts=list(comm.hosts),
        nodes=nodes,
        racks=racks,
        measured_at=comm.allreduce(begin_s, op="min"),
        **links,
        uplink_bytes_per_s=uplink_bytes_per_s,
        add_s_per_byte=float(add_s),
        copy_s_per_byte=float(copy_s),
    )


def _pairs(nodes: Sequence[int], racks: Sequence[str | None]) -> dict[str, list[Pair]]:
    """By kind of link, pairs of ranks that follow each other: of a node, of nodes of a rack, of racks."""
    by_node: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        by_node.setdefault(node, []).append(rank)
    by_rack: dict[str | None, list[int]] = {}
    for ranks in by_node.values():
        by_rack.setdefault(racks[ranks[0]], []).append(ranks[0])
    leaders = [ranks[0] for ranks in by_rack.values()]
    return {
        "memory": [(ranks[0], ranks[1]) for ranks in by_node.values() if len(ranks) > 1],
        "cable": [pair for ranks in by_rack.values() for pair in pairwise(ranks)],
        "uplink": list(pairwise(leaders)),
    }


def _spread(pairs: list[Pair]) -> list[Pair]:
    """The first, one in the middle and the last."""
    last = len(pairs) - 1
    places = {last * part // (PAIR_COUNT - 1) for part in range(PAIR_COUNT)}
    return [pairs[place] for place in sorted(places)] if pairs else []


def _crowd(nodes: Sequence[int], racks: Sequence[str | None]) -> list[Pair]:
    """As many pairs as may be between a first rank of each node of the first rack, and of the second."""
    first = [nodes.index(node) for node in dict.fromkeys(nodes)]
    names = list(dict.fromkeys(racks))[:2]
    if len(names) < 2:
        return []
    one, other = ([rank for rank in first if racks[rank] == name] for name in names)
    return list(zip(one, other, strict=False))


def _link(comm: Costs, pairs: Sequence[Pair], share_s: float) -> LinkCost | None:
    """The median of these pairs."""
    found = [_exchanges(comm, pair, share_s) for pair in pairs]
    if not found:
        return None
    latencies, rates = zip(*found, strict=True)
    return LinkCost(statistics.median(latencies), statistics.median(rates))


def _exchanges(comm: Costs, pair: Pair, budget_s: float) -> tuple[float, float]:
    """Seconds of a short message, and bytes per second of long ones; all ranks know both."""
    told = np.zeros(2)
    together = comm.split(0 if comm.rank in pair else None)
    if together is not None:
        told[0] = _seconds(together, SHORT_BYTES, budget_s / 4)
        # These also let a fresh connection come to its speed.
        about = LEAST_BYTES / _seconds(together, LEAST_BYTES, budget_s / 4)
        size = _fitting(about, budget_s / 2)
        told[1] = size / _seconds(together, size, budget_s / 2)
        together.close()
    latency_s, bytes_per_s = comm.allreduce(told, op="max")
    return float(latency_s), float(bytes_per_s)


def _fitting(bytes_per_s: float, budget_s: float) -> int:
    """Bytes of a long message."""
    return int(min(MOST_BYTES, max(LEAST_BYTES, budget_s * bytes_per_s / CALL_COUNT)))


def _seconds(together: Costs, size_bytes: int, budget_s: float) -> float:
    """Of an exchange between two ranks: each sends so many bytes to the other; the same on both."""
    vector = np.zeros(2 * size_bytes, np.uint8)
    apart = size_bytes > SHORT_BYTES
    found = _native.measure(together._native, "allgather", vector, budget_s=budget_s, apart=apart, algorithm="direct")
    return statistics.median(found)


def _uplink(comm: Costs, crowd: Sequence[Pair], cable: LinkCost, budget_s: float) -> float | None:
    """Bytes per second of an uplink, each way; None if that is what the cables carry."""
    size = _fitting(cable.bytes_per_s, budget_s)
    slowest_s = [max(exchange_round(comm, crowd, size)[one] for one, _ in crowd) for _ in range(ROUND_COUNT)]
    whole = len(crowd) * size / statistics.median(slowest_s)
    return None if whole >= FULL_SHARE * len(crowd) * cable.bytes_per_s else whole
