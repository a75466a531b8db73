"""Provide the barrier that names missing ranks: rank 0 collects a message of every rank, and replies to all.

The ranks exchange messages instead of a collective, so a rank that does not call does not end the job.
"""

from __future__ import annotations

import time

import numpy as np

from ripieno.comm.communicator import Communicator

# Tags of PyTorch are smaller.
_FIRST_TAG = 2**32


def monitored_barrier(comm: Communicator, number: int, limit_s: float, *, wait_all_ranks: bool) -> None:
    """Return when all ranks have called it.

    Parameters
    ----------
    comm
        Communicator of the process group.
    number
        Number of this call, equal on all ranks.
    limit_s
        Time limit in seconds.
    wait_all_ranks
        Whether the error of rank 0 names all missing ranks instead of the first one.

    Raises
    ------
    RuntimeError
        A rank has not called it in time. The texts begin like those of Gloo.
    """
    tag = _FIRST_TAG + number
    if comm.rank == 0:
        failure = _collect(comm, tag, limit_s, wait_all_ranks)
        for rank in range(1, comm.world_size):
            comm.send_async(failure, rank, tag=tag)
        if failure:
            raise RuntimeError(failure)
        return
    comm.send_async(np.zeros(0), 0, tag=tag)
    try:
        failure = comm.recv(0, tag=tag, timeout_s=limit_s)
    except TimeoutError:
        failure = f"rank 0 has not replied in {_milliseconds(limit_s)} ms"
    if failure:
        raise RuntimeError(
            f"Rank {comm.rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
            f"from rank 0: {failure}"
        )


def _collect(comm: Communicator, tag: int, limit_s: float, wait_all_ranks: bool) -> str:
    """Receive a message of every other rank; return the failure, or an empty text."""
    end_s = time.monotonic() + limit_s
    missing: list[int] = []
    for rank in range(1, comm.world_size):
        left_s = end_s - time.monotonic()
        if left_s <= 0 and not wait_all_ranks:
            arrived = ", ".join(map(str, range(1, rank))) or "none"
            return f"Rank 0 timed out in monitoredBarrier after {_milliseconds(limit_s)} ms; arrived ranks: {arrived}"
        try:
            comm.recv(rank, tag=tag, timeout_s=max(0.0, left_s))
        except TimeoutError:
            missing.append(rank)
            if not wait_all_ranks:
                break
    if not missing:
        return ""
    ranks = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
    return f"{ranks} failed to pass monitoredBarrier in {_milliseconds(limit_s)} ms"


def _milliseconds(limit_s: float) -> str:
    return f"{1000 * limit_s:g}"
