"""An emulated rack: hosts with slow cables and a switch between them, on one Linux machine.

A host is a network namespace; its cable is a veth pair whose far end is a port of a bridge, which has a namespace of
its own, so neither addresses nor routes of the machine change. A token bucket at each end of each cable holds it to its
rate.
Needs root, iproute2, and of the kernel veth, bridge and sch_tbf.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType, TracebackType

MTU_BYTES = 1500
ETHERNET_BYTES = 14
# TCP with timestamps over IPv4.
HEADER_BYTES = 20 + 20 + 12
# What a port of the switch holds back before it drops.
QUEUE_BYTES = 512 << 10
# How long what still runs in a rack that is taken down may need to vanish.
KILL_ROUND_COUNT = 50
PREFIX = "ripieno-rack"


@dataclass(frozen=True)
class Host:
    """A host of a rack."""

    number: int
    address: str
    namespace: str


class Rack:
    """A rack, up inside a ``with`` statement; afterwards nothing of it is left, whatever ended the block.

    Parameters
    ----------
    hosts
        How many hosts, 1 to 250.
    rate
        Of each cable and direction, in the words of ``tc``: "100mbit".

    Attributes
    ----------
    hosts : list of Host
    """

    def __init__(self, hosts: int = 16, rate: str = "100mbit") -> None:
        if not 1 <= hosts <= 250:
            raise ValueError(f"hosts={hosts}: expected 1 to 250")
        self.rate = rate
        self.rate_bits_per_s = bits_per_s(rate)
        self._name = f"{PREFIX}-{os.getpid()}"
        self.hosts = [Host(i, f"10.77.0.{i + 1}", f"{self._name}-10.77.0.{i + 1}") for i in range(hosts)]
        self._switch = f"{self._name}-switch"
        self._handler: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Rack:
        _remove_orphans()
        # By default SIGTERM would end this process and leave the rack behind.
        self._handler = signal.signal(signal.SIGTERM, _exit)
        try:
            self._wire()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def command(self, host: Host, command: list[str]) -> list[str]:
        """The command line that runs `command` in `host`."""
        return ["ip", "netns", "exec", host.namespace, *command]

    def remote_shell(self) -> str:
        """A shell script that runs a command in a host as ``ssh ADDRESS COMMAND…`` would."""
        skip_options = 'while [ "${1#-}" != "$1" ]; do shift; done'
        run = f'exec ip netns exec "{self._name}-$address" unshare --uts sh -c "hostname $address; $*"'
        return f"#!/bin/sh\n{skip_options}\naddress=$1; shift\n{run}\n"

    def sent_bytes(self) -> list[int]:
        """What every host has sent so far, headers included."""
        links = json.loads(_run("ip", "-netns", self._switch, "-statistics", "-json", "link", "show"))
        received = {link["ifname"]: link["stats64"]["rx"]["bytes"] for link in links}
        return [received[f"port{host.number}"] for host in self.hosts]

    def _wire(self) -> None:
        namespaces = [self._switch, *(host.namespace for host in self.hosts)]
        _batch("ip", [f"netns add {namespace}" for namespace in namespaces])
        for namespace in namespaces:
            _run("ip", "netns", "exec", namespace, "sh", "-c", _SETTINGS)
        bridge = ["link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0", "link set bridge up"]
        _batch("ip", bridge + [line for host in self.hosts for line in self._port(host)], self._switch)
        ports = [self._shaper(f"port{host.number}") for host in self.hosts]
        _batch("tc", ports, self._switch)
        for host in self.hosts:
            _batch("ip", self._cable(host), host.namespace)
            _batch("tc", [self._shaper("eth0")], host.namespace)

    def _port(self, host: Host) -> list[str]:
        port = f"port{host.number}"
        return [
            f"link add {port} mtu {MTU_BYTES} type veth peer name eth0 mtu {MTU_BYTES} netns {host.namespace}",
            f"link set {port} master bridge up",
        ]

    def _cable(self, host: Host) -> list[str]:
        return [
            "link set lo up",
            f"address add {host.address}/24 dev eth0",
            f"link set eth0 gso_max_size {self._packet_bytes} up",
        ]

    @property
    def _packet_bytes(self) -> int:
        # Segmentation offload makes the emulation cheap but coarse: a packet takes the cable for a millisecond at most.
        return max(2 * MTU_BYTES, min(64 << 10, self.rate_bits_per_s // 8 // 1000))

    def _shaper(self, device: str) -> str:
        # A bucket that holds no whole packet would cut it up, a much larger one would let messages pass in no time.
        burst_bytes = self._packet_bytes + 2 * MTU_BYTES
        return f"qdisc add dev {device} root tbf rate {self.rate} burst {burst_bytes} limit {QUEUE_BYTES}"

    def _remove(self) -> None:
        _remove_namespaces(f"{self._name}-")
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)
            self._handler = None


# No IPv6 chatter in the byte counts. Reno is allowed in every namespace, and what cubic does at such round trips.
_SETTINGS = """
for each in all default; do echo 1 > /proc/sys/net/ipv6/conf/$each/disable_ipv6; done
echo reno > /proc/sys/net/ipv4/tcp_congestion_control
"""


def why_not() -> str | None:
    """Why this machine cannot emulate a rack, if so, and what to do about it."""
    if not hasattr(os, "geteuid") or not os.path.isdir("/proc/sys/net"):
        return "an emulated rack needs Linux"
    if os.geteuid() != 0:
        return "an emulated rack needs root: run it with sudo"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "an emulated rack needs iproute2: apt-get install iproute2"
    try:
        with Rack(hosts=1):
            return None
    except RuntimeError as error:
        return f"this kernel or container emulates no rack: {error}"


def bits_per_s(rate: str) -> int:
    """``100mbit`` as a number."""
    for unit, factor in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        number = rate.removesuffix(unit)
        if number != rate and number.isdecimal():
            return int(number) * factor
    raise ValueError(f"rate={rate!r}: expected a number and kbit, mbit or gbit, such as 100mbit")


def wire_share() -> float:
    """The share of a cable's bytes that is TCP's payload."""
    return (MTU_BYTES - HEADER_BYTES) / (MTU_BYTES + ETHERNET_BYTES)


def _run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:6])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _batch(tool: str, lines: list[str], namespace: str | None = None) -> None:
    within = [] if namespace is None else ["-netns", namespace]
    _run(tool, *within, "-batch", "-", stdin="\n".join(lines) + "\n")


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line.strip()]


def _remove_namespaces(prefix: str) -> None:
    mine = [name for name in _namespaces() if name.startswith(prefix)]
    for name in mine:
        _kill_inside(name)
    if mine:
        _batch("ip", [f"netns delete {name}" for name in mine])


def _kill_inside(namespace: str) -> None:
    for _ in range(KILL_ROUND_COUNT):
        pids = _run("ip", "netns", "pids", namespace).split()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if not pids:
            return


def _remove_orphans() -> None:
    """Take down racks whose owner was killed without warning."""
    owners = {name.split("-")[2] for name in _namespaces() if name.startswith(f"{PREFIX}-")}
    for owner in owners:
        if not os.path.exists(f"/proc/{owner}"):
            _remove_namespaces(f"{PREFIX}-{owner}-")


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
