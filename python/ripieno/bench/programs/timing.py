"""Provide the shared rules of all rank programs, independent of the transport: vectors, checks, timing loops.

It needs NumPy only: the programs of peers import it under interpreters without this package. The MPI program
``collectives.c`` follows the same rules.

Vectors are float32, combined by sum, and the root is rank 0. A program prints a line "CASE SECONDS" per timed call or
batch. The time is the slowest rank's, after a barrier. From `SEPARATE_BYTES` on each call is timed separately; smaller
calls are timed in batches. Results are checked before the timing starts. For an algorithm that does not support the
world size, a program prints "CASE refused: REASON".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

#: Prefix of a program's reason for refusing a case with an unsupported algorithm.
REFUSED = "refused: "

COLLECTIVES = (
    "broadcast",
    "reduce",
    "allreduce",
    "allgather",
    "reduce-scatter",
    "gather",
    "scatter",
    "alltoall",
    "barrier",
)
ELEMENT_BYTES = 4
#: Collectives with vectors of one block per rank.
BLOCK_COLLECTIVES = ("allgather", "gather", "scatter")
#: Collectives without waits of ranks for each other: small calls, timed in batches, overlap.
ROOTED = ("broadcast", "reduce", "gather", "scatter")
SEPARATE_BYTES = 64 << 10
BATCH_COUNT = 5
BATCH_CALL_COUNT_MAX, SEPARATE_CALL_COUNT_MAX = 5000, 50


class TimedRank(Protocol):
    """One rank's interface to a transport."""

    rank: int
    world_size: int

    def call(self, collective: str, vectors: Vectors, algorithm: str | None) -> Callable[[], object]:
        """Return a call of the collective on these vectors."""
        ...

    def barrier(self) -> object:
        """Return when every rank has arrived."""
        ...

    def slowest(self, seconds: float) -> float:
        """Return the maximum of all ranks' seconds, on all ranks."""
        ...


@dataclass
class Vectors:
    """The memory of a case: in place in `main`, except that `into` receives in alltoall and reduce-scatter."""

    main: NDArray[Any]
    into: NDArray[Any]
    block: int


def vectors_of(
    collective: str, size_bytes: int, world_size: int, empty: Callable[..., NDArray[Any]] = np.empty
) -> Vectors:
    """Return the memory of a case; blocks have at least one element."""
    count = size_bytes // ELEMENT_BYTES
    block = count
    into = 0
    if collective in BLOCK_COLLECTIVES:
        count = block * world_size
    elif collective in ("alltoall", "reduce-scatter"):
        block = max(1, count // world_size)
        count = block * world_size
        into = count if collective == "alltoall" else block
    return Vectors(empty(count, np.float32), empty(into, np.float32), block)


def fill(collective: str, vectors: Vectors, rank: int) -> None:
    """Write this rank's contribution, and a value that no result contains where data is to arrive."""
    main, block = vectors.main, vectors.block
    vectors.into.fill(-1)
    if (collective in ("broadcast", "scatter") and rank != 0) or collective in ("allgather", "gather"):
        main.fill(-1)
        if collective in ("allgather", "gather"):
            main[rank * block : (rank + 1) * block] = element(rank, np.arange(block))
    else:
        main[:] = element(rank, np.arange(len(main)))


def element(rank: int, index: NDArray[Any]) -> NDArray[Any]:
    """Return elements of a rank's contribution: small integers, so that sums are exact in any order."""
    return rank + index.astype(np.float32) % 7


def is_right(collective: str, vectors: Vectors, rank: int, world_size: int) -> bool:
    """Return whether this rank holds the correct result of the collective."""
    main, into, block = vectors.main, vectors.into, vectors.block
    index = np.arange(len(main))

    def total(index: NDArray[Any]) -> NDArray[Any]:
        return element(0, index) * world_size + world_size * (world_size - 1) // 2

    if collective == "broadcast":
        return np.array_equal(main, element(0, index))
    if collective == "allreduce" or (collective == "reduce" and rank == 0):
        return np.array_equal(main, total(index))
    if collective == "allgather" or (collective == "gather" and rank == 0):
        return np.array_equal(main.reshape(world_size, block), _blocks(world_size, np.arange(block)))
    own_block = slice(rank * block, (rank + 1) * block)
    if collective == "scatter":
        return np.array_equal(main[own_block], element(0, index[own_block]))
    if collective == "reduce-scatter":
        return np.array_equal(into, total(index[own_block]))
    if collective == "alltoall":
        return np.array_equal(into.reshape(world_size, block), _blocks(world_size, index[own_block]))
    return True


def _blocks(world_size: int, index: NDArray[Any]) -> NDArray[Any]:
    return np.stack([element(rank, index) for rank in range(world_size)])


def check(world: TimedRank, name: str, vectors: Vectors, call: Callable[[], object]) -> None:
    """Check one call on known values.

    Raises
    ------
    SystemExit
        If this rank has an incorrect result.
    """
    collective = name.partition("=")[0]
    fill(collective, vectors, world.rank)
    call()
    right = is_right(collective, vectors, world.rank, world.world_size)
    if not right:
        raise SystemExit(
            f"rank {world.rank} of {world.world_size}: wrong result of {name}, {vectors.main.nbytes} bytes"
        )
    # Sums of zeros stay finite in any number of calls.
    vectors.main.fill(0)


def measured(world: TimedRank, case: str, budget_s: float) -> Iterator[float]:
    """Yield seconds of a checked case, ``allreduce=ring:1024``: calls that fit into `budget_s`, at least one."""
    name, collective, algorithm, size_bytes = parts_of(case)
    vectors = vectors_of(collective, size_bytes, world.world_size)
    call = world.call(collective, vectors, algorithm)
    check(world, name, vectors, call)
    return measure(world, call, budget_s, separate=size_bytes >= SEPARATE_BYTES)


def parts_of(case: str) -> tuple[str, str, str | None, int]:
    """Return name with algorithm, collective, algorithm and bytes of a case."""
    name, _, size = case.rpartition(":")
    collective, _, algorithm = name.partition("=")
    return name, collective, algorithm or None, int(size)


def measure(world: TimedRank, call: Callable[[], object], budget_s: float, *, separate: bool) -> Iterator[float]:
    """Return seconds per call: of single calls if `separate`, else of batches."""
    once_s = _batch(world, call, 1)
    if once_s >= budget_s:
        yield once_s
        return
    if separate:
        for _ in range(_fitting(budget_s, once_s, SEPARATE_CALL_COUNT_MAX)):
            yield _batch(world, call, 1)
        return
    batch_s = budget_s / BATCH_COUNT
    many_s = _batch(world, call, _fitting(batch_s, once_s, BATCH_CALL_COUNT_MAX))
    count = _fitting(batch_s, many_s, BATCH_CALL_COUNT_MAX)
    for _ in range(BATCH_COUNT):
        yield _batch(world, call, count)


def _fitting(seconds: float, each_s: float, count_max: int) -> int:
    return max(1, min(count_max, int(seconds / max(each_s, 1e-9))))


def _batch(world: TimedRank, call: Callable[[], object], count: int) -> float:
    world.barrier()
    start = time.perf_counter()
    for _ in range(count):
        call()
    return world.slowest((time.perf_counter() - start) / count)
