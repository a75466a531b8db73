"""Programs and scripts continue on the remaining ranks, for all times and kinds of failures: death or a hang."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
import ripieno as rp
from varied import exhaustively
from watching import comes_true

#: A stopped rank is silent for this long; on a busy machine other ranks may pause for some tenths of a second.
HEARTBEAT_S = 2.0

COMMAND = [sys.executable, "-c", "from ripieno.cli.run import run_command; run_command(prog_name='ripieno run')"]


def end(how):
    """Die, or hang until another process ends this one."""
    os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    time.sleep(60)


def talk(comm):
    """Make calls of several kinds, and return each rank's original number."""
    own = comm.first_ranks[comm.rank]
    total = comm.allreduce(np.array([float(own)]))
    last = comm.broadcast(own, root=comm.world_size - 1)
    rows = comm.regroup(rp.KeyValues(np.array([own % 2, 5]), np.array([float(own), 1.0])), combine="sum")
    gathered = comm.allgather((own, list(zip(rows.keys.tolist(), rows.values.tolist(), strict=True))))
    return [total[0], last, [each for each, _ in gathered], sorted(row for _, rows in gathered for row in rows)]


def expected(ranks):
    """Return the results of `talk` on `ranks`."""
    rows = [(parity, float(sum(rank for rank in ranks if rank % 2 == parity))) for parity in {r % 2 for r in ranks}]
    return [float(sum(ranks)), ranks[-1], list(ranks), sorted([*rows, (5, float(len(ranks)))])]


def continues(comm, victims, during):
    """Return the final results of the calls. `victims` end at the start, `during` end while others shrink."""
    own = comm.rank
    # After another rank's end, the following calls fail immediately.
    with contextlib.suppress(rp.RankFailed):
        comm.barrier()
    if own in victims:
        end(victims[own])
    while True:
        try:
            return talk(comm)
        except rp.RankFailed:
            if own in during:
                end(during[own])
            comm = comm.shrink()


def assert_the_others_continue(workers, victims, during=None, links="auto"):
    during = during or {}
    gone = victims.keys() | during.keys()
    left = [rank for rank in range(workers) if rank not in gone]
    options = {"links": links, "heartbeat_timeout_s": HEARTBEAT_S, "threads": 1}
    with rp.launch(workers=workers, on_failure="shrink", **options) as job, warnings.catch_warnings():
        # A program that shrinks by itself is not restarted.
        warnings.simplefilter("error")
        assert job.run(continues, victims, during) == [expected(left)] * len(left)
        assert sorted(job.lost) == sorted(gone) and job.workers == len(left)
        assert job.run(lambda comm: comm.allreduce(1)) == [len(left)] * len(left)


@pytest.mark.parametrize("workers", [3, *exhaustively(2, 4)])
def test_the_others_continue_without_any_killed_rank(workers):
    for victim in range(workers):
        assert_the_others_continue(workers, {victim: "kill"}, links="tcp" if victim % 2 else "shared-memory")


@pytest.mark.parametrize("workers", exhaustively(5, 6))
def test_the_others_of_many_continue_without_the_first_or_the_last(workers):
    assert_the_others_continue(workers, {0: "kill"})
    assert_the_others_continue(workers, {workers - 1: "kill"}, links="tcp")


@pytest.mark.parametrize(("workers", "victim"), [(4, 0), *exhaustively((2, 0), (2, 1), (4, 2))])
def test_the_others_continue_without_a_rank_that_hangs(workers, victim):
    assert_the_others_continue(workers, {victim: "stop"})


@pytest.mark.parametrize(
    "victims", [{0: "stop", 2: "kill"}, *exhaustively({0: "kill", 1: "kill"}, {1: "kill", 3: "kill"})]
)
def test_the_others_continue_when_two_end_at_once(victims):
    assert_the_others_continue(4, victims)


@pytest.mark.parametrize("during", [{0: "kill"}, *exhaustively({3: "kill"}, {1: "stop"})])
def test_the_others_continue_when_one_more_ends_while_they_shrink(during):
    assert_the_others_continue(4, {2: "kill"}, during)


def test_a_rank_that_continues_too_late_gets_an_error(tmp_path):
    has_reported = tmp_path / "reported"

    def program(comm):
        own = comm.rank
        pids = comm.allgather(os.getpid())
        if own == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            comm.barrier()
        except rp.RankFailed as failed:
            if own == 1:
                with pytest.raises(rp.RankFailed, match="without it") as described:
                    comm.shrink()
                assert described.value.rank == own and comm.closed
                with pytest.raises(rp.RankFailed, match="without it"):
                    comm.barrier()
                has_reported.touch()
                raise
            assert failed.rank == 1
            left = comm.shrink()
            os.kill(pids[1], signal.SIGCONT)
            # The loss is reported while the others live.
            assert comes_true(has_reported.exists, 60.0)
            return left.first_ranks, left.allreduce(1)
        raise AssertionError("no rank failed")

    with rp.launch(workers=3, on_failure="shrink", heartbeat_timeout_s=HEARTBEAT_S) as job:
        assert job.run(program) == [([0, 2], 2)] * 2
        assert list(job.lost) == [1]


def test_a_live_rank_that_shrinks_too_late_is_lost(tmp_path):
    shrunk, has_reported = tmp_path / "shrunk", tmp_path / "reported"

    def program(comm):
        own = comm.rank
        with contextlib.suppress(rp.RankFailed):
            comm.barrier()
        if own == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if own == 1:
            assert comes_true(shrunk.exists, 60.0)
            with pytest.raises(rp.RankFailed):
                comm.shrink()
            has_reported.touch()
            comm.barrier()
        with pytest.raises(rp.RankFailed):
            comm.barrier()
        left = comm.shrink()
        shrunk.touch()
        assert comes_true(has_reported.exists, 60.0)
        # Its message arrives before the results of these.
        time.sleep(0.1)
        return left.first_ranks

    with rp.launch(workers=4, on_failure="shrink", rendezvous_timeout_s=2.0, threads=1) as job:
        assert job.run(program) == [[0, 3]] * 2
        assert sorted(job.lost) == [1, 2] and "without it" in job.lost[1]


@pytest.mark.parametrize(
    ("links", "failed"), [("tcp", 0), ("shared-memory", 2), *exhaustively(("shared-memory", 0), ("tcp", 2))]
)
def test_the_others_continue_without_a_rank_whose_program_has_failed(links, failed):
    def program(comm):
        own = comm.rank
        with contextlib.suppress(rp.RankFailed):
            comm.barrier()
        if own == 1:
            end("kill")
        while True:
            try:
                return talk(comm)
            except rp.RankFailed:
                if own == failed:
                    raise
                comm = comm.shrink()

    left = [rank for rank in range(4) if rank not in (1, failed)]
    # No rank waits for it before that.
    with rp.launch(workers=4, on_failure="shrink", links=links, rendezvous_timeout_s=600, threads=1) as job:
        assert job.run(program) == [expected(left)] * 2
        assert sorted(job.lost) == sorted([1, failed])


def test_ranks_continue_after_a_program_that_fails_on_its_own():
    def program(comm):
        comm.barrier()
        if comm.rank == 1:
            raise ValueError("an error of its own")
        with pytest.raises(rp.RankFailed, match="an error of its own"):
            comm.barrier()
        comm.shrink().allreduce(1)

    with rp.launch(workers=3, on_failure="shrink", rendezvous_timeout_s=600, threads=1) as job:
        with pytest.raises(ValueError, match="an error of its own"):
            job.run(program)
        assert job.run(lambda comm: comm.allreduce(1)) == [3, 3, 3]


def test_objects_of_the_old_communicator_report_that_it_has_shrunk():
    def program(comm):
        part = comm.split(0)
        configured = comm.sparse(np.arange(4), np.arange(4))
        out = np.zeros(3)
        persistent = comm.allreduce_init(out, out=out)
        table = comm.broadcast_variable({"a": 1} if comm.rank == 0 else None, root=0)
        assert table.value == {"a": 1}
        comm.cache["mine"] = comm.rank
        with contextlib.suppress(rp.RankFailed):
            comm.barrier()
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(rp.RankFailed):
            comm.allreduce_async(np.ones(10)).wait()
        with comm.timeout(60):
            left = comm.shrink()
            assert left._call_timeout_s == 60
        assert left._call_timeout_s == 70
        calls = [comm.barrier, part.barrier, lambda: comm.allreduce_async(np.ones(3)), lambda: comm.split(0)]
        calls += [lambda: configured.reduce(np.ones(4)), comm.shrink, persistent]
        for call in calls:
            with pytest.raises(rp.RankFailed, match=r"shrink\(\)"):
                call()
        assert comm.closed and part.closed
        assert table.value == {"a": 1} and left.cache == {"mine": comm.rank}
        with pytest.raises(rp.InputError, match="no rank has failed"):
            left.shrink()
        with pytest.raises(rp.InputError, match="of the world"):
            left.split(0).shrink()
        again = left.broadcast_variable({"b": 2} if left.rank == 1 else None, root=1)
        return again.value["b"], left.first_ranks, rp.init() is left

    with rp.launch(workers=3, on_failure="shrink", call_timeout_s=70) as job:
        assert job.run(program) == [(2, [0, 1], True)] * 2


def test_ranks_in_different_calls_all_continue():
    def program(comm):
        with pytest.raises(rp.CollectiveMismatch):
            comm.barrier() if comm.rank == 0 else comm.allreduce(1)
        left = comm.shrink()
        with pytest.raises(rp.CollectiveMismatch, match=r"shrink\(\)"):
            comm.barrier()
        return left.allgather(comm.rank)

    with rp.launch(workers=3) as job:
        assert job.run(program) == [[0, 1, 2]] * 3


def test_without_on_failure_the_launcher_ends_all_ranks():
    with rp.launch(workers=3) as job, pytest.raises(rp.RankFailed) as failed:
        job.run(continues, {1: "kill"}, {})
    assert failed.value.rank == 1


SCRIPT = """
    import contextlib, os, signal, sys
    import ripieno as rp

    comm = rp.init()
    with contextlib.suppress(rp.RankFailed):
        comm.barrier()
    victims = [int(each) for each in sys.argv[2:]]
    if comm.rank in victims:
        os.kill(os.getpid(), signal.SIGKILL if sys.argv[1] == "kill" else signal.SIGSTOP)
    while True:
        try:
            total = comm.allreduce(1)
            break
        except rp.RankFailed:
            comm = comm.shrink()
    assert rp.init() is comm
    sys.stdout.write(f"{comm.first_ranks} {total}\\n")
"""


@pytest.mark.parametrize(("how", "victims"), [("kill", [0]), *exhaustively(("kill", [1, 2]), ("stop", [0]))])
def test_scripts_continue_without_ranks(tmp_path, how, victims):
    path = tmp_path / "script.py"
    text = textwrap.dedent(SCRIPT)
    path.write_text(text.replace("rp.init()", f"rp.init(heartbeat_timeout_s={HEARTBEAT_S})", 1))
    left = [rank for rank in range(4) if rank not in victims]
    command = [*COMMAND, "-n", "4", "--on-failure", "shrink", "--no-prefix", str(path), how, *map(str, victims)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stderr
    if len(victims) == 1:
        # A stopped rank that is resumed after the end may still find the expected data in its links.
        assert ended.stdout.count(f"{left} {len(left)}\n") == len(left)
    if how == "kill":
        assert all(f"rank {rank} of" in ended.stderr for rank in victims), ended.stderr


def test_a_script_that_does_not_shrink_fails_with_the_signal_of_the_rank(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT).replace("comm = comm.shrink()", "raise"))
    command = [*COMMAND, "-n", "3", "--on-failure", "shrink", str(path), "kill", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert ended.returncode == 128 + signal.SIGKILL, ended.stderr


def agree_while_one_dies(comm, moment):
    """Return two agreements and a sum. Rank 1 dies before them, or between the two steps of the first."""
    own = comm.rank
    if moment == "before" and own == 1:
        end("kill")
    if moment == "within" and own == 1:
        comm.barrier = lambda: end("kill")
    # Without rank 1 its flag does not count, unless it has proposed it.
    first = comm.agree(0b110 if own != 1 else 0b011)
    second = comm.agree(own != 2)
    with pytest.raises(rp.RankFailed):
        comm.allreduce(1)
    comm = comm.shrink()
    return first, second, comm.first_ranks, comm.agree(True), comm.allreduce(1)


@pytest.mark.parametrize(("moment", "first"), [("before", 0b110), ("within", 0b010)])
def test_survivors_agree_although_a_rank_dies(moment, first):
    with rp.launch(workers=3, threads=1, on_failure="shrink") as job:
        assert job.run(agree_while_one_dies, moment) == [(first, False, [0, 2], True, 2)] * 2


def return_from_one_agreement_alone(comm):
    """Let rank 0 return from an agreement in which rank 2 notices the death of rank 1."""
    own, barrier = comm.rank, comm.barrier
    if own == 1:
        comm.barrier = lambda: (barrier(), end("kill"))
    if own == 2:

        def notice():
            barrier()
            while True:
                comm.allreduce(1)

        comm.barrier = notice
    flags = [comm.agree(own + 4)]
    with contextlib.suppress(rp.RankFailed):
        while True:
            comm.allreduce(1)
    flags.append(comm.agree(own + 8))
    comm = comm.shrink()
    return flags, comm.agree(1), comm.first_ranks


def test_a_rank_that_has_returned_from_an_agreement_sends_its_value_to_the_others():
    with rp.launch(workers=3, threads=1, on_failure="shrink") as job:
        assert job.run(return_from_one_agreement_alone) == [([4, 8], 1, [0, 2])] * 2


def test_an_agreement_takes_a_flag_in_the_world(world):
    def refusals(comm):
        found = []
        for where, flag in ((comm, 1.5), (comm.split(0), True)):
            with pytest.raises(rp.InputError) as caught:
                where.agree(flag)
            found.append(str(caught.value))
        return found, comm.agree(comm.rank == 0), comm.agree(comm.rank | 6)

    found, are_all, bits = world(2).run(refusals)[1]
    assert found == [
        "agree: a float: expected a bool or a whole number",
        "agree: expected the communicator of the world",
    ]
    assert (are_all, bits) == (False, 6)
