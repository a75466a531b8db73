"""Communicators: their creation, their comparison, and the calls of all communicators."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from ripieno.errors import InputError
from ripieno.mpi.base import NULL
from ripieno.mpi.buffer import buffer
from ripieno.mpi.collectives import MpiBufferCalls
from ripieno.mpi.constants import (
    BUFFER_AUTOMATIC,
    COMM_TYPE_HW_GUIDED,
    COMM_TYPE_HW_UNGUIDED,
    COMM_TYPE_RESOURCE_GUIDED,
    COMM_TYPE_SHARED,
    CONGRUENT,
    IDENT,
    KEYVAL_INVALID,
    LARGEST_TAG,
    SIMILAR,
    TAG_UB,
    UNDEFINED,
    UNEQUAL,
)
from ripieno.mpi.errhandlers import HasErrhandler
from ripieno.mpi.groups import Group
from ripieno.mpi.info import Info
from ripieno.mpi.messages import MpiMessageCalls
from ripieno.mpi.objects import MpiObjectCalls
from ripieno.mpi.requests import Request
from ripieno.mpi.unsupported import refusing

_SPLIT_TYPES = (COMM_TYPE_SHARED, COMM_TYPE_HW_GUIDED, COMM_TYPE_HW_UNGUIDED, COMM_TYPE_RESOURCE_GUIDED, UNDEFINED)
#: The only supported resource for `Split_type`.
_RESOURCE = {"mpi_hw_resource_type": "mpi_shared_memory"}


@refusing
class Comm(MpiMessageCalls, MpiObjectCalls, MpiBufferCalls, HasErrhandler):
    """A communicator with the method names of MPI."""

    def Split(self, color: int = 0, key: int = 0) -> Intracomm:
        """Return the communicator of the ranks with the same color; COMM_NULL for the color `UNDEFINED`."""
        # A comparison of ranks is a color, as in mpi4py.
        color, key = (int(each) if isinstance(each, bool | np.bool_) else each for each in (color, key))
        part = self._comm.split(None if color == UNDEFINED else color, key)
        return Intracomm() if part is None else Intracomm._of(part)

    def Split_type(self, split_type: int, key: int = 0, info: Info | None = None) -> Intracomm:
        """Return the communicator of the ranks that can share memory with this rank.

        Guided splits by another resource, and unguided ones, return COMM_NULL.
        """
        if split_type not in _SPLIT_TYPES:
            raise InputError(f"Split_type({split_type}): expected COMM_TYPE_SHARED")
        is_guided = split_type in (COMM_TYPE_HW_GUIDED, COMM_TYPE_RESOURCE_GUIDED)
        is_shared = split_type == COMM_TYPE_SHARED or (is_guided and _RESOURCE.items() <= dict(info or {}).items())
        return self.Split(self._comm.nodes[self.rank] if is_shared else UNDEFINED, key)

    def Dup(self, info: Info | None = None) -> Self:
        """Return a new communicator with the same ranks."""
        duplicate = self._duplicate()
        self._copy_attributes_to(duplicate)
        return duplicate

    Clone = Dup_with_info = Dup

    def Idup(self, info: Info | None = None) -> tuple[Self, Request]:
        """Return a new communicator with the same ranks, and a request that is complete."""
        return self.Dup(), Request(lambda timeout_s, status: (True, None))

    Idup_with_info = Idup

    def _duplicate(self) -> Self:
        """Return a new communicator with the same ranks, without attributes."""
        part = self._comm.split(0, self.rank)
        assert part is not None, "every rank has a color"
        return self._like(part)

    def _like(self, part: Any) -> Self:
        return self._of(part)

    def Get_group(self) -> Group:
        """Return the group of its ranks."""
        return Group._of(self._comm.first_ranks)

    group = property(Get_group)

    def Create_group(self, group: Group, tag: int = 0) -> Intracomm:
        """Return the communicator of a group; only its members call this."""
        missing = sorted(set(group.ranks) - set(self._comm.first_ranks))
        if missing:
            raise InputError(f"Create_group: ranks {missing} of the world: expected ranks of this communicator")
        return Intracomm._of(self._comm.group([self._comm.first_ranks.index(rank) for rank in group.ranks]))

    def Create(self, group: Group) -> Intracomm:
        """Return the communicator of a group. All ranks call this; ranks outside of the group get COMM_NULL."""
        place = group.Get_rank()
        return self.Split(UNDEFINED if place == UNDEFINED else 0, max(place, 0))

    def Compare(self, other: Comm) -> int:
        """Return `IDENT`, `CONGRUENT` for the same ranks in the same order, `SIMILAR` for the same ranks, `UNEQUAL`."""
        if self and self._comm is other._comm:
            return IDENT
        order = self.group.Compare(other.group)
        return CONGRUENT if order == IDENT else SIMILAR if order == SIMILAR else UNEQUAL

    def Free(self) -> None:
        """Close the communicator. This reference becomes COMM_NULL. COMM_WORLD and COMM_SELF remain."""
        from ripieno.mpi import COMM_SELF, COMM_WORLD

        self._comm.rank  # noqa: B018  # raises for COMM_NULL
        if self is COMM_WORLD or self is COMM_SELF:
            return
        if self not in (COMM_WORLD, COMM_SELF):
            self._delete_attributes()
            self._comm.close()
        self._comm, self.name = NULL, "MPI_COMM_NULL"

    Disconnect = Free

    def free(self) -> None:
        """Close the communicator, unless it is COMM_WORLD, COMM_SELF or COMM_NULL."""
        if self:
            self.Free()

    def Abort(self, errorcode: int = 0) -> None:
        """End all ranks, and print a message to stderr."""
        print(f"Abort({errorcode}) of rank {self.rank}", file=sys.stderr, flush=True)
        self._comm.abort(f"Abort({errorcode})")
        raise SystemExit(errorcode or 1)

    def Get_attr(self, keyval: int) -> Any:
        """Return the value of an attribute, or None; `TAG_UB` has the largest tag."""
        if not self or keyval == KEYVAL_INVALID:
            raise InputError(f"Get_attr: key {keyval} of {self!r}: expected a key of an existing communicator")
        return LARGEST_TAG if keyval == TAG_UB else self._attributes.get(keyval)

    def Get_info(self) -> Info:
        """Return empty hints: no call uses them."""
        return Info.Create()

    def Set_info(self, info: Info) -> None:
        """Do nothing: no call uses hints."""

    info = property(Get_info, Set_info)

    def Get_topology(self) -> int:
        """Return `UNDEFINED`, `CART`, `GRAPH` or `DIST_GRAPH`."""
        return UNDEFINED

    topology = property(lambda self: self.Get_topology())
    is_topo = property(lambda self: self.Get_topology() != UNDEFINED)

    def Attach_buffer(self, buf: Any) -> None:
        """Keep a buffer until `Detach_buffer`; buffered messages do not need it."""
        self._attached = buf if buf is BUFFER_AUTOMATIC else buffer.writable(buf)

    def Detach_buffer(self) -> Any:
        """Return the buffer of `Attach_buffer`."""
        attached, self._attached = getattr(self, "_attached", BUFFER_AUTOMATIC), BUFFER_AUTOMATIC
        return attached

    def Flush_buffer(self) -> None:
        """Do nothing: buffered messages are sent before their calls return."""

    def Iflush_buffer(self) -> Request:
        """Return a request that is complete."""
        return Request(lambda timeout_s, status: (True, None))


class Intracomm(Comm):
    """A communicator of one group of ranks. All communicators of this module are intracommunicators."""

    @classmethod
    def Create_from_group(
        cls, group: Group, stringtag: str = "", info: Any = None, errhandler: Any = None
    ) -> Intracomm:
        """Return the communicator of a group of the world; only its members call this."""
        from ripieno.mpi import COMM_WORLD

        return COMM_WORLD.Create_group(group)

    def Create_cart(
        self, dims: Sequence[int], periods: Sequence[bool] | bool | None = None, reorder: bool = False
    ) -> Any:
        """Return a `Cartcomm` of a grid with `dims` ranks along its axes; COMM_NULL for ranks outside of it."""
        from ripieno.mpi import topologies

        return topologies.cart(self, dims, periods)

    def Create_graph(self, index: Sequence[int], edges: Sequence[int], reorder: bool = False) -> Any:
        """Return a `Graphcomm`: rank ``i`` has the neighbors ``edges[index[i - 1]:index[i]]``."""
        from ripieno.mpi import topologies

        return topologies.graph(self, index, edges)

    def Create_dist_graph_adjacent(
        self,
        sources: Sequence[int] | None,
        destinations: Sequence[int] | None,
        sourceweights: Sequence[int] | None = None,
        destweights: Sequence[int] | None = None,
        info: Any = None,
        reorder: bool = False,
    ) -> Any:
        """Return a `Distgraphcomm`: each rank names the ranks that it receives from and sends to."""
        from ripieno.mpi import topologies

        return topologies.dist_graph_adjacent(self, sources, destinations, sourceweights, destweights)

    def Create_dist_graph(
        self,
        sources: Sequence[int],
        degrees: Sequence[int],
        destinations: Sequence[int],
        weights: Sequence[int] | None = None,
        info: Any = None,
        reorder: bool = False,
    ) -> Any:
        """Return a `Distgraphcomm` of edges that any ranks name: ``degrees[i]`` edges from ``sources[i]``."""
        from ripieno.mpi import topologies

        return topologies.dist_graph(self, sources, degrees, destinations, weights)

    def Cart_map(self, dims: Sequence[int], periods: Sequence[bool] | bool | None = None) -> int:
        """Return this rank in a grid, or `UNDEFINED`."""
        return self.rank if self.rank < math.prod(dims) else UNDEFINED

    def Graph_map(self, index: Sequence[int], edges: Sequence[int]) -> int:
        """Return this rank in a graph, or `UNDEFINED`."""
        from ripieno.mpi import topologies

        return self.rank if self.rank < topologies.node_count(index) else UNDEFINED
