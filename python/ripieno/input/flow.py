"""Maximum flows from splits to the hosts that have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from scipy.sparse.csgraph import maximum_flow

# SciPy counts flows in 32 bits; sums of capacities have to stay below.
_FLOW_LIMIT = 1 << 30


def matched(near: Sequence[Sequence[str]], rooms: Sequence[Mapping[str, int]]) -> list[str | None]:
    """A host for as many splits as possible; None for the others.

    Parameters
    ----------
    near
        The hosts that have each split.
    rooms
        How many splits each host takes: stage by stage, with more room in each. What a host has in one stage is no
        less in the next, so the first stages decide where there is a choice.
    """
    chosen: list[str | None] = [None] * len(near)
    if any(near):
        network = _Network(near, list(rooms[0]))
        for room in rooms:
            network.augment([1] * len(near), room)
        for at, host, _ in network.used():
            chosen[at] = host
    return chosen


def bytes_to_hosts(
    sizes: Sequence[int], near: Sequence[Sequence[str]], room: Mapping[str, int]
) -> list[dict[str, int]]:
    """How much of each split flows to which of its hosts, in a unit of its own, when hosts take `room` bytes."""
    flows: list[dict[str, int]] = [{} for _ in near]
    if any(near):
        total = sum(sizes)
        unit = -(-total // _FLOW_LIMIT)
        network = _Network(near, list(room))
        network.augment(
            [-(-size // unit) for size in sizes], {host: min(bytes, total) // unit for host, bytes in room.items()}
        )
        for at, host, amount in network.used():
            flows[at][host] = amount
    return flows


class _Network:
    """Source -> splits -> hosts -> sink, and what flows there: against an arc it counts as negative."""

    def __init__(self, near: Sequence[Sequence[str]], hosts: Sequence[str]) -> None:
        self._near = near
        self._hosts = hosts
        self._sink = 1 + len(near) + len(hosts)
        self._flow = csr_array((self._sink + 1, self._sink + 1), dtype=np.int32)

    def augment(self, supply: Sequence[int], room: Mapping[str, int]) -> None:
        """Make the flow as large as it can be, without taking any from the sink; `supply` is that of each split."""
        split_count = len(self._near)
        number = {host: 1 + split_count + at for at, host in enumerate(self._hosts)}
        arcs = [(0, 1 + at, amount) for at, amount in enumerate(supply)]
        arcs += [(1 + at, number[host], supply[at]) for at, hosts in enumerate(self._near) for host in hosts]
        arcs += [(number[host], self._sink, room[host]) for host in self._hosts]
        rows, columns, capacities = np.array(arcs, np.int32).T
        capacity = csr_array((capacities, (rows, columns)), self._flow.shape)
        left = csr_matrix(capacity - self._flow)
        self._flow = self._flow + csr_array(maximum_flow(left, 0, self._sink).flow)

    def used(self) -> Iterator[tuple[int, str, int]]:
        """Split, host and amount of what flows between them, in the order of splits."""
        flow = self._flow.tocoo()
        first_host = 1 + len(self._near)
        between = (flow.data > 0) & (flow.row > 0) & (flow.row < first_host) & (flow.col >= first_host)
        for at, host, amount in sorted(
            zip(*(x[between].tolist() for x in (flow.row, flow.col, flow.data)), strict=True)
        ):
            yield at - 1, self._hosts[host - first_host], amount
