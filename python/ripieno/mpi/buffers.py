"""Parsing of buffer arguments: memory, datatype, and the elements of each rank."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.mpi.constants import BOTTOM, IN_PLACE
from ripieno.mpi.datatypes import Datatype, type_of, typed
from ripieno.mpi.elements import Elements
from ripieno.mpi.layouts import Layout
from ripieno.mpi.memory import BufferAccessError, BufferTypeError, memory_of


class BufferArgument(NamedTuple):
    """A validated buffer.

    Attributes
    ----------
    call : str
        The name of the call, for messages.
    memory : ndarray of one axis
        The whole memory: of the datatype, in the memory's byte order, or of bytes for a derived datatype.
    layout : Layout, optional
        The layout of an element of a derived datatype.
    counts : None, int, or list of int
        Number of elements of the message, or of each block; None means all.
    starts : None, int, or list of int
        Offset of the message, or of each block, in elements.
    given_type : Datatype, optional
        The datatype in the argument.
    """

    call: str
    memory: NDArray[Any]
    layout: Layout | None = None
    counts: int | list[int] | None = None
    starts: int | list[int] | None = None
    given_type: Datatype | None = None

    @property
    def datatype(self) -> Datatype:
        """The datatype of an element."""
        return type_of(self.dtype) if self.given_type is None else self.given_type

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values, in the byte order of this machine."""
        return (self.memory if self.layout is None else self.layout).dtype.newbyteorder("=")

    @property
    def elements(self) -> Elements:
        """The elements of one message."""
        if isinstance(self.counts, list) or isinstance(self.starts, list):
            raise InputError(f"{self.call}: counts={self.counts}: expected one number of elements")
        if self.layout is None and self.counts is None and self.starts is None:
            return Elements(self.call, [self.memory], self.dtype)
        start = self.starts or 0
        if self.layout is None and start > self.memory.size:
            raise InputError(f"{self.call}: displacement {start}: expected at most the {self.memory.size} elements")
        return self._view(start, self._count_from(start) if self.counts is None else self.counts)

    def blocks(self, rank_count: int) -> list[Elements]:
        """Return the elements of each rank, in blocks of equal size. A given count is the size of a block."""
        if isinstance(self.counts, list) or isinstance(self.starts, list):
            raise InputError(
                f"{self.call}: counts={self.counts}: expected one number; use the v-call for unequal blocks"
            )
        start, count = self.starts or 0, self.counts
        if count is None:
            whole = self._count_from(start)
            count, rest = divmod(whole, rank_count or 1)
            if rest:
                raise InputError(f"{self.call}: {whole} elements: expected a multiple of {rank_count} ranks")
        return [self._view(start + rank * count, count) for rank in range(rank_count)]

    def parts(self, rank_count: int) -> list[Elements]:
        """Return the elements of each rank, possibly of different sizes."""
        counts, starts = self.counts, self.starts
        if counts is None:
            least, rest = divmod(self._count_from(0), rank_count or 1)
            counts = [least + (rank < rest) for rank in range(rank_count)]
        elif isinstance(counts, int):
            counts = [counts] * rank_count
        if starts is None:
            starts = [0, *np.cumsum(counts[:-1]).tolist()]
        elif isinstance(starts, int):
            starts = [rank * starts for rank in range(rank_count)]
        if len(counts) != rank_count or len(starts) != rank_count:
            raise InputError(
                f"{self.call}: {len(counts)} counts and {len(starts)} displacements: expected {rank_count} of each"
            )
        return [self._view(start, count) for start, count in zip(starts, counts, strict=True)]

    def _count_from(self, start: int) -> int:
        """Return the number of elements from `start` to the end of the memory."""
        if self.layout is None:
            return self._view(start, max(self.memory.size - start, 0)).size
        if not self.memory.size:
            return 0
        count, rest = divmod(self.memory.size, self.layout.extent) if self.layout.extent > 0 else (0, 1)
        if rest or start > count:
            raise InputError(
                f"{self.call}: {self.memory.size} bytes, elements of {self.layout.extent} from {start} on: expected a "
                "multiple, or a count"
            )
        return count - start

    def _view(self, start: int, count: int) -> Elements:
        if start < 0 or count < 0:
            raise InputError(f"{self.call}: count {count}, displacement {start}: expected 0 or more")
        if self.layout is not None:
            try:
                views = self.layout.views(self.memory, start * self.layout.extent, count) if count else []
            except (TypeError, ValueError):
                raise InputError(
                    f"{self.call}: {count} elements from {start} on, with an extent of {self.layout.extent} bytes: "
                    f"expected some of the {self.memory.size} bytes of the buffer"
                ) from None
            return Elements(self.call, views, self.dtype)
        if count and start + count > self.memory.size:
            raise InputError(
                f"{self.call}: {count} elements from {start} on: expected some of the {self.memory.size} of the buffer"
            )
        return Elements(self.call, [self.memory[start : start + count]], self.dtype)


def is_in_place(given: Any) -> bool:
    """Return whether a call operates in place: its input lies in the result buffer."""
    return given is None or given is IN_PLACE


def outgoing(given: Any, call: str) -> NDArray[Any]:
    """Return the values of a message, in the byte order of this machine."""
    return buffer_of(given, call).elements.read()


def incoming(given: Any, call: str, *, is_vector: bool = False) -> BufferArgument:
    """Return a writable buffer."""
    return _writable(buffer_of(given, call, is_vector=is_vector))


def octets_of(given: Any, call: str, *, is_written: bool = False) -> NDArray[np.uint8]:
    """Return the whole memory of a buffer as bytes."""
    buffer = buffer_of(given, call)
    return (_writable(buffer) if is_written else buffer).memory.view(np.uint8)


def buffer_of(given: Any, call: str, *, is_vector: bool = False) -> BufferArgument:
    """Parse a buffer argument: an array, or a list of an array with counts, displacements and a type.

    Lists are ``[memory, type]``, ``[memory, counts, type]``, ``[memory, (counts, displacements), type]`` and ``[memory,
    counts, displacements, type]``. The type may be omitted or None. Displacements are in elements. With `is_vector`
    there is a count for each rank, so a list contains counts and is not a pair of count and displacement.
    """
    if given is None:
        return BufferArgument(call, np.empty(0, np.uint8))
    if not isinstance(given, list | tuple):
        return BufferArgument(call, memory_of(given, call))
    if not 2 <= len(given) <= 4:
        raise InputError(f"{call}: a buffer of {len(given)} parts: expected memory, counts, displacements and a type")
    memory, *rest = given
    has_kind = len(rest) == 3 or isinstance(rest[-1], str | Datatype) or (len(rest) == 2 and rest[-1] is None)
    code = rest.pop() if has_kind else None
    kind = None if code is None else typed(code)
    if len(rest) == 1 and isinstance(rest[0], tuple if is_vector else tuple | list) and len(rest[0]) == 2:
        rest = list(rest[0])
    counts, starts = (*(numbers_of(each, call) for each in rest), None, None)[:2]
    if memory is None or memory is BOTTOM:
        return BufferArgument(call, np.empty(0, np.uint8 if kind is None else kind.dtype), None, counts, starts, kind)
    whole = memory_of(memory, call)
    return BufferArgument(call, *_typed(whole, kind, call, has_counts=counts is not None), counts, starts, kind)


def numbers_of(given: Any, call: str) -> int | list[int] | None:
    """Return counts or displacements: a whole number, a list of them, or None."""
    if given is None:
        return None
    try:
        if np.ndim(given) == 0:
            return operator.index(given)
        return [operator.index(each) for each in given]
    except TypeError:
        raise BufferTypeError(f"{call}: counts or displacements {given!r}: expected whole numbers") from None


def _writable(buffer: BufferArgument) -> BufferArgument:
    if not buffer.memory.flags.writeable and buffer.memory.size:
        raise BufferAccessError(f"{buffer.call}: expected memory that can be written to")
    return buffer


def _typed(
    memory: NDArray[Any], kind: Datatype | None, call: str, *, has_counts: bool
) -> tuple[NDArray[Any], Layout | None]:
    """Return the memory as elements of a datatype, or as bytes, and the layout of an element in them."""
    if kind is None:
        return memory, None
    layout = kind.layout
    if layout.is_plain and layout.value_count == 1:
        if layout.dtype == memory.dtype.newbyteorder("="):
            return memory, None
        size = layout.dtype.itemsize
        if memory.nbytes % size and not has_counts:
            raise InputError(f"{call}: {memory.nbytes} bytes: expected a multiple of the {size} of {kind}")
        return memory.view(np.uint8)[: memory.nbytes // size * size].view(layout.dtype), None
    if layout.dtype == memory.dtype.newbyteorder("="):
        layout = layout._replace(dtype=memory.dtype)
    return memory.view(np.uint8), layout
