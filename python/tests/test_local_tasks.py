"""Tasks of a rank on its threads: a free thread takes the next part, and an error names its part."""

from __future__ import annotations

import os
import threading

import pytest
import ripieno as rp
from ripieno.launch.job.inline import single_rank


@pytest.fixture
def comm():
    with single_rank(threads=3) as comm:
        yield comm


def test_results_have_the_order_of_the_parts(comm):
    gates = [threading.Event() for _ in range(3)]

    def wait_for_the_next(part):
        """Return after the task of the next part."""
        if part < 2:
            assert gates[part + 1].wait(30)
        gates[part].set()
        return part * 10

    assert comm.tasks(wait_for_the_next, range(3)) == [0, 10, 20]
    assert comm.tasks(str, []) == []


def test_a_free_thread_takes_the_next_part(comm):
    finished = threading.Semaphore(0)

    def first_is_long(part):
        if part == 0:
            for _ in range(20):
                assert finished.acquire(timeout=250)
        else:
            finished.release()
        return threading.get_ident()

    threads = comm.tasks(first_is_long, range(21))
    assert threads[0] not in threads[1:] and len(set(threads)) <= 3


def test_an_error_names_its_part_and_no_part_begins_after_it(comm):
    started = []

    def fails(part):
        started.append(part)
        if part == 2:
            raise KeyError("missing")
        return part

    with comm.team(threads=1) as team:
        with pytest.raises(KeyError, match="missing") as caught:
            team.tasks(fails, range(10))
        assert caught.value.__notes__ == ["in part 2 of 10"]
        assert started == [0, 1, 2]
        assert team.tasks(str, [1, 2]) == ["1", "2"], "the team is usable"


def test_threads_of_a_team_persist_and_synchronize(comm):
    written = [0] * 4
    with comm.team(threads=4) as team:

        def phases(number):
            seen = []
            for phase in range(1, 20):
                written[number] = phase
                team.wait()
                seen.append(list(written))
                team.wait()
            return threading.get_ident(), seen

        threads, seen = zip(*team.run(phases), strict=True)
        assert len(set(threads)) == 4
        assert all(each == [[phase] * 4 for phase in range(1, 20)] for each in seen)
        assert {thread for thread, _ in team.run(phases)} == set(threads)


def test_threads_that_wait_for_a_failed_thread_return(comm):
    with comm.team(threads=3) as team:

        def fails(number):
            if number == 1:
                raise OSError("disk")
            team.wait()

        for _ in range(3):
            with pytest.raises(OSError, match="disk") as caught:
                team.run(fails)
            assert caught.value.__notes__ == ["in thread 1 of 3"]
        assert team.run(lambda number: team.wait() or number) == [0, 1, 2]


def test_a_thread_that_waits_less_often_than_others_is_named(comm):
    with comm.team(threads=3) as team:

        def unequal(number):
            for _ in range(1 if number == 2 else 3):
                team.wait()
            return number

        for _ in range(3):
            with pytest.raises(rp.InputError, match=r"thread 2 of 3 has ended after 1 waits, but another thread waits"):
                team.run(unequal)
        assert team.run(lambda number: team.wait() or number) == [0, 1, 2], "the team is usable"
        with pytest.raises(rp.InputError, match="wait must be called by a thread of the team"):
            team.wait()


def test_threads_of_a_fork_join_team_do_not_synchronize(comm):
    with comm.team(threads=2, model="fork-join") as team:
        assert team.run(lambda number: number * number) == [0, 1]
        with pytest.raises(rp.InputError, match="cannot wait for each other: return from `run`"):
            team.run(lambda number: team.wait())
    with pytest.raises(rp.InputError, match="model='join': expected one of bsp, fork-join"):
        comm.team(model="join")


def test_a_team_that_would_deadlock_raises(comm):
    with comm.team(threads=1) as team:
        with pytest.raises(rp.InputError, match="would wait for itself: make another team"):
            team.tasks(lambda part: team.tasks(str, [part]), [1])
        child = os.fork()
        if child == 0:
            try:
                team.tasks(str, [1])
            except rp.InputError as error:
                os._exit(0 if "make another" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(rp.InputError, match="the team is closed"):
        team.tasks(str, [1])
    with pytest.raises(rp.InputError, match="threads=0"):
        comm.team(threads=0)
