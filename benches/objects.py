"""Benchmark collectives and messages of numbers and small objects between two local ranks, compared with mpi4py.

Run as ``objects.py ripieno|mpi4py CALLS``, this file is the program of one rank. Rank 0 prints the seconds per call of
each case, one number per batch.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ripieno as rp
from effort import Effort
from ripieno.bench import baselines
from ripieno.bench.baselines import Deployment
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.processes import run

REPETITION_COUNT, CALLS, QUICK_CALLS, BATCHES = 5, 300, 3, 9
TIMEOUT_S = 300.0
#: Largest accepted ratio to the time of mpi4py.
TARGET = 1.0

NUMBER, COUNT, SMALL = 1.5, 3, {"a": 1, "b": [1, 2, 3]}
Calls = dict[str, Callable[[], object]]


def measured(report: Measurements, effort: Effort) -> None:
    """Measure both libraries in turn. Times are measured on rank 0."""
    place = Deployment(2)
    calls = str(QUICK_CALLS if effort.quick else CALLS)
    by_mpi = [*baselines.python_by_open_mpi(place), __file__, "mpi4py", calls]
    _, environment = baselines.module(__name__)
    ours = [sys.executable, __file__, "ripieno", calls]
    found: dict[str, dict[str, list[float]]] = {"ripieno": {}, "mpi4py": {}}
    for _ in range(effort.runs(REPETITION_COUNT)):
        for each, printed in (
            ("ripieno", place.ranks(ours, TIMEOUT_S, environment)),
            ("mpi4py", run(by_mpi, timeout_s=TIMEOUT_S)),
        ):
            for case, seconds in json.loads(printed.splitlines()[-1]).items():
                found[each].setdefault(case, []).extend(seconds)
    for case, seconds in found["ripieno"].items():
        report.figures.append(
            Figure(
                case="numbers and objects, 2 ranks, Python",
                row=case,
                ours=Samples(tuple(seconds)),
                peers={"mpi4py": Samples(tuple(found["mpi4py"][case]))},
                limit_s=None,
                limit="",
                work=1.0,
                rate_unit="calls/s",
                targets={"peer": TARGET},
            )
        )


def _ripieno(comm: rp.Communicator) -> Calls:
    array = np.zeros(2)

    def ping_pong() -> object:
        if comm.rank == 0:
            comm.send(SMALL, 1)
            return comm.recv(1)
        comm.send(comm.recv(0), 0)
        return None

    return {
        "allreduce of a float": lambda: comm.allreduce(NUMBER),
        "allreduce of a count": lambda: comm.allreduce(COUNT),
        "allreduce of an array and a count": lambda: comm.allreduce((array, COUNT)),
        "broadcast of a dict": lambda: comm.broadcast(SMALL if comm.rank == 0 else None),
        "allgather of dicts": lambda: comm.allgather(SMALL),
        "allgather of short arrays": lambda: comm.allgather(array),
        "gather of dicts": lambda: comm.gather(SMALL),
        "scatter of dicts": lambda: comm.scatter([SMALL] * 2 if comm.rank == 0 else None),
        "ping-pong of a dict": ping_pong,
    }


def _mpi4py(comm: Any) -> Calls:
    array, total = np.zeros(2), np.zeros(2)

    def ping_pong() -> object:
        if comm.rank == 0:
            comm.send(SMALL, 1)
            return comm.recv(source=1)
        comm.send(comm.recv(source=0), 0)
        return None

    return {
        "allreduce of a float": lambda: comm.allreduce(NUMBER),
        "allreduce of a count": lambda: comm.allreduce(COUNT),
        "allreduce of an array and a count": lambda: (comm.Allreduce(array, total), comm.allreduce(COUNT)),
        "broadcast of a dict": lambda: comm.bcast(SMALL if comm.rank == 0 else None),
        "allgather of dicts": lambda: comm.allgather(SMALL),
        "allgather of short arrays": lambda: comm.allgather(array),
        "gather of dicts": lambda: comm.gather(SMALL),
        "scatter of dicts": lambda: comm.scatter([SMALL] * 2 if comm.rank == 0 else None),
        "ping-pong of a dict": ping_pong,
    }


def _batches(call: Callable[[], object], barrier: Callable[[], object], calls: int) -> list[float]:
    """Return the mean seconds per call of each batch. A warm-up batch runs first."""
    found = []
    for _ in range(1 + BATCHES):
        barrier()
        start_s = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start_s) / calls)
    return found[1:]


def main(library: str, calls: str) -> None:
    """Run all cases on this rank with one library; rank 0 prints the times."""
    if library == "mpi4py":
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        found = {case: _batches(call, world.Barrier, int(calls)) for case, call in _mpi4py(world).items()}
        if world.rank == 0:
            sys.stdout.write(json.dumps(found) + "\n")
        return
    with rp.init() as comm:
        found = {case: _batches(call, comm.barrier, int(calls)) for case, call in _ripieno(comm).items()}
        if comm.rank == 0:
            sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
