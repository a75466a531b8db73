"""Names of mpi4py in a process without other ranks: executors, handles and buffers."""

from __future__ import annotations

import doctest
import operator
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import BrokenExecutor, TimeoutError
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp
from ripieno.errors import InputError, RankFailed, SerializationError, UnsupportedError


@pytest.fixture(scope="module")
def mpi():
    from ripieno import mpi

    yield mpi
    # Otherwise later tests would use this world.
    mpi.Finalize()


@pytest.fixture(scope="module")
def futures(mpi):
    from ripieno.mpi import futures

    return futures


@pytest.fixture(scope="module")
def pipes(tmp_path_factory: pytest.TempPathFactory):
    """Two named pipes, and descriptors that write to them. They are open until all calls have ended."""
    paths = [tmp_path_factory.mktemp("pool") / "pipe" for _ in range(2)]
    for path in paths:
        os.mkfifo(path)
    descriptors = [os.open(path, os.O_RDWR) for path in paths]
    yield dict(zip(paths, descriptors, strict=True))
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.fixture(scope="module")
def executor(futures, pipes):
    with futures.MPIPoolExecutor(max_workers=2, env={"RIPIENO_TEST_POOL": "set"}) as executor:
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
    for argument, error in [(threading.Lock(), SerializationError), (_Unpicklable(), KeyboardInterrupt)]:
        for _ in range(3):  # more often than the pool has threads
            with pytest.raises(error):
                executor.submit(abs, argument).result()
    assert executor.submit(abs, -1).result() == 1


class _Unpicklable:
    def __reduce__(self):
        raise KeyboardInterrupt


def test_results_are_yielded_before_later_tasks_end(executor, pipes):
    def first_line(path):
        with path.open() as lines:
            return lines.readline()

    # A pipe for each call: a worker that begins late does not read the line of the other one.
    for (path, descriptor), unordered in zip(pipes.items(), (False, True), strict=True):
        try:
            with pytest.raises(TimeoutError):
                list(executor.map(first_line, [path], timeout=0.05, unordered=unordered))
        finally:
            os.write(descriptor, b"read\n")
    assert executor.submit(abs, -1).result() == 1


def test_workers_communicate_with_each_other(executor, futures):
    def total(number):
        return futures.get_comm_workers().allreduce(number)

    assert [future.result() for future in [executor.submit(total, 1), executor.submit(total, 2)]] == [3, 3]
    with pytest.raises(RuntimeError, match="not a worker of a pool"):
        futures.get_comm_workers()


def test_pending_calls_are_cancelled(tmp_path: Path, futures):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    executor = futures.MPIPoolExecutor(1)
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
def test_a_failed_initializer_or_a_dead_worker_breaks_the_pool(futures, function):
    executor = futures.MPIPoolExecutor(1, initializer=function)

    with pytest.raises(BrokenExecutor, match="a worker has failed"):
        executor.submit(abs, 1).result()
    with pytest.raises(BrokenExecutor):
        executor.submit(abs, 1)
    executor.shutdown()


def test_calls_end_with_the_program(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit\n"
        "from ripieno.mpi.futures import MPIPoolExecutor\n"
        "executor, later = MPIPoolExecutor(1), MPIPoolExecutor(1)\n"
        "atexit.register(later.submit, abs, -3)\n"
        "atexit.register(executor.submit, abs, -2)\n"
        "executor.submit(abs, -1).add_done_callback(lambda future: print(future.result()))\n"
    )

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)

    assert done.stdout == "1\n"
    assert done.stderr.count("RuntimeError: the program has ended") == 2


def test_a_module_of_a_program_has_the_world_of_the_program(tmp_path: Path, mpi, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "module_of_ranks.py").write_text(
        "from ripieno import mpi\ndef total(comm):\n    return mpi.COMM_WORLD.allreduce(comm.rank + 1)\n"
    )
    import module_of_ranks

    with rp.launch(workers=2) as job:
        assert job.run(module_of_ranks.total) == [3, 3]


def test_a_world_of_one_rank_is_its_own_worker(futures):
    with futures.MPICommExecutor() as executor:
        assert list(executor.map(operator.neg, [1, 2])) == [-1, -2]
        assert executor.submit(lambda: futures.get_comm_workers().size).result() == 1


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (InputError, {"max_workers": 0}),
        (TypeError, {"initializer": 3}),
        (UnsupportedError, {"python_args": ["-O"]}),
    ],
)
def test_options_are_checked(futures, error, options):
    with pytest.raises(error):
        futures.MPIPoolExecutor(**options)


def test_a_structure_is_padded_as_in_c(mpi):
    record = np.dtype([("id", "i8"), ("kind", "S1")], align=True)
    struct = mpi.Datatype.Create_struct([1, 1], [0, 8], [mpi.INT64_T, mpi.CHAR])
    sent, received = np.array([(1, b"a"), (2, b"b")], record), np.zeros(2, record)
    mpi.COMM_SELF.Sendrecv([sent, 2, struct], 0, recvbuf=[received, 2, struct], source=0)

    assert struct.extent == struct.Create_contiguous(3).extent // 3 == record.itemsize
    assert (received == sent).all()
    # An extent that the program gives is kept.
    assert mpi.Datatype.Create_struct([1, 1], [0, 9], [mpi.INT64_T, mpi.CHAR.Create_resized(0, 1)]).extent == 10


def test_subclasses_and_copies_of_handles_are_independent(mpi):
    handles = {"Datatype": mpi.INT, "Group": mpi.GROUP_EMPTY, "Info": mpi.INFO_ENV, "Op": mpi.SUM}
    for name, constant in handles.items():
        base = getattr(mpi, name)
        cls = type("Own", (base,), {"__new__": lambda cls, given=None, base=base: base.__new__(cls, given)})
        copy = cls(constant)
        assert type(copy) is cls and copy == constant
        copy.free()
        constant.free()
        assert not copy and constant
        with pytest.raises(TypeError):
            base("text")
    for name in ("Request", "Prequest", "Status", "Message", "Win", "Errhandler"):
        with pytest.raises(TypeError):
            getattr(mpi, name)(3)
    assert pickle.loads(pickle.dumps(mpi.ERRORS_RETURN)) is mpi.ERRORS_RETURN


def test_a_subclass_of_a_request_overrides_its_calls(mpi):
    class Own(mpi.Request):
        def test(self):
            return super().Test()

        def wait(self):
            return super().Wait()

    request = Own(mpi.COMM_SELF.Isend(np.zeros(1), mpi.PROC_NULL))
    assert request.test() and request.wait() and mpi.Request.waitall([request]) == [None]


def test_persistent_calls_accept_info_as_their_last_argument(mpi):
    total = np.zeros(2)
    for request in (
        mpi.COMM_SELF.Allreduce_init(np.ones(2), total, mpi.SUM, mpi.INFO_NULL),
        mpi.COMM_SELF.Allreduce_init(np.ones(2), total, info=mpi.INFO_NULL),
        mpi.COMM_SELF.Bcast_init(total, 0, mpi.INFO_NULL),
        mpi.COMM_SELF.Barrier_init(mpi.INFO_NULL),
    ):
        request.Start()
        request.Wait()
    assert (total == 1).all()


def test_a_program_replaces_the_functions_that_pickle(mpi):
    def dumps(obj):
        return b"own" + pickle.dumps(obj)

    def loads(data):
        return ["own", pickle.loads(data[3:])]

    comm = mpi.COMM_SELF
    mpi.pickle.__init__(dumps, loads)
    try:
        assert comm.allgather(1) == [["own", 1]] == comm.alltoall([1])
        assert comm.sendrecv((2, "x"), 0, source=0) == ["own", (2, "x")]
        assert mpi.pickle.loads(mpi.pickle.dumps(3)) == ["own", 3]
    finally:
        mpi.pickle.__init__()
    assert comm.allgather(1) == [1]


def test_memory_that_cannot_be_accessed_is_a_buffer_error(mpi):
    comm, line = mpi.COMM_SELF, np.zeros(6)
    line.flags.writeable = False
    for call in (
        lambda: comm.Recv(line, 0),
        lambda: comm.Isend(np.zeros((3, 2))[:, 0], 0),
        lambda: mpi.Attach_buffer(b"constant"),
    ):
        with pytest.raises(BufferError) as caught:
            call()
        assert isinstance(caught.value, InputError)
    with pytest.raises(InputError, match="displacement 7"):
        comm.Isend([line, 0, 7, mpi.DOUBLE], 0)


@pytest.mark.parametrize("name", ["SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR", "LAND", "REPLACE"])
def test_an_operation_combines_buffers_of_this_process(mpi, name):
    op, left, right = getattr(mpi, name), np.array([6, 3, 0]), np.array([3, 3, 5])
    expected = [op(*pair) for pair in zip(left, right, strict=True)]
    op.Reduce_local(left, right)

    assert list(right) == expected
    with pytest.raises(InputError, match="2 elements"):
        op.Reduce_local(left[:2].copy(), right)


def test_exceptions_have_classes_of_mpi(mpi):
    comm = mpi.COMM_SELF
    for call, number in (
        (lambda: comm.Send([b"x", 3, mpi.INT], 0), mpi.ERR_ARG),
        (lambda: comm.Spawn("python"), mpi.ERR_UNSUPPORTED_OPERATION),
    ):
        with pytest.raises(mpi.Exception) as caught:
            call()
        assert caught.value.Get_error_class() == caught.value.error_code == number
        assert caught.value.Get_error_string() == str(caught.value)
    assert mpi.Get_error_string(mpi.ERR_ARG) == "MPI_ERR_ARG" and mpi.Get_error_class(mpi.ERR_ARG) == mpi.ERR_ARG
    assert RankFailed(1, "host", "cause").Get_error_class() == mpi.ERR_PROC_FAILED
    assert not hasattr(comm, "handle")
    with pytest.raises(UnsupportedError, match="no C library"):
        mpi._addressof(comm)


def test_a_complete_request_has_no_result(mpi):
    request = mpi.COMM_SELF.isend("sent", 0)
    received = mpi.COMM_SELF.irecv(source=0)

    assert request.wait() is None
    assert received.wait() == "sent" and received.wait() is None and received.test() == (True, None)


def test_attributes_are_copied_and_deleted_with_their_communicator(mpi):
    comm, deleted = mpi.COMM_SELF.Dup(), []
    same, changed, none = (
        type(comm).Create_keyval(copy, lambda comm, keyval, value: deleted.append(value))
        for copy in (True, lambda comm, keyval, value: value + 1, lambda comm, keyval, value: NotImplemented)
    )
    for keyval in (same, changed, none):
        comm.Set_attr(keyval, 10)
    duplicate = comm.Dup()
    assert [duplicate.Get_attr(keyval) for keyval in (same, changed, none)] == [10, 11, None]
    assert mpi.Intracomm(duplicate).Get_attr(changed) == 11
    duplicate.Set_attr(same, 20)
    duplicate.Free()
    assert deleted == [10, 11, 20] or deleted == [10, 20, 11]
    comm.Delete_attr(none)
    assert comm.Get_attr(none) is None and comm.Free_keyval(none) == mpi.KEYVAL_INVALID
    with pytest.raises(InputError, match="Create_keyval"):
        comm.Set_attr(none, 1)


def test_docstring_examples_of_executors_run(futures):
    results = doctest.testmod(futures)

    assert results.attempted and not results.failed


def test_an_error_handler_is_kept(mpi):
    comm = mpi.COMM_SELF.Dup()
    assert comm.Get_errhandler() == mpi.ERRORS_RETURN
    comm.Set_errhandler(mpi.ERRORS_ARE_FATAL)
    assert comm.Get_errhandler() == mpi.ERRORS_ARE_FATAL and not mpi.ERRHANDLER_NULL
    with pytest.raises(UnsupportedError, match="Create_errhandler"):
        comm.Create_errhandler(print)


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
