"""Jobs that survive the loss of ranks: on the remaining ranks, or with replacements."""

from __future__ import annotations

import gc
import operator
import os
import signal
import time
from collections import Counter
from contextlib import nullcontext
from functools import partial
from itertools import product

import numpy as np
import pytest
import ripieno as rp
from injected_faults import kill_once
from ripieno.comm.broadcast_variables import BroadcastOptions
from ripieno.launch.limits import HEARTBEAT_S
from stand_in_engine import StandIn
from varied import exhaustively
from watching import comes_true, gone_within, open_descriptors

# Far more than a busy machine needs, and less than all other timeouts.
HANGS_S = 40.0
WORKERS = 4
POLICIES = ["shrink", "respawn"]


def sums(comm, table, folder, victims, signal_number):
    """Return the results of every collective in a world without the lost ranks, or with replacements for them."""
    before = comm.allreduce(np.ones(3))
    kill_once(comm, folder, victims, signal_number)
    total = comm.allreduce(np.full(1000, comm.rank + 1.0))
    gathered = comm.allgather(comm.rank)
    return comm.rank, comm.world_size, before[0], total[-1], gathered, int(table.value[comm.rank]), os.getpid()


def right(results, world_size):
    """Return whether these are the results of all ranks of a world of this size."""
    total = world_size * (world_size + 1) / 2
    return [each[:-1] for each in results] == [
        (rank, world_size, world_size, total, list(range(world_size)), 10 * rank) for rank in range(world_size)
    ]


KEPT = [("shrink", (0,), "shared-memory"), ("respawn", (0, 1), "tcp")]
VARIED = product(POLICIES, [(0,), (0, 1), (2,), (1, 2, 3)], ["shared-memory", "tcp"])


@pytest.mark.parametrize(
    ("policy", "victims", "links"), [*KEPT, *exhaustively(*(each for each in VARIED if each not in KEPT))]
)
def test_a_program_restarts_on_survivors_or_with_replacements(tmp_path, policy, victims, links):
    left = WORKERS - len(victims) if policy == "shrink" else WORKERS
    with rp.launch(workers=WORKERS, threads=1, on_failure=policy, links=links) as job:
        pids = job.pids
        table = job.broadcast(np.arange(10) * 10)
        with pytest.warns(RuntimeWarning, match=rf"killed by SIGKILL.*sums restarts on {left} rank"):
            results = job.run(sums, table, tmp_path, victims, signal.SIGKILL)
        assert right(results, left) and job.workers == left
        # Two may die in sequence, the second during the rendezvous; then all ranks are restarted.
        assert set(job.lost) <= set(victims) and job.lost
        if len(victims) == 1:
            living = [pid for rank, pid in enumerate(pids) if rank not in victims]
            assert [each[-1] for each in results if each[-1] in living] == living
        # The job continues, and new values reach all ranks.
        assert right(job.run(sums, job.broadcast(np.arange(10) * 10), tmp_path, (), 0), left)
        pids += job.pids
    assert gone_within(0, pids)


@pytest.mark.parametrize("victim", [0, *exhaustively(1, 2)])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_rank_that_hangs_is_ended_and_the_job_continues(tmp_path, policy, victim):
    with rp.launch(workers=3, threads=1, on_failure=policy, heartbeat_timeout_s=2.0) as job:
        table, pid = job.broadcast(np.arange(10) * 10), job.pids[victim]
        started = time.monotonic()
        with pytest.warns(RuntimeWarning, match=r"no heartbeat|its process has been stopped"):
            results = job.run(sums, table, tmp_path, (victim,), signal.SIGSTOP)
        assert time.monotonic() - started < HANGS_S
        assert right(results, 2 if policy == "shrink" else 3) and list(job.lost) == [victim]
        assert gone_within(0, [pid])


def test_a_spare_replaces_a_dead_rank_and_a_new_spare_starts(tmp_path):
    gc.collect()
    before = open_descriptors()
    with rp.launch(workers=3, threads=1, spares=1) as job:
        for round_number in range(3):
            (folder := tmp_path / str(round_number)).mkdir()
            (spare,) = [each.process.pid for each in job._spares]
            with pytest.warns(RuntimeWarning):
                results = job.run(sums, job.broadcast(np.arange(10) * 10), folder, (1,), signal.SIGKILL)
            assert right(results, 3) and results[1][-1] == spare
        pids = [*job.pids, *(each.process.pid for each in job._spares)]
    assert gone_within(0, pids)
    del job
    gc.collect()
    assert open_descriptors() == before


def test_a_spare_that_has_died_itself_is_replaced_first(tmp_path):
    with rp.launch(workers=2, threads=1, spares=1) as job:
        (dead,) = job._spares
        dead.process.kill()
        dead.process.wait()
        with pytest.warns(RuntimeWarning):
            results = job.run(sums, job.broadcast(np.arange(10) * 10), tmp_path, (1,), signal.SIGKILL)
        assert right(results, 2)


def read_after_the_root_has_died(comm, folder):
    """Read a broadcast variable. On the first run its root dies before another rank has any of the value."""
    root_pid = comm.broadcast(os.getpid())
    is_first_time = not (folder / "signaled-0").exists()
    with comm.broadcast_variable(np.arange(100_000) if comm.rank == 0 else None, strategy="csb") as variable:
        comm.barrier()
        kill_once(comm, folder, (0,))
        assert not is_first_time or gone_within(HANGS_S, [root_pid])
        return int(variable.value[-1])


@pytest.mark.parametrize("policy", [*POLICIES, "raise"])
def test_a_broadcast_error_counts_as_the_loss_of_its_root(tmp_path, policy):
    with rp.launch(workers=3, threads=1, on_failure=policy) as job:
        if policy == "raise":
            with pytest.raises(rp.RankFailed, match=r"rank 0 .*killed by SIGKILL"):
                job.run(read_after_the_root_has_died, tmp_path)
            return
        with pytest.warns(RuntimeWarning, match="killed by SIGKILL"):
            assert job.run(read_after_the_root_has_died, tmp_path) == [99_999] * job.workers
        assert list(job.lost) == [0]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_map_reduce_job_repeats_its_step_after_a_loss(policy):
    def count(part, weight):
        return part % 5, np.full(len(part), weight)

    numbers = np.arange(1000)
    with rp.launch(workers=3, threads=1, on_failure=policy) as job, rp.MapReduce(count, job=job) as steps:
        steps.cache(numbers, tasks=6)
        for iteration, victim in enumerate((None, 1, 0)):
            steps.broadcast(iteration + 1)
            if victim is not None:
                os.kill(job.pids[victim], signal.SIGKILL)
                assert gone_within(HANGS_S, [job.pids[victim]])
            with nullcontext() if victim is None else pytest.warns(RuntimeWarning, match="killed by SIGKILL"):
                found = steps.step().sorted(by="key").values
            assert found.tolist() == [200 * (iteration + 1)] * 5
            assert {task.rank for task in steps.tasks} == set(range(job.workers))
        assert job.workers == (1 if policy == "shrink" else 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_exception_of_a_program_reaches_the_caller_at_once(policy):
    def program(comm):
        comm.barrier()
        if comm.rank == 1:
            raise ValueError("a mistake")
        comm.barrier()

    with rp.launch(workers=3, on_failure=policy) as job:
        with pytest.raises(ValueError, match="a mistake"):
            job.run(program)
        assert job.workers == 3 and not job.lost


def test_restarts_of_a_program_whose_ranks_always_die_are_bounded(tmp_path):
    def program(comm):
        if comm.rank == 0:
            (tmp_path / str(os.getpid())).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    with (
        rp.launch(workers=2, on_failure="respawn") as job,
        pytest.warns(RuntimeWarning),
        pytest.raises(rp.RankFailed, match=r"rank 0 .* killed by SIGKILL"),
    ):
        job.run(program)
    assert len(list(tmp_path.iterdir())) == 4

    with rp.launch(workers=3, on_failure="shrink") as job:
        with pytest.warns(RuntimeWarning), pytest.raises(rp.RankFailed):
            job.run(program)
        assert sorted(job.lost) == [0, 1, 2]
        with pytest.raises(rp.CommunicatorClosed, match="all of its ranks have died"):
            job.run(program)


def test_false_reports_about_a_live_rank_are_bounded(tmp_path):
    def program(comm):
        (tmp_path / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        raise rp.RankFailed(0, "here", "no heartbeat, as claimed")

    with rp.launch(workers=2, on_failure="shrink") as job:
        with pytest.warns(RuntimeWarning), pytest.raises(rp.RankFailed, match="as claimed"):
            job.run(program)
        assert job.workers == 2 and not job.lost
    assert len(list(tmp_path.iterdir())) == 2 * 4


def test_a_rank_that_computes_is_waited_for_while_another_dies(tmp_path):
    def program(comm):
        comm.barrier()
        computing = tmp_path / "computing"
        if comm.rank == 0 and comm.world_size == 3:
            assert comes_true(computing.exists, HANGS_S)
            os.kill(os.getpid(), signal.SIGKILL)
        if comm.rank == 1:
            computing.touch()
            # Longer than the launcher would wait for witnesses.
            end = time.monotonic() + 4.0
            while time.monotonic() < end:
                pass
        comm.barrier()
        return os.getpid()

    with rp.launch(workers=3, threads=1, on_failure="shrink") as job:
        pids = job.pids
        with pytest.warns(RuntimeWarning):
            assert job.run(program) == pids[1:]


def wait_for_a_dead_root(comm):
    """Let rank 1 wait for a value of rank 0, which dies. Rank 2 has no variable for the value."""
    with comm.broadcast_variable(0 if comm.rank == 0 else None) as connected:
        assert connected.value == 0
    comm.barrier()
    if comm.world_size == 3:
        if comm.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        elif comm.rank == 1:
            return comm._begin_variable(comm._server(), None, 0, BroadcastOptions("csb"), False, False).value
        comm.barrier()
    return comm.world_size


def test_a_rank_does_not_wait_for_values_of_a_rank_whose_program_has_ended():
    with rp.launch(workers=3, threads=1, on_failure="shrink") as job:
        started = time.monotonic()
        with pytest.warns(RuntimeWarning, match="restarts on 2 ranks"):
            assert job.run(wait_for_a_dead_root) == [2, 2]
        assert time.monotonic() - started < HEARTBEAT_S


def test_additions_to_accumulators_count_once(tmp_path):
    def program(comm, count, ranks):
        count.add(1)
        ranks.add([comm.rank])
        comm.barrier()
        kill_once(comm, tmp_path, (1,))
        comm.barrier()

    with rp.launch(workers=3, threads=1, on_failure="respawn") as job:
        count, ranks = job.accumulator(0), job.accumulator([], add=operator.add)
        with pytest.warns(RuntimeWarning):
            job.run(program, count, ranks)
        assert (count.value, ranks.value) == (3, [0, 1, 2])


def test_additions_of_repeated_items_count_once(tmp_path):
    def double(item):
        seen.add({item: 1})
        if item == 5 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * item

    with rp.launch(workers=2, threads=1, on_failure="respawn") as job:
        seen = job.accumulator(Counter(), add=lambda left, right: Counter(left) + Counter(right))
        with pytest.warns(RuntimeWarning):
            assert list(job.map(double, range(10))) == list(range(0, 20, 2))
    assert seen.value == Counter(range(10))


def test_additions_of_a_repeated_step_count_once(tmp_path):
    def emit(part, _):
        seen.add([int(part[0])])
        if part[0] == 3 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    with rp.MapReduce(emit, workers=2, on_failure="respawn") as job:
        seen = job.accumulator([], add=operator.add)
        job.cache(np.arange(4), tasks=4)
        with pytest.warns(RuntimeWarning):
            job.step()
        job.step()
    assert seen.value == [0, 1, 2, 3] * 2


@pytest.mark.parametrize("prefix_output", [True, *exhaustively(False)])
def test_a_job_grows_and_shrinks_between_programs(prefix_output, tmp_path, capsys):
    gc.collect()
    before = open_descriptors()
    with rp.launch(workers=2, threads=1, prefix_output=prefix_output) as job:
        table = job.broadcast(np.arange(100) * 10)
        first = job.pids
        for workers in (5, 3, 1, 2, 2):
            job.resize(workers)
            assert job.workers == workers == len(job.pids)
            assert right(job.run(sums, table, tmp_path, (), 0), workers)
            assert job.pids[0] == first[0]
        pids = job.pids
    assert gone_within(0, [*first, *pids])
    del table, job
    gc.collect()
    assert open_descriptors() == before


def test_a_job_that_cannot_be_resized_raises():
    with rp.launch(workers=1) as job, pytest.raises(rp.InputError, match="is the calling process"):
        job.resize(2)
    with rp.launch(workers=2, replicas=2) as job, pytest.raises(rp.InputError, match="2 replicas of each rank"):
        job.resize(4)
    with rp.launch(workers=2) as job:
        for wrong in (0, True, 1.5):
            with pytest.raises(rp.InputError, match="expected a whole number >= 1"):
                job.resize(wrong)
    with pytest.raises(rp.CommunicatorClosed, match="this job is over"):
        job.resize(3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"on_failure": "stop"}, "on_failure='stop': expected one of raise, shrink, respawn"),
        ({"spares": -1}, "spares=-1: expected a whole number"),
        ({"spares": 1, "on_failure": "shrink"}, "spares are for 'respawn'"),
        ({"replicas": 2, "on_failure": "shrink"}, "ranks with replicas continue by themselves"),
    ],
)
def test_policies_that_do_not_exist_are_reported(options, sentence):
    with pytest.raises(rp.InputError) as caught:
        rp.launch(workers=2, **options)
    assert sentence in str(caught.value)
    with pytest.raises(rp.InputError, match="the only rank is the calling process"):
        rp.launch(workers=1, spares=1)


@pytest.mark.parametrize("policy", ["respawn", *exhaustively("shrink")])
def test_an_engine_starts_all_ranks_again(tmp_path, policy):
    left = 2 if policy == "shrink" else 3
    with StandIn().launch(3, on_failure=policy) as job:
        table = job.broadcast(np.arange(10) * 10)
        with pytest.warns(RuntimeWarning, match=f"sums restarts on {left} ranks"):
            results = job.run(sums, table, tmp_path, (1,), signal.SIGKILL)
        assert right(results, left) and job.workers == left and list(job.lost) == [1]
        job.resize(4)
        assert right(job.run(sums, table, tmp_path, (), 0), 4)
    with pytest.raises(rp.InputError, match="spares=1: an engine starts replacements on demand"):
        StandIn().launch(3, spares=1)


def test_a_partial_program_restarts_under_the_name_of_its_function(tmp_path):
    with rp.launch(workers=2, threads=1, on_failure="shrink") as job:
        table = job.broadcast(np.arange(10) * 10)
        with pytest.warns(RuntimeWarning, match="; sums restarts on 1 rank"):
            results = job.run(partial(sums, folder=tmp_path, victims=(1,), signal_number=signal.SIGKILL), table)
        assert right(results, 1)
