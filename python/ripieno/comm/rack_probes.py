"""Detect the racks of ranks with probes: in rounds, pairs of hosts exchange bytes, all pairs at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ripieno.host import numa_nodes, usable_cores
from ripieno.topology import Host, Racks, Topology, search

if TYPE_CHECKING:
    from ripieno.comm.costs import Costs

Pair = tuple[int, int]
#: Bytes of a probe in the first rounds, and limits for later probes.
FIRST_BYTES, BYTES_MIN, BYTES_MAX = 128 << 10, 32 << 10, 256 << 20
#: Rounds after which the link rates of hosts are known well enough.
FIRST_ROUNDS = 2
#: Short calls, after which the links between ranks of a host have timed a cache line several times.
LINE_CALLS = 500


def topology(comm: Costs, *, measures: bool, round_s: float) -> Topology:
    """Return the hosts of all ranks, and their racks. Collective."""
    nodes, racks = list(comm.nodes), list(comm.racks)
    leaders = [nodes.index(node) for node in dict.fromkeys(nodes)]
    resources = comm.allgather((usable_cores(), numa_nodes(), _line_s(comm)))
    hosts = []
    for leader in leaders:
        lines_s = [resources[rank][2] for rank, node in enumerate(nodes) if node == nodes[leader]]
        known_s = [line_s for line_s in lines_s if line_s is not None]
        cores, numa_node_count, _ = resources[leader]
        hosts.append(Host(comm.hosts[leader], len(lines_s), cores, numa_node_count, max(known_s, default=None)))
    names = [racks[leader] for leader in leaders]
    configured = [name for name in names if name is not None]
    if len(configured) == len(names) and not measures:
        return Topology(hosts, configured, "given")
    if len(hosts) < 3:
        return Topology(hosts, ["rack0"] * len(hosts), "too few")
    found = _searched(comm, leaders, round_s)
    numbers = [f"rack{number}" for number in found.numbers]
    return Topology(hosts, numbers, "measured", found.certainty, found.round_count, found.probe_count)


def _line_s(comm: Costs) -> float | None:
    """Return the longest time of a cache line between this rank and others of its host, after short calls of all."""
    shares_host = len(set(comm.nodes)) < comm.world_size
    # The links of a communicator keep the costs. `shrink` copies the cache, but makes new links.
    if shares_host and comm.cache.get(_line_s) is not comm._native:
        number = np.zeros(1)
        for _ in range(LINE_CALLS):
            comm.allreduce(number, out=number)
        comm.cache[_line_s] = comm._native
    costs = [costs["line_s"] for _, costs in comm._native.pair_costs()]
    return max((line_s for line_s in costs if line_s is not None), default=None)


def _searched(comm: Costs, leaders: list[int], round_s: float) -> Racks:
    """Search for racks. Every rank runs the search itself, on the same rates."""
    rack_search = search(len(leaders))
    size_bytes, fastest = FIRST_BYTES, 0.0
    pairs = next(rack_search)
    number = 0
    while True:
        seconds = exchange_round(comm, [(leaders[first], leaders[second]) for first, second in pairs], size_bytes)
        rates = [size_bytes / seconds[leaders[first]] for first, _ in pairs]
        fastest = max(fastest, *rates)
        number += 1
        if number >= FIRST_ROUNDS:
            size_bytes = int(min(BYTES_MAX, max(BYTES_MIN, fastest * round_s)))
        try:
            pairs = rack_search.send(rates)
        except StopIteration as end:
            found: Racks = end.value
            return found


def exchange_round(comm: Costs, pairs: Sequence[Pair], size_bytes: int) -> list[float]:
    """Let pairs of ranks exchange `size_bytes`, all pairs at once. Return the seconds of each rank's exchange.

    Both ranks of a pair get the shorter time, because the rank that begins first waits for the other.
    """
    partners = {rank: partner for pair in pairs for rank, partner in (pair, pair[::-1])}
    partner = partners.get(comm.rank)
    # The first exchange opens the connections. Only the second is timed.
    seconds = 0.0
    for length in (1, size_bytes):
        out = {} if partner is None else {partner: np.zeros(length, np.uint8)}
        into = {} if partner is None else {partner: np.empty(length, np.uint8)}
        comm.barrier()
        begin_s = time.perf_counter()
        comm.neighbour_exchange(out, out=into)
        seconds = time.perf_counter() - begin_s
    all_seconds = comm.allgather(seconds)
    return [min(all_seconds[rank], all_seconds[partners.get(rank, rank)]) for rank in range(comm.world_size)]
