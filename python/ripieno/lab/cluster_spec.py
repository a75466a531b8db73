"""The specification of a lab: hosts, racks, addresses, rates, and derived values. Pure: no kernel calls."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import ripieno.units as units
from ripieno.errors import InputError

RACKS_MAX = 250
HOSTS_PER_RACK_MAX = 250
# Every host has a route to every other, so the cost of making a lab grows with the square of the hosts.
HOSTS_MAX = 512

MTU_BYTES = 1500
ETHERNET_BYTES = 14
# TCP with timestamps over IPv4.
HEADER_BYTES = 20 + 20 + 12
# Queue limit of a switch port. Beyond it the port drops packets.
QUEUE_BYTES = 512 << 10
# A host's own queue is longer: back-pressure slows its programs before packets are dropped.
HOST_QUEUE_BYTES = 1 << 20
# A packet occupies a network link for at most one millisecond. Larger packets save CPU but make the emulation coarse.
PACKETS_PER_S = 1000
PACKET_BYTES_MIN = 2 * MTU_BYTES
PACKET_BYTES_MAX = 64 << 10
# Maximum total rate of all hosts that two cores can emulate.
CARRIED_BITS_PER_S = 6 * 10**9

RATE_MIN_BITS_PER_S, RATE_MAX_BITS_PER_S = 10**5, 10**11


@dataclass(frozen=True)
class LabHost:
    """A host of a lab.

    Attributes
    ----------
    name
        Name of the host and of its network link: "h03".
    address
        IPv4 address.
    rack
        Rack number, from 0.
    number
        Host number, from 0, rack by rack.
    """

    name: str
    address: str
    rack: int
    number: int


@dataclass(frozen=True)
class ClusterSpec:
    """The specification of a lab. `ripieno.lab.Lab` documents the parameters.

    Raises
    ------
    InputError
        If a number or a rate is out of range.
    """

    racks: int = 1
    hosts_per_rack: int = 8
    rate: str = "100mbit"
    uplink: str | None = None

    def __post_init__(self) -> None:
        _check("racks", self.racks, RACKS_MAX)
        _check("hosts", self.hosts_per_rack, HOSTS_PER_RACK_MAX)
        if self.racks * self.hosts_per_rack > HOSTS_MAX:
            raise InputError(f"racks={self.racks}, hosts={self.hosts_per_rack}: at most {HOSTS_MAX} hosts in all")
        bits_per_s("rate", self.rate)
        if self.uplink is not None:
            bits_per_s("uplink", self.uplink)

    @cached_property
    def hosts(self) -> tuple[LabHost, ...]:
        """Return all hosts, rack by rack."""
        width = len(str(self.racks * self.hosts_per_rack - 1))
        return tuple(
            LabHost(f"h{number:0{width}d}", _address(rack, place), rack, number)
            for number, (rack, place) in enumerate(
                (rack, place) for rack in range(self.racks) for place in range(self.hosts_per_rack)
            )
        )

    @property
    def rack_names(self) -> tuple[str, ...]:
        """Return the names of the racks and their uplinks."""
        return tuple(f"rack{rack}" for rack in range(self.racks))

    @property
    def rate_bits_per_s(self) -> int:
        """Return the rate of a host's network link, including headers."""
        return bits_per_s("rate", self.rate)

    @property
    def uplink_bits_per_s(self) -> int:
        """Return the rate of a rack's uplink, including headers."""
        if self.uplink is None:
            return min(RATE_MAX_BITS_PER_S, self.hosts_per_rack * self.rate_bits_per_s)
        return bits_per_s("uplink", self.uplink)

    @property
    def packet_bytes(self) -> int:
        """Return the size of the largest packet that a host sends."""
        slowest = self.rate_bits_per_s if self.racks == 1 else min(self.rate_bits_per_s, self.uplink_bits_per_s)
        return _millisecond_bytes(slowest)

    @property
    def burst_bytes(self) -> int:
        """Return the burst size of a host's network link: at least a packet, so that none is split, and little more."""
        return self.packet_bytes + 2 * MTU_BYTES

    @property
    def uplink_burst_bytes(self) -> int:
        """Return the burst size of an uplink. Fast uplinks need a larger burst, because timers are too coarse."""
        return max(self.packet_bytes, _millisecond_bytes(self.uplink_bits_per_s)) + 2 * MTU_BYTES

    def warning(self) -> str | None:
        """Return a warning if the CPU instead of the network links may limit measurements in this lab, else None."""
        total = self.rate_bits_per_s * len(self.hosts)
        if total <= CARRIED_BITS_PER_S:
            return None
        return (
            f"{len(self.hosts)} hosts x {self.rate} are {total / 1e9:.3g} Gbit/s; beyond about "
            f"{CARRIED_BITS_PER_S / 1e9:g} the CPU is the limit, not the network links: use fewer hosts or a lower rate"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for a file; `ClusterSpec(**spec.to_dict())` restores them."""
        return asdict(self)


def mac(host: LabHost) -> str:
    """Return the hardware address of a host's interface."""
    _, _, rack, place = (int(part) for part in host.address.split("."))
    return f"02:4c:41:42:{rack:02x}:{place:02x}"


def wire_share() -> float:
    """Return the fraction of a network link's bytes that is TCP payload."""
    return (MTU_BYTES - HEADER_BYTES) / (MTU_BYTES + ETHERNET_BYTES)


def bits_per_s(name: str, rate: str) -> int:
    """Return ``100mbit`` as a number, if it is a valid rate; `name` is the parameter's name for the error."""
    return units.bits_per_s(name, rate, RATE_MIN_BITS_PER_S, RATE_MAX_BITS_PER_S)


def _check(name: str, value: int, largest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= largest:
        raise InputError(f"{name}={value!r}: expected 1 to {largest}")


def _address(rack: int, place: int) -> str:
    return f"10.77.{rack}.{place + 1}"


def _millisecond_bytes(rate_bits_per_s: int) -> int:
    return max(PACKET_BYTES_MIN, min(PACKET_BYTES_MAX, rate_bits_per_s // 8 // PACKETS_PER_S))
