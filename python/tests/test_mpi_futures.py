"""mpi4py's executors: `ripieno.mpi.futures`."""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ripieno.errors import InputError, RankFailed, SerializationError, UnsupportedError
from ripieno.mpi.futures import BrokenExecutor, MPICommExecutor, MPIPoolExecutor, TimeoutError, get_comm_workers


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory):
    """A named pipe, and a descriptor that writes to it. The pipe is open until all calls have ended."""
    path = tmp_path_factory.mktemp("pool") / "pipe"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)
    yield path, descriptor
    os.close(descriptor)


@pytest.fixture(scope="module")
def executor(pipe):
    with MPIPoolExecutor(max_workers=2, env={"RIPIENO_TEST_POOL": "set"}) as executor:
        yield executor


def test_calls_run_in_other_processes(executor):
    others = {executor.submit(os.getpid).result() for _ in range(2)}

    assert others and os.getpid() not in others
    assert executor.num_workers == 2
    assert executor.submit(os.getenv, "RIPIENO_TEST_POOL").result() == "set"
    assert executor.submit(lambda factor, number: factor * number, 3, number=7).result() == 21


def test_map_and_starmap_yield_results_in_order(executor):
    squares = [number**2 for number in range(20)]

    for options in ({}, {"chunksize": 6}, {"chunksize": 3, "buffersize": 2}):
        assert list(executor.map(pow, range(20), [2] * 20, **options)) == squares
    assert list(executor.starmap(pow, [(number, 2) for number in range(20)], chunksize=50)) == squares
    assert sorted(executor.map(pow, range(20), [2] * 20, chunksize=3, unordered=True)) == squares


def test_a_buffer_limits_how_far_map_reads(executor):
    read: list[int] = []

    def numbers():
        for number in range(9):
            read.append(number)
            yield number

    results = executor.map(abs, numbers(), buffersize=2)
    assert next(results) == 0
    assert read == [0, 1, 2]
    assert list(results) == list(range(1, 9))


def test_an_exception_reaches_the_caller_with_the_worker(executor):
    results = executor.map(divmod, [7, 7], [2, 0])

    assert next(results) == (3, 1)
    with pytest.raises(ZeroDivisionError) as caught:
        next(results)
    assert isinstance(caught.value.__cause__, RankFailed)
    with pytest.raises(SerializationError):
        executor.submit(abs, threading.Lock()).result()
    assert executor.submit(abs, -1).result() == 1


def test_results_are_late(executor, pipe):
    path, descriptor = pipe

    def first_line(path):
        with path.open() as lines:
            return lines.readline()

    for unordered in (False, True):
        with pytest.raises(TimeoutError):
            list(executor.map(first_line, [path], timeout=0.05, unordered=unordered))
        os.write(descriptor, b"read\n")
    assert executor.submit(abs, -1).result() == 1


def test_workers_communicate_with_each_other(executor):
    def total(number):
        return get_comm_workers().allreduce(number)

    assert [future.result() for future in [executor.submit(total, 1), executor.submit(total, 2)]] == [3, 3]
    with pytest.raises(RuntimeError, match="no worker"):
        get_comm_workers()


def test_pending_calls_are_cancelled(tmp_path: Path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    executor = MPIPoolExecutor(1)
    running = executor.submit(fifo.read_text)
    pending = [executor.submit(abs, -1) for _ in range(3)]
    # Opened only after the worker has opened the other end.
    with fifo.open("w"):
        executor.shutdown(wait=False, cancel_futures=True)
    executor.shutdown()

    assert running.result() == ""
    assert all(future.cancelled() for future in pending)
    assert executor.num_workers == 0
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(abs, 1)


@pytest.mark.parametrize("function", [lambda: 1 / 0, lambda: os.kill(os.getpid(), 9)], ids=["fails", "dies"])
def test_a_failed_initializer_or_a_dead_worker_breaks_the_pool(function):
    executor = MPIPoolExecutor(1, initializer=function)

    with pytest.raises(BrokenExecutor, match="a worker has failed"):
        executor.submit(abs, 1).result()
    with pytest.raises(BrokenExecutor):
        executor.submit(abs, 1)
    executor.shutdown()


def test_a_world_of_one_rank_is_its_own_worker():
    with MPICommExecutor() as executor:
        assert list(executor.map(operator.neg, [1, 2])) == [-1, -2]
        assert executor.submit(lambda: get_comm_workers().size).result() == 1


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (InputError, {"max_workers": 0}),
        (TypeError, {"initializer": 3}),
        (UnsupportedError, {"python_args": ["-O"]}),
    ],
)
def test_options_are_checked(error, options):
    with pytest.raises(error):
        MPIPoolExecutor(**options)


SHARED = """
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor, MPIPoolExecutor, get_comm_workers

def place(number):
    from mpi4py import MPI
    return number, MPI.COMM_WORLD.rank, get_comm_workers().size

if __name__ == "__main__":
    with MPIPoolExecutor() as one, MPIPoolExecutor() as two:
        found = list(one.map(place, range(4))) + list(two.map(place, range(4, 8)))
        assert [number for number, _, _ in found] == list(range(8))
        assert {(rank, size) for _, rank, size in found} <= {(1, 2), (2, 2)}
    print("passed")
"""

COMM = """
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor

comm = MPI.COMM_WORLD
for root in range(comm.size):
    with MPICommExecutor(comm, root) as executor:
        if executor is not None:
            assert comm.rank == root and executor.num_workers == 1
            assert list(executor.map(pow, range(5), [2] * 5)) == [0, 1, 4, 9, 16]
assert comm.allreduce(1) == 2
print("passed")
"""


@pytest.mark.parametrize(
    ("module", "script", "ranks", "printing"),
    [("ripieno.mpi.futures", SHARED, 3, 1), ("ripieno.mpi", COMM, 2, 2)],
    ids=["shared", "comm"],
)
def test_a_script_of_mpi4py_runs_unmodified(tmp_path: Path, module, script, ranks, printing):
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-m", "ripieno", "run", "-n", str(ranks), "-m", module, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("passed") == printing
