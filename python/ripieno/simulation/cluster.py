"""What a modelled cluster consists of, and what its links cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import ripieno._native as _native
from ripieno._checks import check_count, whole
from ripieno.errors import InputError

NODES_MAX = 1_000_000
PACKET_BYTES_MAX = 1 << 20
#: What is usual: a message between hosts, inside a host, a byte in memory, and a byte that is combined.
ALPHA_S = 5e-6
MEMORY_ALPHA_S = 1e-6
MEMORY_S_PER_BYTE = 1 / 8e9
GAMMA_S_PER_BYTE = 1 / 8e9
#: What ranks hand to a link, or take from it, at once, and what they have at least when they pass on a part of a
#: message (`SEGMENT_BYTES` and `RELAY_UNIT_BYTES` of the executor).
SEGMENT_BYTES = 64 << 10
RELAY_BYTES = 16 << 10


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster of equal nodes in racks.

    A message, or each segment of a longer one, takes alpha and its bytes' time at the sender's and the receiver's port.
    Ports, cables and uplinks are full duplex; messages that meet on a wire share it fairly.

    Attributes
    ----------
    nodes
        How many nodes.
    racks
        How many racks, which the nodes fill one after the other as evenly as may be; or of each node the number of
        its rack.
    ranks_per_node
        Ranks of a node follow each other.
    node_of_rank
        Instead, of each rank the number of its node.
    rate_bits_per_s
        Of each direction of a node's cable.
    uplink_bits_per_s
        Of each direction of a rack's uplink; None if uplinks are never in the way.
    core_bits_per_s
        Of all that passes between racks together; None if the core switch is never in the way.
    alpha_s
        Seconds per message, or segment, between nodes.
    uplink_alpha_s
        The same between racks; as between nodes, if None.
    memory_alpha_s, memory_s_per_byte
        The same inside a node, and seconds per byte there.
    gamma_s_per_byte
        Seconds to combine a byte.
    segment_bytes
        Messages go by segments of so many bytes, each with its alpha; None if they go, and are passed on, as wholes.
    relay_bytes
        Ranks pass on what has come once it is so many bytes; a segment, if None or if that is less.
    queue_bytes
        What the network holds of a message whose receiver has no time; None if it holds all.
    packet_bytes
        Payload of a packet. A switch passes a packet on once it has it all, and a rank hears of it at its end; 0 if
        bytes pass as they come.
    header_bytes
        Of a packet, beside its payload: what cables, uplinks and the core switch carry more.
    slow
        So many nodes, so many times as slow, drawn by a seed.
    slow_nodes
        Nodes, and how many times as slow each is.
    dead
        Nodes that die, and when, in seconds.

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
        """The cluster of ranks by their places, as `of_places` takes them.

        The cost of a message is that between nodes, or of the memory of the only one.
        """
        if len(set(nodes)) == 1:
            return cls.of_places(nodes, racks, memory_alpha_s=alpha_s, memory_s_per_byte=beta_s_per_byte)
        return cls.of_places(nodes, racks, alpha_s=alpha_s, rate_bits_per_s=8 / beta_s_per_byte)

    @classmethod
    def of_places(cls, nodes: Sequence[int], racks: Sequence[str | None], **costs: float | None) -> Cluster:
        """The cluster of ranks by their nodes, numbered from 0 by first appearance, and by the names of their racks.

        `costs` are attributes of a cluster.
        """
        names = list(dict.fromkeys(racks))
        rack_of = {node: names.index(rack) for node, rack in zip(nodes, racks, strict=True)}
        place = cls(nodes=len(rack_of), racks=[rack_of[node] for node in sorted(rack_of)], node_of_rank=nodes)
        return replace(place, **costs)  # type: ignore[arg-type]  # numbers that have been measured

    def __post_init__(self) -> None:
        whole("nodes", self.nodes, 1, NODES_MAX)
        check_count("ranks_per_node", self.ranks_per_node)
        if isinstance(self.racks, int):
            whole("racks", self.racks, 1, self.nodes, f"expected 1 to {self.nodes}, one node each at least")
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
        whole("packet_bytes", self.packet_bytes, 0, PACKET_BYTES_MAX)
        whole("header_bytes", self.header_bytes, 0, PACKET_BYTES_MAX)
        if self.header_bytes and not self.packet_bytes:
            raise InputError(f"header_bytes={self.header_bytes}: expected packet_bytes, too, which they stand before")
        for node, at_s in self.dead:
            whole("dead", node, 0, self.nodes - 1, f"expected a node, 0 to {self.nodes - 1}")
            if not at_s >= 0:
                raise InputError(f"dead={node}@{at_s}: expected seconds, 0 or more")
        for node, factor in self.slow_nodes:
            whole("slow_nodes", node, 0, self.nodes - 1, f"expected a node, 0 to {self.nodes - 1}")
            if not 1 <= factor < float("inf"):
                raise InputError(f"slow_nodes={node}: {factor!r}: expected a factor of 1 or more")
        if self.slow is not None:
            whole("slow", self.slow[0], 0, self.nodes, f"expected 0 to {self.nodes} nodes")
            if not 1 <= self.slow[1] < float("inf"):
                raise InputError(f"slow={self.slow[1]!r}: expected a factor of 1 or more")

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return len(self.nodes_by_rank)

    @property
    def nodes_by_rank(self) -> Sequence[int]:
        """The node of every rank."""
        if self.node_of_rank is not None:
            return self.node_of_rank
        return [node for node in range(self.nodes) for _ in range(self.ranks_per_node)]

    @property
    def rack_numbers(self) -> list[int]:
        """The rack of every node."""
        if isinstance(self.racks, int):
            return [node * self.racks // self.nodes for node in range(self.nodes)]
        return list(self.racks)

    def native(self) -> _native.Cluster:
        """The cluster as the simulator has it."""
        nodes, racks = self.nodes_by_rank, self.rack_numbers
        carried = 1 + self.header_bytes / self.packet_bytes if self.packet_bytes else 1.0
        uplink_s, core_s = (
            0.0 if rate is None else 8 / rate * carried for rate in (self.uplink_bits_per_s, self.core_bits_per_s)
        )
        return _native.Cluster(
            list(nodes),
            [racks[node] for node in nodes],
            memory=(self.memory_alpha_s, self.memory_s_per_byte),
            cable=(self.alpha_s, 8 / self.rate_bits_per_s * carried),
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
        """The same places with links on which every message takes one unit: time is the number of rounds."""
        nodes, racks = self.nodes_by_rank, self.rack_numbers
        unit = (1.0, 0.0)
        return _native.Cluster(list(nodes), [racks[node] for node in nodes], memory=unit, cable=unit, uplink=unit)

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
            f"cables {_rate_text(self.rate_bits_per_s)}{uplink}{core}"
        )


def _rate_text(bits_per_s: float) -> str:
    unit, factor = next(
        ((unit, factor) for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6)) if bits_per_s >= factor),
        ("kbit/s", 1e3),
    )
    return f"{bits_per_s / factor:.4g} {unit}"
