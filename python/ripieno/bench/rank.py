"""Provide the rank program, which times cases through the native loop, Python's `comm`, or mpi4py.

python -m ripieno.bench.rank native|shared|python|mpi4py [--links LINKS] --budget SECONDS CASE …

The ranks find each other through environment variables (`ripieno.launch.script.environment`), or through mpirun.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.bench.programs import timing
from ripieno.bench.programs.timing import REFUSED, TimedRank, Vectors
from ripieno.comm.communicator import Communicator
from ripieno.errors import InputError
from ripieno.launch.script.environment import init
from ripieno.wire.arrays import empty


class PythonWorld:
    """Ripieno, called from Python."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self.rank, self.world_size = comm.rank, comm.world_size
        self.barrier = comm.barrier

    def slowest(self, seconds: float) -> float:
        """Return the maximum of all ranks' seconds."""
        return self.comm.allreduce(seconds, op="max")

    def call(self, collective: str, vectors: Vectors, algorithm: str | None) -> Callable[[], object]:
        """Return a call of `comm`, in place where possible."""
        comm, main, into = self.comm, vectors.main, vectors.into
        counts = [vectors.block] * self.world_size
        own_block = main[self.rank * vectors.block :][: vectors.block]
        calls: dict[str, Callable[..., object]] = {
            "broadcast": partial(comm.broadcast, out=main),
            "reduce": partial(comm.reduce, main, out=main if self.rank == 0 else None),
            "allreduce": partial(comm.allreduce, main, out=main),
            "allgather": partial(comm.allgather, out=main),
            "reduce-scatter": partial(comm.reduce_scatter, main, out=into, counts=counts),
            "gather": partial(comm.gather, own_block, out=main if self.rank == 0 else None, counts=counts),
            "scatter": partial(comm.scatter, main, out=own_block, counts=counts),
            "alltoall": partial(comm.alltoall, main, out=into, counts=counts, out_counts=counts),
            "barrier": comm.barrier,
        }
        # Pass no optional arguments, because programs usually omit them, and parsing them takes time in each call.
        return calls[collective] if algorithm is None else partial(calls[collective], algorithm=algorithm)


class NativeWorld(PythonWorld):
    """Ripieno without Python between two calls, on arrays of `empty`."""

    def __init__(self, comm: Communicator, empty: Callable[..., NDArray[Any]] = np.empty) -> None:
        super().__init__(comm)
        self.empty = empty

    def measured(self, case: str, budget_s: float) -> list[float]:
        """Return the seconds of a checked case."""
        name, collective, algorithm, size_bytes = timing.parts_of(case)
        vectors = timing.vectors_of(collective, size_bytes, self.world_size, self.empty)
        timing.check(self, name, vectors, self.call(collective, vectors, algorithm))
        return self.timed(collective, vectors, algorithm, budget_s, separate=size_bytes >= timing.SEPARATE_BYTES)

    def timed(
        self, collective: str, vectors: Vectors, algorithm: str | None, budget_s: float, *, separate: bool
    ) -> list[float]:
        """Return the seconds of single calls if `separate`, else per call of some batches."""
        return _native.measure(
            self.comm._native,
            collective,
            vectors.main,
            vectors.into,
            budget_s=budget_s,
            separate=separate,
            algorithm=algorithm,
        )


class Mpi4pyWorld:
    """An MPI, called from Python."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank, self.world_size = self.comm.rank, self.comm.size
        self.barrier = self.comm.Barrier

    def slowest(self, seconds: float) -> float:
        """Return the maximum of all ranks' seconds."""
        slowest: float = self.comm.allreduce(seconds, op=self.mpi.MAX)
        return slowest

    def call(self, collective: str, vectors: Vectors, algorithm: str | None) -> Callable[[], object]:
        """Return a call of the communicator, in place where possible."""
        comm, main, into, in_place = self.comm, vectors.main, vectors.into, self.mpi.IN_PLACE
        is_root = self.rank == 0
        own_block = main[self.rank * vectors.block :][: vectors.block]
        calls: dict[str, Callable[[], object]] = {
            "broadcast": partial(comm.Bcast, main),
            "reduce": partial(comm.Reduce, in_place if is_root else main, main if is_root else None),
            "allreduce": partial(comm.Allreduce, in_place, main),
            "allgather": partial(comm.Allgather, in_place, main),
            "reduce-scatter": partial(comm.Reduce_scatter_block, main, into),
            "gather": partial(comm.Gather, in_place if is_root else own_block, main if is_root else None),
            "scatter": partial(comm.Scatter, main if is_root else None, in_place if is_root else own_block),
            "alltoall": partial(comm.Alltoall, main, into),
            "barrier": comm.Barrier,
        }
        return calls[collective]


def times(world: TimedRank, case: str, budget_s: float) -> list[float] | str:
    """Return the seconds of one case with the loop of this world, or the reason why it lacks the algorithm."""
    try:
        if isinstance(world, NativeWorld):
            return world.measured(case, budget_s)
        return list(timing.measured(world, case, budget_s))
    except InputError as error:
        # The error occurs on all ranks, before any data is sent.
        if timing.parts_of(case)[2] is None:
            raise
        return str(error)


def main() -> None:
    """Time the cases of the command line; rank 0 prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("through", choices=("native", "shared", "python", "mpi4py"))
    parser.add_argument("--budget", type=float, required=True)
    parser.add_argument("--links", default="auto")
    parser.add_argument("cases", nargs="+")
    options = parser.parse_args()
    world: TimedRank = Mpi4pyWorld() if options.through == "mpi4py" else world_of(options.through, options.links)
    for case in options.cases:
        found = times(world, case, options.budget)
        if world.rank == 0:
            texts = [f"{REFUSED}{found}"] if isinstance(found, str) else [f"{seconds:.9f}" for seconds in found]
            print("\n".join(f"{case} {each}" for each in texts), flush=True)


def world_of(through: str, links: str) -> PythonWorld:
    """Return the world of Ripieno that the environment describes."""
    # No encryption, as in the peers.
    comm = init(links=links, threads=1, tls=False)
    if through == "python":
        return PythonWorld(comm)
    return NativeWorld(comm, empty if through == "shared" else np.empty)


if __name__ == "__main__":
    main()
