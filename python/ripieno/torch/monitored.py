"""Provide the barrier that names missing ranks: rank 0 waits for an entry of every rank in the store, and replies.

A collective would end the job if a rank does not call it. A message would stay at a rank that never receives it, ahead
of the messages of the program.
"""

from __future__ import annotations

import time

import torch.distributed as dist

# Seconds between two looks at the store: the first and the greatest.
_PAUSE_S, _PAUSE_MAX_S = 0.001, 0.05


def monitored_barrier(
    store: dist.Store, rank: int, world_size: int, number: int, limit_s: float, *, wait_all_ranks: bool
) -> None:
    """Return when all ranks have called it.

    Parameters
    ----------
    store
        Store of the process group.
    rank, world_size
        This rank, and the number of ranks of the group.
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
    keys = [f"monitored barrier {number} of rank {each}" for each in range(world_size)]
    if rank == 0:
        failure = _collect(store, keys, limit_s, wait_all_ranks)
        store.set(keys[0], failure)
        if failure:
            raise RuntimeError(failure)
        return
    store.set(keys[rank], "")
    if _has(store, keys[0], time.monotonic() + limit_s):
        failure = store.get(keys[0]).decode()
    else:
        failure = f"rank 0 has not replied in {_milliseconds(limit_s)} ms"
    if failure:
        raise RuntimeError(
            f"Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
            f"from rank 0: {failure}"
        )


def _collect(store: dist.Store, keys: list[str], limit_s: float, wait_all_ranks: bool) -> str:
    """Wait for the entries of all other ranks; return the failure, or an empty text."""
    end_s = time.monotonic() + limit_s
    missing: list[int] = []
    for rank in range(1, len(keys)):
        if time.monotonic() >= end_s and not wait_all_ranks:
            arrived = ", ".join(map(str, range(1, rank))) or "none"
            return f"Rank 0 timed out in monitoredBarrier after {_milliseconds(limit_s)} ms; arrived ranks: {arrived}"
        if not _has(store, keys[rank], end_s):
            missing.append(rank)
            if not wait_all_ranks:
                break
    if not missing:
        return ""
    ranks = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
    return f"{ranks} failed to pass monitoredBarrier in {_milliseconds(limit_s)} ms"


def _has(store: dist.Store, key: str, end_s: float) -> bool:
    """Return whether the store has the key before a time on the monotonic clock.

    Waiting calls of the stores print warnings after a timeout, and the one of files looks once in a second.
    """
    pause_s = _PAUSE_S
    while not store.check([key]):
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            return False
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)
    return True


def _milliseconds(limit_s: float) -> str:
    return f"{1000 * limit_s:g}"
