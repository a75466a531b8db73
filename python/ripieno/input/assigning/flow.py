"""Maximum flows from splits to the hosts that have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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
        # SciPy is as long to import as all else, and of use only here.
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
    """How much of each split flows to which of its hosts, in a unit of its own, when hosts take `room` bytes."""
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
