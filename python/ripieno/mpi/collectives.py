"""Collectives: of objects by the names in small letters, of buffers by those in capitals."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.mpi.constants import IN_PLACE
from ripieno.mpi.datatypes import Buffer, buffer_of
from ripieno.mpi.operations import SUM, Op
from ripieno.mpi.place import MpiRank
from ripieno.wire.arrays import is_plain


class _Box(NamedTuple):
    """An object on its way: what is in it comes out as it was, lists and tuples too."""

    value: Any


class MpiCollectiveCalls(MpiRank):
    """The calls of a communicator that all its ranks make."""

    # Objects

    def barrier(self) -> None:
        """Return when all have come."""
        self._comm.barrier()

    Barrier = barrier

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        """The object of the root."""
        boxed: _Box = self._comm.broadcast(_Box(obj) if self.rank == root else None, root)
        return obj if self.rank == root else boxed.value

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """The objects of all, at the root."""
        boxes = self._comm.gather(_Box(sendobj), root)
        return None if boxes is None else [box.value for box in boxes]

    def allgather(self, sendobj: Any) -> list[Any]:
        """The objects of all."""
        return [box.value for box in self._comm.allgather(_Box(sendobj))]

    def scatter(self, sendobj: Any = None, root: int = 0) -> Any:
        """This rank's object of the root's."""
        boxes = [_Box(each) for each in sendobj] if self.rank == root else None
        return self._comm.scatter(boxes, root).value

    def alltoall(self, sendobj: Any) -> list[Any]:
        """From each rank the object that it has for this one."""
        return [box.value for box in self._comm.alltoall([_Box(each) for each in sendobj])]

    def reduce(self, sendobj: Any, op: Op = SUM, root: int = 0) -> Any:
        """The combination of all objects, in the order of the ranks, at the root."""
        gathered = self.gather(sendobj, root)
        return None if gathered is None else reduce(op, gathered)

    def allreduce(self, sendobj: Any, op: Op = SUM) -> Any:
        """The combination of all objects, in the order of the ranks."""
        return reduce(op, self.allgather(sendobj))

    def scan(self, sendobj: Any, op: Op = SUM) -> Any:
        """The combination of the objects of the ranks up to this one."""
        return reduce(op, self.allgather(sendobj)[: self.rank + 1])

    def exscan(self, sendobj: Any, op: Op = SUM) -> Any:
        """The combination of the objects of the ranks before this one; None of the first."""
        before = self.allgather(sendobj)[: self.rank]
        return reduce(op, before) if before else None

    # Buffers

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """The buffer of the root."""
        array = buf if _is_line(buf) else buffer_of(buf).array
        self._comm.broadcast(array if self.rank == root else None, root, out=_known(array))

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """The buffers of all, at the root; those of ranks may differ in length."""
        into = buffer_of(recvbuf) if self.rank == root else None
        mine = into.parts(self.size)[root] if into and sendbuf is IN_PLACE else buffer_of(sendbuf).array
        came = self._comm.gather(mine, root)
        if into is not None and came is not None:
            _place(into.parts(self.size), came)

    Gatherv = Gather

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """The buffers of all; those of ranks may differ in length."""
        into = buffer_of(recvbuf)
        parts = into.parts(self.size)
        mine = parts[self.rank].copy() if sendbuf is IN_PLACE else buffer_of(sendbuf).array
        _place(parts, self._comm.allgather(mine))

    Allgatherv = Allgather

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """This rank's part of the root's buffer."""
        parts = buffer_of(sendbuf).parts(self.size) if self.rank == root else None
        came = self._comm.scatter(parts, root)
        if recvbuf is not IN_PLACE:
            _place([buffer_of(recvbuf).array], [came])

    Scatterv = Scatter

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """From each rank the part that it has for this one."""
        into = buffer_of(recvbuf).parts(self.size)
        out = [part.copy() for part in into] if sendbuf is IN_PLACE else buffer_of(sendbuf).parts(self.size)
        _place(into, self._comm.alltoall(out))

    Alltoallv = Alltoall

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> None:
        """The combination of all buffers, at the root."""
        into = buffer_of(recvbuf) if self.rank == root else None
        given = into if into is not None and sendbuf is IN_PLACE else buffer_of(sendbuf)
        result = self._comm.reduce(_paired(given.array, op), op.combine, root)
        if into is not None:
            _place([into.array], [result])

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """The combination of all buffers."""
        mine = recvbuf if sendbuf is IN_PLACE else sendbuf
        if type(op.combine) is str and _is_line(recvbuf) and (mine is recvbuf or _is_like(mine, recvbuf)):
            # The common case, in which no array need be made.
            self._comm.allreduce(mine, op.combine, out=recvbuf)
            return
        into, given = _both(sendbuf, recvbuf)
        _place([into.array], [self._comm.allreduce(_paired(given.array, op), op.combine)])

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """The combination of the buffers of the ranks up to this one."""
        into, given = _both(sendbuf, recvbuf)
        _place([into.array], [self._comm.scan(_paired(given.array, op), op.combine)])

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """The combination of the buffers of the ranks before this one; that of the first stays as it is."""
        into, given = _both(sendbuf, recvbuf)
        result = self._comm.exscan(_paired(given.array, op), op.combine)
        if self.rank > 0:
            _place([into.array], [result])

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """This rank's part of the combination of all buffers."""
        into, given = _both(sendbuf, recvbuf)
        _place([into.array], [self._comm.reduce_scatter(given.array, op.combine)])

    def Reduce_scatter(self, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Op = SUM) -> None:
        """This rank's part, of so many elements, of the combination of all buffers."""
        into, given = _both(sendbuf, recvbuf)
        counts = None if recvcounts is None else [int(each) for each in recvcounts]
        _place([into.array], [self._comm.reduce_scatter(given.array, op.combine, counts=counts)])


def _both(sendbuf: Any, recvbuf: Any) -> tuple[Buffer, Buffer]:
    into = buffer_of(recvbuf)
    return into, into if sendbuf is IN_PLACE else buffer_of(sendbuf)


def _is_line(buffer: Any) -> bool:
    """Whether it can be received into as it is, and has one axis, as buffers have between ranks."""
    return is_plain(buffer) and buffer.ndim == 1


def _is_like(buffer: Any, line: NDArray[Any]) -> bool:
    return type(buffer) is np.ndarray and buffer.shape == line.shape and buffer.dtype == line.dtype


def _paired(array: NDArray[Any], op: Op) -> NDArray[Any]:
    """For operations on pairs: rows of a value and a place, which are never cut."""
    return array.reshape(-1, 2) if op.name in ("MINLOC", "MAXLOC") else array


def _known(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(np.uint8) if array.dtype.kind not in "iufb" else array


def _place(parts: list[NDArray[Any]], came: Any) -> None:
    """Put what came at the beginning of each part."""
    for part, value in zip(parts, came, strict=False):
        line = np.asarray(value).reshape(-1)
        if line.dtype != part.dtype:
            line = line.view(np.uint8).view(part.dtype)
        part[: line.size] = line
