"""Figures: what was measured of one thing, beside its peers and its limit."""

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
    """Seconds of repeated measurements of one thing."""

    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    @property
    def best_s(self) -> float:
        """The least."""
        return min(self.seconds)

    @property
    def worst_s(self) -> float:
        """The greatest."""
        return max(self.seconds)


@dataclass(frozen=True)
class Figure:
    """One measured case: ours, its peers and its limit, all from one run.

    Parameters
    ----------
    case, row
        What was measured, e.g. "allreduce, 2 ranks" and "64 KiB"; a table shows the rows of a case.
    ours, peers
        Seconds; alternated, so that what disturbs one disturbs all.
    limit_s
        Seconds that no implementation can beat, and `limit` what that is.
    work
        What the rate counts, in units of `rate_unit` times seconds.
    targets
        What ours is to be at most, in multiples of the best "peer" and of the "limit", or in "seconds".
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
        """The peer with the least median."""
        return min(self.peers.items(), key=lambda peer: peer[1].median_s, default=None)

    @property
    def to_peer(self) -> float | None:
        """Our median over the best peer's: below 1 is faster."""
        return None if self.best_peer is None else self.ours.median_s / self.best_peer[1].median_s

    @property
    def best_to_peer(self) -> float | None:
        """The same of the best runs, which other load on the machine disturbs less."""
        return self.ours.best_s / min(peer.best_s for peer in self.peers.values()) if self.peers else None

    @property
    def to_limit(self) -> float | None:
        """Our median over the limit."""
        return self.ours.median_s / self.limit_s if self.limit_s else None

    @property
    def reached(self) -> bool | None:
        """Whether all targets are reached, None if there is nothing to hold one against."""
        ratios = {"peer": self.to_peer, "limit": self.to_limit, "seconds": self.ours.median_s}
        verdicts = [ratio <= target for name, target in self.targets.items() if (ratio := ratios[name]) is not None]
        return all(verdicts) if verdicts else None

    def as_json(self) -> dict[str, object]:
        """All of it, with the derived figures."""
        derived = ("to_peer", "best_to_peer", "to_limit", "reached")
        ours = asdict(self.ours) | {"median_s": self.ours.median_s}
        return asdict(self) | {"ours": ours} | {name: getattr(self, name) for name in derived}


@dataclass(frozen=True)
class FigureCount:
    """Something counted instead of timed.

    Parameters
    ----------
    case, row
        What was counted.
    value, unit
        How much of what.
    target
        What it is to be at most.
    """

    case: str
    row: str
    value: float
    unit: str
    target: float

    @property
    def reached(self) -> bool:
        """Whether it is no more than the target."""
        return self.value <= self.target


@dataclass
class Measurements:
    """What a benchmark found out, and what it had to leave out."""

    name: str
    figures: list[Figure] = field(default_factory=list)
    counts: list[FigureCount] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def remark(self, text: str) -> None:
        """Add a remark, once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def as_json(self) -> dict[str, object]:
        """For machines to read."""
        figures = [figure.as_json() for figure in self.figures]
        counts = [asdict(count) | {"reached": count.reached} for count in self.counts]
        return {"benchmark": self.name, "figures": figures, "counts": counts, "remarks": self.remarks}


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    models = re.findall(r"^model name\s*:\s*(.+)$", text_of("/proc/cpuinfo"), re.MULTILINE)
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": usable_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 1),
    }


def text_of(path: str) -> str:
    """What a file of the kernel says, nothing if it is not there."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
