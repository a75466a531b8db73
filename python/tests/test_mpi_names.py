"""The names of mpi4py in `ripieno.mpi`, used by programs like the demonstrations of mpi4py."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from varied import exhaustively

SCRIPT = """
from mpi4py import MPI
import numpy as np

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
assert MPI.COMM_SELF.size == 1

# Objects
assert comm.bcast([rank] if rank == 0 else None) == [0]
assert comm.allgather((rank, "x")) == [(each, "x") for each in range(size)]
assert comm.gather(rank, root=size - 1) == (list(range(size)) if rank == size - 1 else None)
assert comm.scatter([str(each) for each in range(size)] if rank == 0 else None) == str(rank)
assert comm.alltoall([rank * 10 + each for each in range(size)]) == [each * 10 + rank for each in range(size)]
assert comm.allreduce(rank) == sum(range(size))
assert comm.allreduce((rank % 2, rank), op=MPI.MINLOC) == (0, 0)
assert comm.scan(1) == rank + 1
assert comm.exscan(1) == (rank or None)

# Buffers
array = np.full(3, rank, "d")
comm.Bcast([array, MPI.DOUBLE], root=0)
assert (array == 0).all()
total = np.empty(3)
comm.Allreduce(np.full(3, rank + 1.0), total, op=MPI.SUM)
assert (total == sum(range(size + 1))).all()
comm.Allreduce(MPI.IN_PLACE, total, op=MPI.MAX)
pairs = np.array([rank % 2, rank], "i")
best = np.empty(2, "i")
comm.Allreduce(pairs, best, op=MPI.MAXLOC)
assert tuple(best) == ((1, 1) if size > 1 else (0, 0))
shifted = MPI.Op.Create(lambda inbuf, inoutbuf, datatype: np.copyto(
    np.frombuffer(inoutbuf, "d"), 2 * np.frombuffer(inbuf, "d") + np.frombuffer(inoutbuf, "d")), commute=False)
folded = np.empty(1)
comm.Allreduce(np.ones(1), folded, op=shifted)
assert folded[0] == 2**size - 1, folded
counts = [each + 1 for each in range(size)]
gathered = np.zeros(sum(counts), "i") if rank == 0 else None
comm.Gatherv(np.full(rank + 1, rank, "i"), [gathered, (counts, None), MPI.INT] if rank == 0 else None, root=0)
if rank == 0:
    assert list(gathered) == [each for each in range(size) for _ in range(each + 1)]
wide = np.zeros(3 * size, "i")
comm.Gather([np.full(2, rank, "i"), 2, MPI.INT], [wide, 2, MPI.INT] if rank == 0 else None, root=0)
if rank == 0:
    assert list(wide) == [each for each in range(size) for _ in range(2)] + [0] * size
all_ = np.empty(size, "i")
comm.Allgather(np.array([rank], "i"), all_)
assert list(all_) == list(range(size))
sent, received = bytearray([rank] * size), bytearray(size)
comm.Alltoall([sent, 1, MPI.BYTE] if size == 1 else sent, received)
assert list(received) == list(range(size))
own = np.empty(1, "i")
comm.Scatter(np.arange(size, dtype="i") if rank == 0 else None, own, root=0)
assert own[0] == rank

# Messages
right, left = (rank + 1) % size, (rank - 1) % size
status = MPI.Status()
assert comm.sendrecv({"of": rank}, right, sendtag=5, source=left, recvtag=MPI.ANY_TAG, status=status) == {"of": left}
assert (status.Get_source(), status.Get_tag()) == (left, 5)
big, into = np.full(300_000, rank, "i"), np.empty(300_000, "i")
requests = [comm.Irecv(into, source=left, tag=1), comm.Isend(big, right, tag=1)]
assert comm.allreduce(1) == size
MPI.Request.Waitall(requests)
assert (into == left).all()
if rank == 0:
    seen = set()
    for _ in range(size - 1):
        assert comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        seen.add((status.source, status.tag, comm.recv(source=status.source, tag=status.tag)))
    assert seen == {(each, each, each) for each in range(1, size)}
    assert not comm.iprobe()
else:
    comm.send(rank, 0, tag=rank)
comm.send("dropped", MPI.PROC_NULL)

# Communicators
half = comm.Split(rank % 2, -rank)
assert half.allreduce(1) == len(range(rank % 2, size, 2))
members = comm.Get_group().Incl(range((size + 1) // 2))
if members.Get_rank() != MPI.UNDEFINED:
    assert comm.Create_group(members).size == (size + 1) // 2
assert MPI.Intracomm(comm).allreduce(1) == size
comm.Dup().Free()
comm.Barrier()
print("passed", flush=True)
"""


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2, 5)])
def test_a_script_of_mpi4py_runs_unmodified(tmp_path: Path, workers):
    done = run(tmp_path, SCRIPT, workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == workers


CHANGED = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
for count in (3, 100, 1000, 1000000):
    sent = [np.arange(count), {"a": np.arange(count)}]
    if comm.rank == 0:
        requests = [comm.isend(each, 1, tag=4) for each in sent]
        sent[0][:], sent[1]["a"][:] = -1, -1
        comm.barrier()
        MPI.Request.waitall(requests)
    else:
        comm.barrier()
        assert np.array_equal(comm.recv(source=0, tag=4), sent[0])
        assert np.array_equal(comm.recv(source=0, tag=4)["a"], sent[1]["a"])
"""


def test_objects_may_change_after_isend(tmp_path: Path):
    done = run(tmp_path, CHANGED, 2)
    assert done.returncode == 0, done.stderr


def test_an_abort_ends_all(tmp_path: Path):
    done = run(tmp_path, "from mpi4py import MPI\nc = MPI.COMM_WORLD\nc.Abort(3) if c.rank else c.barrier()\n", 2)
    assert done.returncode != 0
    assert "Abort(3)" in done.stderr


ULTRANEST = """
import numpy as np
import ultranest
sampler = ultranest.ReactiveNestedSampler(
    ["x", "y"], lambda p: -0.5 * np.sum(((p - 0.5) / 0.1) ** 2, axis=1), lambda u: u, vectorized=True)
assert sampler.mpi_size == 2, sampler.mpi_size
result = sampler.run(min_num_live_points=100, show_status=False, viz_callback=False)
assert abs(result["logz"] - np.log(2 * np.pi * 0.01)) < 0.5, result["logz"]
print("passed", flush=True)
"""


@pytest.mark.skipif(find_spec("ultranest") is None, reason="UltraNest is not installed")
def test_ultranest_runs_unmodified(tmp_path: Path):
    done = run(tmp_path, ULTRANEST, 2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 2


@pytest.mark.skipif("MPI4PY_DEMOS" not in os.environ, reason="MPI4PY_DEMOS names no folder of mpi4py's demonstrations")
@pytest.mark.parametrize(
    "demo",
    ["helloworld", "compute-pi/cpi-cco", "mandelbrot/mandelbrot", "reductions/test_reductions", "sequential/test_seq"]
    + [f"osu_{name}" for name in ("latency", "bw", "bibw", "bcast", "gather", "scatter", "allgather", "alltoall")],
)
def test_a_demonstration_of_mpi4py_runs_unmodified(demo):
    script = Path(os.environ["MPI4PY_DEMOS"]) / f"{demo}.py"
    command = [sys.executable, "-m", "ripieno", "run", "-n", "2", "-m", "ripieno.mpi", script]
    done = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_a_script_that_imports_the_installed_mpi4py_gets_a_warning(tmp_path: Path):
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("")
    (tmp_path / "mpi4py" / "MPI.py").write_text("")
    path = tmp_path / "script.py"
    for line, is_warned in (("", True), ("import ripieno as rp; rp.init()", False)):
        path.write_text(f"from mpi4py import MPI\n{line}\n")
        command = [sys.executable, "-m", "ripieno", "run", "-n", "2", "script.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("ripieno run -n 2 -m ripieno.mpi script.py") == int(is_warned), done.stderr


def run(folder: Path, script: str, workers: int) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "ripieno", "run", "-n", str(workers), "-m", "ripieno.mpi", str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)


BUFFERS = """
import pickle
from array import array

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
expected_sum = sum(range(1, size + 1))


def refused(message, call, *args, **options):
    try:
        call(*args, **options)
    except MPI.Exception as error:
        assert isinstance(error, ValueError) and message in str(error), error
    else:
        raise AssertionError(f"{call.__name__} accepted invalid arguments")


# Byte order, complex numbers, the order of the axes
for dtype in (">f8", ">i4", "c8", "c16", ">c16", "f4"):
    mine, total = np.full(3, rank + 1, dtype), np.zeros(3, dtype)
    comm.Allreduce(mine, total)
    assert (total == expected_sum).all(), (dtype, total)
    comm.Allreduce(mine, total, op=MPI.PROD)
    assert (total == np.prod(np.arange(1, size + 1))).all(), (dtype, total)
    swapped = np.zeros(3, np.dtype(dtype).newbyteorder())
    comm.Allreduce(mine, swapped)
    assert (swapped == expected_sum).all(), (dtype, swapped)
    for call in (comm.Bcast, lambda buffer: comm.Bcast(buffer, root=size - 1)):
        received = mine.copy() if rank % 2 else mine.astype(swapped.dtype)
        call(received)
        assert len(set(comm.allgather(received[0].item()))) == 1, (dtype, received)
    gathered = np.zeros(3 * size, dtype)
    comm.Allgather(mine, gathered)
    assert list(gathered[::3]) == list(range(1, size + 1))
    comm.Reduce(mine, swapped if rank == 0 else None)
    assert rank or (swapped == expected_sum).all()
matrix = np.asfortranarray(np.arange(6.0).reshape(2, 3) * (rank == 0))
comm.Bcast(matrix)
assert matrix[1, 2] == 5 and matrix.flags.f_contiguous

# Structured types, strings, booleans
people = np.zeros(2, [("name", "U5"), ("age", "i2")])
if rank == 0:
    people[:] = [("Ada", 36), ("Emmy", 53)]
comm.Bcast(people)
assert people[1]["name"] == "Emmy"
words = np.array(["a", "bcd"] if rank == 0 else ["", "..."], "S3")
comm.Bcast(words)
assert list(words) == [b"a", b"bcd"]
truths = np.array([rank == 0, True])
comm.Allreduce(MPI.IN_PLACE, truths, op=MPI.LAND)
assert list(truths) == [size == 1, True]
counts = np.array([rank, 0])
comm.Allreduce(None, counts, op=MPI.LOR)
assert list(counts) == [size > 1, 0]
best = np.array([(1.5, rank)], MPI.DOUBLE_INT.dtype)
comm.Allreduce(MPI.IN_PLACE, best, op=MPI.MINLOC)
assert best[0]["place"] == 0

# None stands for IN_PLACE
total = np.full(2, rank + 1.0)
comm.Allreduce(None, total)
assert (total == expected_sum).all()
gathered = np.where(np.arange(size) == rank, rank, -1)
comm.Allgather(None, gathered)
assert list(gathered) == list(range(size))
rows = np.full(size, rank)
comm.Alltoall(None, rows)
assert list(rows) == list(range(size))
sums = np.full(2 * size, rank + 1.0)
comm.Reduce_scatter_block(None, sums)
assert (sums[:2] == expected_sum).all()

pairs = np.array([(1.5 + rank, rank)] * size).ravel()
first = np.zeros(2)
comm.Reduce_scatter_block(pairs, first, op=MPI.MINLOC)
assert list(first) == [1.5, 0]
try:
    comm.Reduce_scatter_block(np.zeros(2 * size), np.zeros(2)[:1], op=MPI.MAXLOC)
except ValueError:
    pass
else:
    raise AssertionError("a pair is not divided")

# Unequal parts, displacements
mine = np.zeros(rank + 1)
comm.Reduce_scatter(np.ones(size * (size + 1) // 2), mine, None)
assert (mine == size).all()
padded = np.zeros(6, "i")
comm.Allreduce([np.arange(4, dtype="i"), (2, 1)], [padded, (2, 3), MPI.INT])
assert list(padded) == [0, 0, 0, size, 2 * size, 0]
spread = np.full(3 * size, -1)
comm.Allgatherv(np.array([rank]), [spread, ([1] * size, [3 * each for each in range(size)])])
assert list(spread) == [each // 3 if each % 3 == 0 else -1 for each in range(3 * size)]
if size > 1 and rank < 2:
    into = np.zeros(5)
    comm.Sendrecv([np.arange(4.0), (2, 2)], 1 - rank, recvbuf=[into, (3, 1)], source=1 - rank)
    assert list(into) == [0, 2, 3, 0, 0]
sent, received = array("d", [rank] * size), array("d", [0] * size)
comm.Alltoall(sent, received)
assert list(received) == list(range(size))


class ByDlpack:
    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class ByCuda:
    def __init__(self, values, **changes):
        self.values = values
        self.__cuda_array_interface__ = {**values.__array_interface__, **changes}


for kind in (ByDlpack, ByCuda):
    total = np.zeros(2)
    comm.Allreduce(kind(np.ones(2)), total)
    assert (total == size).all()
    comm.Allreduce(total, kind(total))
    assert (total == size**2).all()
refused("memory of a device", comm.Allreduce, ByCuda(np.ones(2), data=(2**46, False)), np.zeros(2))
for dtype in ("g", "G"):
    total = np.zeros(2, dtype)
    comm.Allreduce(np.full(2, rank + 1, dtype), total)
    assert (total == expected_sum).all()
lent = MPI.Alloc_mem(8)
lent[:] = np.array([1.5])
assert memoryview(lent).cast("d")[0] == 1.5 and len(lent) == lent.nbytes == 8

# Buffers that do not fit are refused, and nothing is sent
refused("float64 to send and float32 to receive", comm.Allreduce, np.ones(2), np.zeros(2, "f4"))
refused("int32 to send and float64 to receive", comm.Allreduce, np.ones(2, "i4"), np.zeros(2))
refused("4 elements to send and 6 to receive", comm.Allreduce, np.ones(4), np.zeros(6))
refused("4 elements to send and 6 to receive", comm.Scan, np.ones(4), np.zeros(6))
refused("some of the 4", comm.Allreduce, [np.ones(4), (2, 3)], np.zeros(2))
refused("written to", comm.Allreduce, np.ones(2), np.broadcast_to(np.zeros(1), 1))
refused("contiguous", comm.Allreduce, np.ones(2), np.zeros(4)[::2])
refused("Python objects", comm.Bcast, np.array([None]))
refused("expected an array or another buffer", comm.Bcast, 3)
if size > 1:
    refused(f"multiple of {size} ranks", comm.Allgather, np.ones(1), np.zeros(size + 1))
wrong = np.zeros(size, "f4")
refused("elements of float64 received: expected float32", comm.Allgather, np.ones(1), wrong)

# Requests, statuses, and objects that can be pickled
request = comm.isend({"rank": rank}, dest=rank)
assert request
request.wait()
assert not request and request == MPI.REQUEST_NULL
status = MPI.Status()
assert comm.recv(source=rank, status=status) == {"rank": rank}
assert status.Get_count(MPI.BYTE) > 4 and status.Get_count(MPI.DOUBLE) in (1, 2, 3, 4, MPI.UNDEFINED)
for kept in (MPI.SUM, MPI.MAXLOC, MPI.COMM_WORLD, MPI.COMM_SELF):
    assert pickle.loads(pickle.dumps(kept)) is kept or pickle.loads(pickle.dumps(kept)) == kept
assert pickle.loads(pickle.dumps(MPI.DOUBLE)) == MPI.DOUBLE
print("passed", flush=True)
"""


def test_buffers_are_checked_and_converted(tmp_path: Path):
    done = run(tmp_path, BUFFERS, 3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 3


OPERATIONS = """
from functools import reduce

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size


def multiply(left, into, datatype):
    assert datatype == square
    target = np.frombuffer(into, "i8").reshape(-1, 2, 2)
    target[:] = np.frombuffer(left, "i8").reshape(-1, 2, 2) @ target


def products(matrices):
    return reduce(np.matmul, matrices)


# Elements of a derived type are not divided, and stay in the order of the ranks
square = MPI.INT64_T.Create_contiguous(4).Commit()
operation = MPI.Op.Create(multiply, commute=False)
for count in (1, 2, 7, 1000):
    every = [np.tile([[1, each + 1], [each % 2, 1]], (count * size, 1, 1)) for each in range(size)]
    mine, whole = every[rank], products(every)
    part = whole[count * rank : count * (rank + 1)]
    total, own = np.zeros_like(mine), np.zeros_like(part)
    comm.Allreduce([mine, square], [total, square], operation)
    assert (total == whole).all()
    comm.Reduce([mine, square], [total, square] if rank == 0 else None, operation)
    comm.Scan([mine, square], [total, square], operation)
    assert (total == products(every[: rank + 1])).all()
    comm.Exscan([mine, square], [total, square], operation)
    assert rank == 0 or (total == products(every[:rank])).all()
    comm.Reduce_scatter_block([mine, square], [own, square], operation)
    assert (own == part).all()
    comm.Reduce_scatter([mine, square], [own, square], [count] * size, operation)
    assert (own == part).all()
    total = mine.copy()
    comm.Iallreduce(MPI.IN_PLACE, [total, square], operation).Wait()
    assert (total == whole).all()
    after = mine.copy()
    operation.Reduce_local([every[0], square], [after, square])
    assert (after == products([every[0], mine])).all()


def add_evens(left, into, datatype):
    assert datatype == spread and len(left) % datatype.extent == 0
    np.frombuffer(into, "i4")[::2] += np.frombuffer(left, "i4")[::2]
    np.frombuffer(into, "i4")[1::2] = -1


# The function gets elements at their extent; memory between the values of a buffer is unchanged
spread = MPI.INT.Create_vector(3, 1, 2).Create_resized(0, 24).Commit()
total = np.full(12, 7, "i4")
comm.Allreduce([np.full(12, rank, "i4"), spread], [total, spread], MPI.Op.Create(add_evens))
assert list(total) == [sum(range(size)), 7] * 6

# A structured type of NumPy is one element
pairs, total = np.array([(rank, 0.5)] * 3, "i4,f8"), np.zeros(3, "i4,f8")
by_field = MPI.Op.Create(lambda left, into, datatype: np.add(
    np.frombuffer(left, datatype.dtype)["f0"], np.frombuffer(into, datatype.dtype)["f0"],
    out=np.frombuffer(into, datatype.dtype)["f0"]))
comm.Allreduce(pairs, total, by_field)
assert (total["f0"] == sum(range(size))).all() and (total["f1"] == 0.5).all()

# Codes with a size, and big-endian memory of a derived type
words = np.zeros(2 * size, "S3")
comm.Allgather([np.array([b"abc", b"xyz"]), 2, "S3"], [words, 2, "S3"])
assert list(words) == [b"abc", b"xyz"] * size
assert MPI.Datatype.fromcode("U2").Get_size() == 8
swapped, total = np.full(6, rank + 1, ">f8"), np.zeros(6, ">f8")
evens = MPI.DOUBLE.Create_vector(3, 1, 2).Commit()
comm.Allreduce([swapped, 1, evens], [total, 1, evens])
assert list(total) == [sum(range(size + 1)), 0] * 3
values = np.zeros(3 * size)
comm.Allgather([swapped, 1, evens], values)
assert list(values) == [each + 1 for each in range(size) for _ in range(3)]

# Comparisons are colors
assert comm.Split(rank == 0, -rank).size == (1 if rank == 0 else size - 1)
assert comm.Split(np.bool_(rank == 0), np.int8(0)).size == (1 if rank == 0 else size - 1)

# Comparisons are ranks, roots and tags
assert comm.bcast(rank, root=True) == 1 and comm.reduce(1, root=True) == (size if rank == 1 else None)
values = np.array([rank])
comm.Bcast(values, root=True)
assert values[0] == 1
if rank < 2:
    status = MPI.Status()
    assert comm.sendrecv(rank, dest=not rank, sendtag=True, source=rank == 0, recvtag=True, status=status) == 1 - rank
    assert (status.source, str(status.tag)) == (1 - rank, "1")
    comm.send("own", dest=bool(rank), tag=True)
    assert comm.recv(source=bool(rank), status=status) == "own" and str(status.tag) == "1"
print("passed", flush=True)
"""


def test_operations_of_a_program_combine_whole_elements(tmp_path: Path):
    done = run(tmp_path, OPERATIONS, 3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 3


SYNCHRONOUS = """
import random

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size
status = MPI.Status()

# A synchronous send completes after its receive has begun, not before
requests = [comm.Issend(np.arange(3.0), right, 4), comm.issend({"from": rank}, right, 5)]
assert comm.allreduce(not any(request.Test() for request in requests), op=MPI.LAND)
assert comm.Probe(left, 4, status) and status.Get_count(MPI.DOUBLE) == 3
found = comm.Mprobe(left, 5)
assert comm.allreduce(not any(request.Test() for request in requests), op=MPI.LAND)
values = np.zeros(3)
comm.Recv(values, left, 4)
assert list(values) == [0, 1, 2]
requests[0].Wait()
assert comm.allreduce(not requests[1].Test(), op=MPI.LAND)
assert found.recv() == {"from": left}
requests[1].Wait()

# Receives of any source and tag do not see receipts
posted = comm.irecv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)
comm.ssend("blocking", right, 6)
assert posted.wait() == "blocking"
into = np.zeros(500_000)
posted = comm.Irecv(into, left, 7)
persistent = comm.Ssend_init(np.full(500_000, rank + 1.0), right, 7)
persistent.Start()
persistent.Wait()
posted.Wait(status)
assert (into == left + 1).all() and (status.source, status.tag) == (left, 7)
comm.Barrier()
assert not comm.Iprobe()
comm.Barrier()

# An exchange whose receivers do not know their senders
for step in range(30):
    chosen = random.Random(step * size + rank)
    targets = [each for each in range(size) if each != rank and chosen.random() < 0.6]
    pending, received, barrier = [comm.Issend(np.array([rank]), each, step) for each in targets], [], None
    while barrier is None or not barrier.Test():
        if comm.Iprobe(MPI.ANY_SOURCE, step, status):
            sender = np.zeros(1, int)
            comm.Recv(sender, status.source, step)
            received.append(int(sender[0]))
        if barrier is None and MPI.Request.Testall(pending):
            barrier = comm.Ibarrier()
    every = comm.allgather(targets)
    assert sorted(received) == [each for each in range(size) if rank in every[each]], (step, received)
print("passed", flush=True)
"""


def test_synchronous_sends_complete_when_they_are_received(tmp_path: Path):
    done = run(tmp_path, SYNCHRONOUS, 3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 3


DATATYPES = """

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size
matrix = np.arange(20.0).reshape(4, 5)


def moved(datatype, expected, memory=matrix):
    \"\"\"Send an element around the ring, into memory of the same layout and into values without gaps.\"\"\"
    datatype.Commit()
    values, into = np.zeros(len(expected), memory.dtype), np.zeros_like(memory)
    comm.Sendrecv([memory, 1, datatype], right, recvbuf=values, source=left)
    assert list(values) == list(expected), (datatype, values)
    comm.Sendrecv([memory, 1, datatype], right, recvbuf=[into, 1, datatype], source=left)
    assert sorted(into[into != 0]) == sorted(each for each in expected if each), into
    comm.Bcast([into, 1, datatype])
    total = np.zeros_like(memory)
    comm.Allreduce([memory, 1, datatype], [total, 1, datatype])
    assert (total == size * into).all(), total
    packed = np.zeros(datatype.Pack_size(1, comm), np.uint8)
    # The memory of an element, and a rest unless it would be a second element.
    whole = memory.reshape(-1)[: max(1, datatype.extent // memory.itemsize) + (datatype.extent > memory.itemsize)]
    if 0 < datatype.true_ub <= datatype.extent <= whole.nbytes < 2 * datatype.extent and datatype.lb == 0:
        assert datatype.Pack(whole, packed, 0, comm) == datatype.size
        assert list(packed.view(memory.dtype)) == list(expected)
        target = np.zeros_like(whole)
        assert datatype.Unpack(packed, 0, target, comm) == datatype.size
        assert (target == into.reshape(-1)[: target.size]).all()
    for part in datatype.Get_contents()[3]:
        part.free()
    base, combiner, arguments = datatype.decode()
    assert base.size > 0
    datatype.Free()
    assert datatype == MPI.DATATYPE_NULL
    return combiner, arguments


column = matrix[:, 1]
assert moved(MPI.DOUBLE.Create_contiguous(3), matrix[0, :3])[0] == "CONTIGUOUS"
assert moved(MPI.DOUBLE.Create_vector(4, 1, 5), matrix[:, 0]) == (
    "VECTOR", {"count": 4, "blocklength": 1, "stride": 5})
moved(MPI.DOUBLE.Create_hvector(2, 2, 80), [0, 1, 10, 11])
moved(MPI.DOUBLE.Create_indexed([2, 1], [5, 1]), [5, 6, 1])
moved(MPI.DOUBLE.Create_indexed_block(2, [3, 0]), [3, 4, 0, 1])
moved(MPI.DOUBLE.Create_hindexed([1, 2], [8, 24]), [1, 3, 4])
moved(MPI.DOUBLE.Create_subarray([4, 5], [2, 3], [1, 2]), matrix[1:3, 2:].reshape(-1))
moved(MPI.DOUBLE.Create_subarray([5, 4], [3, 2], [2, 1], MPI.ORDER_F), matrix[1:3, 2:].reshape(-1))
moved(MPI.DOUBLE.Create_vector(2, 1, 2).Create_contiguous(2), [0, 2, 3, 5])
moved(MPI.DOUBLE.Create_indexed([1, 1], [0, 2]).Create_vector(2, 1, 2), [0, 2, 6, 8])

# Columns of a matrix: a vector with the extent of one element
columns = MPI.DOUBLE.Create_vector(4, 1, 5).Create_resized(0, 8).Commit()
assert (columns.size, columns.extent, columns.true_extent) == (32, 8, 128)
transposed = np.zeros((5, 4))
comm.Sendrecv([matrix, 5, columns], right, recvbuf=transposed, source=left)
assert (transposed == matrix.T).all()
gathered = np.zeros((4, size))
parts = MPI.DOUBLE.Create_vector(4, 1, size).Create_resized(0, 8).Commit()
comm.Allgather(np.full(4, float(rank)), [gathered, 1, parts])
assert (gathered == np.arange(size)).all()
spread = np.zeros(4)
comm.Scatter([gathered, 1, parts] if rank == 0 else None, spread)
assert (spread == rank).all()

# Structures of different types, as in a structured array
record = np.dtype([("id", "i4"), ("position", "f8", 2), ("kind", "S3")], align=True)
offsets = [record.fields[name][1] for name in record.names]
struct = MPI.Datatype.Create_struct([1, 2, 3], offsets, [MPI.INT, MPI.DOUBLE, MPI.CHAR])
struct = struct.Create_resized(0, record.itemsize).Commit()
people = np.array([(rank, (0.5, rank), b"abc"), (7, (1, 2), b"xyz")], record)
received = np.zeros(2, record)
comm.Sendrecv([people, struct], right, recvbuf=[received, struct], source=left)
assert received[0]["id"] == left and tuple(received[0]["position"]) == (0.5, left) and received[1]["kind"] == b"xyz"

# Alltoallw: another type for each rank, displacements in bytes
halves = MPI.INT.Create_vector(2, 1, 2)
sent, arrived = np.arange(4 * size, dtype="i"), np.zeros(2 * size, "i")
comm.Alltoallw(
    [sent, ([1] * size, [16 * each for each in range(size)]), [halves] * size],
    [arrived, ([2] * size, [8 * each for each in range(size)]), [MPI.INT] * size])
assert list(arrived) == [4 * rank, 4 * rank + 2] * size

for call in (
    lambda: comm.Send([matrix, 3, MPI.DOUBLE.Create_vector(4, 1, 5)], right),
    lambda: comm.Send([matrix, MPI.DOUBLE.Create_resized(0, 0)], right),
    lambda: MPI.DOUBLE.Create_subarray([3], [3], [1]),
    lambda: MPI.DOUBLE.Create_contiguous(-1),
    lambda: MPI.DATATYPE_NULL.Get_size(),
):
    try:
        call()
    except MPI.Exception as error:
        assert isinstance(error, ValueError), error
    else:
        raise AssertionError("accepted invalid arguments")
comm.Barrier()
print("passed", flush=True)
"""

GROUPS_AND_REQUESTS = """
import pickle

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size

# Groups
world = comm.Get_group()
evens = world.Range_incl([(0, size - 1, 2)])
odds = world.Difference(evens)
assert list(evens.ranks) == list(range(0, size, 2)) and list(odds.ranks) == list(range(1, size, 2))
assert MPI.Group.Compare(odds.Union(evens), world) == MPI.SIMILAR
assert MPI.Group.Compare(world.Excl(list(range(1, size, 2))), evens) == MPI.IDENT
assert evens.Intersection(odds) == MPI.GROUP_EMPTY
assert evens.Translate_ranks([0, MPI.PROC_NULL], world) == [0, MPI.PROC_NULL]
assert odds.Translate_ranks(None, evens) == [MPI.UNDEFINED] * odds.size
part = comm.Create(evens)
assert bool(part) == (rank % 2 == 0) and (not part) == (part == MPI.COMM_NULL)
world.Free()
assert world == MPI.GROUP_NULL
assert comm.Compare(comm.Dup()) == MPI.CONGRUENT

# Grids: each row has 1 rank, axis 0 is periodic
assert MPI.Compute_dims(72, 2) == [9, 8] and MPI.Compute_dims(12, [0, 2]) == [6, 2]
grid = comm.Create_cart([size, 1], periods=[True, False])
assert grid.Get_coords(rank) == [rank, 0] and grid.Get_cart_rank([rank + size, 0]) == rank
assert MPI.Cartcomm(grid) == grid and grid.Dup().dims == [size, 1]
try:
    MPI.Graphcomm(grid)
except TypeError as error:
    assert "topology" in str(error)
else:
    raise AssertionError("a grid was accepted as a graph")
assert grid.Shift(0, 1) == (left, right) and grid.Shift(1, 1) == (MPI.PROC_NULL, MPI.PROC_NULL)
assert grid.Sub([True, False]).dims == [size] and grid.Sub([False, True]).size == 1
assert grid.neighbor_alltoall([(rank, place) for place in "abcd"]) == [(left, "b"), (right, "a"), None, None]
around = np.full(4, -1)
grid.Neighbor_allgather(np.array([rank]), around)
assert list(around) == [left, right, -1, -1]
ring = comm.Create_dist_graph_adjacent([left], [right])
assert ring.neighbor_allgather(rank) == [left]

# Non-blocking and persistent collectives, which complete in any order
sums, ranks = np.zeros(2), np.zeros(size)
pending = [comm.Iallreduce(np.ones(2), sums), comm.Iallgather(np.full(1, float(rank)), ranks), comm.Ibarrier()]
MPI.Request.Waitall(pending[::-1])
assert (sums == size).all() and list(ranks) == list(range(size)) and not any(pending)
value, total = np.zeros(1), np.zeros(1)
again = comm.Allreduce_init(value, total)
for step in range(3):
    value[0] = step
    again.Start()
    again.Wait()
    assert total[0] == step * size and again != MPI.REQUEST_NULL
again.Free()
assert again == MPI.REQUEST_NULL

# Messages: receives take messages in the order in which they start, and some complete before others
first, second, last = np.zeros(1), np.zeros(1), np.zeros(1)
receives = [comm.Irecv(each, left, 1) for each in (first, second)] + [comm.Irecv(last, left, 2)]
for number, tag in ((1.0, 1), (2.0, 1)):
    comm.Send(np.array([number]), right, tag)
done = []
while len(done) < 2:
    done += MPI.Request.Waitsome(receives)
assert sorted(done) == [0, 1] and (first[0], second[0]) == (1, 2)
comm.Barrier()
assert MPI.Request.Testany(receives) == (MPI.UNDEFINED, False) and receives[2]
comm.Barrier()
comm.Send(np.array([3.0]), right, 2)
assert MPI.Request.Waitany(receives) == 2 and last[0] == 3
assert MPI.Request.Waitsome(receives) is None and MPI.Request.Testall(receives)
statuses = [MPI.Status(), MPI.Status()]
receives = [comm.Irecv(first, left, 5), comm.Irecv(second, left, 6)]
comm.Send(np.array([4.0]), right, 5)
while MPI.Request.Get_status_some(receives, statuses) != [0]:
    pass
assert not MPI.Request.Testall(receives, statuses) and receives[0] and statuses[0].tag == 5
comm.Barrier()
comm.Send(np.array([5.0]), right, 6)
while not MPI.Request.Testall(receives, statuses):
    pass
assert [status.tag for status in statuses] == [5, 6] and not any(receives)
sender, receiver = comm.Send_init(first, right), comm.Recv_init(second, left)
for step in range(2):
    first[0] = step
    MPI.Prequest.Startall([receiver, sender])
    MPI.Request.Waitall([receiver, sender])
    assert second[0] == step
status = MPI.Status()
cancelled = comm.Irecv(np.zeros(1), left, 9)
cancelled.Cancel()
cancelled.Wait(status)
assert status.Is_cancelled()
own = comm.Irecv(second, rank, 5)
synchronous = comm.Issend(np.array([5.0]), rank, 5)
MPI.Request.Waitall([synchronous, own])
assert second[0] == 5
comm.send({"rank": rank}, right, tag=4)
message = comm.mprobe(left, 4)
assert not comm.iprobe(left, 4) and message.recv() == {"rank": left} and message == MPI.MESSAGE_NULL

# A window on memory that the ranks of a node share
window = MPI.Win.Allocate_shared(8 * (2 if rank == 0 else 0), 8, comm=comm)
memory, unit = window.Shared_query(0)
shared = np.ndarray(buffer=memory, dtype="d", shape=2)
window.Fence()
if rank == size - 1:
    shared[:] = [1.5, 2.5]
window.Fence()
assert unit == 8 and list(shared) == [1.5, 2.5] and window.tomemory().nbytes == (16 if rank == 0 else 0)
window.Free()
assert window == MPI.WIN_NULL

# Errors of unsupported calls name an alternative
for call, alternative in (
    (lambda: MPI.Win.Create(bytearray(8)), "Win.Allocate_shared"),
    (lambda: MPI.File.Open(comm, "x"), "one file per rank"),
    (lambda: comm.Spawn("python"), "ripieno run -n"),
    (lambda: comm.Create_intercomm(0, comm, 1), "Split"),
    (lambda: MPI.INT.Create_darray(1, 0, [1], [0], [0], [1]), "Create_subarray"),
):
    try:
        call()
    except NotImplementedError as error:
        assert isinstance(error, MPI.Exception) and alternative in str(error), error
    else:
        raise AssertionError("an unsupported call raised no error")
for kept in (MPI.COMM_NULL, MPI.GROUP_EMPTY, MPI.INFO_NULL, MPI.WIN_NULL, MPI.DATATYPE_NULL, MPI.REQUEST_NULL):
    assert pickle.loads(pickle.dumps(kept)) == kept
comm.Barrier()
print("passed", flush=True)
"""


@pytest.mark.parametrize("script", [DATATYPES, GROUPS_AND_REQUESTS], ids=["datatypes", "groups_and_requests"])
def test_names_of_mpi_behave_as_mpi_defines(tmp_path: Path, script):
    done = run(tmp_path, script, 3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 3
