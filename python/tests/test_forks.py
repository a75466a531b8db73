"""A forked child of a rank is not a rank: its calls raise an error, and the rank continues."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import ripieno as rp


def in_a_child(work):
    """Return the result of `work` in a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(found)


def errors_of(calls):
    words = []
    for call in calls:
        try:
            call()
            words.append("taken")
        except rp.CommunicatorClosed as error:
            words.append(str(error))
    return words


def forked(comm):
    part = comm.split(0)
    sparse = comm.sparse([0], [0])
    handle, last = comm.allreduce_async(np.ones(3)), comm.allgather_async("text")
    small = np.ones(1)

    def child():
        calls = [
            lambda: comm.allreduce(small, out=small),
            lambda: comm.allreduce(np.ones((300, 300))),
            lambda: comm.allreduce_async(small),
            lambda: comm.broadcast("text"),
            lambda: comm.barrier_async(),
            lambda: comm.split(0),
            lambda: comm.stats(),
            lambda: comm.flight(),
            lambda: comm.regroup(rp.KeyValues([1])),
            lambda: comm.abort("cause"),
            lambda: comm.emit({}),
            lambda: part.barrier(),
            lambda: sparse.reduce(small),
            lambda: handle.wait(),
            lambda: last.done,
        ]
        if comm.world_size > 1:
            calls.append(lambda: comm.recv(1 - comm.rank))
        words = errors_of(calls)
        part.close()
        comm.close()
        large = rp.empty((1 << 10, 1 << 8))
        large[:] = 7
        return words

    words = in_a_child(child)
    assert len(words) == 15 + (comm.world_size > 1)
    assert all(
        f"forked from rank {comm.rank} and is not a rank itself: return its results to rank {comm.rank}," in word
        for word in words
    ), words
    # The parent's calls continue on all resources that the child has closed.
    assert handle.wait().tolist() == [comm.world_size] * 3 and len(last.wait()) == comm.world_size
    assert part.allreduce(1) == comm.allreduce(1) == comm.world_size
    return sparse.reduce(np.ones(1)).tolist()


@pytest.mark.parametrize("workers", [1, 2])
def test_calls_of_a_forked_process_are_refused_and_the_rank_continues(workers):
    with rp.launch(workers=workers, threads=1) as job:
        assert job.run(forked) == [[float(workers)]] * workers
        assert job.run(lambda comm: comm.allreduce(1)) == [workers] * workers


def square(number):
    return number * number


def pooled(comm):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        squares = pool.map(square, range(8))
    return comm.allreduce(sum(squares))


def test_a_pool_of_forked_processes_computes_inside_a_rank():
    with rp.launch(workers=2, threads=1) as job:
        assert job.run(pooled) == [280, 280]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_forked_process_owns_no_job_and_the_launchers_continues(workers):
    with rp.launch(workers=workers, threads=1) as job, rp.MapReduce(lambda part, _: None, job=job) as steps:
        steps.cache(np.arange(4))
        results = job.map(square, range(3))
        next(results)

        def child():
            words = errors_of([lambda: job.run(square), lambda: list(results), lambda: job.resize(3), steps.step])
            steps.close()
            job.close()
            return words

        words = in_a_child(child)
        assert len(words) == 4 and all("forked" in word for word in words), words
        assert list(results) == [1, 4]
        assert job.run(lambda comm: comm.allreduce(1)) == [workers] * workers


def forks(comm, leave):
    """Fork a process that leaves the program, and return its exit status."""
    child = os.fork()
    if child == 0:
        leave()
        return None
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("leave", "status"), [(lambda: None, 0), (sys.exit, 0), (lambda: sys.exit(3), 3), (lambda: 1 / 0, 1)]
)
def test_a_forked_process_that_leaves_the_program_of_its_rank_ends_and_reports_nothing(world, leave, status):
    assert world(2).run(forks, leave) == [status] * 2
    assert world(2).run(lambda comm: comm.allreduce(1)) == [2] * 2


SCRIPT = """
import os, sys
import ripieno as rp

comm = rp.init()
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert comm.allreduce(1) == comm.world_size
print("went on")
"""


def test_a_forked_process_that_exits_normally_harms_no_rank(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "ripieno", "run", "--workers", "2", str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0 and ran.stdout.count("went on") == 2, ran.stdout + ran.stderr
