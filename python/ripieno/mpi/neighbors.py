"""Collectives with the neighbors of a rank in a grid or graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ripieno.errors import InputError
from ripieno.mpi.base import MpiRank
from ripieno.mpi.buffers import buffer_of, incoming, outgoing
from ripieno.mpi.byte_blocks import byte_blocks
from ripieno.mpi.calls import Prepared, variants
from ripieno.mpi.constants import PROC_NULL
from ripieno.mpi.elements import Elements
from ripieno.mpi.pickling import leaving


class Edge(NamedTuple):
    """A connection to a peer. `number` distinguishes several edges between two ranks; it is equal on both ends."""

    peer: int
    number: int


class MpiNeighborCalls(MpiRank):
    """The calls of a rank to its neighbors."""

    #: The incoming and outgoing edges of this rank, in the order of the blocks.
    _incoming: Callable[[], list[Edge]]
    _leaving: Callable[[], list[Edge]]

    def neighbor_allgather(self, sendobj: Any) -> list[Any]:
        """Send an object to all neighbors, and return the objects of all neighbors."""
        return self.neighbor_alltoall([sendobj] * len(self._leaving()))

    def neighbor_alltoall(self, sendobj: Any) -> list[Any]:
        """Send one object to each neighbor, and return the objects of all neighbors; None for `PROC_NULL`."""
        values = [None] * len(self._leaving()) if sendobj is None else list(sendobj)
        received = self._comm.neighbour_exchange(self._by_peer([leaving(each) for each in values]))
        return [received[edge.peer][edge.number] if edge.peer != PROC_NULL else None for edge in self._incoming()]

    def _neighbor_allgather(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """Send a buffer to all neighbors, and receive a block from each neighbor."""
        into = incoming(recvbuf, "Neighbor_allgather").blocks(len(self._incoming()))
        return self._exchange([outgoing(sendbuf, "Neighbor_allgather")] * len(self._leaving()), into)

    def _neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """Send a buffer to all neighbors, and receive a part from each neighbor; parts may differ in length."""
        into = incoming(recvbuf, "Neighbor_allgatherv", is_vector=True).parts(len(self._incoming()))
        return self._exchange([outgoing(sendbuf, "Neighbor_allgatherv")] * len(self._leaving()), into)

    def _neighbor_alltoall(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """Send a block to each neighbor, and receive a block from each neighbor."""
        into = incoming(recvbuf, "Neighbor_alltoall").blocks(len(self._incoming()))
        given = buffer_of(sendbuf, "Neighbor_alltoall").blocks(len(self._leaving()))
        return self._exchange([each.read() for each in given], into)

    def _neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """Send a part to each neighbor, and receive a part from each neighbor; parts may differ in length."""
        into = incoming(recvbuf, "Neighbor_alltoallv", is_vector=True).parts(len(self._incoming()))
        given = buffer_of(sendbuf, "Neighbor_alltoallv", is_vector=True).parts(len(self._leaving()))
        return self._exchange([each.read() for each in given], into)

    def _neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """As `Neighbor_alltoallv`; each part has a type of its own, and displacements are in bytes."""
        into = byte_blocks(recvbuf, len(self._incoming()), "Neighbor_alltoallw", is_written=True)
        given = byte_blocks(sendbuf, len(self._leaving()), "Neighbor_alltoallw")
        return self._exchange([each.read() for each in given], into)

    Neighbor_allgather, Ineighbor_allgather, Neighbor_allgather_init = variants(_neighbor_allgather)
    Neighbor_allgatherv, Ineighbor_allgatherv, Neighbor_allgatherv_init = variants(_neighbor_allgatherv)
    Neighbor_alltoall, Ineighbor_alltoall, Neighbor_alltoall_init = variants(_neighbor_alltoall)
    Neighbor_alltoallv, Ineighbor_alltoallv, Neighbor_alltoallv_init = variants(_neighbor_alltoallv)
    Neighbor_alltoallw, Ineighbor_alltoallw, Neighbor_alltoallw_init = variants(_neighbor_alltoallw)

    def _exchange(self, values: list[Any], into: list[Elements]) -> Prepared:
        def finish(received: dict[int, dict[int, Any]]) -> None:
            for edge, elements in zip(self._incoming(), into, strict=True):
                if edge.peer != PROC_NULL:
                    elements.write(received[edge.peer][edge.number])

        return Prepared("neighbour_exchange", (self._by_peer(values),), finish, {})

    def _by_peer(self, values: list[Any]) -> dict[int, dict[int, Any]]:
        """Return the values by receiver and number of the edge."""
        edges = self._leaving()
        if len(values) != len(edges):
            raise InputError(f"{len(values)} values: expected one for each of {len(edges)} neighbors")
        found: dict[int, dict[int, Any]] = {}
        for edge, value in zip(edges, values, strict=True):
            if edge.peer != PROC_NULL:
                found.setdefault(edge.peer, {})[edge.number] = value
        return found
