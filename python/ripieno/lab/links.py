"""Provide the network links of an emulated cluster: read traffic counters, disconnect links and reconnect them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ripieno.lab.cluster_spec import ClusterSpec, LabHost
from ripieno.lab.kernel import batch, inside, output
from ripieno.lab.wiring import SWITCHES, uplink_ends


@dataclass(frozen=True)
class Counters:
    """Bytes and packets on a link, from the view of its host, or of its rack for an uplink.

    Attributes
    ----------
    sent_bytes, received_bytes
        Bytes of Ethernet frames, including headers.
    dropped_packets
        Packets dropped because a queue of the link was full.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    dropped_packets: int = 0

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(
            self.sent_bytes - earlier.sent_bytes,
            self.received_bytes - earlier.received_bytes,
            self.dropped_packets - earlier.dropped_packets,
        )


def read_counters(prefix: str, spec: ClusterSpec) -> dict[str, Counters]:
    """Return the counters of every link, by name, since its creation."""
    with inside(prefix + SWITCHES):
        ports = _shapers()
    counters = {}
    for host in spec.hosts:
        with inside(prefix + host.name):
            counters[host.name] = _of(_shapers()["eth0"], ports[host.name])
    for rack, name in enumerate(spec.rack_names):
        up, down = uplink_ends(rack)
        counters[name] = _of(ports[up], ports[down])
    return counters


def disconnected(prefix: str, spec: ClusterSpec) -> set[str]:
    """Return the names of the disconnected links."""
    with inside(prefix + SWITCHES):
        links = json.loads(output("ip", "-json", "link", "show"))
    down = {link["ifname"] for link in links if "UP" not in link["flags"]}
    return {name for name in (*(host.name for host in spec.hosts), *spec.rack_names) if _port(name) in down}


def disconnect(prefix: str, links: Iterable[str]) -> None:
    """Disconnect links without a reset of connections. All packets are dropped, also packets in queues."""
    _set(prefix, links, "down")


def connect(prefix: str, links: Iterable[str]) -> None:
    """Reconnect links, with their previous rates."""
    _set(prefix, links, "up")


def hosts_behind(spec: ClusterSpec, link: str) -> list[LabHost]:
    """Return the host of a link, or all hosts of the rack of an uplink."""
    return [host for host in spec.hosts if link in (host.name, spec.rack_names[host.rack])]


def _set(prefix: str, links: Iterable[str], state: str) -> None:
    with inside(prefix + SWITCHES):
        batch("ip", [f"link set {_port(link)} {state}" for link in links])


def _port(link: str) -> str:
    """Return the network interface at the switch's end of a link."""
    rack = link.removeprefix("rack")
    return link if rack == link else uplink_ends(int(rack))[0]


def _shapers() -> dict[str, dict[str, Any]]:
    listed = json.loads(output("tc", "-statistics", "-json", "qdisc", "show"))
    return {each["dev"]: each for each in listed if each["kind"] == "tbf" and each.get("root")}


def _of(sending: dict[str, Any], receiving: dict[str, Any]) -> Counters:
    """Return the counters of a link from the traffic shapers at its ends, which count bytes including headers."""
    return Counters(sending["bytes"], receiving["bytes"], sending["drops"] + receiving["drops"])
