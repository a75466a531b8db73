"""Provide benchmark figures: the samples of a measurement, compared with other implementations (peers) and a limit."""

from __future__ import annotations

import os
import platform
import re
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ripieno.host import usable_cores


@dataclass(frozen=True)
class Samples:
    """Seconds of repeated measurements."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Return the median."""
        return statistics.median(self.seconds)

    @property
    def best_s(self) -> float:
        """Return the minimum."""
        return min(self.seconds)

    @property
    def worst_s(self) -> float:
        """Return the maximum."""
        return max(self.seconds)


@dataclass(frozen=True)
class Figure:
    """One measured case of Ripieno, other implementations (peers) and the limit, all from one run.

    Parameters
    ----------
    case, row
        Labels, for example "allreduce, 2 ranks" and "64 KiB"; a table shows the rows of a case.
    ours, peers
        Seconds from alternating runs, so that disturbances affect all equally.
    limit_s
        Seconds that no implementation can beat; `limit` describes the bound.
    work
        Amount of work. `work` divided by the seconds is the rate in `rate_unit`.
    targets
        Upper limits: our time relative to the best "peer" or to the "limit", or our time in "seconds".
    """

    case: str
    row: str
    ours: Samples
    peers: dict[str, Samples]
    limit_s: float | None
    limit: str
    work: float
    rate_unit: str
    targets: dict[str, float] = field(default_factory=dict)

    @property
    def best_peer(self) -> tuple[str, Samples] | None:
        """Return the peer with the lowest median."""
        return min(self.peers.items(), key=lambda peer: peer[1].median_s, default=None)

    @property
    def to_peer(self) -> float | None:
        """Return our median relative to the best peer's: below 1 is faster."""
        return None if self.best_peer is None else self.ours.median_s / self.best_peer[1].median_s

    @property
    def best_to_peer(self) -> float | None:
        """Return the ratio of the best runs, which other load on the machine affects less."""
        return self.ours.best_s / min(peer.best_s for peer in self.peers.values()) if self.peers else None

    @property
    def to_limit(self) -> float | None:
        """Return our median relative to the limit."""
        return self.ours.median_s / self.limit_s if self.limit_s else None

    @property
    def reached(self) -> bool | None:
        """Return whether all targets are reached; None without anything to compare."""
        ratios = {"peer": self.to_peer, "limit": self.to_limit, "seconds": self.ours.median_s}
        verdicts = [ratio <= target for name, target in self.targets.items() if (ratio := ratios[name]) is not None]
        return all(verdicts) if verdicts else None

    def as_json(self) -> dict[str, object]:
        """Return all fields, with the derived figures."""
        derived = ("to_peer", "best_to_peer", "to_limit", "reached")
        ours = asdict(self.ours) | {"median_s": self.ours.median_s}
        return asdict(self) | {"ours": ours} | {name: getattr(self, name) for name in derived}


@dataclass(frozen=True)
class FigureCount:
    """A result that is counted, not timed.

    Parameters
    ----------
    case, row
        Labels of the count.
    value, unit
        The count and its unit.
    target
        Upper limit.
    """

    case: str
    row: str
    value: float
    unit: str
    target: float

    @property
    def reached(self) -> bool:
        """Return whether the count does not exceed the target."""
        return self.value <= self.target


@dataclass
class Measurements:
    """The results of a benchmark, and its omissions."""

    name: str
    figures: list[Figure] = field(default_factory=list)
    counts: list[FigureCount] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def remark(self, text: str) -> None:
        """Add a remark, once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def as_json(self) -> dict[str, object]:
        """Return a machine-readable form."""
        figures = [figure.as_json() for figure in self.figures]
        counts = [asdict(count) | {"reached": count.reached} for count in self.counts]
        return {"benchmark": self.name, "figures": figures, "counts": counts, "remarks": self.remarks}


def machine() -> dict[str, object]:
    """Return a description of the machine."""
    models = re.findall(r"^model name\s*:\s*(.+)$", text_of("/proc/cpuinfo"), re.MULTILINE)
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": usable_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 1),
    }


def text_of(path: str) -> str:
    """Return the text of a kernel file; empty if it does not exist."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
