"""From the death of a rank until all others have made a call in a smaller world: local ranks, and emulated hosts.

As a program (``faults.py FOLDER VICTIM``) it is a rank, which leaves the time of its death or return in FOLDER.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from effort import Effort, Measured
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.toolchain import Skipped
from ripieno.errors import RankFailed
from ripieno.lab import Lab, why_not
from ripieno.launch.script.environment import init
from ripieno.launch.script.run import Script, run

LOCAL_COUNT, HOST_COUNT, QUICK_HOST_COUNT = 8, 32, 3
RATE, TIMEOUT_S = "100mbit", 120.0
#: What is to be reached.
LOCAL_S, HOSTS_S = 0.2, 1.0


def cases() -> dict[str, Measured]:
    """What can be measured alone, by name."""
    return {"local": local, "lab": lab}


def local(report: Measurements, effort: Effort) -> None:
    """Ranks of this machine."""

    def started(folder: str, victim: int) -> None:
        run(Script(__file__, [folder, str(victim)], prefix=False, threads=1, on_failure="shrink"), LOCAL_COUNT)

    _measured(report, effort, f"{LOCAL_COUNT} local ranks", LOCAL_COUNT, started, LOCAL_S)


def lab(report: Measurements, effort: Effort) -> None:
    """A rank on every emulated host."""
    cannot = why_not()
    if cannot is not None:
        raise Skipped(f"no emulated hosts: {cannot}")
    count = QUICK_HOST_COUNT if effort.quick else HOST_COUNT
    with Lab(hosts=count, rate=RATE) as hosts:

        def started(folder: str, victim: int) -> None:
            command = [sys.executable, __file__, folder, str(victim)]
            environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
            hosts.run(command, timeout_s=TIMEOUT_S, environment=environment, prefix=False, keep_going=True)

        _measured(report, effort, f"{count} emulated hosts of {RATE}", count, started, HOSTS_S)


def _measured(
    report: Measurements,
    effort: Effort,
    row: str,
    count: int,
    started: Callable[[str, int], object],
    limit_s: float,
) -> None:
    for victim, who in ((0, "rank 0"), (count - 1, "the last rank")):
        seconds = [_seconds(started, count, victim) for _ in range(effort.runs(5))]
        report.figures.append(
            Figure(
                case=f"death of {who} to the last return",
                row=row,
                ours=Samples(tuple(seconds)),
                peers={},
                limit_s=limit_s,
                limit="what is to be reached",
                work=0.0,
                rate_unit="",
            )
        )


def _seconds(started: Callable[[str, int], object], count: int, victim: int) -> float:
    """From the death of `victim` until the last of the others is back."""
    with tempfile.TemporaryDirectory() as folder:
        started(folder, victim)
        times = {int(path.name): float(path.read_text()) for path in Path(folder).iterdir()}
    if len(times) != count:
        raise RuntimeError(f"{count - len(times)} of {count} ranks have not come back")
    return max(times.values()) - times[victim]


def main() -> None:
    """Be a rank."""
    folder, victim = Path(sys.argv[1]), int(sys.argv[2])
    comm = init(threads=1)
    rank, values = comm.rank, np.ones(1000)
    # The victim may be done with the last of these, and dead, before others are.
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
