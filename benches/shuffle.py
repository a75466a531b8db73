"""Benchmark of shuffles on emulated hosts: K-means sums with and without local reduction, and an incast.

benches/shuffle.py [reduction|incast]… [--hosts N] [--rate 100mbit] [--tasks 8] [--centroids 1000] [--dimensions 512]
                   [--repetitions N] [--quick] [--json FILE]

Every host has a process with some map tasks, each of which produces a sum and a count for every centroid. With local
reduction a process adds up the results of its tasks before sending; the seconds include this.

Source: "Social image clustering with iterative MapReduce" (Twister), sections 5, 5.1 and 6.3, figure 8, which reports
12.5 % of the bytes and 10 % of the time on 125 hosts with 8 tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import command
from effort import Effort, Measured
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples
from ripieno.bench.toolchain import Skipped
from ripieno.lab import Lab, missing_requirement
from ripieno.lab.cluster_spec import bits_per_s
from ripieno.units import bytes_text
from shuffle_rank import ShuffleCase

HERE = Path(__file__).resolve().parent
TASK_COUNT, CENTROID_COUNT, DIMENSION_COUNT, RATE = 8, 1_000, 512, "100mbit"
HOST_COUNTS = {"reduction": 8, "incast": 16}
QUICK_HOST_COUNT, QUICK_CENTROID_COUNT, QUICK_DIMENSION_COUNT = 3, 400, 31
#: Alternating runs, shuffles per run, and timeout of a run in seconds.
RUN_COUNT, SHUFFLE_COUNT, TIMEOUT_S = 3, 3, 300.0
#: Upper limit relative to the bytes and the time without local reduction.
REDUCED = 0.15
#: Options that turn off requests for blocks, and send all blocks in one wave.
NO_FLOW_CONTROL = {"eager_bytes": 1 << 40, "wave_bytes": 1 << 40}


@dataclass(frozen=True)
class Setting:
    """The emulated hosts, and the output of the map tasks."""

    host_count: int
    rate: str = RATE
    task_count: int = TASK_COUNT
    centroid_count: int = CENTROID_COUNT
    dimension_count: int = DIMENSION_COUNT

    def quick(self) -> Setting:
        """Return a small setting."""
        return replace(
            self,
            host_count=QUICK_HOST_COUNT,
            centroid_count=QUICK_CENTROID_COUNT,
            dimension_count=QUICK_DIMENSION_COUNT,
        )

    def case(self, **how: Any) -> ShuffleCase:
        """Return the case that each rank runs."""
        return ShuffleCase(**{"task_count": self.task_count, **how}, centroid_count=self.centroid_count,
                    dimension_count=self.dimension_count, run_count=SHUFFLE_COUNT)  # fmt: skip

    def seconds(self, size_bytes: float) -> float:
        """Return the seconds that a network link takes."""
        return 8 * size_bytes / bits_per_s("rate", self.rate)


@dataclass
class ShuffleResults:
    """The measurements of one variant over all runs, for example with local reduction."""

    seconds: list[float]
    sent_bytes: list[int]
    dropped_packets: int

    @property
    def samples(self) -> Samples:
        """Return the seconds of every shuffle."""
        return Samples(tuple(self.seconds))


def cases() -> dict[str, Measured]:
    """Return the measurements by name."""
    return {
        name: lambda report, effort, name=name: measured(name, Setting(HOST_COUNTS[name]), report, effort)
        for name in HOST_COUNTS
    }


def measured(name: str, setting: Setting, report: Measurements, effort: Effort) -> None:
    """Run the benchmark `reduction` or `incast`."""
    reason = missing_requirement()
    if reason is not None:
        raise Skipped(f"no emulated hosts: {reason}")
    {"reduction": _reduction, "incast": _incast}[name](setting.quick() if effort.quick else setting, report, effort)


def _reduction(setting: Setting, report: Measurements, effort: Effort) -> None:
    variants = {f"{how} local reduction": setting.case(local_reduction=how == "with") for how in ("with", "without")}
    found = _alternating(setting, variants, effort.runs(RUN_COUNT))
    (reduced, unreduced), share = found.values(), (setting.host_count - 1) / setting.host_count
    case = (
        f"sums of {setting.centroid_count:,} × {setting.dimension_count}, {setting.task_count} map tasks on each of "
        f"{setting.host_count} hosts × {setting.rate}"
    )
    limit_s = setting.seconds(share * variants["with local reduction"].task_bytes)
    without = {"without": unreduced.samples}
    report.figures.append(
        Figure(
            case,
            "with local reduction",
            reduced.samples,
            without,
            limit_s,
            "the rows that a host sends, one of each centroid that it does not own, over the rate of its link",
            0.0,
            "",
            {"peer": REDUCED},
        )
    )
    sent = [sum(each.sent_bytes) for each in (reduced, unreduced)]
    report.counts.append(
        FigureCount(case, "bytes sent, relative to no local reduction", sent[0] / sent[1], "", REDUCED)
    )
    report.remark(
        f"all hosts send {bytes_text(sent[0])} with and {bytes_text(sent[1])} without local "
        "reduction; the paper has 12.5 % of the bytes and 10 % of the time"
    )


def _incast(setting: Setting, report: Measurements, effort: Effort) -> None:
    variants = {"pulled": {}, "all at once": NO_FLOW_CONTROL}
    cases = {name: setting.case(task_count=1, to_one=True, exchange=exchange) for name, exchange in variants.items()}
    found = _alternating(setting, cases, effort.runs(RUN_COUNT))
    sender_count, block_bytes = setting.host_count - 1, cases["pulled"].task_bytes
    case = f"{sender_count} hosts × {setting.rate} send {bytes_text(block_bytes)} each to one"
    report.figures.append(
        Figure(
            case,
            "pulled",
            found["pulled"].samples,
            {"all at once": found["all at once"].samples},
            setting.seconds(sender_count * block_bytes),
            "all blocks over the link rate of the receiver",
            0.0,
            "",
            {"peer": 1.0},
        )
    )
    dropped = ", ".join(f"{each.dropped_packets:,} {name}" for name, each in found.items())
    report.remark(f"{case}: packets dropped by the queue of the receiver in all runs: {dropped}")


def _alternating(setting: Setting, variants: dict[str, ShuffleCase], run_count: int) -> dict[str, ShuffleResults]:
    """Return the seconds of every shuffle, the bytes sent by each rank, and the drops in the receiver's queue."""
    found = {name: ShuffleResults([], [], 0) for name in variants}
    with Lab(hosts=setting.host_count, rate=setting.rate) as lab:
        receiver = lab.hosts[0].name
        for _ in range(run_count):
            for name, case in variants.items():
                lab.reset_counters()
                each = command.found_by_ranks(lab, "shuffle_rank.py", case, TIMEOUT_S)
                found[name].seconds += each["seconds"]
                found[name].sent_bytes = each["sent_bytes"]
                found[name].dropped_packets += lab.counters()[receiver].dropped_packets
    return found


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(HOST_COUNTS)))
@click.option(
    "--hosts", "host_count", type=click.IntRange(2, 250), help="Number of hosts. Default: 8, and 16 for an incast."
)
@click.option("--rate", default=RATE, show_default=True, help="Link rate of each host.")
@click.option(
    "--tasks", type=click.IntRange(min=1), default=TASK_COUNT, show_default=True, help="Map tasks of a process."
)
@click.option("--centroids", type=click.IntRange(min=1), default=CENTROID_COUNT, show_default=True)
@click.option("--dimensions", type=click.IntRange(min=1), default=DIMENSION_COUNT, show_default=True)
@command.repetitions_option
@command.quick_option
@command.json_option
def main(
    names: Sequence[str], host_count: int | None, rate: str, tasks: int, centroids: int, dimensions: int,
    repetitions: int | None, quick: bool, target: Path | None,
) -> None:  # fmt: skip
    """Measure shuffles of sums of K-means on emulated hosts."""
    report = Measurements("shuffle")
    for name in names or HOST_COUNTS:
        setting = Setting(host_count or HOST_COUNTS[name], rate, tasks, centroids, dimensions)
        try:
            measured(name, setting, report, Effort(quick, repetitions))
        except Skipped as skipped:
            raise click.ClickException(str(skipped)) from skipped
    command.show(report, target, quick=quick)


if __name__ == "__main__":
    main()
