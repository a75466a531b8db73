"""Compute the owner of each vertex on every rank, without communication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ripieno import log
from ripieno.errors import InputError
from ripieno.kernels.hashing import mixed

VertexPartitioner = str | Callable[[NDArray[np.int64]], Any]


T = TypeVar("T")


def renamed(partitioner: T, home: T | None) -> T:
    """Return the argument `partitioner`, or that of its deprecated name `home`."""
    if home is None:
        return partitioner
    log.warn("home= is deprecated, use partitioner=", DeprecationWarning)
    return home


class VertexOwners:
    """Maps each vertex to its owner rank.

    Parameters
    ----------
    partitioner : {"hash", "blocks"} or callable
        "hash": pseudo-random, by a hash that is equal on every machine. "blocks": ranks own consecutive ranges of ids
        of equal length. A callable receives (m,) int64 ids and returns (m,) ranks, on every rank the same.
    world_size : int
    largest : int
        The largest id of all; used by "blocks".

    Raises
    ------
    InputError
        `partitioner` is not one of these.
    """

    def __init__(self, partitioner: VertexPartitioner, world_size: int, largest: int) -> None:
        if not callable(partitioner) and partitioner not in ("hash", "blocks"):
            raise InputError(f"partitioner={partitioner!r}: expected 'hash', 'blocks' or a callable from ids to ranks")
        self.partitioner = partitioner
        self._world_size = world_size
        self._block = -(-(largest + 1) // world_size)

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the owner of each vertex.

        Raises
        ------
        InputError
            The callable returned an invalid rank. The message names the vertex.
        """
        if callable(self.partitioner):
            return self._checked(ids, np.asarray(self.partitioner(ids)))
        if self.partitioner == "hash":
            return (mixed(ids) % np.uint64(self._world_size)).astype(np.int64)
        return np.minimum(ids // max(self._block, 1), self._world_size - 1)

    def _checked(self, ids: NDArray[np.int64], ranks: NDArray[Any]) -> NDArray[np.int64]:
        if ranks.shape != ids.shape or (ranks.dtype.kind not in "iu" and ranks.size):
            raise InputError(
                f"partitioner returned ranks of type {ranks.dtype} and shape {ranks.shape}, expected whole "
                f"numbers, {ids.shape}"
            )
        wrong = np.flatnonzero((ranks < 0) | (ranks >= self._world_size))
        if len(wrong):
            at = wrong[0]
            raise InputError(
                f"partitioner returned rank {ranks[at]} for vertex {ids[at]}: expected 0 … {self._world_size - 1}, "
                f"for {self._world_size} ranks"
            )
        return ranks.astype(np.int64)
