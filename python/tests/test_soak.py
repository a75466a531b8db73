"""Repeated launches in one process, with jobs that end in all ways, leak no resources.

Every test run includes a few. ``RIPIENO_LAUNCHES=300`` and ``RIPIENO_SOAK_S=3600`` set the number of launches, and the
duration of mixed jobs. ``make soak`` and ``make soak-hour`` run many, and print the counts.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from watching import comes_true, open_descriptors

LAUNCHES = int(os.environ.get("RIPIENO_LAUNCHES", "6"))
SOAK_S = float(os.environ.get("RIPIENO_SOAK_S", "0"))
#: Warm-up launches, during which pools of libraries fill up.
WARM_UP_LAUNCHES = 3
#: Maximum growth of the caller's maps and resident memory per launch: allocator fragmentation, which decreases. A leak
#: per launch would be at least a page and a map.
EXTRA_MAPS_PER_LAUNCH, EXTRA_BYTES_PER_LAUNCH = 0.1, 2048
#: Allowance for maps and memory of a few launches.
EXTRA_MAPS, EXTRA_BYTES = 16, 8 << 20
#: Joined threads leave the system's list a moment later.
SETTLE_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class ResourceCounts:
    """The resources of this process."""

    descriptors: tuple[str, ...]
    threads: int
    children: int
    shared_files: tuple[str, ...]
    maps: int
    resident_bytes: int

    @classmethod
    def now(cls) -> ResourceCounts:
        """Count after collecting unreferenced objects."""
        gc.collect()
        tasks = list(Path("/proc/self/task").iterdir())
        return cls(
            descriptors=tuple(open_descriptors()),
            threads=len(tasks),
            children=sum(descendants(task) for task in tasks),
            # Semaphores belong to other running tests.
            shared_files=tuple(sorted(name for name in os.listdir("/dev/shm") if not name.startswith("sem."))),
            maps=len(Path("/proc/self/maps").read_text().splitlines()),
            resident_bytes=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        )

    @property
    def fixed(self) -> tuple[object, ...]:
        """Return the counts that must be equal after each job."""
        return self.descriptors, self.threads, self.children, self.shared_files

    def __str__(self) -> str:
        return (
            f"{len(self.descriptors)} descriptors, {self.threads} threads, {self.children} processes, "
            f"{self.maps} maps, {self.resident_bytes / 2**20:.1f} MiB"
        )


def descendants(task: Path) -> int:
    """Count the processes that a thread and its child processes have started; none if it ends meanwhile."""
    try:
        children = (task / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return len(children) + sum(descendants(Path("/proc", child, "task", child)) for child in children)


def assert_bounded_growth(before: ResourceCounts, job_count: int) -> str:
    """Compare current resources with those before `job_count` jobs; return both as a sentence."""
    now = ResourceCounts.now()
    assert now.fixed == before.fixed
    assert now.maps - before.maps <= EXTRA_MAPS + EXTRA_MAPS_PER_LAUNCH * job_count
    assert now.resident_bytes - before.resident_bytes <= EXTRA_BYTES + EXTRA_BYTES_PER_LAUNCH * job_count
    return f"before {before}; now {now}; load {os.getloadavg()[0]:.1f}"


def sum_values(comm: rp.Communicator, values: np.ndarray) -> float:
    """Add up values of all ranks."""
    return float(comm.allreduce(values)[-1])


def kill_one_rank(comm: rp.Communicator, mark: Path, victim: int) -> int:
    """Run a program with one death of a rank."""
    comm.barrier()
    if comm.rank == victim and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return comm.allreduce(1)


def continue_on_survivors(comm: rp.Communicator, victim: int) -> int:
    """Run a program that continues without a rank."""
    if comm.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        try:
            return comm.allreduce(1)
        except rp.RankFailed:
            comm = comm.shrink()


def test_launches_leak_no_resources(capsys):
    def launch_once(number: int) -> None:
        links = "tcp" if number % 2 else "shared-memory"
        with rp.launch(workers=2, threads=1, links=links) as job:
            assert job.run(sum_values, np.full(20_000, 1.0)) == [2.0, 2.0]

    for number in range(WARM_UP_LAUNCHES):
        launch_once(number)
    before = ResourceCounts.now()
    for number in range(LAUNCHES):
        launch_once(number)
        assert comes_true(lambda: ResourceCounts.now().fixed == before.fixed, SETTLE_TIMEOUT_S), (
            before,
            ResourceCounts.now(),
        )
    found = assert_bounded_growth(before, LAUNCHES)
    if "RIPIENO_LAUNCHES" in os.environ:
        with capsys.disabled():
            print(f"\n{LAUNCHES} launches: {found}")


def plain(draw: random.Random, folder: Path) -> None:
    """Run programs on one job, a broadcast value, and another number of ranks."""
    with rp.launch(workers=draw.choice((2, 3)), threads=1, links=draw.choice(("shared-memory", "tcp"))) as job:
        table = job.broadcast(np.arange(50_000))
        assert job.run(lambda comm: int(table.value[-1])) == [49_999] * job.workers
        job.resize(2)
        assert job.run(sum_values, np.ones(100_000)) == [2.0, 2.0]


def raising(draw: random.Random, folder: Path) -> None:
    """Run a program that raises on one rank."""

    def program(comm: rp.Communicator) -> None:
        comm.barrier()
        if comm.rank == 1:
            raise ValueError("on purpose")
        comm.barrier()

    with rp.launch(workers=2, threads=1) as job, pytest.raises(ValueError, match="on purpose"):
        job.run(program)


def failing(draw: random.Random, folder: Path) -> None:
    """Run a job with a dying rank."""
    with rp.launch(workers=3, threads=1) as job, pytest.raises(rp.RankFailed):
        job.run(kill_one_rank, folder / "mark", draw.randrange(3))


def surviving(draw: random.Random, folder: Path) -> None:
    """Run a program that restarts, without the dead ranks or with a spare."""
    policy = draw.choice(("shrink", "respawn"))
    spares = draw.randrange(2) if policy == "respawn" else 0
    with rp.launch(workers=3, threads=1, on_failure=policy, spares=spares) as job:
        left = 2 if policy == "shrink" else 3
        assert job.run(kill_one_rank, folder / "mark", draw.randrange(3)) == [left] * left


def shrinking(draw: random.Random, folder: Path) -> None:
    """Run a job that shrinks."""
    with rp.launch(workers=3, threads=1, on_failure="shrink") as job:
        assert job.run(continue_on_survivors, draw.randrange(3)) == [2, 2]


def replicated(draw: random.Random, folder: Path) -> None:
    """Run a job with replicated ranks and one death."""
    victim = draw.randrange(4)

    def program(comm: rp.Communicator) -> int:
        if comm.rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        logical = comm.replicate(2)
        return logical.allreduce(1) + logical.allreduce(1)

    with rp.launch(workers=4, replicas=2, threads=1) as job:
        assert job.run(program) == [4, 4]


def fitting(draw: random.Random, folder: Path) -> None:
    """Run a fit with a checkpoint."""
    rows = np.random.default_rng(draw.randrange(100)).normal(size=(500, 4))
    rp.KMeans(5, workers=2, threads=1, checkpoint=folder / "kept").fit(rows)


def scripted(draw: random.Random, folder: Path) -> None:
    """Run a script with `ripieno run`."""
    script = folder / "script.py"
    script.write_text("import ripieno as rp\nassert rp.init().allreduce(1) == 2\n")
    command = [sys.executable, "-c", "from ripieno.cli.run import run_command; run_command(prog_name='ripieno run')"]
    subprocess.run([*command, "-n", "2", str(script)], check=True, capture_output=True, timeout=120)


KINDS = (plain, raising, failing, surviving, shrinking, replicated, fitting, scripted)


@pytest.mark.exhaustive
def test_jobs_of_all_kinds_leak_no_resources(tmp_path, capsys):
    draw, jobs_run = random.Random(0), 0

    def run_job(kind) -> None:
        nonlocal jobs_run
        jobs_run += 1
        (folder := tmp_path / str(jobs_run)).mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            kind(draw, folder)

    # Each kind has modules to import, and pools to fill.
    for kind in KINDS:
        run_job(kind)
    before, jobs_run, end = ResourceCounts.now(), 0, time.monotonic() + SOAK_S
    tmp_path = tmp_path / "soak"
    tmp_path.mkdir()
    while time.monotonic() < end or jobs_run < 2:
        kind = draw.choice(KINDS)
        run_job(kind)
        assert comes_true(lambda: ResourceCounts.now().fixed == before.fixed, SETTLE_TIMEOUT_S), (
            kind,
            before,
            ResourceCounts.now(),
        )
    found = assert_bounded_growth(before, jobs_run)
    if SOAK_S:
        with capsys.disabled():
            print(f"\n{jobs_run} jobs of {len(KINDS)} kinds in {SOAK_S:g} s: {found}")
