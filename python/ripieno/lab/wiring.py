"""Construct a lab's namespaces, network links, switches and shapers."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ripieno.errors import LabError
from ripieno.lab.cluster_spec import HOST_QUEUE_BYTES, MTU_BYTES, QUEUE_BYTES, ClusterSpec, LabHost, mac
from ripieno.lab.kernel import batch, inside, write_settings

# Number of threads for host setup, which mostly waits for the kernel.
SETUP_THREAD_COUNT = 4
# Links in the switches' namespace: a host's network link and a rack's switch have its name, an uplink has two ends.
SWITCHES = "switches"
CORE = "core"

_ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
# At such round-trip times cubic behaves like reno. The emulation is too coarse for the timers and probes of bbr.
_CONGESTION_CONTROLS = ("reno", "cubic")


def uplink_ends(rack: int) -> tuple[str, str]:
    """Return the uplink's end at the rack's switch, which sends outgoing traffic, and its end at the core."""
    return f"up{rack}", f"down{rack}"


def build(prefix: str, spec: ClusterSpec) -> None:
    """Create all namespaces, devices and shapers; `prefix` is the prefix of all namespace names.

    Raises
    ------
    LabError
        If the kernel refuses. The caller removes the existing parts.
    """
    congestion_control = _congestion_control()
    batch("ip", [f"netns add {prefix}{name}" for name in (SWITCHES, *(host.name for host in spec.hosts))])
    with inside(prefix + SWITCHES):
        # Switches have no firewall. By default the kernel would pass bridged packets through the machine's firewall.
        write_settings({"ipv6/conf/default/disable_ipv6": "1", "bridge/bridge-nf-call-iptables": "0"})
        batch("ip", [*_switches(spec), *_ports(prefix, spec)])
        batch("bridge", _forwarding(spec))
        batch("tc", _port_shapers(spec))
    with ThreadPoolExecutor(SETUP_THREAD_COUNT) as pool:
        for _ in pool.map(lambda host: _set_up(prefix, spec, host, congestion_control), spec.hosts):
            pass


def _switches(spec: ClusterSpec) -> Iterable[str]:
    bridge = f"mtu {MTU_BYTES} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
    yield f"link add {CORE} {bridge}"
    yield f"link set {CORE} up"
    for rack, name in enumerate(spec.rack_names):
        up, down = uplink_ends(rack)
        yield f"link add {name} {bridge}"
        yield f"link set {name} up"
        yield f"link add {up} mtu {MTU_BYTES} type veth peer name {down} mtu {MTU_BYTES}"
        yield f"link set {up} master {name} up"
        yield f"link set {down} master {CORE} up"
        yield f"link set {up} type bridge_slave learning off"
        yield f"link set {down} type bridge_slave learning off flood off"


def set_rate(prefix: str, spec: ClusterSpec, host: LabHost, rate_bits_per_s: int) -> None:
    """Limit both directions of a host's network link to another rate."""
    ends = ((prefix + SWITCHES, host.name, QUEUE_BYTES), (prefix + host.name, "eth0", HOST_QUEUE_BYTES))
    for namespace, device, queue_bytes in ends:
        with inside(namespace):
            batch("tc", [_shaper(device, rate_bits_per_s, spec.burst_bytes, queue_bytes, "change")])


def _ports(prefix: str, spec: ClusterSpec) -> Iterable[str]:
    for host in spec.hosts:
        yield (
            f"link add {host.name} mtu {MTU_BYTES} type veth peer name eth0 mtu {MTU_BYTES} "
            f"address {mac(host)} netns {prefix}{host.name}"
        )
        yield f"link set {host.name} master {spec.rack_names[host.rack]} up"
        yield f"link set {host.name} type bridge_slave learning off flood off"


def _forwarding(spec: ClusterSpec) -> list[str]:
    """Return static forwarding entries, with a default route from racks to the core: nothing is flooded."""
    return [
        f"fdb replace {mac(host)} dev {port} master static"
        for host in spec.hosts
        for port in (host.name, uplink_ends(host.rack)[1])
    ]


def _port_shapers(spec: ClusterSpec) -> list[str]:
    uplinks = [end for rack in range(spec.racks) for end in uplink_ends(rack)]
    return [_shaper(port, spec.uplink_bits_per_s, spec.uplink_burst_bytes, QUEUE_BYTES) for port in uplinks] + [
        _shaper(host.name, spec.rate_bits_per_s, spec.burst_bytes, QUEUE_BYTES) for host in spec.hosts
    ]


def _shaper(device: str, rate_bits_per_s: int, burst_bytes: int, queue_bytes: int, verb: str = "add") -> str:
    return f"qdisc {verb} dev {device} root tbf rate {rate_bits_per_s}bit burst {burst_bytes} limit {queue_bytes}"


def _set_up(prefix: str, spec: ClusterSpec, host: LabHost, congestion_control: str) -> None:
    with inside(prefix + host.name):
        # Turn off IPv6 traffic, which would add to the counters, and TCP metrics, which would affect the next run.
        write_settings(
            {
                "ipv6/conf/eth0/disable_ipv6": "1",
                "ipv4/tcp_no_metrics_save": "1",
                "ipv4/tcp_congestion_control": congestion_control,
            }
        )
        batch("ip", list(_host_interface(spec, host)))
        batch("tc", [_shaper("eth0", spec.rate_bits_per_s, spec.burst_bytes, HOST_QUEUE_BYTES)])


def _host_interface(spec: ClusterSpec, host: LabHost) -> Iterable[str]:
    yield "link set lo up"
    yield f"link set eth0 gso_max_size {spec.packet_bytes}"
    yield f"address add {host.address}/16 dev eth0"
    yield "link set eth0 up"
    for other in spec.hosts:
        if other is not host:
            yield f"neighbor replace {other.address} lladdr {mac(other)} dev eth0 nud permanent"


def _congestion_control() -> str:
    allowed = _ALLOWED.read_text().split()
    for name in _CONGESTION_CONTROLS:
        if name in allowed:
            return name
    raise LabError(
        f"{_ALLOWED} lists {', '.join(allowed)}: an emulated cluster needs {' or '.join(_CONGESTION_CONTROLS)} there"
    )
