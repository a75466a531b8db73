"""Which nodes hold which partitions: as many each, and the replicas of one in different racks where that can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ripieno.errors import InputError


def placed(
    count: int, nodes: Sequence[str], replicas: int, racks: Mapping[str, str] | None = None
) -> list[tuple[str, ...]]:
    """The nodes of each of `count` partitions.

    The first replicas go to the nodes in turn; every further one to a node of a rack that has none yet, of these to
    the one with the fewest, and of these to the next in turn.

    Parameters
    ----------
    count
        How many partitions.
    nodes
        Their names, each once.
    replicas
        How many nodes have each partition.
    racks
        The rack of every node; None where nobody knows of racks.

    Raises
    ------
    InputError
        There are fewer nodes than replicas, a node is named twice, or its rack is not known.
    """
    if len(set(nodes)) < len(nodes):
        raise InputError(f"nodes={','.join(nodes)}: expected different names")
    if replicas > len(nodes):
        raise InputError(f"replicas={replicas}, but there are {len(nodes)} nodes: expected as many nodes or more")
    lost = next((node for node in nodes if racks is not None and node not in racks), None)
    if lost is not None:
        raise InputError(f"racks: nothing says where {lost} stands")
    loads = dict.fromkeys(nodes, 0)
    holders = []
    for at in range(count):
        turn = [nodes[(at + i) % len(nodes)] for i in range(len(nodes))]
        chosen = [turn[0]]
        while len(chosen) < replicas:
            used = {racks[node] for node in chosen} if racks else set()
            free = [node for node in turn if node not in chosen]
            chosen.append(min(free, key=lambda node: (racks is not None and racks[node] in used, loads[node])))
            loads[chosen[-1]] += 1
        holders.append(tuple(chosen))
    return holders
