"""Programs that run in Spark's executors as ranks or as tasks, shipped there by path."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ripieno import Communicator
    from ripieno.launch.job.broadcast import Broadcast

#: Matrix shape of an iteration with little computing and communication.
ITERATION_SHAPE = (256, 256)


def nothing(comm: Communicator) -> None:
    """Do nothing."""


def checksum(data: NDArray[np.uint8]) -> int:
    """Return a checksum of one byte per page and the length, so that all of the data must be present."""
    return int(data[:: 1 << 12].sum(dtype=np.int64)) + len(data)


def received(comm: Communicator, shared: Broadcast) -> int:
    """Read the value that the launching process broadcast."""
    return checksum(shared.value)


def broadcast_by_rank_0(comm: Communicator, size_bytes: int, seed: int) -> tuple[float, int]:
    """Return the seconds of a broadcast of new data on this rank, and its checksum."""
    data = fresh_bytes(size_bytes, seed) if comm.rank == 0 else None
    comm.barrier()
    begin = time.perf_counter()
    data = comm.broadcast(data)
    return time.perf_counter() - begin, checksum(data)


def fresh_bytes(size_bytes: int, seed: int) -> NDArray[np.uint8]:
    """Return incompressible data that is in no cache."""
    return np.frombuffer(np.random.default_rng(seed).bytes(size_bytes), np.uint8)


def summed(comm: Communicator, length: int) -> tuple[float, float]:
    """Return the seconds of an allreduce of a new vector on this rank, and the last element of the sum."""
    vector = part(comm.rank, length)
    comm.barrier()
    begin = time.perf_counter()
    total = comm.allreduce(vector)
    return time.perf_counter() - begin, float(total[-1])


def part(number: int, length: int) -> NDArray[np.float64]:
    """Return the vector of a rank or a partition."""
    return np.full(length, number + 1.0)


def added(total: NDArray[np.float64] | None, vector: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Add into the first argument, as fast as NumPy allows; None is an empty sum."""
    if total is None or vector is None:
        return vector if total is None else total
    total += vector
    return total


def iterated(comm: Communicator, iteration_count: int) -> float:
    """Return the seconds of an iteration on this rank: a product of small matrices and an allreduce of 512 KiB."""
    factor = np.full(ITERATION_SHAPE, 1e-3)
    state = np.full(ITERATION_SHAPE, comm.rank + 1.0)
    comm.barrier()
    begin = time.perf_counter()
    for _ in range(iteration_count):
        state = comm.allreduce(factor @ state)
    return (time.perf_counter() - begin) / iteration_count
