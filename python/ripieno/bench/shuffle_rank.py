"""Provide a rank of a shuffle of K-means sums, with and without local reduction, on emulated hosts.

python -m ripieno.bench.shuffle_rank CASE_JSON FILE

Run as all ranks; rank 0 writes the seconds of each stage, and the bytes that all ranks sent, to FILE.

Source: Zhang and Qiu, "Clustering social images with MapReduce and high performance collective communication"
(Twister), sections 5 and 6.3.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ripieno import keyed
from ripieno.files import disk
from ripieno.keyed import KeyValues
from ripieno.launch.script.environment import init

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class ShuffleCase:
    """Map tasks per rank, each with a row of `dimension_count` values for every centroid; shuffles of each kind."""

    dtype: str
    task_count: int
    centroid_count: int
    dimension_count: int
    repetitions: int

    def tasks(self, rank: int) -> list[KeyValues]:
        """Return the output of the map tasks of a rank."""
        random = np.random.default_rng(rank)
        keys, shape = np.arange(self.centroid_count), (self.centroid_count, self.dimension_count)
        return [KeyValues(keys, random.random(shape).astype(self.dtype)) for _ in range(self.task_count)]


def main(case: ShuffleCase, target: Path) -> None:
    """Run as one rank."""
    # Encryption is off: the network links are measured, not the processors.
    comm = init(threads=1, tls=False)
    tasks = case.tasks(comm.rank)
    found: dict[str, list[dict[str, float]]] = {"with": [], "without": []}
    for repetition in range(case.repetitions + 1):
        for kind in found:
            stages = shuffle(comm, tasks, local_reduction=kind == "with")
            # The first shuffle sets up connections, and does not count.
            if repetition:
                found[kind].append(stages)
    if comm.rank == 0:
        disk.write_text(target, json.dumps(found))
    comm.close()


def shuffle(comm: Communicator, tasks: list[KeyValues], *, local_reduction: bool) -> dict[str, float]:
    """Return the slowest rank's seconds of each stage, and the bytes that all ranks sent."""
    comm.barrier()
    begin_s = time.perf_counter()
    emitter = keyed.Emitter(comm.world_size, "sum", local_reduction=local_reduction, threads=comm.threads)
    for task in tasks:
        emitter.add(task)
    emitted_s = time.perf_counter() - begin_s
    _, found = keyed.regroup(comm, emitter)
    seconds = {
        "emit": emitted_s,
        "exchange": found["sizes_s"] + found["exchange_s"],
        "merge": found["merge_s"],
        "total": time.perf_counter() - begin_s,
    }
    slowest: dict[str, Any] = {name: comm.allreduce(each, op="max") for name, each in seconds.items()}
    return {**slowest, "sent_bytes": comm.allreduce(found["bytes_sent"])}


if __name__ == "__main__":
    main(ShuffleCase(**json.loads(sys.argv[1])), Path(sys.argv[2]))
