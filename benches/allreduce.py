"""Allreduce of float32 between the processes of one host: Ripieno, Open MPI, and what the memory allows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import measure
from measure import Figure, Report, Samples, Skipped

SIZES_BYTES = (8, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 1 << 20, 8 << 20, 64 << 20)
QUICK_SIZES_BYTES = (8, 8 << 10, 256 << 10)
RUN_COUNT = 7
BATCH_COUNT = 3
# A message of this size goes first and does not count: until ranks have run for a while, some may share a core.
WARM_UP_BYTES = 4
# A batch takes about so long, and never fewer or more calls than this.
BATCH_S = 0.02
CALL_COUNTS = (1, 5000)

Runner = Callable[[list[str]], str]


def measured(*, quick: bool) -> Report:
    """Ranks = cores and ranks = 2 × cores; native programs, then Python programs."""
    report = Report("allreduce")
    cores = measure.core_count()
    for world_size in (max(2, cores), 2 * max(2, cores)):
        for name, runners in (("native", _native), ("Python", _from_python)):
            try:
                ours, peers = runners(world_size, report, quick=quick)
            except Skipped as skipped:
                report.remarks.append(f"{name}: {skipped}")
                continue
            report.figures += _figures(f"{world_size} ranks, {name}", world_size, ours, peers, quick=quick)
    return report


def _native(world_size: int, report: Report, *, quick: bool) -> tuple[Runner, dict[str, Runner]]:
    program = measure.example("collectives", quick=quick)
    peers: dict[str, Runner] = {}
    try:
        mpi = measure.open_mpi("collectives.c")
        peers = {
            f"Open MPI ({how})": _mpi(world_size, mechanism, [str(mpi), "allreduce"])
            for how, mechanism in (("copies", "none"), ("CMA", "cma"))
        }
    except Skipped as skipped:
        _remark(report, f"no peer for the native programs: {skipped}")
    return lambda cases: measure.run_ranks([[program, "allreduce", *cases]] * world_size), peers


def _from_python(world_size: int, report: Report, *, quick: bool) -> tuple[Runner, dict[str, Runner]]:
    script = str(measure.BENCHES / "collectives.py")
    command = [sys.executable, "-m", "ripieno.cli", "run", "--no-prefix", "-n", str(world_size), script, "ripieno"]
    peers: dict[str, Runner] = {}
    try:
        measure.open_mpi("collectives.c")
        _require_mpi4py()
        peers = {"mpi4py": _mpi(world_size, "none", [sys.executable, script, "mpi4py"])}
    except Skipped as skipped:
        _remark(report, f"no peer for the Python programs: {skipped}")
    return lambda cases: measure.run([*command, *cases]), peers


def _mpi(world_size: int, single_copy: str, command: list[str]) -> Runner:
    """Open MPI at its fastest on one host: shared memory, pinned ranks that spin, or, sharing cores, yield."""
    shared = world_size > measure.core_count()
    settings = {
        "pml": "ob1",
        "btl": "vader,self",
        "btl_vader_single_copy_mechanism": single_copy,
        "mpi_yield_when_idle": str(int(shared)),
    }
    parameters = [word for name, value in settings.items() for word in ("--mca", name, value)]
    bind = ["--bind-to", "none" if shared else "core"]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    start = ["mpirun", *root, "--oversubscribe", "-np", str(world_size), *bind, *parameters]
    return lambda cases: measure.run([*start, *command, *cases])


def _figures(case: str, world_size: int, ours: Runner, peers: dict[str, Runner], *, quick: bool) -> list[Figure]:
    sizes = QUICK_SIZES_BYTES if quick else SIZES_BYTES
    run_count, batch_count = (1, 1) if quick else (RUN_COUNT, BATCH_COUNT)
    oversubscribed = world_size > measure.core_count()
    cases = [f"{size}:{_call_count(size, oversubscribed, quick)}:{batch_count}" for size in (WARM_UP_BYTES, *sizes)]
    limits = Limits(world_size, quick=quick)
    seconds: dict[str, dict[int, list[float]]] = {}
    for _ in range(run_count):
        limits.measure(cases)
        for name, runner in {"Ripieno": ours, **peers}.items():
            for size, some in measure.samples_by_size(runner(cases)).items():
                seconds.setdefault(name, {}).setdefault(size, []).extend(some)
    return [
        Figure(
            case=case,
            row=measure.size_text(size),
            ours=Samples(tuple(seconds["Ripieno"][size])),
            peers={name: Samples(tuple(seconds[name][size])) for name in peers},
            limit_s=limits.seconds(size),
            limit="a line changes cores, each core adds and copies its share",
            work=size / 1e9,
            rate_unit="GB/s",
            targets={"peer": 1.0},
        )
        for size in sizes
    ]


class Limits:
    """What the memory allows: every core adds its share of the vectors, once, and copies its share of the result."""

    def __init__(self, world_size: int, *, quick: bool) -> None:
        self._world_size = world_size
        self._core_count = min(world_size, measure.core_count())
        self._program: Path = measure.example("memory_limits", quick=quick)
        self._line_s = float("inf")
        self._pass_s: dict[int, float] = {}

    def measure(self, cases: list[str]) -> None:
        """Measure once more; the best counts."""
        for line in measure.run([self._program, str(self._core_count), *cases]).splitlines():
            size, first, second = (float(word) for word in line.split())
            if size == 0:
                self._line_s = min(self._line_s, first)
            else:
                self._pass_s[int(size)] = min(self._pass_s.get(int(size), float("inf")), first + second)

    def seconds(self, size_bytes: int) -> float:
        """For a vector of this size."""
        share = (self._world_size - 1) / self._core_count
        return self._line_s + share * self._pass_s[size_bytes]


def _call_count(size_bytes: int, oversubscribed: bool, quick: bool) -> int:
    guess_s = (20e-6 if oversubscribed else 1e-6) + size_bytes / 2e9
    least, most = CALL_COUNTS
    return max(least, min(most, int((0.1 if quick else 1.0) * BATCH_S / guess_s)))


def _require_mpi4py() -> None:
    try:
        import mpi4py  # noqa: F401
    except ImportError:
        raise Skipped(f"mpi4py is not installed: {sys.executable} -m pip install mpi4py") from None


def _remark(report: Report, text: str) -> None:
    if text not in report.remarks:
        report.remarks.append(text)
