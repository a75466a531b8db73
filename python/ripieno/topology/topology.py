"""Known facts about the hosts of ranks: racks, cores, caches, NUMA nodes; as a tree, and as a rack file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ripieno import log
from ripieno.errors import InputError
from ripieno.host import line_text
from ripieno.simulation import pictures

Source = Literal["given", "measured", "too few"]


@dataclass(frozen=True)
class Host:
    """A host of ranks.

    Attributes
    ----------
    name
        Its own host name.
    ranks
        Number of ranks on the host.
    cores
        Number of cores that these ranks may use.
    numa_nodes
        Number of NUMA nodes.
    line_s
        Time of a cache line between the cores of its ranks, the longest of all pairs; None with fewer than two ranks.
    """

    name: str
    ranks: int
    cores: int
    numa_nodes: int
    line_s: float | None = None


@dataclass(frozen=True)
class Topology:
    """Hosts and their racks.

    Attributes
    ----------
    hosts
        All hosts, in the order of their first ranks.
    racks
        Name of each host's rack.
    source
        Whether racks were "given" by a file, an option or a launcher, or "measured"; one or two hosts are "too few".
    certainty
        If measured, the probability of the least certain host's rack; else None.
    rounds, probes
        Number of measurement rounds and probes.
    """

    hosts: Sequence[Host]
    racks: Sequence[str]
    source: Source
    certainty: float | None = None
    rounds: int = 0
    probes: int = 0

    @property
    def sure(self) -> float | None:
        """Deprecated name of `certainty`."""
        log.warn("Topology.sure is deprecated, use certainty", DeprecationWarning)
        return self.certainty

    @property
    def by_rack(self) -> dict[str, list[Host]]:
        """The hosts of each rack."""
        found: dict[str, list[Host]] = {}
        for rack, host in zip(self.racks, self.hosts, strict=True):
            found.setdefault(rack, []).append(host)
        return found

    def racks_of(self, nodes: Sequence[int], hosts: Sequence[str]) -> list[str]:
        """Return the rack of each rank, from its node, numbered by first appearance, and its host.

        Raises
        ------
        InputError
            The topology has other hosts.
        """
        names = [hosts[list(nodes).index(node)] for node in dict.fromkeys(nodes)]
        if names != [host.name for host in self.hosts]:
            found = ", ".join(host.name for host in self.hosts)
            raise InputError(f"a topology of the hosts {found}: expected the hosts of these ranks, {', '.join(names)}")
        return [self.racks[node] for node in nodes]

    def as_json(self) -> dict[str, Any]:
        """Return all fields as JSON."""
        return asdict(self)

    def toml(self) -> str:
        """Return a rack file for ``ripieno run --racks``."""
        # A JSON string is also a TOML string.
        lines = [
            f"{json.dumps(rack)} = {json.dumps([host.name for host in hosts])}" for rack, hosts in self.by_rack.items()
        ]
        return "\n".join(["[racks]", *lines, ""])

    def picture(self) -> str:
        """Return the racks and their hosts as an SVG picture."""
        by_rack = {rack: [(host.name, _host_text(host)) for host in hosts] for rack, hosts in self.by_rack.items()}
        return pictures.racks(self._heading(len(by_rack)), by_rack)

    def __str__(self) -> str:
        by_rack = self.by_rack
        lines = [self._heading(len(by_rack))]
        width = max(len(host.name) for host in self.hosts)
        for number, (rack, hosts) in enumerate(by_rack.items()):
            is_last_rack = number == len(by_rack) - 1
            lines.append(f"{'└' if is_last_rack else '├'}─ {rack}")
            for place, host in enumerate(hosts):
                branch = "└" if place == len(hosts) - 1 else "├"
                lines.append(f"{' ' if is_last_rack else '│'}  {branch}─ {host.name:{width}}  {_host_text(host)}")
        return "\n".join(lines)

    def _heading(self, rack_count: int) -> str:
        heading = f"{_count(len(self.hosts), 'host')} in {_count(rack_count, 'rack')}"
        if self.source == "given":
            return f"{heading}, as given"
        if self.certainty is None:
            return heading
        found = (
            f"{heading}, found by {self.probes:,} probes in {self.rounds} rounds, certainty {_percent(self.certainty)}"
        )
        return found if rack_count > 1 else f"{found}: no uplink limited a pair"


def _percent(share: float) -> str:
    return f"{min(share, 0.999):.1%}"


def _host_text(host: Host) -> str:
    parts = [_count(host.ranks, "rank"), _count(host.cores, "core"), _count(host.numa_nodes, "NUMA node")]
    if host.line_s is not None:
        parts.append(line_text(host.line_s))
    return ", ".join(parts)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s'[: count != 1]}"
