"""Benchmarks on an emulated cluster: Ripieno, Open MPI with default and with the best forced algorithms, and Gloo.

The limit is the time of the bytes on the link of a host; TCP headers raise the minimum to 1.046 times that. Open MPI
runs without busy polling, in its favor: the emulated hosts share cores, real hosts do not.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from effort import Effort, Measured
from ripieno.bench import baselines
from ripieno.bench.baselines import Baseline, Deployment
from ripieno.bench.cases import BenchCase
from ripieno.bench.comparison import compare
from ripieno.bench.figures import Measurements, Samples
from ripieno.bench.limits import WireLimit
from ripieno.bench.toolchain import Skipped
from ripieno.lab import Lab, missing_requirement
from ripieno.lab.cluster_spec import bits_per_s

KIB, MIB = 1 << 10, 1 << 20
REPETITION_COUNT, BUDGET_S, TIMEOUT_S = 5, 0.25, 300.0
QUICK_HOST_COUNT, QUICK_RATE, QUICK_BYTES, QUICK_BUDGET_S, QUICK_TIMEOUT_S = 3, "400mbit", 128 * KIB, 0.01, 60.0
#: Ports on the emulated hosts, which no other process uses.
PORT = 29500
FORCED = {
    "coll_tuned_use_dynamic_rules": "1",
    "coll_tuned_bcast_algorithm": "3",  # pipeline
    "coll_tuned_bcast_algorithm_segmentsize": str(32 * KIB),
    "coll_tuned_allreduce_algorithm": "4",  # ring
}
RACK_COUNT, RACK_HOST_COUNT, SEED_COUNT = 4, 8, 5


@dataclass(frozen=True)
class ClusterShape:
    """Hosts of a lab with one rack."""

    host_count: int
    rate: str


@dataclass(frozen=True)
class ClusterRow:
    """A row of the table.

    Parameters
    ----------
    case
        The measured case.
    targets
        Upper limits for ours: relative to the "limit" or the best "peer", or in "seconds".
    default
        Whether Open MPI with its default choices takes part, which may take minutes.
    forced, gloo
        Whether these take part.
    """

    case: BenchCase
    targets: Mapping[str, float] = field(default_factory=dict)
    default: bool = True
    forced: bool = True
    gloo: bool = False


ROWS: dict[ClusterShape, list[ClusterRow]] = {
    ClusterShape(8, "200mbit"): [ClusterRow(BenchCase("broadcast", 32 * MIB), {"limit": 1.06})],
    ClusterShape(8, "100mbit"): [
        ClusterRow(BenchCase("allreduce", 16 * MIB), {"limit": 1.06}, gloo=True),
        ClusterRow(BenchCase("allreduce", MIB), {"limit": 1.08}, gloo=True),
        ClusterRow(BenchCase("allreduce", KIB), {"seconds": 0.30e-3}, forced=False, gloo=True),
        ClusterRow(BenchCase("allgather", 512 * KIB), {"limit": 1.08}, forced=False, gloo=True),
        ClusterRow(BenchCase("alltoall", 8 * MIB), {"limit": 1.10}, forced=False),
    ],
    ClusterShape(16, "100mbit"): [
        ClusterRow(BenchCase("broadcast", 8 * MIB), {"limit": 1.12}),
        ClusterRow(BenchCase("broadcast", 64 * MIB, "chain"), {"limit": 1.07}, default=False),
    ],
    ClusterShape(32, "100mbit"): [
        ClusterRow(BenchCase("broadcast", 8 * MIB), {"limit": 1.22, "peer": 0.82}),
        ClusterRow(BenchCase("broadcast", 32 * MIB), {"limit": 1.11}, default=False),
        ClusterRow(BenchCase("allreduce", 16 * MIB), {"limit": 1.075}),
        ClusterRow(BenchCase("allreduce", KIB), {"seconds": 2.0e-3}, forced=False),
        ClusterRow(BenchCase("allgather", 512 * KIB), {"limit": 1.10}, forced=False),
        ClusterRow(BenchCase("alltoall", 8 * MIB), {"limit": 1.2}, forced=False),
    ],
}


def cases() -> dict[str, Measured]:
    """Return the measurements by name: every row, the scaling and the racks; ``8x100mbit`` is all of a shape."""
    found: dict[str, Measured] = {}
    for shape, rows in ROWS.items():
        name = f"{shape.host_count}x{shape.rate}"
        found[name] = _measured(shape, rows)
        for row in rows:
            found[f"{row.case.name}-{row.case.size_bytes // KIB}KiB-{name}"] = _measured(shape, [row])
    return found | {"scaling": _scaling, "racks": _racks}


#: Names that together form the whole table, each shape at once.
ALL_CASES = (*(f"{shape.host_count}x{shape.rate}" for shape in ROWS), "scaling", "racks")


def quick(report: Measurements) -> None:
    """Run the quick form of everything, all rows in one lab."""
    rows = {_small(row.case): row for rows in ROWS.values() for row in rows}
    for measured in (_measured(ClusterShape(QUICK_HOST_COUNT, QUICK_RATE), list(rows.values())), _scaling, _racks):
        measured(report, Effort(quick=True))


def _measured(shape: ClusterShape, rows: Sequence[ClusterRow]) -> Measured:
    def measured(report: Measurements, effort: Effort) -> None:
        if not _can_emulate(report):
            return
        real = ClusterShape(QUICK_HOST_COUNT, QUICK_RATE) if effort.quick else shape
        request = [replace(row, case=_small(row.case)) for row in rows] if effort.quick else rows
        with ExitStack() as stack:
            lab = stack.enter_context(Lab(hosts=real.host_count, rate=real.rate))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            place = _place(lab, folder)
            targets = {row.case: row.targets for row in request}
            _compare_all(
                [baselines.ripieno(place), *_peers(place, request, report)],
                list(targets),
                real,
                report,
                effort,
                targets,
            )

    return measured


def _scaling(report: Measurements, effort: Effort) -> None:
    """Compare a broadcast to 32 hosts with the same broadcast to 8 of them."""
    if not _can_emulate(report):
        return
    few, many, rate = (2, QUICK_HOST_COUNT, QUICK_RATE) if effort.quick else (8, 32, "100mbit")
    case = _small(BenchCase("broadcast", 32 * MIB)) if effort.quick else BenchCase("broadcast", 32 * MIB)
    with Lab(hosts=many, rate=rate) as lab, tempfile.TemporaryDirectory() as folder:
        all_hosts = baselines.ripieno(_place(lab, Path(folder)))
        fewer_hosts = replace(baselines.ripieno(_place(lab, Path(folder), few)), name=f"Ripieno, {few} hosts")
        title = f"hosts x {rate}, against {few} hosts"
        _compare_all(
            [all_hosts, fewer_hosts],
            [case],
            ClusterShape(many, rate),
            report,
            effort,
            {case: {"peer": 1.06}},
            title=title,
        )


def _racks(report: Measurements, effort: Effort) -> None:
    """Broadcast through racks with narrow uplinks: in rack order, in random orders, and in one rack."""
    if not _can_emulate(report):
        return
    racks, hosts, rate = (2, 2, QUICK_RATE) if effort.quick else (RACK_COUNT, RACK_HOST_COUNT, "100mbit")
    case = BenchCase("broadcast", 16 * MIB, "chain")
    case = _small(case) if effort.quick else case
    random = [replace(case, algorithm=f"chain@random:{seed}") for seed in range(1 if effort.quick else SEED_COUNT)]
    shape = ClusterShape(racks * hosts, rate)
    with (
        Lab(racks=racks, hosts=hosts, rate=rate, uplink=rate) as narrow,
        Lab(hosts=racks * hosts, rate=rate) as one,
        tempfile.TemporaryDirectory() as folder,
    ):
        ours = baselines.ripieno(_place(narrow, Path(folder)))
        in_one = replace(baselines.ripieno(_place(one, Path(folder))), name="one rack")
        title = f"hosts x {rate} in {racks} racks, uplinks {rate}"
        _compare_all([ours, in_one], [case], shape, report, effort, {case: {"peer": 1.1}}, title=title)
        # Crossed uplinks make random orders slow, so each seed runs once.
        timeout_s = QUICK_TIMEOUT_S if effort.quick else TIMEOUT_S
        seconds = ours.times(random, QUICK_BUDGET_S if effort.quick else BUDGET_S, timeout_s)
    in_order = report.figures[-1]
    means = tuple(statistics.median(each) for each in seconds.values())
    peers = {f"random orders, mean of {len(means)}": Samples((statistics.mean(means),))}
    report.figures.append(replace(in_order, case=f"{in_order.case}, random", peers=peers, targets={"peer": 1 / 4}))


def _compare_all(
    candidates: Sequence[Baseline],
    cases: Sequence[BenchCase],
    shape: ClusterShape,
    report: Measurements,
    effort: Effort,
    targets: Mapping[BenchCase, Mapping[str, float]],
    *,
    title: str | None = None,
) -> None:
    compare(
        candidates,
        cases,
        WireLimit(shape.host_count, bits_per_s("rate", shape.rate)),
        report,
        title=lambda case: f"{case.name}, {shape.host_count} {title or f'hosts x {shape.rate}'}",
        repetitions=effort.runs(REPETITION_COUNT),
        budget_s=QUICK_BUDGET_S if effort.quick else BUDGET_S,
        timeout_s=QUICK_TIMEOUT_S if effort.quick else TIMEOUT_S,
        targets=lambda case: targets[case],
    )


def _peers(place: Deployment, rows: Sequence[ClusterRow], report: Measurements) -> list[Baseline]:
    """Return the peers that take part in any row."""

    def taking(baseline: Baseline, cases: set[BenchCase]) -> Baseline:
        return replace(baseline, supports=lambda case: case in cases or case.collective == "barrier")

    makers = {
        "default": lambda: baselines.open_mpi(place, name="Open MPI default", yields_to_sleep=True),
        "forced": lambda: baselines.open_mpi(place, name="Open MPI forced", settings=FORCED, yields_to_sleep=True),
        "gloo": lambda: baselines.gloo(place),
    }
    found = []
    for name, make in makers.items():
        taken = {row.case for row in rows if getattr(row, name)}
        try:
            if taken:
                found.append(taking(make(), taken))
        except Skipped as skipped:
            report.remark(str(skipped))
    return found


def _place(lab: Lab, folder: Path, host_count: int | None = None) -> Deployment:
    hosts = lab.hosts[:host_count]
    shell = folder / lab.name
    shell.write_text(lab.remote_shell())
    shell.chmod(0o700)
    return Deployment(
        len(hosts),
        command=lambda rank, words: lab.command(hosts[rank], words),
        address=hosts[0].address,
        port=PORT,
        interface="eth0",
        hosts=[host.address for host in hosts],
        remote_shell=shell,
    )


def _small(case: BenchCase) -> BenchCase:
    return replace(case, size_bytes=min(case.size_bytes, QUICK_BYTES))


def _can_emulate(report: Measurements) -> bool:
    reason = missing_requirement()
    if reason is not None:
        report.remark(reason)
    return reason is None
