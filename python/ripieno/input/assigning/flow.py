"""Compute maximum flows from splits to the hosts that store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def matched(near: Sequence[Sequence[str]], rooms: Sequence[Mapping[str, int]]) -> list[str | None]:
    """Match as many splits as possible to hosts; None for the others.

    Parameters
    ----------
    near
        The hosts that store each split.
    rooms
        The number of splits that each host accepts, by stage, increasing. A host keeps at least its splits of the
        previous stage, so earlier stages have priority.
    """
    chosen: list[str | None] = [None] * len(near)
    if any(near):
        # SciPy takes as long to import as everything else, and only this case needs it.
        from ripieno.input.assigning.network import FlowNetwork

        network = FlowNetwork(near, list(rooms[0]))
        for room in rooms:
            network.augment([1] * len(near), room)
        for at, host, _ in network.used():
            chosen[at] = host
    return chosen


def bytes_to_hosts(
    sizes: Sequence[int], near: Sequence[Sequence[str]], room: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return how much of each split flows to each of its hosts, in units of its own, if hosts accept `room` bytes."""
    flows: list[dict[str, int]] = [{} for _ in near]
    if any(near):
        from ripieno.input.assigning.network import FLOW_LIMIT, FlowNetwork

        total = sum(sizes)
        unit = -(-total // FLOW_LIMIT)
        network = FlowNetwork(near, list(room))
        network.augment(
            [-(-size // unit) for size in sizes], {host: min(bytes, total) // unit for host, bytes in room.items()}
        )
        for at, host, amount in network.used():
            flows[at][host] = amount
    return flows
