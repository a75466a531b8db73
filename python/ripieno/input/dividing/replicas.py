"""Place partitions on nodes: equally many on each node, and replicas in different racks if possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ripieno.errors import InputError


def place_replicas(
    count: int, nodes: Sequence[str], replicas: int, racks: Mapping[str, str] | None = None
) -> list[tuple[str, ...]]:
    """Return the nodes of each of `count` partitions.

    First replicas go to the nodes in turn. Each further replica goes to a rack without one if possible. In the rack, it
    goes to the node with the fewest partitions, or to the first of such nodes.

    Parameters
    ----------
    count
        The number of partitions.
    nodes
        Distinct names of nodes.
    replicas
        The number of nodes for each partition.
    racks
        The rack of every node, or None if racks are unknown.

    Raises
    ------
    InputError
        There are fewer nodes than replicas, a node is named twice, or its rack is unknown.
    """
    if len(set(nodes)) < len(nodes):
        raise InputError(f"nodes={','.join(nodes)}: expected different names")
    if replicas > len(nodes):
        raise InputError(f"replicas={replicas}, but there are {len(nodes)} nodes: expected as many nodes or more")
    missing = next((node for node in nodes if racks is not None and node not in racks), None)
    if missing is not None:
        raise InputError(f"racks: the rack of {missing} is missing")
    loads = dict.fromkeys(nodes, 0)
    holders = []
    for at in range(count):
        in_order = [nodes[(at + i) % len(nodes)] for i in range(len(nodes))]
        chosen = [in_order[0]]
        while len(chosen) < replicas:
            used = {racks[node] for node in chosen} if racks else set()
            free = [node for node in in_order if node not in chosen]
            chosen.append(min(free, key=lambda node: (racks is not None and racks[node] in used, loads[node])))
            loads[chosen[-1]] += 1
        holders.append(tuple(chosen))
    return holders
