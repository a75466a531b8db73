"""Seeded schedules of real faults: the caller gets an error, or the job continues, within a time limit.

A seed determines a schedule: a world, faults, victims, and times. Every test run runs some schedules; ``make soak``
runs 200. To repeat a failed schedule, run ``RIPIENO_SCHEDULES=17..18 pytest`` with this file.
"""

from __future__ import annotations

import gc
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import ripieno as rp
from matplotlib import font_manager
from ripieno.launch.job.local import LocalJob
from varied import exhaustively
from watching import comes_true, open_descriptors, shared_files

#: Requested schedules run alone; otherwise they run in parallel with other tests, on busy machines.
SCHEDULES = os.environ.get("RIPIENO_SCHEDULES")
HEARTBEAT_S = 1.0 if SCHEDULES else 2.0
#: Time until the caller is notified; slower machines get `SLACK_S` more.
PROMPT_S = HEARTBEAT_S + 1.0
SLACK_S = 2.0 if SCHEDULES else 30.0
#: Ranks stopped before the rendezvous are detected by inspecting them.
STOPPED_EARLY_S = 5.0
#: Time until threads and descriptors of an ended job are gone.
RELEASE_S = 10.0
STEPS = 30
# Background processes of a shell ignore Ctrl-C, and their children inherit that.
RUN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from ripieno.cli.run import run_command; run_command(prog_name='ripieno run')",
]

#: Scripts import the package under test, and this module.
PATHS = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}

FAULTS = ("kill", "stop", "exit", "raise", "out of memory", "close descriptors")
MOMENTS = ("rendezvous", "within calls", "between calls", "end")


def seeds() -> range:
    """Return the requested seeds; by default the same few in every test run."""
    first, _, last = (SCHEDULES or "0..24").rpartition("..")
    return range(int(first or 0), int(last))


@dataclass(frozen=True)
class FaultSchedule:
    """A world, and the fault of its victims.

    Attributes
    ----------
    seed : int
        Seed that determines all other attributes.
    workers, replicas, links, policy
        Options of the job.
    fault, moment : str
        One of `FAULTS` and of `MOMENTS`.
    victims : tuple of int
        Ranks that suffer the fault.
    step : int
        Number of the call at which the fault occurs.
    delay_s : float
        Delay of the fault.
    """

    seed: int
    workers: int
    replicas: int
    links: str
    policy: str
    fault: str
    moment: str
    victims: tuple[int, ...]
    step: int
    delay_s: float

    @classmethod
    def drawn(cls, seed: int) -> FaultSchedule:
        """Return the schedule of a seed."""
        draw = random.Random(seed)
        replicas = draw.choice((1, 1, 1, 2))
        workers = 4 if replicas == 2 else draw.choice((2, 3, 4))
        policy = "raise" if replicas == 2 else draw.choice(("raise", "shrink", "respawn"))
        moment = draw.choice(MOMENTS)
        faults = FAULTS[:2] if moment == "rendezvous" else FAULTS
        victims = tuple(sorted(draw.sample(range(workers), draw.choice((1, 1, 2)))))
        return cls(
            seed=seed,
            workers=workers,
            replicas=replicas,
            links=draw.choice(("shared-memory", "tcp")),
            policy=policy,
            fault=draw.choice(faults),
            moment=moment,
            victims=victims[: 1 if moment == "rendezvous" else None],
            step=draw.randrange(1, STEPS),
            delay_s=draw.uniform(0.0, 0.01) if moment != "rendezvous" else draw.uniform(0.0, 0.5),
        )

    def occurs_at(self, moment: str, step: int) -> bool:
        """Return whether the fault occurs at this moment and step."""
        return self.moment == moment and self.step == step


def inject(fault: str) -> None:
    """Inject a fault into this process."""
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "exit":
        os._exit(3)
    elif fault == "close descriptors":
        os.closerange(3, 1 << 12)
    elif fault == "out of memory":
        # Within the limit of this process, so that no other process is killed.
        resource.setrlimit(resource.RLIMIT_AS, (1 << 33, resource.getrlimit(resource.RLIMIT_AS)[1]))
        np.ones(1 << 31)
    else:
        raise ValueError("on purpose")


def call_and_check(comm: rp.Communicator, step: int) -> None:
    """Call one of the collectives and check its result."""
    p, kind = comm.world_size, step % 8
    if kind == 0:
        assert comm.allreduce(np.full(50_000, comm.rank + 1.0))[-1] == p * (p + 1) / 2
    elif kind == 1:
        assert comm.broadcast({"x": np.arange(1000)} if comm.rank == step % p else None, root=step % p)["x"][-1] == 999
    elif kind == 2:
        assert comm.allgather((comm.rank, "text")) == [(rank, "text") for rank in range(p)]
    elif kind == 3:
        assert comm.alltoall([(comm.rank, rank) for rank in range(p)]) == [(rank, comm.rank) for rank in range(p)]
    elif kind == 4:
        comm.barrier()
    elif kind == 5:
        handles = [comm.allreduce_async(np.full(3000, float(number))) for number in range(3)]
        assert [handle.wait()[0] for handle in handles] == [0.0, p, 2.0 * p]
    elif kind == 6:
        rows = np.arange(2000)
        assert np.array_equal(comm.sparse_reduce(rows, np.ones(2000), rows[::3], size=2000), np.full(667, float(p)))
    else:
        assert comm.scan(1) == comm.rank + 1


def program(comm: rp.Communicator, schedule: FaultSchedule, folder: Path) -> tuple[int, int]:
    """Make many calls; a victim suffers one fault."""
    world_rank, mark = comm.rank, folder / str(comm.rank)
    is_victim = world_rank in schedule.victims and comm.world_size == schedule.workers and not mark.exists()
    comm.barrier()
    logical = comm.replicate(schedule.replicas) if schedule.replicas > 1 else comm
    timer = None
    for step in range(STEPS):
        if is_victim and schedule.occurs_at("within calls", step):
            mark.touch()
            if schedule.fault in ("raise", "out of memory"):
                inject(schedule.fault)
            # Another thread injects the fault while this one is in a call or between two calls.
            timer = threading.Timer(schedule.delay_s, inject, (schedule.fault,))
            timer.start()
        if is_victim and schedule.occurs_at("between calls", step):
            mark.touch()
            inject(schedule.fault)
        call_and_check(logical, step)
    if timer is not None:
        # The calls may be over before; the others wait for this rank to end the program.
        timer.join()
    if is_victim and schedule.moment == "end":
        mark.touch()
        inject(schedule.fault)
    return logical.rank, logical.world_size


def run_schedule(schedule: FaultSchedule, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch and run a job, and check that the outcome is permitted and in time."""
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}.get(schedule.fault)
    timers = []
    start = LocalJob._start_one

    def start_and_inject(job, name, rank, pump):
        worker = start(job, name, rank, pump)
        if schedule.moment == "rendezvous" and rank in schedule.victims and not (folder / "connected").exists():
            timers.append(threading.Timer(schedule.delay_s, worker.process.send_signal, (number,)))
            timers[-1].start()
        return worker

    monkeypatch.setattr(LocalJob, "_start_one", start_and_inject)
    begun = time.monotonic()
    options = {} if schedule.policy == "raise" else {"on_failure": schedule.policy}
    try:
        with rp.launch(
            schedule.workers,
            threads=1,
            links=schedule.links,
            replicas=schedule.replicas,
            heartbeat_timeout_s=HEARTBEAT_S,
            **options,
        ) as job:
            (folder / "connected").touch()
            for timer in timers:
                # The ranks may have connected before.
                timer.join()
            begun = time.monotonic()
            results = job.run(program, schedule, folder)
            size = job.workers // schedule.replicas
            assert results == [(rank, size) for rank in range(size)]
            if schedule.policy == "respawn":
                assert job.workers == schedule.workers
            assert set(job.lost) <= set(schedule.victims)
            begun = time.monotonic()
    except rp.RankFailed as failed:
        assert failed.rank in schedule.victims, f"another rank is named: {failed}"
        none_is_left = schedule.policy == "shrink" and len(schedule.victims) == schedule.workers
        allowed = schedule.policy == "raise" or schedule.moment == "rendezvous" or schedule.fault == "out of memory"
        allowed = allowed or none_is_left
        assert allowed, f"the job should have continued without the lost ranks: {failed}"
    except (ValueError, MemoryError) as error:
        assert schedule.fault in ("raise", "out of memory"), error
        assert isinstance(error.__cause__, rp.RankFailed) and error.__cause__.rank in schedule.victims
    took_s = time.monotonic() - begun
    for timer in timers:
        timer.cancel()
        timer.join()
    early_s = STOPPED_EARLY_S if schedule.moment == "rendezvous" else 0.0
    # Restarted ranks need time to start, and losses are reported one after the other.
    again_s = 0.0 if schedule.policy == "raise" else len(schedule.victims) * PROMPT_S + 10.0
    assert took_s < PROMPT_S + SLACK_S + early_s + again_s, f"the caller was notified after {took_s:.1f} s"


class Resources(NamedTuple):
    """The descriptors, the names in shared memory, and the number of threads of this process."""

    descriptors: Counter[str]
    shared: Counter[str]
    thread_count: int

    def more_than(self, before: Resources) -> dict[str, Any]:
        """Return the resources in excess of `before`. Earlier tests may still close theirs."""
        found = {
            "descriptors": self.descriptors - before.descriptors,
            "shared": self.shared - before.shared,
            "threads": max(0, self.thread_count - before.thread_count),
        }
        return {name: more for name, more in found.items() if more}


def resources() -> Resources:
    gc.collect()
    return Resources(Counter(open_descriptors()), Counter(shared_files()), threading.active_count())


def leaked_since(before: Resources) -> dict[str, Any]:
    """Return the resources that a job has not released. Threads that serve a job may end shortly after it."""
    comes_true(lambda: not resources().more_than(before), RELEASE_S)
    return resources().more_than(before)


def test_fonts_that_matplotlib_keeps_open_are_no_leak():
    before = resources()
    font = font_manager.get_font(font_manager.findfont("DejaVu Sans"))
    assert any(name.endswith(".ttf") for name in map(os.path.realpath, Path("/proc/self/fd").iterdir()))
    assert resources().more_than(before) == {}
    font.clear()


def test_a_leak_is_found_and_files_of_other_programs_are_none(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "RELEASE_S", 0.0)
    before = resources()
    with tempfile.TemporaryFile(dir="/dev/shm"), tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="ripieno-") as mine:
        leaked = leaked_since(before)
    assert sum(leaked["descriptors"].values()) == 2 and leaked["shared"] == {Path(mine.name).name: 1}
    with tempfile.TemporaryDirectory(dir="/dev/shm"):
        assert leaked_since(before) == {}


@pytest.mark.parametrize("seed", seeds() if SCHEDULES else [*seeds()[:2], *exhaustively(*seeds()[2:])])
def test_any_fault_of_a_rank_is_reported_or_survived_in_time(seed, tmp_path, monkeypatch):
    schedule = FaultSchedule.drawn(seed)
    before = resources()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        run_schedule(schedule, tmp_path, monkeypatch)
    assert leaked_since(before) == {}, schedule


SCHEDULE_SCRIPT = """
    import os, sys, threading
    from pathlib import Path
    import ripieno as rp
    from test_fault_schedules import HEARTBEAT_S, FaultSchedule, inject, program

    schedule, folder, rank = FaultSchedule.drawn(int(sys.argv[1])), Path(sys.argv[2]), int(os.environ["RANK"])
    if schedule.moment == "rendezvous" and rank in schedule.victims:
        (folder / str(rank)).touch()
        threading.Timer(schedule.delay_s, inject, (schedule.fault,)).start()
    comm = rp.init(links=schedule.links, heartbeat_timeout_s=HEARTBEAT_S)
    while True:
        try:
            program(comm, schedule, folder)
            break
        except rp.RankFailed:
            if schedule.policy != "shrink":
                raise
            comm = comm.shrink()
    (folder / f"{rank} is over").touch()
"""
#: Message of the command about a suspended job.
SUSPENDED = "resume them by kill -CONT"
#: Time after the first failure for final messages of ranks, and for a rank without a connection to end.
LAST_S = 12.0


def ended(child: subprocess.Popen[bytes], errors: Path) -> int:
    """Return the exit code of a command. A command with all ranks stopped is interrupted."""
    try:
        known = comes_true(lambda: child.poll() is not None or SUSPENDED in errors.read_text(), 120.0)
        assert known, f"the command hangs: {errors.read_text()}"
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        child.wait(60.0)
    finally:
        child.kill()
        child.wait()
    return child.returncode


#: Seeds for scripts: a few, a stopped rank with a successful replica, and a world with all ranks stopped.
SCRIPT_SEEDS = seeds() if SCHEDULES else [44, 48, *exhaustively(*range(8))]


@pytest.mark.parametrize("seed", SCRIPT_SEEDS)
def test_after_any_fault_of_a_rank_the_command_ends_in_time_and_reports_it(seed, tmp_path):
    schedule = FaultSchedule.drawn(seed)
    script, errors = tmp_path / "script.py", tmp_path / "errors"
    script.write_text(textwrap.dedent(SCHEDULE_SCRIPT))
    policy = ["--on-failure", "shrink"] if schedule.policy == "shrink" else []
    arguments = [*RUN, "-n", schedule.workers, "--replicas", schedule.replicas, *policy, script, seed, tmp_path]
    with errors.open("w") as out:
        child = subprocess.Popen(
            [str(each) for each in arguments],
            env=os.environ | PATHS,
            stdout=subprocess.DEVNULL,
            stderr=out,
        )
    code = ended(child, errors)
    err, now_s = errors.read_text(), time.time()

    named = {int(rank) for rank in re.findall(r"rank (\d+) of \S*script\.py", err)}
    assert named <= set(schedule.victims), f"other ranks are named: {err}"
    are_over = [(tmp_path / f"{rank} is over").exists() for rank in range(schedule.workers)]
    victims_are_over = all(are_over[rank] for rank in schedule.victims)
    if code == 0:
        logical = schedule.workers // schedule.replicas
        of_logical = [any(are_over[rank::logical]) for rank in range(logical)]
        others = [is_over for rank, is_over in enumerate(are_over) if rank not in schedule.victims]
        assert all(others) and (schedule.policy == "shrink" or all(of_logical)), err
        assert named or victims_are_over, f"no rank is named: {err}"
    else:
        assert named or SUSPENDED in err, f"exit code {code}, and no rank is named: {err}"
    marks = [tmp_path / str(rank) for rank in schedule.victims]
    took_s = now_s - max((mark.stat().st_mtime for mark in marks if mark.exists()), default=now_s)
    again_s = PROMPT_S * len(schedule.victims) if schedule.policy == "shrink" else 0.0
    assert took_s < PROMPT_S + LAST_S + SLACK_S + again_s, f"the command ended after {took_s:.1f} s: {err}"


#: Exhausted resources of a rank, and the error text for each.
SHORTAGES = {
    "descriptors": "Too many open files",
    "memory": "Cannot allocate memory",
    "disk": "File too large",
}


def exhaust(resource_name: str) -> None:
    """Limit this process to its current descriptors, to 256 MiB more memory, or to files of at most 4 KiB."""
    size_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    kind, value = {
        "descriptors": (resource.RLIMIT_NOFILE, 3),
        # System libraries abort a process that has no memory for another thread.
        "memory": (resource.RLIMIT_AS, size_bytes + (256 << 20)),
        "disk": (resource.RLIMIT_FSIZE, 1 << 12),
    }[resource_name]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(kind, (value, resource.getrlimit(kind)[1]))


def spill(comm: rp.Communicator, resource_name: str, folder: Path, replicas: int) -> int:
    """Process keyed data beyond the memory limit, then a large array, while rank 1 lacks a resource."""
    has_shortage = comm.rank == 1
    comm = comm.replicate(replicas) if replicas > 1 else comm
    # Load modules that are imported late.
    comm.regroup(rp.KeyValues(np.arange(2), np.ones(2)), combine="sum")
    if has_shortage:
        exhaust(resource_name)
    rows = rp.KeyValues(np.arange(300_000), np.ones(300_000))
    comm.regroup(rows, combine="sum", memory_limit=1 << 20, spill_directory=folder)
    if has_shortage:
        rp.empty(1 << 27, np.float64)
    return comm.allreduce(1)


@pytest.mark.parametrize(("links", "replicas"), [("shared-memory", 1), *exhaustively(("tcp", 1), ("shared-memory", 2))])
@pytest.mark.parametrize("resource_name", SHORTAGES)
def test_a_rank_with_a_shortage_reports_it_and_leaves_nothing(tmp_path, resource_name, links, replicas):
    before = resources()
    with (
        rp.launch(2 * replicas, threads=1, links=links, replicas=replicas, heartbeat_timeout_s=HEARTBEAT_S) as job,
        pytest.raises((rp.SpillError, MemoryError), match=SHORTAGES[resource_name]) as caught,
    ):
        job.run(spill, resource_name, tmp_path, replicas)
    if resource_name != "memory":
        assert "choose another spill_directory, or allow a larger memory_limit" in str(caught.value)
    assert isinstance(caught.value.__cause__, rp.RankFailed) and caught.value.__cause__.rank == 1
    assert leaked_since(before) == {} and not list(tmp_path.iterdir())


SPILL_SCRIPT = """
    import sys
    from pathlib import Path
    import ripieno as rp
    from test_fault_schedules import spill

    spill(rp.init(), sys.argv[1], Path(sys.argv[2]), 1)
"""


@pytest.mark.parametrize("resource_name", SHORTAGES)
@pytest.mark.exhaustive
def test_a_script_with_a_shortage_reports_it_and_leaves_nothing(tmp_path, resource_name):
    script, folder = tmp_path / "script.py", tmp_path / "spilled"
    script.write_text(textwrap.dedent(SPILL_SCRIPT))
    folder.mkdir()
    done = subprocess.run(
        [*RUN, "-n", "2", str(script), resource_name, str(folder)],
        env=os.environ | PATHS,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 1, done.stderr
    assert SHORTAGES[resource_name] in done.stderr and not list(folder.iterdir())
