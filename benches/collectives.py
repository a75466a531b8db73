"""Times allreduce from Python, by Ripieno or by mpi4py: same rule, arguments and output as ``collectives.c``.

ripieno run -n P collectives.py ripieno BYTES:CALLS:BATCHES …
mpirun -np P python collectives.py mpi4py BYTES:CALLS:BATCHES …
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np


class Ripieno:
    """Ripieno's communicator."""

    def __init__(self) -> None:
        import ripieno

        comm = ripieno.init()
        self.rank, self.world_size = comm.rank, comm.world_size
        self.barrier = comm.barrier
        self.slowest: Callable[[float], float] = lambda seconds: comm.allreduce(seconds, op="max")
        self.allreduce: Callable[[np.ndarray], object] = lambda vector: comm.allreduce(vector, out=vector)


class Mpi4py:
    """Open MPI's communicator."""

    def __init__(self) -> None:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        self.rank, self.world_size = comm.rank, comm.size
        self.barrier = comm.Barrier
        self.slowest: Callable[[float], float] = lambda seconds: comm.allreduce(seconds, op=MPI.MAX)
        self.allreduce: Callable[[np.ndarray], object] = lambda vector: comm.Allreduce(MPI.IN_PLACE, vector)


def main() -> None:
    """Time the cases of the command line."""
    comm = {"ripieno": Ripieno, "mpi4py": Mpi4py}[sys.argv[1]]()
    for case in sys.argv[2:]:
        size, call_count, batch_count = map(int, case.split(":"))
        for seconds in time_allreduce(comm, size, call_count, batch_count):
            if comm.rank == 0:
                print(f"{size} {seconds:.9f}", flush=True)


def time_allreduce(comm: Ripieno | Mpi4py, size_bytes: int, call_count: int, batch_count: int) -> list[float]:
    """Seconds per call of each batch, after the result was checked."""
    pattern = np.arange(size_bytes // 4, dtype=np.float32) % 7
    vector = pattern + np.float32(comm.rank)
    comm.allreduce(vector)
    if not np.array_equal(vector, pattern * comm.world_size + comm.world_size * (comm.world_size - 1) // 2):
        raise SystemExit(f"rank {comm.rank}: wrong sum of {size_bytes} bytes")
    vector[:] = 0  # sums of zeros stay finite, however many
    batch(comm, vector, -(-call_count // 10))
    return [batch(comm, vector, call_count) for _ in range(batch_count)]


def batch(comm: Ripieno | Mpi4py, vector: np.ndarray, call_count: int) -> float:
    """Seconds per call, the slowest rank's."""
    comm.barrier()
    start = time.perf_counter()
    for _ in range(call_count):
        comm.allreduce(vector)
    return comm.slowest((time.perf_counter() - start) / call_count)


if __name__ == "__main__":
    main()
