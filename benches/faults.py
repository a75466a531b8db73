"""Benchmark of recovery: time from the end of a killed rank to a call in a smaller world, and K-means with a failure.

As a program (``faults.py FOLDER VICTIM``) this file is a rank, which writes the time of its end or of its recovery to
FOLDER.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from effort import Effort, Measured
from numpy.typing import NDArray
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.toolchain import Skipped
from ripieno.errors import RankFailed
from ripieno.lab import Lab, missing_requirement
from ripieno.launch import launch
from ripieno.launch.script.environment import init
from ripieno.launch.script.run import Script, run

if TYPE_CHECKING:
    from ripieno.algorithms import KMeans
    from ripieno.comm.communicator import Communicator

LOCAL_COUNT, HOST_COUNT, QUICK_COUNT = 8, 32, 3
RATE, TIMEOUT_S = "100mbit", 120.0
#: Rows, columns and clusters of a fit, and the iteration after which a worker is killed.
FIT, QUICK_FIT, KILL_ITERATION = (200_000, 32, 200), (2_000, 8, 10), 5
FIT_WORKERS = 4
#: Upper limits of the recovery time.
LOCAL_S, HOSTS_S = 0.2, 1.0


def cases() -> dict[str, Measured]:
    """Return the measurements by name."""
    return {"local": local, "lab": lab, "kmeans": kmeans}


def local(report: Measurements, effort: Effort) -> None:
    """Measure ranks of this machine."""
    count = QUICK_COUNT if effort.quick else LOCAL_COUNT

    def started(folder: str, victim: int) -> None:
        run(Script(__file__, [folder, str(victim)], prefix=False, threads=1, on_failure="shrink"), count)

    _measured(report, effort, f"{count} local ranks", count, started, LOCAL_S)


def lab(report: Measurements, effort: Effort) -> None:
    """Measure one rank on every emulated host."""
    reason = missing_requirement()
    if reason is not None:
        raise Skipped(f"no emulated hosts: {reason}")
    count = QUICK_COUNT if effort.quick else HOST_COUNT
    with Lab(hosts=count, rate=RATE) as hosts:

        def started(folder: str, victim: int) -> None:
            command = [sys.executable, __file__, folder, str(victim)]
            environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
            hosts.run(command, timeout_s=TIMEOUT_S, environment=environment, prefix=False, keep_going=True)

        _measured(report, effort, f"{count} emulated hosts of {RATE}", count, started, HOSTS_S)


def kmeans(report: Measurements, effort: Effort) -> None:
    """Compare a fit with a killed worker to an undisturbed fit. Both results are bitwise equal."""
    rows, columns, clusters = QUICK_FIT if effort.quick else FIT
    points = np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(effort.runs(3)):
        fits = {}
        for kills in seconds:
            fits[kills], taken_s = _fitted(points, clusters, with_kill=kills)
            seconds[kills].append(taken_s)
        undisturbed, recovered = fits[False], fits[True]
        if (
            not np.array_equal(undisturbed.cluster_centers_, recovered.cluster_centers_)
            or recovered.n_iter_ != undisturbed.n_iter_
        ):
            raise RuntimeError("K-means with a failure has a different result than without one")
        if recovered.resumed_from_ is None or recovered.resumed_from_ < KILL_ITERATION - 1:
            raise RuntimeError(f"K-means resumed from iteration {recovered.resumed_from_}, expected {KILL_ITERATION}")
    report.figures.append(
        Figure(
            case="K-means with a killed worker, equal results",
            row=f"{rows} × {columns} into {clusters}, {FIT_WORKERS} workers, respawn",
            ours=Samples(tuple(seconds[True])),
            peers={"without a failure": Samples(tuple(seconds[False]))},
            limit_s=min(seconds[False]),
            limit="the fit without a failure",
            work=0.0,
            rate_unit="",
        )
    )


def _fitted(points: NDArray[np.float32], clusters: int, *, with_kill: bool) -> tuple[KMeans, float]:
    """Return a fit, and its seconds."""
    # Import here: ranks do not need it.
    from ripieno.algorithms import KMeans

    with launch(workers=FIT_WORKERS, threads=1, on_failure="respawn") as job, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        victim = job.run(_pid)[FIT_WORKERS // 2]

        def kill_worker(event: dict[str, Any]) -> None:
            nonlocal victim
            if with_kill and victim and event.get("iteration") == KILL_ITERATION:
                os.kill(victim, signal.SIGKILL)
                victim = 0

        model = KMeans(clusters, random_state=0, max_iter=20, tol=0.0, engine=job, on_iteration=kill_worker)
        begin = time.monotonic()
        model.fit(points)
        return model, time.monotonic() - begin


def _pid(comm: Communicator) -> int:
    return os.getpid()


def _measured(
    report: Measurements,
    effort: Effort,
    row: str,
    count: int,
    started: Callable[[str, int], object],
    limit_s: float,
) -> None:
    for victim, name in ((0, "rank 0"), (count - 1, "the last rank")):
        seconds = [_seconds(started, count, victim) for _ in range(effort.runs(5))]
        report.figures.append(
            Figure(
                case=f"recovery of all other ranks after {name} was killed",
                row=row,
                ours=Samples(tuple(seconds)),
                peers={},
                limit_s=limit_s,
                limit="target",
                work=0.0,
                rate_unit="",
            )
        )


def _seconds(started: Callable[[str, int], object], count: int, victim: int) -> float:
    """Return the seconds from the end of `victim` until all other ranks have recovered."""
    with tempfile.TemporaryDirectory() as folder:
        started(folder, victim)
        times = {int(path.name): float(path.read_text()) for path in Path(folder).iterdir()}
    if len(times) != count:
        raise RuntimeError(f"{count - len(times)} of {count} ranks have not returned")
    return max(times.values()) - times[victim]


def main() -> None:
    """Run as a rank."""
    folder, victim = Path(sys.argv[1]), int(sys.argv[2])
    comm = init(threads=1)
    rank, values = comm.rank, np.ones(1000)
    # The victim may finish its last call and end before the other ranks finish this call.
    with suppress(RankFailed):
        for _ in range(3):
            comm.allreduce(values)
    if rank == victim:
        (folder / str(rank)).write_text(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        try:
            comm.allreduce(values)
            break
        except RankFailed:
            comm = comm.shrink()
    (folder / str(rank)).write_text(str(time.monotonic()))


if __name__ == "__main__":
    main()
