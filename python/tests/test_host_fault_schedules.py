"""Test that ranks continue in time and with correct results after seeded schedules of real faults.

Network links of emulated hosts fail and recover, pairs of hosts are disconnected, and ranks are killed and stopped.

``make soak`` runs 40. To replay a failed one, run ``RIPIENO_SCHEDULES=17..18 pytest`` with this file.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from ripieno.lab import Lab, missing_requirement
from varied import exhaustively
from watching import comes_true

cannot_emulate = missing_requirement()
pytestmark = pytest.mark.skipif(cannot_emulate is not None, reason=cannot_emulate or "")

REQUESTED = os.environ.get("RIPIENO_SCHEDULES")
SCHEDULE_COUNT = 40 if REQUESTED else 5
HOST_COUNT = 4
HEARTBEAT_S, RENDEZVOUS_TIMEOUT_S = (1.0, 4.0) if REQUESTED else (2.0, 8.0)
#: Time limit for a call to end or raise; slower machines get more.
CALL_S = HEARTBEAT_S + (2.0 if REQUESTED else 15.0)
#: Time limit of an agreement, and of the rendezvous after it: a heartbeat timeout and a second.
SHRINK_S = RENDEZVOUS_TIMEOUT_S + 7 * HEARTBEAT_S + (2.0 if REQUESTED else 15.0)
#: Work time of ranks, and durations of faults: shorter and longer than the timeouts.
WORK_S, BRIEF_S, LONG_S = 2.0, 0.3 * HEARTBEAT_S, 2.0 * HEARTBEAT_S + RENDEZVOUS_TIMEOUT_S

FAULTS = ("kill", "stop", "disconnect", "disconnect and heal", "disconnect briefly", "separate two hosts")


@dataclass(frozen=True)
class HostSchedule:
    """The schedule of a seed."""

    seed: int
    fault: str
    victim: int
    other: int
    delay_s: float

    @classmethod
    def from_seed(cls, seed: int) -> HostSchedule:
        """Return the schedule of a seed; faults alternate by seed."""
        draw = random.Random(seed)
        victim, other = draw.sample(range(HOST_COUNT), 2)
        return cls(seed, FAULTS[seed % len(FAULTS)], victim, other, draw.uniform(0.1, 1.0))


def run_rank(folder: Path) -> None:
    """Run sums with the remaining ranks until the time is over, and write the outcome to a file."""
    comm = rp.init(heartbeat_timeout_s=HEARTBEAT_S, rendezvous_timeout_s=RENDEZVOUS_TIMEOUT_S)
    own, first, values, lost, longest = comm.rank, list(range(comm.world_size)), np.ones(5000), [], [0.0, 0.0]
    threading.Thread(target=inject_on_request, args=(folder, own), daemon=True).start()
    write(folder / f"connected {own}", True)
    end, ended = None, "done"
    while end is None or time.monotonic() < end:
        start_s = time.monotonic()
        try:
            # All leave after the same call.
            is_over = (folder / "over").exists() and comm.rank == 0
            sums = comm.allreduce(np.append(values * (own + 1), float(is_over)))
            assert sums[0] == sum(rank + 1 for rank in first), (sums[0], first)
            if sums[-1]:
                break
            assert all(len(part) == 900 for part in comm.alltoall([np.ones(900)] * comm.world_size))
        except rp.RankFailed as failed:
            longest[0] = max(longest[0], time.monotonic() - start_s)
            lost.append(first[failed.rank])
            start_s = time.monotonic()
            try:
                comm = comm.shrink()
                first = list(comm.first_ranks)
            except rp.RankFailed as failed:
                ended = str(failed)
                break
            finally:
                longest[1] = max(longest[1], time.monotonic() - start_s)
        else:
            longest[0] = max(longest[0], time.monotonic() - start_s)
    write(folder / f"end {own}", {"ended": ended, "first": first, "lost": lost, "longest": longest})


def inject_on_request(folder: Path, rank: int) -> None:
    """Inflict a fault on this process when a file requests it; hosts have separate PID namespaces."""
    request = folder / f"fault {rank}"
    while not request.exists():
        time.sleep(0.01)
    if json.loads(request.read_text()) == "stop":
        subprocess.Popen(["sh", "-c", f"sleep {LONG_S}; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def write(path: Path, value: object) -> None:
    """Write a file atomically."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.rename(path)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Provide a rack of hosts."""
    with Lab(hosts=HOST_COUNT, rate="100mbit") as lab:
        yield lab


def inject(lab: Lab, schedule: HostSchedule, folder: Path) -> None:
    """Inflict the faults of the schedule, and end the temporary ones."""
    victim, other = (lab.hosts[host] for host in (schedule.victim, schedule.other))
    time.sleep(schedule.delay_s)
    if schedule.fault in ("kill", "stop"):
        write(folder / f"fault {schedule.victim}", schedule.fault)
        time.sleep(LONG_S if schedule.fault == "stop" else 0.0)
    elif schedule.fault == "separate two hosts":
        blackhole = ["ip", "route", "add", "blackhole", other.address]
        subprocess.run(lab.command(victim, blackhole), check=True, capture_output=True)
        time.sleep(2 * HEARTBEAT_S)
        blackhole[2] = "del"
        subprocess.run(lab.command(victim, blackhole), check=True, capture_output=True)
    else:
        lab.fail(victim.name)
        if schedule.fault != "disconnect":
            time.sleep(BRIEF_S if schedule.fault == "disconnect briefly" else LONG_S)
            lab.heal(victim.name)


def are_connected(folder: Path) -> bool:
    """Return whether all ranks have connected."""
    return len(list(folder.glob("connected ?"))) == HOST_COUNT


def seeds() -> range:
    """Return the requested number of seeds."""
    first, _, last = (REQUESTED or f"0..{SCHEDULE_COUNT + 1}").rpartition("..")
    return range(int(first or 0), min(int(last), int(first or 0) + SCHEDULE_COUNT + 1))


@pytest.mark.parametrize("seed", seeds() if REQUESTED else exhaustively(*seeds()))
def test_surviving_hosts_continue_in_time_after_any_fault(seed, lab, tmp_path):
    schedule = HostSchedule.from_seed(seed)
    code = "import sys, pathlib, test_host_fault_schedules as own; own.run_rank(pathlib.Path(sys.argv[1]))"
    paths = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", code, str(tmp_path)]
    run = threading.Thread(
        target=lab.run,
        args=(command,),
        kwargs={"timeout_s": 150.0, "environment": paths, "prefix": False, "keep_going": True},
    )
    run.start()
    try:
        comes_true(lambda: are_connected(tmp_path) or not run.is_alive(), 100.0)
        assert are_connected(tmp_path), "the ranks have connected"
        inject(lab, schedule, tmp_path)
        time.sleep(WORK_S)
        (tmp_path / "over").touch()
        run.join(SHRINK_S + 60.0)
    finally:
        if schedule.fault == "disconnect":
            lab.heal(lab.hosts[schedule.victim].name)
        run.join()
    ends = {
        rank: json.loads(path.read_text()) for rank in range(HOST_COUNT) if (path := tmp_path / f"end {rank}").exists()
    }
    all_ranks, faulty_ranks = list(range(HOST_COUNT)), {schedule.victim}
    excluded = set() if schedule.fault == "disconnect briefly" else {schedule.victim}
    if schedule.fault == "separate two hosts":
        faulty_ranks.add(schedule.other)
        witness = next(rank for rank in all_ranks if rank not in faulty_ranks)
        # The others may exclude one of the two, which they have not heard for a heartbeat timeout.
        excluded = set(all_ranks) - set(ends[witness]["first"])
        assert len(excluded) <= 1 and excluded <= faulty_ranks, (schedule, ends)
    left = [rank for rank in all_ranks if rank not in excluded]
    others = [rank for rank in left if rank != schedule.victim]
    assert set(ends) >= set(others), (schedule, ends)
    for rank in others:
        end = ends[rank]
        assert end["ended"] == "done" and set(end["lost"]) <= faulty_ranks, (schedule, rank, ends)
        assert end["longest"][0] <= CALL_S and end["longest"][1] <= SHRINK_S, (schedule, rank, ends)
        assert end["first"] == left, (schedule, rank, ends)
    if schedule.fault in ("stop", "disconnect and heal", "separate two hosts"):
        for rank in excluded:
            assert f"rank {rank}" in ends[rank]["ended"], f"excluded rank {rank} gets an error"


MESSAGES = """
import sys, time
from pathlib import Path
import ripieno as rp
folder, number = Path(sys.argv[1]), 0
comm = rp.init(heartbeat_timeout_s=float(sys.argv[2]))
(folder / f"connected {comm.rank}").touch()
try:
    while True:
        for other in {1: [2], 2: [1]}.get(comm.rank, []):
            comm.send(number, other)
            assert comm.recv(other) == number
        comm.barrier() if number % 100 == 0 else None
        number += 1
except rp.RankFailed as failed:
    outcome = f"{type(failed).__name__} {failed.rank} {failed.cause}"
except rp.CollectiveMismatch as error:
    outcome = f"CollectiveMismatch {error}"
(folder / f"{comm.rank}.part").write_text(outcome)
(folder / f"{comm.rank}.part").rename(folder / str(comm.rank))
"""


def test_a_lost_message_is_no_deadlock(tmp_path):
    """Packets of host 1 to host 2 get lost, so both ranks wait for each other. All can reach rank 0."""
    heartbeat_s = 4.0
    command = [sys.executable, "-c", MESSAGES, str(tmp_path), str(heartbeat_s)]
    with Lab(hosts=3, rate="100mbit") as lab:
        options = {"timeout_s": 90.0, "prefix": False, "keep_going": True}
        running = threading.Thread(target=lab.run, args=(command,), kwargs=options)
        running.start()
        assert comes_true(lambda: all((tmp_path / f"connected {rank}").exists() for rank in range(3)), 60.0)
        wrong_neighbor = ["lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent"]
        words = ["ip", "neigh", "replace", lab.hosts[2].address, *wrong_neighbor]
        subprocess.run(lab.command(lab.hosts[1], words), check=True)
        running.join()

    for rank in range(3):
        outcome = (tmp_path / str(rank)).read_text()
        assert outcome.startswith(("RankFailed 1", "RankFailed 2")), outcome
        assert "its host has not answered" in outcome, outcome
