"""The mpi4py-compatible names: the programs of mpi4py's demonstrations, rewritten."""

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
        raise AssertionError(f"{call.__name__} accepted what it cannot take")


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


total = np.zeros(2)
comm.Allreduce(ByDlpack(np.ones(2)), total)
assert (total == size).all()

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

# Requests, statuses, and what can be pickled
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
