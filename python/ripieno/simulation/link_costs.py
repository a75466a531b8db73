"""Provide measured costs of the links, memory and cores of a cluster, stored by the names of its hosts.

`Communicator.tune` measures. ``ripieno tune`` writes a file, which ``ripieno explain --costs`` and ``ripieno simulate
--costs`` read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ripieno import log
from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.files.cache import stored_path
from ripieno.files.results import write_text
from ripieno.files.sources import parsed_json, read_whole
from ripieno.simulation.cluster import SEGMENT_BYTES, Cluster
from ripieno.units import duration_text

#: Upper bound of alpha as a fraction of a full segment's time. The rest of a longer start is latency, which overlaps
#: with other segments.
START_SHARE = 0.5
#: A message of a few bytes between two ranks of a host takes this time, and this number of transfers of a cache line.
#: From allreduces of 8 bytes with 25 and 150 ns per line, which take 147 and 356 ns (docs/benchmarks.md).
SHORT_S, SHORT_LINE_COUNT = 105e-9, 1.67


@dataclass(frozen=True)
class LinkCost:
    """Measured costs of one kind of link between two ranks.

    Attributes
    ----------
    latency_s
        Seconds of a message of 8 bytes.
    bytes_per_s
        Rate of long messages in each direction while both ranks send.
    """

    latency_s: float
    bytes_per_s: float

    @property
    def alpha_s(self) -> float:
        """Return the seconds per segment, as the model counts them."""
        return min(self.latency_s, START_SHARE * SEGMENT_BYTES / self.bytes_per_s)

    @property
    def beta_s_per_byte(self) -> float:
        """Return the seconds per byte, which with a segment's alpha reproduce the measured rate."""
        return 1 / self.bytes_per_s - self.alpha_s / SEGMENT_BYTES


@dataclass(frozen=True, kw_only=True)
class MeasuredCosts:
    """Measured costs of a cluster, with the placement of its ranks at that time.

    Attributes
    ----------
    hosts
        The host of every rank.
    nodes
        The node of every rank, numbered from 0 by first appearance.
    racks
        The rack of every rank; all None if the racks were not given.
    measured_at
        Time of the measurement, in seconds since 1970.
    memory, network_link, uplink
        Costs between ranks of a node, of different nodes of a rack, and of different racks; None without two
        such ranks.
    uplink_bytes_per_s
        Rate of a rack's uplink in each direction; None if the uplink did not limit its hosts or was not measured.
    add_s_per_byte, copy_s_per_byte
        Time to add, and to copy, a float32 vector while all ranks do so; the slowest rank's value.
    """

    hosts: Sequence[str]
    nodes: Sequence[int]
    racks: Sequence[str | None]
    measured_at: float
    memory: LinkCost | None
    network_link: LinkCost | None
    uplink: LinkCost | None
    uplink_bytes_per_s: float | None
    add_s_per_byte: float
    copy_s_per_byte: float

    def cluster(self, nodes: Sequence[int] | None = None, racks: Sequence[str | None] | None = None) -> Cluster:
        """Return the measured cluster, or a cluster with the same link costs and another placement.

        Parameters
        ----------
        nodes, racks
            For every rank its node, numbered from 0 by first appearance, and the name of its rack.
        """
        node_of_rank = self.nodes if nodes is None else nodes
        link = self.network_link or self.uplink
        costs: dict[str, float] = (
            {} if link is None else {"alpha_s": link.alpha_s, "rate_bits_per_s": 8 / link.beta_s_per_byte}
        )
        if self.memory is not None:
            costs |= {"memory_alpha_s": self.memory.alpha_s, "memory_s_per_byte": self.memory.beta_s_per_byte}
        return Cluster.of_places(
            node_of_rank,
            self.racks if racks is None else racks,
            uplink_alpha_s=None if self.uplink is None else self.uplink.alpha_s,
            uplink_bits_per_s=None if self.uplink_bytes_per_s is None else 8 * self.uplink_bytes_per_s,
            gamma_s_per_byte=self.add_s_per_byte,
            **costs,
        )

    @property
    def cable(self) -> LinkCost | None:
        """Deprecated name of `network_link`."""
        log.warn("MeasuredCosts.cable is deprecated, use network_link", DeprecationWarning)
        return self.network_link

    @property
    def source(self) -> str:
        """Return the source and time of the measurement, as text."""
        when = datetime.fromtimestamp(self.measured_at).isoformat(" ", "minutes")
        host_count = len(set(self.hosts))
        return f"measured on {host_count} host{'s'[: host_count != 1]}, {when}"

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> MeasuredCosts:
        """Return the costs from the values of `as_json`. Older files have the key "cable"."""
        fields = {"network_link" if key == "cable" else key: value for key, value in fields.items()}
        links = {
            kind: None if fields[kind] is None else LinkCost(**fields[kind])
            for kind in ("memory", "network_link", "uplink")
        }
        costs = cls(**{**fields, **links})
        numbers = [costs.add_s_per_byte, costs.copy_s_per_byte, costs.measured_at]
        numbers += [part for link in links.values() if link is not None for part in (link.latency_s, link.bytes_per_s)]
        if not all(0 < number < float("inf") for number in numbers):
            raise ValueError(f"expected positive numbers, not {numbers}")
        return costs

    def __str__(self) -> str:
        named = (
            ("memory of a node", self.memory),
            ("nodes of a rack", self.network_link),
            ("between racks", self.uplink),
        )
        lines = [f"costs {self.source}", f"{'':18} {'latency':>9}  {'rate':>11}"]
        lines += [
            f"{name:18} {duration_text(link.latency_s):>9}  {_rate_text(link.bytes_per_s):>11}"
            for name, link in named
            if link is not None
        ]
        if self.uplink is not None:
            rate = "the rate of its hosts" if self.uplink_bytes_per_s is None else _rate_text(self.uplink_bytes_per_s)
            lines.append(f"{'uplink of a rack':18} {'':9}  {rate:>11}")
        lines.append(f"{'adding float32':18} {'':9}  {_rate_text(1 / self.add_s_per_byte):>11}")
        lines.append(f"{'copying':18} {'':9}  {_rate_text(1 / self.copy_s_per_byte):>11}")
        return "\n".join(lines)


def _rate_text(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:,.4g} MB/s" if bytes_per_s < 1e9 else f"{bytes_per_s / 1e9:,.3g} GB/s"


def with_pairs(cluster: Cluster, pairs: Iterable[Mapping[str, Any]]) -> tuple[Cluster, str]:
    """Return the cluster with the costs that links of shared memory have measured, and these costs as text.

    The slowest pair counts. Costs that no link has measured yet stay, and the text is empty if there are none at all.

    Parameters
    ----------
    pairs
        The costs of each link, as `Communicator.pair_costs` of the native module returns them.
    """
    pairs = list(pairs)
    lines_s = [pair["line_s"] for pair in pairs if pair["line_s"] is not None]
    s_per_byte = [known for pair in pairs if (known := _exchange_s_per_byte(pair)) is not None]
    texts = []
    latency_s = cluster.memory_alpha_s
    if lines_s:
        latency_s = SHORT_S + SHORT_LINE_COUNT * max(lines_s)
        texts.append(f"a cache line takes {duration_text(max(lines_s))}")
        cluster = replace(cluster, memory_alpha_s=latency_s)
    if s_per_byte:
        link = LinkCost(latency_s, 1 / max(s_per_byte))
        texts.append(f"long messages move at {_rate_text(link.bytes_per_s)}")
        cluster = replace(cluster, memory_alpha_s=link.alpha_s, memory_s_per_byte=link.beta_s_per_byte)
    return cluster, ", ".join(texts)


def _exchange_s_per_byte(pair: Mapping[str, Any]) -> float | None:
    """Return the seconds per byte of an exchange of long messages, or None if the link has not measured it.

    Through a ring each rank copies twice, into the ring and out of it. The kernel copies once.
    """
    by_ring = (2 * each for each in pair["ring_s_per_byte"] if each is not None)
    by_kernel = pair["zero_copy_s_per_byte"][1]
    return min([*by_ring, *([] if by_kernel is None else [by_kernel])], default=None)


def write(costs: MeasuredCosts, path: Path) -> None:
    """Write costs to a file."""
    write_text(path, json.dumps(costs.as_json(), indent=2) + "\n")


def store(costs: MeasuredCosts) -> Path | None:
    """Store the costs of a cluster on this host. Return None if the cache cannot be written."""
    path = _path(costs.hosts)
    try:
        disk.make_folders(path.parent)
        write(costs, path)
    except (OSError, InputError):
        return None
    return path


def load_stored(hosts: Iterable[str]) -> MeasuredCosts | None:
    """Return the stored costs of a cluster on this host, or None."""
    path = _path(hosts)
    return read(path) if path.is_file() else None


def _path(hosts: Iterable[str]) -> Path:
    return stored_path("costs", sorted(set(hosts)))


def read(path: Path) -> MeasuredCosts:
    """Read the costs in a file.

    Raises
    ------
    InputError
        If the file does not exist or holds no costs.
    """
    text = read_whole(path)
    try:
        return MeasuredCosts.from_json(parsed_json(text))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: expected a file of ripieno tune, but {error!r}; measure again") from error
