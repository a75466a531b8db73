"""Compute the owner rank of a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.wire import operations

Partitioner = Literal["hash", "balanced"] | Callable[[Any], Any] | None


def checked(partitioner: Partitioner) -> Partitioner:
    """Return the partitioner. Python's `hash` is replaced by "hash", because its values differ between processes."""
    if partitioner is hash:
        return "hash"
    is_named = isinstance(partitioner, str) and partitioner in ("hash", "balanced")
    if not (partitioner is None or is_named or callable(partitioner)):
        raise InputError(f"partitioner={partitioner!r}: expected 'hash', 'balanced' or a function of a block of keys")
    return partitioner


def description_of(partitioner: Partitioner, fallback: str) -> str:
    """Return the partitioner in texts that ranks compare."""
    if callable(partitioner):
        return operations.description_of(partitioner)
    return partitioner or fallback


def owners_of(partitioner: Callable[[Any], Any], keys: Any, world_size: int) -> NDArray[Any]:
    """Return the checked owner of every key of a block, as uint32."""
    owners = np.asarray(partitioner(keys))
    name = f"partitioner={operations.name_of(partitioner)}"
    if owners.shape != (len(keys),) or owners.dtype.kind not in "iu":
        raise InputError(
            f"{name}: returned shape {owners.shape} and dtype {owners.dtype} for {len(keys)} keys: expected a "
            "rank for each"
        )
    outside = np.flatnonzero((owners < 0) | (owners >= world_size))
    if len(outside):
        row = int(outside[0])
        raise InputError(
            f"{name}: returned rank {owners[row]} for key {_as_python(keys[row])!r}: expected 0 … {world_size - 1} "
            f"in a world of {world_size}"
        )
    return owners.astype(np.uint32)


def _as_python(key: Any) -> Any:
    """Return a key as a Python object."""
    return key.as_py() if hasattr(key, "as_py") else key.item()
