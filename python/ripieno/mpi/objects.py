"""Collectives of objects: the lower-case names."""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

from ripieno.errors import InputError
from ripieno.mpi.base import MpiRank
from ripieno.mpi.operations import SUM, Op
from ripieno.mpi.pickling import leaving


class Box(NamedTuple):
    """A wrapper for an object in transit, so that lists and tuples are not treated as tables or arrays."""

    value: Any


class MpiObjectCalls(MpiRank):
    """The collective calls of a communicator on objects."""

    def barrier(self) -> None:
        """Return when all ranks have called it."""
        self._comm.barrier()

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        """Return the object of the root."""
        boxed: Box = self._comm.broadcast(Box(leaving(obj)) if self.rank == root else None, root)
        return obj if self.rank == root else boxed.value

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """Return the objects of all ranks at the root, and None elsewhere."""
        boxes = self._comm.gather(Box(leaving(sendobj)), root)
        return None if boxes is None else [box.value for box in boxes]

    def allgather(self, sendobj: Any) -> list[Any]:
        """Return the objects of all ranks."""
        return [box.value for box in self._comm.allgather(Box(leaving(sendobj)))]

    def scatter(self, sendobj: Any = None, root: int = 0) -> Any:
        """Return this rank's item of the root's list."""
        boxes = self._boxes(sendobj, "scatter") if self.rank == root else None
        return self._comm.scatter(boxes, root).value

    def alltoall(self, sendobj: Any) -> list[Any]:
        """Return, from each rank, its item for this rank."""
        return [box.value for box in self._comm.alltoall(self._boxes(sendobj, "alltoall"))]

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

    def _boxes(self, objects: Any, call: str) -> list[Box]:
        boxes = [Box(leaving(each)) for each in ([None] * self.size if objects is None else objects)]
        if len(boxes) != self.size:
            raise InputError(f"{call}: {len(boxes)} objects: expected one for each of {self.size} ranks")
        return boxes
