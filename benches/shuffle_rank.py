"""A rank of the shuffle benchmark: regroups sums of K-means over the ranks several times, and checks them.

benches/shuffle_rank.py CASE_JSON FILE

Run as all ranks; rank 0 writes the results to FILE.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ripieno as rp
from numpy.typing import NDArray
from ripieno import keyed
from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class ShuffleCase:
    """One case of the shuffle benchmark: sizes, method and number of runs.

    Parameters
    ----------
    task_count
        Map tasks of each rank; each produces a row for every centroid.
    centroid_count, dimension_count
        A row is the sum of a centroid's points and their number, in float64. Rows of float32 would
        gain only half as much from local reduction, because their partial sums are sent as float64.
    run_count
        Number of timed shuffles, after one warm-up.
    local_reduction
        Whether the tasks of a rank add up their rows before sending.
    to_one
        Whether rank 0 owns all keys, instead of hashing them to the ranks.
    exchange
        Options of the exchange, see `ripieno.keyed.regroup`.
    """

    task_count: int
    centroid_count: int
    dimension_count: int
    run_count: int
    local_reduction: bool = True
    to_one: bool = False
    exchange: dict[str, int] = field(default_factory=dict)

    @property
    def task_bytes(self) -> int:
        """Return the bytes of the keys and rows of a task."""
        return self.centroid_count * (8 + 8 * (self.dimension_count + 1))

    def task(self, rank: int, task: int) -> rp.KeyValues:
        """Return the output of a map task: small integers, so that sums are exact in any order."""
        keys = np.arange(self.centroid_count)
        row = np.arange(self.dimension_count + 1) % 5
        return rp.KeyValues(keys, ((keys[:, None] + row + 3 * rank + task) % 7).astype(np.float64))


def measured(comm: Communicator, case: ShuffleCase) -> dict[str, Any]:
    """Return the slowest rank's seconds of each shuffle, and the bytes sent per rank; equal on all ranks."""
    tasks = [case.task(comm.rank, number) for number in range(case.task_count)]
    right = comm.allreduce(np.sum([task.values for task in tasks], axis=0))
    shuffled, _ = _shuffle(comm, case, tasks)
    _check(comm, case, shuffled, right)
    seconds = []
    for _ in range(case.run_count):
        comm.barrier()
        start = time.perf_counter()
        _, found = _shuffle(comm, case, tasks)
        seconds.append(comm.allreduce(time.perf_counter() - start, op="max"))
    return {"seconds": seconds, "sent_bytes": comm.allgather(found["bytes_sent"]), "waves": found["waves"]}


def _shuffle(comm: Communicator, case: ShuffleCase, tasks: list[rp.KeyValues]) -> tuple[rp.KeyValues, dict[str, Any]]:
    """Shuffle the rows of the tasks into complete sums."""
    emitter = keyed.Emitter(
        comm.world_size,
        "sum",
        partitioner=_first if case.to_one else None,
        local_reduction=case.local_reduction,
        threads=comm.threads,
    )
    for task in tasks:
        emitter.add(task)
    return keyed.regroup(comm, emitter, exchange=case.exchange)


def _first(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.zeros(len(keys), np.int64)


def _check(comm: Communicator, case: ShuffleCase, shuffled: rp.KeyValues, right: NDArray[np.float64]) -> None:
    wrong = not np.array_equal(shuffled.values, right[shuffled.keys])
    if comm.allreduce(int(wrong)) or comm.allreduce(len(shuffled)) != case.centroid_count:
        raise AssertionError("the sums differ from the sums of an allreduce")


def main() -> None:
    """Measure the case of the command line."""
    case = ShuffleCase(**json.loads(sys.argv[1]))
    comm = rp.init(threads=1, tls=False)
    found = measured(comm, case)
    if comm.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
