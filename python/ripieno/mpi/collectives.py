"""Collectives of buffers: the upper-case names, each blocking, non-blocking and persistent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.mpi.base import MpiRank
from ripieno.mpi.buffers import BufferArgument, buffer_of, incoming, is_in_place, outgoing
from ripieno.mpi.byte_blocks import byte_blocks
from ripieno.mpi.calls import Prepared, ignore, variants
from ripieno.mpi.elements import Elements
from ripieno.mpi.operations import SUM, Op
from ripieno.wire.arrays import is_native_order, is_plain


class MpiBufferCalls(MpiRank):
    """The collective calls of a communicator on buffers."""

    def _barrier(self) -> Prepared:
        """Return when all ranks have called it."""
        return Prepared("barrier", (), ignore, {})

    def _bcast(self, buf: Any, root: int = 0) -> Prepared:
        """Broadcast the buffer of the root."""
        is_root = self.rank == root
        elements = (buffer_of if is_root else incoming)(buf, "Bcast").elements
        line = elements.read() if is_root else np.empty(elements.size, elements.dtype)
        sent = line if is_native_order(elements.dtype) else line.view(np.uint8)
        if not is_root:
            return Prepared("broadcast", (None, root), lambda got: elements.write(got.view(line.dtype)), {"out": sent})
        return Prepared("broadcast", (sent, root), ignore, {"out": sent if sent.flags.writeable else sent.copy()})

    def _gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Prepared:
        """Gather the buffers of all ranks at the root."""
        return self._gathered(sendbuf, recvbuf, root, "Gather", "blocks")

    def _gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Prepared:
        """Gather the buffers of all ranks, of different lengths, at the root."""
        return self._gathered(sendbuf, recvbuf, root, "Gatherv", "parts")

    def _allgather(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """Gather the buffers of all ranks on every rank."""
        return self._gathered(sendbuf, recvbuf, None, "Allgather", "blocks")

    def _allgatherv(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """Gather the buffers of all ranks, of different lengths, on every rank."""
        return self._gathered(sendbuf, recvbuf, None, "Allgatherv", "parts")

    def _scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Prepared:
        """Receive this rank's block of the root's buffer."""
        return self._scattered(sendbuf, recvbuf, root, "Scatter", "blocks")

    def _scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Prepared:
        """Receive this rank's part of the root's buffer; parts may differ in length."""
        return self._scattered(sendbuf, recvbuf, root, "Scatterv", "parts")

    def _alltoall(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """Receive, from each rank, its block for this rank."""
        return self._exchanged(sendbuf, recvbuf, "Alltoall", "blocks")

    def _alltoallv(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """Receive, from each rank, its part for this rank; parts may have different lengths."""
        return self._exchanged(sendbuf, recvbuf, "Alltoallv", "parts")

    def _alltoallw(self, sendbuf: Any, recvbuf: Any) -> Prepared:
        """Receive, from each rank, its part for this rank; each has a type of its own, and displacements in bytes."""
        into = byte_blocks(recvbuf, self.size, "Alltoallw", is_written=True)
        given = into if is_in_place(sendbuf) else byte_blocks(sendbuf, self.size, "Alltoallw")
        return Prepared("alltoall", ([each.copy() for each in given],), lambda got: write_all(into, got), {})

    def _reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> Prepared:
        """Combine all buffers at the root."""
        if self.rank != root:
            # A rank other than the root may pass its input in either place.
            given = buffer_of(recvbuf if is_in_place(sendbuf) else sendbuf, "Reduce")
            return Prepared("reduce", (*_operands(given, op), root), ignore, {})
        into, given = _both(sendbuf, recvbuf, "Reduce")
        return Prepared("reduce", (*_operands(given, op), root), into.write, {})

    def _allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Prepared:
        """Combine all buffers on every rank."""
        into, given = _both(sendbuf, recvbuf, "Allreduce")
        return Prepared("allreduce", _operands(given, op), into.write, {})

    def _scan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Prepared:
        """Combine the buffers of ranks 0 to this rank, inclusive."""
        into, given = _both(sendbuf, recvbuf, "Scan")
        return Prepared("scan", _operands(given, op), into.write, {})

    def _exscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Prepared:
        """Combine the buffers of lower ranks; the result buffer of rank 0 is unchanged."""
        into, given = _both(sendbuf, recvbuf, "Exscan")
        return Prepared("exscan", _operands(given, op), into.write if self.rank else ignore, {})

    def _reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Prepared:
        """Receive this rank's block of the combination of all buffers. All blocks have equal sizes."""
        into = incoming(recvbuf, "Reduce_scatter_block")
        size = into.elements.size
        count, rest = divmod(size, self.size) if is_in_place(sendbuf) else (size, 0)
        if rest:
            raise InputError(f"{into.call}: {size} elements in place: expected a multiple of {self.size} ranks")
        return self._scattered_sums(into, sendbuf, [count] * self.size, op)

    def _reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM
    ) -> Prepared:
        """Receive this rank's part, of `recvcounts` elements, of the combination of all buffers.

        Without counts each rank gets as many elements as its result buffer has; in place, an equal share of them.
        """
        into = incoming(recvbuf, "Reduce_scatter")
        if recvcounts is None and is_in_place(sendbuf):
            recvcounts = [each.size for each in into.parts(self.size)]
        elif recvcounts is None:
            recvcounts = self._comm.allgather(into.elements.size)
        else:
            value_count = 1 if into.layout is None else into.layout.value_count
            recvcounts = [int(count) * value_count for count in recvcounts]
        return self._scattered_sums(into, sendbuf, list(recvcounts), op)

    Barrier, Ibarrier, Barrier_init = variants(_barrier)
    _Bcast, Ibcast, Bcast_init = variants(_bcast)
    Gather, Igather, Gather_init = variants(_gather)
    Gatherv, Igatherv, Gatherv_init = variants(_gatherv)
    Allgather, Iallgather, Allgather_init = variants(_allgather)
    Allgatherv, Iallgatherv, Allgatherv_init = variants(_allgatherv)
    Scatter, Iscatter, Scatter_init = variants(_scatter)
    Scatterv, Iscatterv, Scatterv_init = variants(_scatterv)
    Alltoall, Ialltoall, Alltoall_init = variants(_alltoall)
    Alltoallv, Ialltoallv, Alltoallv_init = variants(_alltoallv)
    Alltoallw, Ialltoallw, Alltoallw_init = variants(_alltoallw)
    Reduce, Ireduce, Reduce_init = variants(_reduce)
    _Allreduce, Iallreduce, Allreduce_init = variants(_allreduce)
    Scan, Iscan, Scan_init = variants(_scan)
    Exscan, Iexscan, Exscan_init = variants(_exscan)
    Reduce_scatter, Ireduce_scatter, Reduce_scatter_init = variants(_reduce_scatter)
    Reduce_scatter_block, Ireduce_scatter_block, Reduce_scatter_block_init = variants(_reduce_scatter_block)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """Broadcast the buffer of the root."""
        if _is_line(buf):
            # Fast path: the common case needs no conversion to arrays.
            self._comm.broadcast(buf if self.rank == root else None, root, out=buf)
        else:
            self._Bcast(buf, root)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combine all buffers on every rank."""
        mine = recvbuf if is_in_place(sendbuf) else sendbuf
        if type(op.combine) is str and _is_line(recvbuf) and (mine is recvbuf or _is_like(mine, recvbuf)):
            self._comm.allreduce(mine, op.combine, out=recvbuf)
        else:
            self._Allreduce(sendbuf, recvbuf, op)

    def _gathered(self, sendbuf: Any, recvbuf: Any, root: int | None, call: str, division: str) -> Prepared:
        method, ranks = ("allgather", ()) if root is None else ("gather", (root,))
        if root not in (None, self.rank):
            return Prepared(method, (outgoing(sendbuf, call), *ranks), ignore, {})
        into = incoming(recvbuf, call, is_vector=division == "parts")
        blocks: list[Elements] = getattr(into, division)(self.size)
        mine = blocks[self.rank].copy() if is_in_place(sendbuf) else outgoing(sendbuf, call)
        return Prepared(method, (mine, *ranks), lambda got: write_all(blocks, got), {})

    def _scattered(self, sendbuf: Any, recvbuf: Any, root: int, call: str, division: str) -> Prepared:
        is_root = self.rank == root
        into = None if is_root and is_in_place(recvbuf) else incoming(recvbuf, call).elements
        values = None
        if is_root:
            blocks = getattr(buffer_of(sendbuf, call, is_vector=division == "parts"), division)(self.size)
            values = [each.read() for each in blocks]
        return Prepared("scatter", (values, root), ignore if into is None else into.write, {})

    def _exchanged(self, sendbuf: Any, recvbuf: Any, call: str, division: str) -> Prepared:
        is_vector = division == "parts"
        blocks: list[Elements] = getattr(incoming(recvbuf, call, is_vector=is_vector), division)(self.size)
        if is_in_place(sendbuf):
            values = [each.copy() for each in blocks]
        else:
            given = getattr(buffer_of(sendbuf, call, is_vector=is_vector), division)(self.size)
            values = [each.read() for each in given]
        return Prepared("alltoall", (values,), lambda got: write_all(blocks, got), {})

    def _scattered_sums(self, into: BufferArgument, sendbuf: Any, counts: list[int], op: Op) -> Prepared:
        given, elements = into if is_in_place(sendbuf) else buffer_of(sendbuf, into.call), into.elements
        _check_type(into, given)
        rows, combine = _operands(given, op)
        if len(counts) != self.size or rows.size != sum(counts):
            raise InputError(
                f"{into.call}: {rows.size} elements: expected {sum(counts)}, the sum of {counts} for {self.size} ranks"
            )
        is_whole = not is_in_place(sendbuf) and elements.size == counts[self.rank]
        if rows.ndim == 2:
            width = rows.shape[1]
            if any(count % width for count in counts):
                raise InputError(
                    f"{into.call}: {op.name} of {counts} elements per rank: expected a multiple of {width} for each"
                )
            counts = [count // width for count in counts]
        return Prepared(
            "reduce_scatter",
            (rows, combine),
            lambda part: elements.write(part, is_whole=is_whole),
            {"counts": counts},
        )


def write_all(blocks: list[Elements], received: list[Any]) -> None:
    """Write the received data of each rank into the elements of its block."""
    for block, value in zip(blocks, received, strict=True):
        block.write(value)


def _both(sendbuf: Any, recvbuf: Any, call: str) -> tuple[Elements, BufferArgument]:
    """Return the result's elements, and this rank's input with the same type and number of elements."""
    into = incoming(recvbuf, call)
    given = into if is_in_place(sendbuf) else buffer_of(sendbuf, call)
    _check_type(into, given)
    sizes = given.elements.size, into.elements.size
    if sizes[0] != sizes[1]:
        raise InputError(f"{call}: {sizes[0]} elements to send and {sizes[1]} to receive: expected equal numbers")
    return into.elements, given


def _check_type(into: BufferArgument, given: BufferArgument) -> None:
    if given.dtype != into.dtype:
        raise InputError(f"{into.call}: {given.dtype} to send and {into.dtype} to receive: expected one type")


def _is_line(buffer: Any) -> bool:
    """Return whether a buffer can receive without conversion, and has one axis like buffers in transit."""
    return is_plain(buffer) and buffer.ndim == 1


def _is_like(buffer: Any, line: NDArray[Any]) -> bool:
    return type(buffer) is np.ndarray and buffer.shape == line.shape and buffer.dtype == line.dtype


def _operands(given: BufferArgument, op: Op) -> tuple[NDArray[Any], Any]:
    """Return the input of a reduction, and the operation."""
    return op.on_values(given.elements.read(), given.datatype)
