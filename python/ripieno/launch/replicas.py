"""Provide replicas of ranks: with ``replicas=s``, ranks ``i``, ``i + p/s``, ``i + 2p/s`` … of `p` ranks are replicas.

A launcher tolerates the death of a rank with a live replica. See `ripieno.comm.Communicator.replicate` for programs.
"""

from __future__ import annotations

import os
from numbers import Integral

from ripieno.errors import InputError


def checked(replicas: int, workers: int) -> int:
    """Return `replicas` if it divides the number of workers, else raise `InputError`."""
    if isinstance(replicas, bool) or not isinstance(replicas, Integral) or replicas < 1 or workers % replicas:
        raise InputError(f"replicas={replicas!r}: expected a divisor of the number of workers, {workers}")
    return int(replicas)


def replicas_of(rank: int, workers: int, replicas: int) -> range:
    """Return the replicas of the logical rank of `rank`, including `rank`."""
    logical_count = workers // replicas
    return range(rank % logical_count, workers, logical_count)


def replicas_environment(replicas: int) -> dict[str, str]:
    """Return the variables that replicas need: all replicas use the same hash seed unless the environment sets one."""
    return {} if replicas == 1 or os.environ.get("PYTHONHASHSEED") else {"PYTHONHASHSEED": "0"}
