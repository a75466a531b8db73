"""Replicas of ranks: with ``replicas=s``, ranks ``i``, ``i + p/s``, ``i + 2p/s`` … of `p` ranks are replicas.

A launcher lets a rank die of which a replica lives; see `ripieno.comm.Communicator.replicate` for what programs do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral

from ripieno.errors import InputError


def checked(replicas: int, workers: int) -> int:
    """`replicas`, if every logical rank of so many workers can have as many replicas."""
    if isinstance(replicas, bool) or not isinstance(replicas, Integral) or replicas < 1 or workers % replicas:
        raise InputError(f"replicas={replicas!r}: expected a divisor of the number of workers, {workers}")
    return int(replicas)


def replicas_of(rank: int, workers: int, replicas: int) -> range:
    """The ranks that are replicas of the logical rank of `rank`, itself included."""
    logical_count = workers // replicas
    return range(rank % logical_count, workers, logical_count)


def replicas_environment(replicas: int, variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables that replicas need: sets of strings have one order in all of them, unless `variables` say otherwise."""
    return {} if replicas == 1 or variables.get("PYTHONHASHSEED") else {"PYTHONHASHSEED": "0"}
