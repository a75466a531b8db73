"""Provide the model of a cluster: nodes, racks, and the costs of its links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import ripieno._native as _native
from ripieno._checks import check_count, whole_number
from ripieno.errors import InputError

NODES_MAX = 1_000_000
PACKET_BYTES_MAX = 1 << 20
#: Defaults: latency of a message between hosts and inside a host, and cost of a byte copied and of a byte combined.
ALPHA_S = 5e-6
MEMORY_ALPHA_S = 1e-6
MEMORY_S_PER_BYTE = 1 / 8e9
GAMMA_S_PER_BYTE = 1 / 8e9
#: Largest piece that ranks hand to or take from a link, and smallest piece of a message that ranks relay
#: (`SEGMENT_BYTES` and `RELAY_UNIT_BYTES` of the executor).
SEGMENT_BYTES = 64 << 10
RELAY_BYTES = 16 << 10


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster of equal nodes in racks.

    A message, or each segment of a longer one, costs alpha plus the time of its bytes at the ports of sender and
    receiver. Ports, network links and uplinks are full duplex; concurrent messages share each of them fairly.

    Attributes
    ----------
    nodes
        Number of nodes.
    racks
        Number of racks, which the nodes fill in order and as evenly as possible; or the rack of each node.
    ranks_per_node
        Number of ranks per node; ranks of a node are consecutive.
    node_of_rank
        Node number of each rank, instead of `ranks_per_node`.
    rate_bits_per_s
        Rate of each direction of a node's network link.
    uplink_bits_per_s
        Rate of each direction of a rack's uplink; None if uplinks are never the bottleneck.
    core_bits_per_s
        Total rate of all traffic between racks; None if the core switch is never the bottleneck.
    alpha_s
        Seconds per message, or segment, between nodes.
    uplink_alpha_s
        Seconds per message, or segment, between racks; `alpha_s` if None.
    memory_alpha_s, memory_s_per_byte
        Seconds per message, and per byte, inside a node.
    gamma_s_per_byte
        Seconds to combine a byte.
    segment_bytes
        Segment size; each segment costs alpha. None if messages are sent and relayed as wholes.
    relay_bytes
        Ranks relay received data once they have this many bytes; one segment if None or if a segment is smaller.
    queue_bytes
        Bytes of a message that the network buffers for a busy receiver; None if unlimited.
    packet_bytes
        Payload of a packet. Switches store and forward whole packets, and a rank sees a packet at its end; 0 if
        bytes flow without packets.
    header_bytes
        Header bytes of a packet, which network links, uplinks and the core switch carry in addition to the payload.
    slow
        Number of slow nodes, their slowdown factor, and the seed that selects them.
    slow_nodes
        Slow nodes with the slowdown factor of each.
    dead
        Nodes that fail, with the time in seconds.

    Raises
    ------
    InputError
        If a number is out of range.
    """

    nodes: int
    racks: int | Sequence[int] = 1
    ranks_per_node: int = 1
    node_of_rank: Sequence[int] | None = None
    rate_bits_per_s: float = 10e9
    uplink_bits_per_s: float | None = None
    core_bits_per_s: float | None = None
    alpha_s: float = ALPHA_S
    uplink_alpha_s: float | None = None
    memory_alpha_s: float = MEMORY_ALPHA_S
    memory_s_per_byte: float = MEMORY_S_PER_BYTE
    gamma_s_per_byte: float = GAMMA_S_PER_BYTE
    segment_bytes: int | None = SEGMENT_BYTES
    relay_bytes: int | None = RELAY_BYTES
    queue_bytes: int | None = None
    packet_bytes: int = 0
    header_bytes: int = 0
    slow: tuple[int, float, int] | None = None
    slow_nodes: Sequence[tuple[int, float]] = ()
    dead: Sequence[tuple[int, float]] = ()

    @classmethod
    def of_ranks(
        cls, nodes: Sequence[int], racks: Sequence[str | None], alpha_s: float, beta_s_per_byte: float
    ) -> Cluster:
        """Return the cluster of ranks by their placement, as for `of_places`.

        The cost of a message is the cost between nodes, or in memory if there is only one node.
        """
        if len(set(nodes)) == 1:
            return cls.of_places(nodes, racks, memory_alpha_s=alpha_s, memory_s_per_byte=beta_s_per_byte)
        return cls.of_places(nodes, racks, alpha_s=alpha_s, rate_bits_per_s=8 / beta_s_per_byte)

    @classmethod
    def of_places(cls, nodes: Sequence[int], racks: Sequence[str | None], **costs: float | None) -> Cluster:
        """Return the cluster of ranks by nodes, numbered from 0 by first appearance, and names of racks.

        `costs` are attributes of a cluster.
        """
        names = list(dict.fromkeys(racks))
        rack_of = {node: names.index(rack) for node, rack in zip(nodes, racks, strict=True)}
        place = cls(nodes=len(rack_of), racks=[rack_of[node] for node in sorted(rack_of)], node_of_rank=nodes)
        return replace(place, **costs)  # type: ignore[arg-type]  # numbers that have been measured

    def __post_init__(self) -> None:
        whole_number("nodes", self.nodes, 1, NODES_MAX)
        check_count("ranks_per_node", self.ranks_per_node)
        if self.ranks > NODES_MAX:
            raise InputError(
                f"nodes={self.nodes}, ranks_per_node={self.ranks_per_node}: expected {NODES_MAX} ranks or fewer"
            )
        if isinstance(self.racks, int):
            whole_number("racks", self.racks, 1, self.nodes, f"expected 1 to {self.nodes}, at least one node each")
        elif len(self.racks) != self.nodes:
            raise InputError(f"racks: {len(self.racks)} numbers for {self.nodes} nodes; expected one for each")
        for name in ("rate_bits_per_s", "uplink_bits_per_s", "core_bits_per_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name}={value!r}: expected more than 0")
        for name in ("alpha_s", "uplink_alpha_s", "memory_alpha_s", "memory_s_per_byte", "gamma_s_per_byte"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise InputError(f"{name}={value!r}: expected 0 or more")
        for name in ("segment_bytes", "relay_bytes", "queue_bytes"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        whole_number("packet_bytes", self.packet_bytes, 0, PACKET_BYTES_MAX)
        whole_number("header_bytes", self.header_bytes, 0, PACKET_BYTES_MAX)
        if self.header_bytes and not self.packet_bytes:
            raise InputError(f"header_bytes={self.header_bytes}: expected packet_bytes, too")
        for node, at_s in self.dead:
            whole_number("dead", node, 0, self.nodes - 1, f"expected a node, 0 to {self.nodes - 1}")
            if not at_s >= 0:
                raise InputError(f"dead={node}@{at_s}: expected seconds, 0 or more")
        for node, factor in self.slow_nodes:
            whole_number("slow_nodes", node, 0, self.nodes - 1, f"expected a node, 0 to {self.nodes - 1}")
            if not 1 <= factor < float("inf"):
                raise InputError(f"slow_nodes={node}: {factor!r}: expected a factor of 1 or more")
        if self.slow is not None:
            whole_number("slow", self.slow[0], 0, self.nodes, f"expected 0 to {self.nodes} nodes")
            if not 1 <= self.slow[1] < float("inf"):
                raise InputError(f"slow={self.slow[1]!r}: expected a factor of 1 or more")

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.nodes * self.ranks_per_node if self.node_of_rank is None else len(self.node_of_rank)

    @property
    def nodes_by_rank(self) -> Sequence[int]:
        """Return the node of every rank."""
        if self.node_of_rank is not None:
            return self.node_of_rank
        return [node for node in range(self.nodes) for _ in range(self.ranks_per_node)]

    @property
    def rack_numbers(self) -> list[int]:
        """Return the rack of every node."""
        if isinstance(self.racks, int):
            return [node * self.racks // self.nodes for node in range(self.nodes)]
        return list(self.racks)

    def native(self) -> _native.Cluster:
        """Return the cluster in the simulator's representation."""
        nodes, racks = self.nodes_by_rank, self.rack_numbers
        carried = 1 + self.header_bytes / self.packet_bytes if self.packet_bytes else 1.0
        uplink_s, core_s = (
            0.0 if rate is None else 8 / rate * carried for rate in (self.uplink_bits_per_s, self.core_bits_per_s)
        )
        return _native.Cluster(
            list(nodes),
            [racks[node] for node in nodes],
            memory=(self.memory_alpha_s, self.memory_s_per_byte),
            network_link=(self.alpha_s, 8 / self.rate_bits_per_s * carried),
            uplink=(self.alpha_s if self.uplink_alpha_s is None else self.uplink_alpha_s, uplink_s),
            core_s_per_byte=core_s,
            gamma_s_per_byte=self.gamma_s_per_byte,
            segment_bytes=self.segment_bytes,
            relay_bytes=self.relay_bytes,
            queue_bytes=self.queue_bytes,
            packet_bytes=self.packet_bytes,
            slow_some=self.slow,
            slow=list(self.slow_nodes),
            dead=list(self.dead),
        )

    def rounds(self) -> _native.Cluster:
        """Return the same placement with unit links: a message takes one unit, so time equals the number of rounds."""
        nodes, racks = self.nodes_by_rank, self.rack_numbers
        unit = (1.0, 0.0)
        racks_of_nodes = [racks[node] for node in nodes]
        return _native.Cluster(list(nodes), racks_of_nodes, memory=unit, network_link=unit, uplink=unit)

    def __str__(self) -> str:
        rack_count = len(set(self.rack_numbers))
        ranks = "" if self.ranks == self.nodes else f" with {self.ranks:,} ranks"
        uplink = ""
        if rack_count > 1:
            uplink = ", uplinks "
            uplink += "never full" if self.uplink_bits_per_s is None else _rate_text(self.uplink_bits_per_s)
        core = "" if self.core_bits_per_s is None else f", core {_rate_text(self.core_bits_per_s)}"
        if self.nodes == 1:
            return f"1 node{ranks}"
        return (
            f"{self.nodes:,} nodes{ranks} in {rack_count:,} rack{'s'[: rack_count != 1]}, "
            f"links {_rate_text(self.rate_bits_per_s)}{uplink}{core}"
        )


def _rate_text(bits_per_s: float) -> str:
    unit, factor = next(
        ((unit, factor) for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6)) if bits_per_s >= factor),
        ("kbit/s", 1e3),
    )
    return f"{bits_per_s / factor:.4g} {unit}"
