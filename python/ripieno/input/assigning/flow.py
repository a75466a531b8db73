"""Compute maximum flows from splits to the hosts that store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def matched(near: Sequence[Sequence[str]], capacities: Sequence[Mapping[str, int]]) -> list[str | None]:
    """Return a host that stores each split, for as many splits as possible, and None for the others.

    Parameters
    ----------
    near
        The hosts that store each split.
    capacities
        The number of splits that each host accepts, by stage, increasing. A host keeps at least its splits of the
        previous stage, so earlier stages have priority.
    """
    chosen: list[str | None] = [None] * len(near)
    if any(near):
        # SciPy takes long to import, and only this case needs it.
        from ripieno.input.assigning.network import FlowNetwork

        network = FlowNetwork(near, list(capacities[0]))
        for capacity in capacities:
            network.augment([1] * len(near), capacity)
        for at, host, _ in network.flows():
            chosen[at] = host
    return chosen


def bytes_to_hosts(
    sizes: Sequence[int], near: Sequence[Sequence[str]], capacity: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return the flow from each split to its hosts, in an arbitrary unit. Each host accepts `capacity` bytes."""
    flows: list[dict[str, int]] = [{} for _ in near]
    if any(near):
        from ripieno.input.assigning.network import FLOW_LIMIT, FlowNetwork

        total = sum(sizes)
        unit = -(-total // FLOW_LIMIT)
        network = FlowNetwork(near, list(capacity))
        network.augment(
            [-(-size // unit) for size in sizes], {host: min(bytes, total) // unit for host, bytes in capacity.items()}
        )
        for at, host, amount in network.flows():
            flows[at][host] = amount
    return flows
