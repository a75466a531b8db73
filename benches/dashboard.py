"""Benchmark of the dashboard's overhead: the same program on the same ranks with and without it, alternating.

The program imitates an iteration of a fit: each rank computes for a few milliseconds, then all ranks reduce a table. In
turns with a page, a process listens to the dashboard all the time, as a browser does.

Whole turns may vary by more than the target of one per cent. The benchmark therefore also counts the overhead: the
processor time of the ranks' telemetry threads, and the additional processor time of the launching process.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

import numpy as np
import ripieno as rp
from effort import Effort, Measured
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.comm.communicator import Communicator
from ripieno.launch.job.watch import JobWatch
from ripieno.launch.process.telemetry import TELEMETRY_THREAD

WORKERS = (8, 64)
ROWS = 128
#: Duration of a turn: several telemetry messages of each rank.
TURN_S = 6.0
#: Starting a program takes longer than an iteration, so the calibration must last.
CALIBRATING_S = 1.0
TABLE_FLOATS = 4096
CALLS = 20_000
#: Maximum fraction of a job's time that the dashboard may take.
SHARE = 0.01
_LISTEN = "import sys, urllib.request\nfor _ in urllib.request.urlopen(sys.argv[1] + 'events', timeout=600): pass"
CONFIGURATIONS = ("watched", "watched, with a page", "not watched")


def cases() -> dict[str, Measured]:
    """Return the measurements by name."""
    return {
        f"{workers} ranks": lambda report, effort, workers=workers: _measure(report, effort, workers)
        for workers in WORKERS
    } | {"short calls": _short_calls}


def iterate(comm: Communicator, count: int) -> tuple[float, float]:
    """Return the processor seconds of the iterations on this rank, and the part for telemetry."""
    start_s, reporting_s = time.process_time(), _reporting_s()
    rows, table = np.ones((ROWS, ROWS)), np.ones(TABLE_FLOATS)
    for iteration in range(count):
        rows = rows @ rows
        rows /= np.abs(rows).max()
        comm.allreduce(table, out=table, op="max")
        if comm.rank == 0:
            comm.emit({"event": "iteration", "iteration": iteration + 1, "inertia": 1.0 / (iteration + 1)})
    return time.process_time() - start_s, _reporting_s() - reporting_s


def _reporting_s() -> float:
    """Return the processor seconds of this rank's telemetry thread."""
    threads = [each for each in threading.enumerate() if each.name == TELEMETRY_THREAD]
    reporters = [each.ident for each in threads if each.ident is not None]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(each)) for each in reporters)


def _measure(report: Measurements, effort: Effort, workers: int) -> None:
    workers = 2 if effort.quick else workers
    turns: dict[str, list[DashboardTurn]] = {name: [] for name in CONFIGURATIONS}
    with rp.launch(workers=workers, threads=1, dashboard=True) as job:
        count = 3 if effort.quick else _count(job)
        for number in range(effort.runs(6)):
            # Alternate the order, so that no configuration gains from changes in machine speed.
            for name in CONFIGURATIONS if number % 2 == 0 else CONFIGURATIONS[::-1]:
                with _configured(job, name):
                    turns[name].append(_turn(job, count))
    alone_s = median(each.launcher_s for each in turns[CONFIGURATIONS[2]])
    for name in CONFIGURATIONS[:2]:
        found = turns[name]
        report.figures.append(_figure(
            f"time of a job, {workers} ranks", name,
            [each.elapsed_s for each in found], "not watched", [each.elapsed_s for each in turns[CONFIGURATIONS[2]]],
            1 + SHARE,
        ))  # fmt: skip
        total = [each.ranks_s + each.launcher_s for each in found]
        watching = [each.reporting_s + max(each.launcher_s - alone_s, 0.0) for each in found]
        report.figures.append(_figure(
            f"processor time of ranks and launcher, {workers} ranks", name,
            total, "without the time of watching",
            [all_s - part_s for all_s, part_s in zip(total, watching, strict=True)],
            1 + SHARE,
        ))  # fmt: skip


class DashboardTurn(NamedTuple):
    """Elapsed seconds, and processor seconds: of the ranks, of their telemetry, and of the launching process."""

    elapsed_s: float
    ranks_s: float
    reporting_s: float
    launcher_s: float


def _turn(job: rp.Job, count: int) -> DashboardTurn:
    own_s, start_s = time.process_time(), time.perf_counter()
    ranks = job.run(iterate, count)
    elapsed_s, launcher_s = time.perf_counter() - start_s, time.process_time() - own_s
    return DashboardTurn(elapsed_s, sum(all_s for all_s, _ in ranks), sum(part_s for _, part_s in ranks), launcher_s)


def _figure(case: str, row: str, ours: list[float], peer: str, theirs: list[float], target: float | None) -> Figure:
    return Figure(
        case=case,
        row=row,
        ours=Samples(tuple(ours)),
        peers={peer: Samples(tuple(theirs))},
        limit_s=None,
        limit="",
        work=0.0,
        rate_unit="",
        targets={} if target is None else {"peer": target},
    )


def call(comm: Communicator, count: int) -> float:
    """Return the seconds of a sum of eight bytes, averaged over `count` calls."""
    value = np.ones(1)
    comm.barrier()
    start_s = time.perf_counter()
    for _ in range(count):
        comm.allreduce(value, out=value, op="max")
    return (time.perf_counter() - start_s) / count


def _short_calls(report: Measurements, effort: Effort) -> None:
    """Measure short calls on a job with the dashboard on, which counts each call, and on a job that never had it."""
    count = 200 if effort.quick else CALLS
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with rp.launch(workers=2, dashboard=True) as watched, rp.launch(workers=2) as unwatched:
        unwatched._watch = JobWatch()
        for number in range(effort.runs(20)):
            for is_watched in (True, False) if number % 2 == 0 else (False, True):
                job = watched if is_watched else unwatched
                seconds[is_watched].append(max(job.run(call, count)))
    report.figures.append(
        _figure("allreduce of 8 bytes, 2 ranks", "watched", seconds[True], "not watched", seconds[False], None)
    )


def _count(job: rp.Job) -> int:
    """Return the number of iterations that fit into a turn."""
    count, took_s = 1, 0.0
    while took_s < CALIBRATING_S:
        count *= 2
        start_s = time.perf_counter()
        job.run(iterate, count)
        took_s = time.perf_counter() - start_s
    return round(count * TURN_S / took_s)


@contextmanager
def _configured(job: rp.Job, configuration: str) -> Iterator[None]:
    """Switch the dashboard on or off. In the configuration with a page, a process listens to it."""
    watch = job._watch
    if configuration == CONFIGURATIONS[2]:
        job._watch = JobWatch()
    link = "" if job.dashboard is None else job.dashboard.link
    listener = (
        subprocess.Popen([sys.executable, "-c", _LISTEN, link], stdout=subprocess.DEVNULL)
        if configuration == CONFIGURATIONS[1]
        else None
    )
    try:
        if listener is not None:
            # Wait until the listener has received the initial state.
            time.sleep(1.0)
        yield
    finally:
        job._watch = watch
        if listener is not None:
            listener.kill()
            listener.wait()
