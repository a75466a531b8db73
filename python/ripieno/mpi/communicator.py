"""Communicators and groups of ranks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Self

from ripieno.errors import InputError
from ripieno.mpi.collectives import MpiCollectiveCalls
from ripieno.mpi.constants import COMM_TYPE_SHARED, LARGEST_TAG, TAG_UB, UNDEFINED
from ripieno.mpi.messages import MpiMessageCalls


class Group:
    """An ordered set of ranks of the world."""

    def __init__(self, ranks: Sequence[int], own: int) -> None:
        self.ranks = list(ranks)
        self._own = own

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return len(self.ranks)

    def Get_rank(self) -> int:
        """Return the rank of this process in the group, or `UNDEFINED`."""
        return self.ranks.index(self._own) if self._own in self.ranks else UNDEFINED

    size = property(Get_size)
    rank = property(Get_rank)

    def Incl(self, ranks: Sequence[int]) -> Group:
        """Return the group of the ranks at these positions."""
        return Group([self.ranks[rank] for rank in ranks], self._own)

    def Excl(self, ranks: Sequence[int]) -> Group:
        """Return the group without the ranks at these positions."""
        return Group([each for place, each in enumerate(self.ranks) if place not in set(ranks)], self._own)

    def Free(self) -> None:
        """Do nothing: the group is freed with its last reference."""


class Comm(MpiMessageCalls, MpiCollectiveCalls):
    """A communicator with the method names of MPI."""

    def Split(self, color: int = 0, key: int = 0) -> Self | None:
        """Return the communicator of the ranks with the same color; None (COMM_NULL) for the color `UNDEFINED`."""
        part = self._comm.split(None if color == UNDEFINED else color, key)
        return None if part is None else self._of(part)

    def Split_type(self, split_type: int, key: int = 0, info: Any = None) -> Self | None:
        """Return the communicator of the ranks that can share memory with this rank."""
        if split_type not in (COMM_TYPE_SHARED, UNDEFINED):
            raise InputError(f"Split_type({split_type}): expected COMM_TYPE_SHARED")
        return self.Split(UNDEFINED if split_type == UNDEFINED else self._comm.nodes[self.rank], key)

    def Dup(self, info: Any = None) -> Self:
        """Return a new communicator with the same ranks."""
        copy = self.Split(0, self.rank)
        assert copy is not None
        return copy

    Clone = Dup

    def Get_group(self) -> Group:
        """Return the group of its ranks."""
        return Group(self._comm.first_ranks, self._comm.first_ranks[self.rank])

    group = property(Get_group)

    def Create_group(self, group: Group, tag: int = 0) -> Self:
        """Return the communicator of a group; only its members call this."""
        return self._of(self._comm.group([self._comm.first_ranks.index(rank) for rank in group.ranks]))

    def Create(self, group: Group) -> Self | None:
        """Return the communicator of a group. All ranks call this; ranks outside of the group get None."""
        place = group.Get_rank()
        return self.Split(UNDEFINED if place == UNDEFINED else 0, max(place, 0))

    def Free(self) -> None:
        """Close the communicator, unless it is COMM_WORLD or COMM_SELF."""
        if not self._comm.closed and self._comm._parent is not None:
            self._comm.close()

    Disconnect = Free

    def Abort(self, errorcode: int = 0) -> None:
        """End all ranks, and print a message to stderr."""
        print(f"Abort({errorcode}) of rank {self.rank}", file=sys.stderr, flush=True)
        self._comm.abort(f"Abort({errorcode})")
        raise SystemExit(errorcode or 1)

    def Get_attr(self, keyval: int) -> Any:
        """Return the largest tag for `TAG_UB`; None for any other attribute."""
        return LARGEST_TAG if keyval == TAG_UB else None

    def __bool__(self) -> bool:
        return True


class Intracomm(Comm):
    """A communicator of one group of ranks. All communicators of this module are intracommunicators."""
