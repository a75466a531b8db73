"""The names of mpi4py on ranks of Ripieno: what its demonstrations do, without them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

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
sent, came = bytearray([rank] * size), bytearray(size)
comm.Alltoall([sent, 1, MPI.BYTE] if size == 1 else sent, came)
assert list(came) == list(range(size))
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
comm.send("nobody", MPI.PROC_NULL)

# Communicators
half = comm.Split(rank % 2, -rank)
assert half.allreduce(1) == len(range(rank % 2, size, 2))
members = comm.Get_group().Incl(range((size + 1) // 2))
if members.Get_rank() != MPI.UNDEFINED:
    assert comm.Create_group(members).size == (size + 1) // 2
assert MPI.Intracomm(comm).allreduce(1) == size
comm.Dup().Free()
comm.Barrier()
print("all well", flush=True)
"""


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_a_script_of_mpi4py_runs_as_it_is(tmp_path: Path, workers):
    done = run(tmp_path, SCRIPT, workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all well") == workers


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
print("all well", flush=True)
"""


@pytest.mark.skipif(find_spec("ultranest") is None, reason="UltraNest is not installed")
def test_ultranest_runs_as_it_is(tmp_path: Path):
    done = run(tmp_path, ULTRANEST, 2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all well") == 2


@pytest.mark.skipif("MPI4PY_DEMOS" not in os.environ, reason="MPI4PY_DEMOS names no folder of mpi4py's demonstrations")
@pytest.mark.parametrize(
    "demo",
    ["helloworld", "compute-pi/cpi-cco", "mandelbrot/mandelbrot", "reductions/test_reductions", "sequential/test_seq"]
    + [f"osu_{name}" for name in ("latency", "bw", "bibw", "bcast", "gather", "scatter", "allgather", "alltoall")],
)
def test_a_demonstration_of_mpi4py_runs_as_it_is(demo):
    script = Path(os.environ["MPI4PY_DEMOS"]) / f"{demo}.py"
    command = [sys.executable, "-m", "ripieno", "run", "-n", "2", "-m", "ripieno.mpi", script]
    done = subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def run(folder: Path, script: str, workers: int) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "ripieno", "run", "-n", str(workers), "-m", "ripieno.mpi", str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)
