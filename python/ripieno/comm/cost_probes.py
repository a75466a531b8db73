"""Provide measurements of a communicator's costs for links, memory and cores, with short calls between few pairs.

For each kind of link, up to three pairs exchange messages of growing size, one pair at a time, so that pairs share
neither cores nor network links. To measure the capacity of an uplink, all hosts of two racks exchange at once.
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

#: Pairs per kind of link: the first, the middle and the last.
PAIR_COUNT = 3
SHORT_BYTES = 8
#: Minimum and maximum size of a long message, and the number of long messages that must fit into the budget.
BYTES_MIN, BYTES_MAX, CALL_COUNT = 64 << 10, 4 << 20, 8
#: Size of the vector that is added and copied, and the share of the budget for it.
VECTOR_BYTES, VECTOR_SHARE = 1 << 20, 0.1
#: Rounds of exchanges of all pairs over uplinks.
ROUND_COUNT = 3
#: An uplink with at least this share of the total bandwidth of its hosts does not limit them.
FULL_SHARE = 0.85


def measure(comm: Costs, budget_s: float) -> MeasuredCosts:
    """Return the result of `Communicator.tune`. Collective."""
    nodes, racks = list(comm.nodes), list(comm.racks)
    begin_s = time.time()
    comm.barrier()
    passes = _native.memory_pass(1, VECTOR_BYTES, VECTOR_SHARE * budget_s)
    add_s, copy_s = comm.allreduce(np.array(passes), op="max") / VECTOR_BYTES
    pairs = {kind: _spread(found) for kind, found in _pairs(nodes, racks).items()}
    concurrent = _concurrent_pairs(nodes, racks)
    # The group of pairs over an uplink counts as one more pair.
    shares = sum(map(len, pairs.values())) + bool(concurrent)
    share_s = (1 - VECTOR_SHARE) * budget_s / max(1, shares)
    links = {kind: _link(comm, found, share_s) for kind, found in pairs.items()}
    uplink_bytes_per_s = None
    if concurrent and (uplink := links["uplink"]) is not None:
        uplink_bytes_per_s = _uplink(comm, concurrent, links["network_link"] or uplink, share_s)
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
    """Return pairs of consecutive ranks by kind of link: within a node, between nodes of a rack, between racks."""
    by_node: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        by_node.setdefault(node, []).append(rank)
    by_rack: dict[str | None, list[int]] = {}
    for ranks in by_node.values():
        by_rack.setdefault(racks[ranks[0]], []).append(ranks[0])
    leaders = [ranks[0] for ranks in by_rack.values()]
    return {
        "memory": [(ranks[0], ranks[1]) for ranks in by_node.values() if len(ranks) > 1],
        "network_link": [pair for ranks in by_rack.values() for pair in pairwise(ranks)],
        "uplink": list(pairwise(leaders)),
    }


def _spread(pairs: list[Pair]) -> list[Pair]:
    """Return the first, the middle and the last pair."""
    last = len(pairs) - 1
    places = {last * part // (PAIR_COUNT - 1) for part in range(PAIR_COUNT)}
    return [pairs[place] for place in sorted(places)] if pairs else []


def _concurrent_pairs(nodes: Sequence[int], racks: Sequence[str | None]) -> list[Pair]:
    """Return as many pairs as possible between the nodes of the first and the second rack, one rank per node."""
    first = [nodes.index(node) for node in dict.fromkeys(nodes)]
    names = list(dict.fromkeys(racks))[:2]
    if len(names) < 2:
        return []
    sides = ([rank for rank in first if racks[rank] == name] for name in names)
    return list(zip(*sides, strict=False))


def _link(comm: Costs, pairs: Sequence[Pair], share_s: float) -> LinkCost | None:
    """Return the median cost of these pairs."""
    found = [_exchanges(comm, pair, share_s) for pair in pairs]
    if not found:
        return None
    latencies, rates = zip(*found, strict=True)
    return LinkCost(statistics.median(latencies), statistics.median(rates))


def _exchanges(comm: Costs, pair: Pair, budget_s: float) -> tuple[float, float]:
    """Return the seconds of a short message and the bytes per second of long ones, on all ranks."""
    costs = np.zeros(2)
    pair_comm = comm.split(0 if comm.rank in pair else None)
    if pair_comm is not None:
        costs[0] = _seconds(pair_comm, SHORT_BYTES, budget_s / 4)
        # These exchanges also let a new connection reach its full speed.
        rough_bytes_per_s = BYTES_MIN / _seconds(pair_comm, BYTES_MIN, budget_s / 4)
        size = _fitting(rough_bytes_per_s, budget_s / 2)
        costs[1] = size / _seconds(pair_comm, size, budget_s / 2)
        pair_comm.close()
    latency_s, bytes_per_s = comm.allreduce(costs, op="max")
    return float(latency_s), float(bytes_per_s)


def _fitting(bytes_per_s: float, budget_s: float) -> int:
    """Return the size of a long message in bytes."""
    return int(min(BYTES_MAX, max(BYTES_MIN, budget_s * bytes_per_s / CALL_COUNT)))


def _seconds(pair_comm: Costs, size_bytes: int, budget_s: float) -> float:
    """Return the seconds of an exchange of `size_bytes` between two ranks. Both get the same value."""
    vector = np.zeros(2 * size_bytes, np.uint8)
    separate = size_bytes > SHORT_BYTES
    found = _native.measure(
        pair_comm._native, "allgather", vector, budget_s=budget_s, separate=separate, algorithm="direct"
    )
    return statistics.median(found)


def _uplink(comm: Costs, concurrent: Sequence[Pair], link: LinkCost, budget_s: float) -> float | None:
    """Return the bytes per second of an uplink, each way, or None if the uplink does not limit its hosts."""
    size = _fitting(link.bytes_per_s, budget_s)
    slowest_s = [max(exchange_round(comm, concurrent, size)[one] for one, _ in concurrent) for _ in range(ROUND_COUNT)]
    total_bytes_per_s = len(concurrent) * size / statistics.median(slowest_s)
    return None if total_bytes_per_s >= FULL_SHARE * len(concurrent) * link.bytes_per_s else total_bytes_per_s
