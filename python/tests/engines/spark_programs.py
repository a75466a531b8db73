"""Test programs for ranks and tasks in Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Longer than any test waits.
NEVER_S = 600.0


def count(comm, first: int) -> dict[str, Any]:
    """Return a sum over ranks, the number of calls on the same rank, and its location."""
    comm.cache["runs"] = comm.cache.get("runs", 0) + 1
    return {
        "sum": comm.allreduce(first + comm.rank),
        "runs": comm.cache["runs"],
        "pid": os.getpid(),
        "executor": _executor(),
    }


def exit_hard(comm, culprit: int) -> None:
    """Exit on one rank without a message, while the others wait for it."""
    if comm.rank == culprit:
        os._exit(7)
    comm.barrier()


def wait(comm) -> None:
    """Block rank 0 forever, while all other ranks wait for it."""
    import threading

    if comm.rank == 0:
        threading.Event().wait(NEVER_S)
    comm.barrier()


def compute(comm) -> None:
    """Compute forever, without a call that could raise the failure of another rank."""
    comm.emit({"pid": os.getpid()})
    while True:
        sum(range(1000))


def where_ripieno_is(comm) -> tuple[str, str]:
    """Return the files of the package and of its native module."""
    import ripieno
    from ripieno import _native

    return ripieno.__file__, _native.__file__


def row_count(comm, batches) -> int:
    return batches.row_count


def wait_for_pipe(pipe: str) -> bytes:
    """Block a task of Spark, not of a job, until the test writes to `pipe`."""
    return Path(pipe).read_bytes()


def running(spark) -> int:
    """Return the number of tasks that run in the executors."""
    return sum(info.numRunningTasks() for info in spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos())


def _executor() -> int:
    """Return the PID of the JVM of this executor: the parent of the daemon that forked this process."""
    daemon = os.getppid()
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def rows_of_batches(comm, batches):
    return [batch.num_rows for batch in batches]
