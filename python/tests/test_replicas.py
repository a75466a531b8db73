"""Worlds with replicated ranks: after a death the others end with the same values, until the last replica dies."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import textwrap
import time

import numpy as np
import pytest
import ripieno as rp
from ripieno.launch.job.result_collector import RankConnection, ResultCollector
from ripieno.launch.process.channel import Channel, pair
from ripieno.launch.process.report import FailureReport
from ripieno.launch.supervisor import Policy
from test_run import COMMAND
from varied import exhaustively
from watching import EVENT_TIMEOUT_S, gone_within, is_prompt

WORKERS = 4
REPLICAS = [(0, 2), (1, 3)]
LENGTH = 20_000
ROUNDS = 60
# A victim stops there, so it is killed before.
LAST_ROUND_OF_VICTIMS = 30
#: Maximum time for a killed process to end.
GONE_S = 60.0


def deaths() -> list[tuple[int, ...]]:
    """Return every set of ranks that leaves a replica of each."""
    choices = itertools.product(*[[(), *((rank,) for rank in replicas)] for replicas in REPLICAS])
    return [tuple(sorted(sum(choice, ()))) for choice in choices if any(choice)]


def reduce_for_long(comm, victims):
    """Reduce dense and sparse rows in many rounds. Victims report their start, and stop half way."""
    world_rank = comm.rank
    # Rank 0 has the first two thirds, rank 1 the last two; both request every other row.
    rows = np.arange(2 * LENGTH) + LENGTH * (world_rank % 2)
    requested = np.arange(0, 3 * LENGTH, 2)
    contributions = 1.0 + ((requested >= LENGTH) & (requested < 2 * LENGTH))
    sparse = comm.sparse(rows, requested, replicas=2)
    comm = comm.replicate(2)
    values = np.arange(LENGTH, dtype=np.float64)
    for number in range(ROUNDS):
        total = comm.allreduce(values * (comm.rank + 1) + number)
        assert np.array_equal(total, values * 3 + 2 * number), f"round {number}"
        assert np.array_equal(sparse.reduce(rows + float(number)), (requested + number) * contributions), (
            f"round {number}"
        )
        if number == 2 and world_rank in victims:
            comm.emit({"victim": world_rank})
        if number == LAST_ROUND_OF_VICTIMS and world_rank in victims:
            signal.pause()
    return comm.rank, comm.replica, float(total[-1])


def job_with_victims(signal_number=signal.SIGKILL, **options):
    """Provide a job with workers that get a signal when they report that they are victims."""
    jobs = []

    def send_signal(event):
        os.kill(jobs[0].pids[event["victim"]], signal_number)

    jobs.append(rp.launch(workers=WORKERS, replicas=2, threads=1, on_event=send_signal, **options))
    return jobs[0]


@pytest.mark.parametrize(
    ("victims", "links"),
    [
        ((0, 1), "shared-memory"),
        ((1, 2), "tcp"),
        *exhaustively(*((ranks, "shared-memory") for ranks in deaths() if ranks != (0, 1)), ((0,), "tcp")),
    ],
)
def test_a_long_loop_survives_every_set_of_failures_that_leaves_a_replica_of_each_rank(victims, links):
    with job_with_victims(links=links) as job:
        results = job.run(reduce_for_long, victims)

        assert [(rank, total) for rank, _, total in results] == [
            (rank, 3.0 * (LENGTH - 1) + 2 * (ROUNDS - 1)) for rank in range(2)
        ]
        assert set(job.lost) == set(victims) and all("SIGKILL" in cause for cause in job.lost.values())
        # The job continues without them.
        replicas = [replica for _, replica, _ in job.run(reduce_for_long, ())]
        assert replicas == [int(rank in victims) for rank in range(2)]


@pytest.mark.parametrize("victim", [0, *exhaustively(*range(1, WORKERS))])
def test_the_job_continues_without_a_stopped_replica(victim):
    with job_with_victims(signal.SIGSTOP, heartbeat_timeout_s=1.0) as job:
        pid = job.pids[victim]
        assert [rank for rank, _, _ in job.run(reduce_for_long, (victim,))] == [0, 1]
        assert list(job.lost) == [victim]
        assert not os.path.exists(f"/proc/{pid}")


def test_the_last_replica_fails_the_job_in_time_and_is_named():
    with job_with_victims() as job, pytest.raises(rp.RankFailed) as raised:
        job.run(reduce_for_long, (1, 3))
    assert raised.value.rank in (1, 3) and "before that its replica, rank" in str(raised.value)


def raise_time_of_failure(comm, victims):
    start = time.monotonic()
    try:
        replicas = comm.replicate(2)
        replicas.barrier()
        # Others may still be in that barrier.
        if comm.rank in victims:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            replicas.barrier()
    except rp.RankFailed as error:
        raise ValueError(f"{error.rank}: {time.monotonic() - start:.3f}") from None


def test_every_rank_gets_the_failure_of_the_last_replica_within_two_seconds():
    with rp.launch(workers=WORKERS, replicas=2, threads=1) as job:
        with pytest.raises(rp.RankFailed) as raised:
            job.run(raise_time_of_failure, (0, 2))
        reports = job._collector.reports
    assert raised.value.rank in (0, 2)
    for rank in (1, 3):
        culprit, seconds = reports[rank].cause.removeprefix("ValueError: ").split(": ")
        assert int(culprit) in (0, 2) and is_prompt(float(seconds))


def lose_first(comm, rounds):
    """Return the logical ranks after rank 0 of the world has died between their calls."""
    logical = comm.replicate(2)
    for number in range(rounds):
        if comm.rank == 0 and number == rounds // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        logical.barrier()
    return logical


def all_collectives(comm):
    comm = lose_first(comm, 20)
    rank, pair = comm.rank, np.arange(2) + 10 * comm.rank
    handle = comm.allreduce_async(np.full(1000, rank + 1.0))
    part = comm.split(color=rank)
    later = comm.allgather_async({"rank": rank})
    if rank == 0:
        comm.send("word", 1)
    word = comm.recv(0) if rank == 1 else None
    return {
        "allreduce": handle.wait().tolist() == [3.0] * 1000,
        "split": part.allreduce(1),
        "objects": later.wait(),
        "recv": word,
        "broadcast": comm.broadcast("all" if rank == 1 else None, root=1),
        "alltoall": np.concatenate(comm.alltoall(pair)).tolist(),
        "gather": comm.gather(rank, root=1),
        "scan": comm.scan(rank + 1),
        "large": float(comm.allreduce(np.ones(600_000))[-1]),
    }


def test_every_kind_of_call_works_after_a_failure():
    with rp.launch(workers=WORKERS, replicas=2, threads=1) as job:
        first, second = job.run(all_collectives)
        assert set(job.lost) == {0}
    common = {"allreduce": True, "split": 1, "objects": [{"rank": 0}, {"rank": 1}], "broadcast": "all", "large": 2.0}
    assert first == {**common, "recv": None, "alltoall": [0, 10], "gather": None, "scan": 1}
    assert second == {**common, "recv": "word", "alltoall": [1, 11], "gather": [0, 1], "scan": 3}


def call_world(comm):
    lose_first(comm, 20)
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not comm.lost_ranks and time.monotonic() < deadline:
        os.sched_yield()
    try:
        comm.allreduce(1)
    except rp.RankFailed as error:
        return error.rank, error.cause
    return None


def test_calls_on_the_world_itself_name_the_failed_ranks_at_once():
    with rp.launch(workers=WORKERS, replicas=2, threads=1) as job:
        for rank, cause in job.run(call_world):
            assert rank == 0 and "process ended" in cause


@pytest.mark.parametrize("links", ["shared-memory", *exhaustively("tcp")])
def test_a_program_that_needs_every_rank_fails_when_one_has_died_before(links):
    with rp.launch(workers=WORKERS, replicas=2, threads=1, links=links) as job:
        os.kill(job.pids[2], signal.SIGKILL)
        assert gone_within(GONE_S, [job.pids[2]])
        with pytest.raises(rp.RankFailed) as raised:
            job.run(lambda comm: comm.barrier())
        assert raised.value.rank == 2
        assert job.run(lambda comm: comm.replicate(2).allreduce(1)) == [2, 2]


class ReplicaReport:
    """The reports to the launcher from four ranks, two replicas of each of two."""

    def __init__(self):
        self.members, self.theirs = [], []
        for rank in range(WORKERS):
            channel, theirs = pair(GONE_S)
            self.members.append(RankConnection(rank, "host", channel))
            self.theirs.append(Channel(theirs))
        self.collector = ResultCollector("result", self.members, Policy(replicas=2))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for channel in (*self.theirs, *(member.channel for member in self.members)):
            channel.close()

    def send(self, rank, kind, value=None):
        """Send one message, which the launcher receives immediately."""
        self.theirs[rank].send(kind, value)
        self.collector.receive(self.members[rank], self.members[rank].channel)
        self.collector.tick()

    def fail_because_of(self, rank, culprit):
        failed = rp.RankFailed(culprit, "host", "its process ended")
        self.send(rank, "error", FailureReport.of(failed, rank, "host"))

    def end(self, rank):
        self.theirs[rank].close()
        self.collector.receive(self.members[rank], self.members[rank].channel)
        self.collector.supervisor.ends(rank, "its process ended")
        self.collector.tick()


def test_the_wait_ends_when_all_ranks_fail_because_of_one():
    for order in ((2, 1, 0, 3), (0, 1, 3, 2)):
        with ReplicaReport() as output:
            for rank in order:
                output.end(2) if rank == 2 else output.fail_because_of(rank, 2)
            with pytest.raises(rp.RankFailed, match="rank 2"):
                output.collector.results()


def test_a_single_failed_rank_is_lost_when_its_replica_returns():
    with ReplicaReport() as output:
        output.fail_because_of(1, 2)
        output.end(2)
        output.send(0, "result", "of 0")
        assert output.collector.verdict is None
        output.send(3, "result", "of 3")
        assert output.collector.results() == ["of 0", "of 3"]
        assert [member.loss is not None for member in output.members] == [False, True, True, False]


def test_a_live_rank_that_the_others_exclude_is_lost():
    with ReplicaReport() as output:
        output.fail_because_of(3, 3)
        assert output.members[3].loss == "its process ended"
        for rank in (0, 1, 2):
            output.send(rank, "result", rank)
        assert output.collector.results() == [0, 1]


def test_a_failed_rank_does_not_count_as_a_live_replica():
    with ReplicaReport() as output:
        output.fail_because_of(1, 2)
        output.end(3)
        for rank in (0, 2):
            output.send(rank, "result", rank)
        with pytest.raises(rp.RankFailed, match="rank 3"):
            output.collector.results()


def differ(comm):
    logical = comm.replicate(2)
    logical.allreduce(np.ones(3 if comm.rank == 3 else 4))


def test_replicas_that_make_different_calls_are_reported():
    with rp.launch(workers=WORKERS, replicas=2, threads=1) as job, pytest.raises(rp.CollectiveMismatch):
        job.run(differ)


def explain_without_times(comm):
    rows = np.arange(10)
    live = comm.sparse(rows, rows, replicas=2).explain()
    return live.seconds, "not measured where ranks have replicas" in str(live)


def refuse_seeds_of_their_own(comm):
    logical = comm.replicate(2)
    try:
        rp.EffectiveDiameter().fit([(0, 1), (1, 2)], comm=logical)
    except rp.InputError as error:
        return str(error)
    return None


def test_replicas_send_equal_bytes():
    with rp.launch(workers=WORKERS, replicas=2, threads=1) as job:
        assert job.run(explain_without_times) == [(None, True)] * 2
        assert all(
            "random_state=None: each of the 2 replicas" in str(described)
            for described in job.run(refuse_seeds_of_their_own)
        )
        # On every replica sets of strings have the same order.
        orders = job.run(lambda comm: comm.allgather(hash("order")))
        assert len({each for order in orders for each in order}) == 1


def raise_in_one_replica(comm):
    logical = comm.replicate(2)
    if comm.rank == 2:
        raise KeyError("culprit")
    logical.barrier()


def test_an_exception_in_one_replica_fails_the_job():
    with rp.launch(workers=WORKERS, replicas=2, threads=1) as job, pytest.raises(KeyError, match="culprit"):
        job.run(raise_in_one_replica)


def test_a_world_without_replicas_states_how_to_start_one(world):
    with pytest.raises(rp.InputError, match=r"replicas=2: expected 1.*ripieno run --replicas 2"):
        world(2).run(lambda comm: comm.replicate(2) and None)
    with pytest.raises(rp.InputError, match="replicas=3: expected a divisor of the number of workers, 4"):
        rp.launch(workers=4, replicas=3)


SCRIPT = """
    import os, signal, sys
    import numpy as np
    import ripieno as rp

    world = rp.init()
    comm = world.replicate(2)
    for number in range(30):
        if number == 10 and str(world.rank) in sys.argv[1:]:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 10 and f"raise{world.rank}" in sys.argv[1:]:
            raise KeyError("culprit")
        if number == 10 and f"exit{world.rank}" in sys.argv[1:]:
            sys.exit(7)
        total = comm.allreduce(np.full(20_000, comm.rank + number))
    sys.stdout.write(f"rank {comm.rank} replica {comm.replica} total {total[-1]}\\n")
"""


def run_script(tmp_path, *arguments) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))
    command = [*COMMAND, "-n", "4", "--replicas", "2", "--no-prefix", str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


def test_run_survives_ranks_with_a_live_replica_and_reports_them(tmp_path):
    done = run_script(tmp_path, "0", "3")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["rank 0 replica 1 total 59", "rank 1 replica 0 total 59"]
    for rank, replica in [(0, 2), (3, 1)]:
        assert f"ripieno: rank {rank} of " in done.stderr and f"its replica, rank {replica}, continues" in done.stderr


def test_run_fails_with_the_last_replica_or_an_exception_of_a_replica(tmp_path):
    last = run_script(tmp_path, "1", "3")
    assert last.returncode == 137 and "failed: killed by SIGKILL" in last.stderr
    raised = run_script(tmp_path, "raise2")
    assert raised.returncode == 1 and "KeyError: 'culprit'" in raised.stderr
    left = run_script(tmp_path, "exit1")
    assert left.returncode == 7, left.stderr
