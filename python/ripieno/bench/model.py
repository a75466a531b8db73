"""Provide the validation of the model: times of collectives on emulated hosts next to the predicted times.

Hosts are in one rack, or in several racks with oversubscribed uplinks. The model uses the rates, packets and headers of
the lab, and no measurements.
"""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.table import Table

import ripieno._native as _native
from ripieno.bench import baselines, figures, table
from ripieno.bench.baselines import Deployment
from ripieno.bench.cases import BenchCase, check_sizes
from ripieno.bench.figures import Samples
from ripieno.errors import InputError, LabError
from ripieno.lab import Lab
from ripieno.lab.cluster_spec import ETHERNET_BYTES, HEADER_BYTES, MTU_BYTES, ClusterSpec
from ripieno.simulation import Cluster, simulate
from ripieno.units import bytes_text, duration_text

SHAPES = ("8", "32", "4x4:2", "4x8:4")
ALGORITHMS = (
    "broadcast=chain",
    "broadcast=double-tree",
    "broadcast=binomial",
    "broadcast=scatter-allgather",
    "reduce=chain",
    "allreduce=ring",
    "allreduce=halving-doubling",
    "allgather=ring",
    "reduce-scatter=ring",
    "alltoall=direct",
    "alltoall=pairwise",
)
#: Limits of the largest and the median deviation.
WORST_TARGET, MEDIAN_TARGET = 0.10, 0.04
BUDGET_S, TIMEOUT_S = 0.5, 600.0
ELEMENT_BYTES = 4
# Port on the emulated hosts, which no other process uses.
PORT = 29500


@dataclass(frozen=True)
class RackShape:
    """Hosts in racks, with uplinks oversubscribed by a factor.

    Raises
    ------
    InputError
        If the hosts are too few, or the factor is below 1.
    """

    racks: int
    hosts_per_rack: int
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        if self.host_count < 2 or self.racks < 1 or not self.oversubscription >= 1:
            raise InputError(f"shape {self}: expected two hosts or more, and uplinks of 1:1 or less")

    @classmethod
    def parse(cls, text: str) -> RackShape:
        """Parse ``8``, hosts of one rack, or ``4x8:2``: 4 racks of 8, with uplinks of half a rack's total rate.

        Raises
        ------
        InputError
            If the text has neither form.
        """
        match = re.fullmatch(r"(?:(\d+)x)?(\d+)(?::(\d+(?:\.\d+)?))?", text.strip())
        if match is None:
            raise InputError(f"shape {text!r}: expected a number of hosts, or racks and uplinks, such as 4x8:2")
        return cls(int(match[1] or 1), int(match[2]), float(match[3] or 1))

    @property
    def host_count(self) -> int:
        """Return the number of hosts."""
        return self.racks * self.hosts_per_rack

    def spec(self, rate: str) -> ClusterSpec:
        """Return the lab of this shape, with network links of this rate."""
        rack = ClusterSpec(self.racks, self.hosts_per_rack, rate)
        if self.racks == 1:
            return rack
        uplink_bits_per_s = self.hosts_per_rack * rack.rate_bits_per_s / self.oversubscription
        return ClusterSpec(self.racks, self.hosts_per_rack, rate, f"{uplink_bits_per_s / 1000:.0f}kbit")

    def __str__(self) -> str:
        if self.racks == 1:
            return f"{self.hosts_per_rack}"
        return f"{self.racks}x{self.hosts_per_rack}:{self.oversubscription:g}"


@dataclass(frozen=True)
class ModelQuery:
    """The requested comparison.

    Parameters
    ----------
    shapes
        Shapes of labs, in the syntax of `RackShape.parse`.
    algorithms
        Algorithms such as "broadcast=chain".
    size_bytes
        Bytes of the vector that all ranks end with, or that a rank sends.
    rate
        Rate of a host's network link, such as "25mbit".
    repetitions
        Number of times that the ranks are started and measure everything.
    """

    shapes: Sequence[str] = SHAPES
    algorithms: Sequence[str] = ALGORITHMS
    size_bytes: int = 4_000_000
    rate: str = "25mbit"
    repetitions: int = 1

    def __post_init__(self) -> None:
        for word in self.algorithms:
            collective, _, algorithm = word.partition("=")
            if collective not in _native.COLLECTIVES or algorithm not in _native.algorithms(collective):
                raise InputError(f"algorithm {word!r}: expected a collective and its algorithm, as {ALGORITHMS[0]!r}")
        shapes = [RackShape.parse(text) for text in self.shapes]
        for shape in shapes:
            shape.spec(self.rate)
        check_sizes((), [self.size_bytes], max(shape.host_count for shape in shapes))

    def cases(self, shape: RackShape) -> list[BenchCase]:
        """Return the cases of a shape, with equally many whole elements per rank."""
        found = []
        for word in self.algorithms:
            collective, _, algorithm = word.partition("=")
            block = max(1, self.size_bytes // (ELEMENT_BYTES * shape.host_count)) * ELEMENT_BYTES
            is_by_block = collective in ("allgather", "gather", "scatter")
            found.append(BenchCase(collective, block if is_by_block else block * shape.host_count, algorithm))
        return found


@dataclass(frozen=True)
class ModelRow:
    """One case of one shape: measured and predicted seconds."""

    shape: RackShape
    case: BenchCase
    measured: Samples
    modeled_s: float

    @cached_property
    def deviation(self) -> float:
        """Return the model's excess over the measured time, as a fraction of the measured time."""
        return self.modeled_s / self.measured.median_s - 1

    @property
    def whole_bytes(self) -> int:
        """Return the bytes of the vector that all ranks end with, or that a rank sends."""
        blocks = self.shape.host_count if self.case.collective in ("allgather", "gather", "scatter") else 1
        return self.case.size_bytes * blocks


@dataclass(frozen=True)
class ModelResults:
    """All rows, and the load of the machine."""

    request: ModelQuery
    rows: list[ModelRow]
    load: tuple[float, float]

    @property
    def median_deviation(self) -> float:
        """Return the median of the absolute deviations."""
        return statistics.median(abs(row.deviation) for row in self.rows)

    @property
    def worst(self) -> ModelRow:
        """Return the case with the largest deviation."""
        return max(self.rows, key=lambda row: abs(row.deviation))

    @property
    def is_reached(self) -> bool:
        """Return whether both targets, for the largest and the median deviation, are met."""
        return abs(self.worst.deviation) <= WORST_TARGET and self.median_deviation <= MEDIAN_TARGET

    def summary(self) -> str:
        """Return the verdict as text."""
        within = sum(abs(row.deviation) <= WORST_TARGET for row in self.rows)
        return (
            f"{within} of {len(self.rows)} cases within {WORST_TARGET:.0%}, median {self.median_deviation:.1%} "
            f"(expected {MEDIAN_TARGET:.0%}), worst {self.worst.deviation:+.1%} ({self.worst.case.name} on "
            f"{self.worst.shape}); load of the machine {self.load[0]:.1f} before, {self.load[1]:.1f} after"
        )

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        return {
            "machine": figures.machine(),
            "load": self.load,
            "rate": self.request.rate,
            "median_deviation": self.median_deviation,
            "worst_deviation": self.worst.deviation,
            "rows": [
                {
                    "shape": str(row.shape),
                    "algorithm": row.case.name,
                    "bytes": row.whole_bytes,
                    "measured_s": row.measured.seconds,
                    "simulated_s": row.modeled_s,
                    "deviation": row.deviation,
                }
                for row in self.rows
            ],
        }

    def show(self) -> None:
        """Print a table."""
        shown = Table(title=f"links {self.request.rate}: median (least – greatest)", title_justify="left")
        for heading in _HEADINGS:
            shown.add_column(heading, justify="left" if heading == _HEADINGS[1] else "right")
        for row in self.rows:
            shown.add_row(*_cells(row), table.VERDICTS[abs(row.deviation) <= WORST_TARGET])
        console = table.console()
        console.print(shown)
        console.print(self.summary(), soft_wrap=True)

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [" | ".join(_HEADINGS[:-1]), " | ".join("---" for _ in _HEADINGS[:-1])]
        lines += [" | ".join(_cells(row)) for row in self.rows]
        return "\n".join(f"| {line} |" for line in lines) + f"\n\n{self.summary()}\n"


_HEADINGS = ("hosts", "algorithm", "bytes", "measured", "simulated", "deviation", "")


def _cells(row: ModelRow) -> tuple[str, ...]:
    least, greatest = (duration_text(seconds) for seconds in (row.measured.best_s, row.measured.worst_s))
    measured = duration_text(row.measured.median_s)
    if len(row.measured.seconds) > 1:
        measured += f" ({least} – {greatest})"
    sizes = bytes_text(row.whole_bytes)
    return str(row.shape), row.case.name, sizes, measured, duration_text(row.modeled_s), f"{row.deviation:+.1%}"


def modeled(spec: ClusterSpec) -> Cluster:
    """Return the simulator's model of a lab: its rates, and packets of as many whole TCP segments as fit."""
    payload_bytes = MTU_BYTES - HEADER_BYTES
    frames = max(1, spec.packet_bytes // payload_bytes)
    return Cluster(
        nodes=len(spec.hosts),
        racks=spec.racks,
        rate_bits_per_s=spec.rate_bits_per_s,
        uplink_bits_per_s=spec.uplink_bits_per_s if spec.racks > 1 else None,
        alpha_s=0.0,
        packet_bytes=frames * payload_bytes,
        header_bytes=frames * (HEADER_BYTES + ETHERNET_BYTES),
    )


def measure(request: ModelQuery) -> ModelResults:
    """Run every case on emulated hosts, and in the simulator.

    Raises
    ------
    LabError
        If this machine cannot emulate hosts, or the ranks refuse a case.
    """
    load = os.getloadavg()[0]
    rows = [row for text in request.shapes for row in _rows(request, RackShape.parse(text))]
    return ModelResults(request, rows, (load, os.getloadavg()[0]))


def _rows(request: ModelQuery, shape: RackShape) -> list[ModelRow]:
    spec, cases = shape.spec(request.rate), request.cases(shape)
    seconds: dict[BenchCase, list[float]] = {case: [] for case in cases}
    with Lab(spec.racks, spec.hosts_per_rack, spec.rate, spec.uplink) as lab:
        hosts = lab.hosts
        ranks = baselines.ripieno(
            Deployment(
                len(hosts),
                command=lambda rank, words: lab.command(hosts[rank], words),
                address=hosts[0].address,
                port=PORT,
                interface="eth0",
            )
        )
        for _ in range(request.repetitions):
            found = ranks.times(cases, BUDGET_S, TIMEOUT_S)
            for case in cases:
                found_s = found[case.word]
                if isinstance(found_s, str):
                    raise LabError(f"{case.name} on {shape}: {found_s}")
                seconds[case] += found_s
    return [predicted(shape, case, seconds[case], modeled(spec)) for case in cases]


def predicted(shape: RackShape, case: BenchCase, seconds: Sequence[float], cluster: Cluster) -> ModelRow:
    """Return the measured time of a case and its time on the modeled cluster."""
    played = simulate(case.collective, cluster, nbytes=case.size_bytes, algorithm=case.algorithm)
    assert played.seconds is not None, "no rank dies, so every rank is done"
    return ModelRow(shape, case, Samples(tuple(seconds)), played.seconds)
