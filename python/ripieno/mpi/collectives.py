"""Collectives: lower-case names operate on objects, upper-case names on buffers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.mpi.base import MpiRank
from ripieno.mpi.buffers import BufferArgument, buffer_of, incoming, is_in_place, native, outgoing
from ripieno.mpi.operations import SUM, Op
from ripieno.wire.arrays import is_native_order, is_plain


class _Box(NamedTuple):
    """A wrapper for an object in transit, so that lists and tuples are not treated as tables or arrays."""

    value: Any


class MpiCollectiveCalls(MpiRank):
    """The collective calls of a communicator."""

    # Objects

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self._comm.barrier()

    Barrier = barrier

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        """Return the object of the root."""
        boxed: _Box = self._comm.broadcast(_Box(obj) if self.rank == root else None, root)
        return obj if self.rank == root else boxed.value

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Return the objects of all ranks at the root, and None elsewhere."""
        boxes = self._comm.gather(_Box(sendobj), root)
        return None if boxes is None else [box.value for box in boxes]

    def allgather(self, sendobj: Any) -> list[Any]:
        """Return the objects of all ranks."""
        return [box.value for box in self._comm.allgather(_Box(sendobj))]

    def scatter(self, sendobj: Any = None, root: int = 0) -> Any:
        """Return this rank's item of the root's list."""
        boxes = [_Box(each) for each in sendobj] if self.rank == root else None
        return self._comm.scatter(boxes, root).value

    def alltoall(self, sendobj: Any) -> list[Any]:
        """Return, from each rank, its item for this rank."""
        return [box.value for box in self._comm.alltoall([_Box(each) for each in sendobj])]

    def reduce(self, sendobj: Any, op: Op = SUM, root: int = 0) -> Any:
        """Return the combination of all objects, in order of rank, at the root, and None elsewhere."""
        gathered = self.gather(sendobj, root)
        return None if gathered is None else reduce(op, gathered)

    def allreduce(self, sendobj: Any, op: Op = SUM) -> Any:
        """Return the combination of all objects, in order of rank."""
        return reduce(op, self.allgather(sendobj))

    def scan(self, sendobj: Any, op: Op = SUM) -> Any:
        """Return the combination of the objects of ranks 0 to this rank, inclusive."""
        return reduce(op, self.allgather(sendobj)[: self.rank + 1])

    def exscan(self, sendobj: Any, op: Op = SUM) -> Any:
        """Return the combination of the objects of lower ranks; None on rank 0."""
        before = self.allgather(sendobj)[: self.rank]
        return reduce(op, before) if before else None

    # Buffers

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Broadcast the buffer of the root."""
        if _is_line(buf):
            self._comm.broadcast(buf if self.rank == root else None, root, out=buf)
            return
        into = buffer_of(buf, "Bcast") if self.rank == root else incoming(buf, "Bcast")
        view = into.elements
        elements = native(view)
        line = elements if is_native_order(elements.dtype) else elements.view(np.uint8)
        if self.rank == root:
            self._comm.broadcast(line, root, out=line if line.flags.writeable else line.copy())
        else:
            received = self._comm.broadcast(None, root, out=np.empty_like(line))
            into.put(view, received.view(elements.dtype))

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Gather the buffers of all ranks, possibly of different lengths, at the root."""
        if self.rank != root:
            self._comm.gather(outgoing(sendbuf, "Gather"), root)
            return
        into = incoming(recvbuf, "Gather")
        blocks = into.blocks(self.size)
        mine = native(blocks[root]) if is_in_place(sendbuf) else outgoing(sendbuf, "Gather")
        _put_all(into, blocks, self._comm.gather(mine, root) or [])

    Gatherv = Gather

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """Gather the buffers of all ranks, possibly of different lengths, on every rank."""
        into = incoming(recvbuf, "Allgather")
        blocks = into.blocks(self.size)
        mine = native(blocks[self.rank]).copy() if is_in_place(sendbuf) else outgoing(sendbuf, "Allgather")
        _put_all(into, blocks, self._comm.allgather(mine))

    Allgatherv = Allgather

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """Receive this rank's part of the root's buffer."""
        keeps = self.rank == root and is_in_place(recvbuf)
        into = None if keeps else incoming(recvbuf, "Scatter")
        parts = None
        if self.rank == root:
            parts = [native(block) for block in buffer_of(sendbuf, "Scatter").blocks(self.size)]
        received = self._comm.scatter(parts, root)
        if into is not None:
            into.put(into.elements, received)

    Scatterv = Scatter

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Receive, from each rank, its part for this rank."""
        into = incoming(recvbuf, "Alltoall")
        blocks = into.blocks(self.size)
        if is_in_place(sendbuf):
            out = [native(block).copy() for block in blocks]
        else:
            out = [native(block) for block in buffer_of(sendbuf, "Alltoall").blocks(self.size)]
        _put_all(into, blocks, self._comm.alltoall(out))

    Alltoallv = Alltoall

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> None:
        """Combine all buffers at the root."""
        if self.rank != root:
            self._comm.reduce(_paired(outgoing(sendbuf, "Reduce"), op), op.combine, root)
            return
        into, given = _both(sendbuf, recvbuf, "Reduce")
        into.put(into.elements, self._comm.reduce(_paired(given, op), op.combine, root))

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combine all buffers on every rank."""
        mine = recvbuf if is_in_place(sendbuf) else sendbuf
        if type(op.combine) is str and _is_line(recvbuf) and (mine is recvbuf or _is_like(mine, recvbuf)):
            # The common case needs no conversion to arrays.
            self._comm.allreduce(mine, op.combine, out=recvbuf)
            return
        into, given = _both(sendbuf, recvbuf, "Allreduce")
        into.put(into.elements, self._comm.allreduce(_paired(given, op), op.combine))

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combine the buffers of ranks 0 to this rank, inclusive."""
        into, given = _both(sendbuf, recvbuf, "Scan")
        into.put(into.elements, self._comm.scan(_paired(given, op), op.combine))

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combine the buffers of lower ranks; the result buffer of rank 0 is unchanged."""
        into, given = _both(sendbuf, recvbuf, "Exscan")
        result = self._comm.exscan(_paired(given, op), op.combine)
        if self.rank > 0:
            into.put(into.elements, result)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Receive this rank's block of the combination of all buffers. All blocks have equal sizes."""
        into = incoming(recvbuf, "Reduce_scatter_block")
        size = into.elements.size
        count, rest = divmod(size, self.size) if is_in_place(sendbuf) else (size, 0)
        if rest:
            raise InputError(f"{into.call}: {size} elements in place: expected a multiple of {self.size} ranks")
        self._scatter_sums(into, sendbuf, [count] * self.size, op)

    def Reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM) -> None:
        """Receive this rank's part, of `recvcounts` elements, of the combination of all buffers.

        Without counts each rank gets as many elements as its result buffer has.
        """
        into = incoming(recvbuf, "Reduce_scatter")
        if recvcounts is None:
            recvcounts = self._comm.allgather(into.elements.size)
        self._scatter_sums(into, sendbuf, [int(count) for count in recvcounts], op)

    def _scatter_sums(self, into: BufferArgument, sendbuf: Any, counts: list[int], op: Op) -> None:
        view = into.elements
        given = native(view) if is_in_place(sendbuf) else outgoing(sendbuf, into.call)
        _check_type(into, given)
        if len(counts) != self.size or given.size != sum(counts):
            raise InputError(f"{into.call}: {given.size} elements: expected those of {self.size} ranks, {counts}")
        part = self._comm.reduce_scatter(given, op.combine, counts=counts)
        into.put(view[: counts[self.rank]] if is_in_place(sendbuf) else view, part)


def _both(sendbuf: Any, recvbuf: Any, call: str) -> tuple[BufferArgument, NDArray[Any]]:
    """Return the result buffer of a reduction, and this rank's input with the same type and number of elements."""
    into = incoming(recvbuf, call)
    given = native(into.elements) if is_in_place(sendbuf) else outgoing(sendbuf, call)
    _check_type(into, given)
    if given.size != into.elements.size:
        raise InputError(f"{call}: {given.size} elements to send and {into.elements.size} to receive: expected as many")
    return into, given


def _check_type(into: BufferArgument, given: NDArray[Any]) -> None:
    if given.dtype != into.memory.dtype.newbyteorder("="):
        raise InputError(f"{into.call}: {given.dtype} to send and {into.memory.dtype} to receive: expected one type")


def _put_all(into: BufferArgument, blocks: list[NDArray[Any]], received: list[Any]) -> None:
    for block, value in zip(blocks, received, strict=True):
        into.put(block, value)


def _is_line(buffer: Any) -> bool:
    """Return whether a buffer can receive without conversion, and has one axis like buffers in transit."""
    return is_plain(buffer) and buffer.ndim == 1


def _is_like(buffer: Any, line: NDArray[Any]) -> bool:
    return type(buffer) is np.ndarray and buffer.shape == line.shape and buffer.dtype == line.dtype


def _paired(array: NDArray[Any], op: Op) -> NDArray[Any]:
    """Return the input for operations on pairs as rows of value and location, which are never split."""
    if op.name not in ("MINLOC", "MAXLOC") or array.dtype.names:
        return array
    if array.size % 2:
        raise InputError(f"{op.name}: {array.size} elements: expected pairs of a value and a place")
    return array.reshape(-1, 2)
