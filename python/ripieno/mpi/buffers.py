"""Parsing of buffer arguments: memory, element type, and the elements of each rank.

Elements travel in the byte order of this machine. `BufferArgument.put` converts received elements to
the memory's byte order.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.mpi.constants import IN_PLACE
from ripieno.mpi.datatypes import Datatype
from ripieno.wire.arrays import as_array

#: NumPy type codes that represent raw bytes of any type.
_BYTES = frozenset("BbSV")


class BufferArgument(NamedTuple):
    """A validated buffer.

    Attributes
    ----------
    call : str
        The name of the call, for messages.
    memory : ndarray of one axis
        All elements, in the byte order of the memory.
    counts : None, int, or list of int
        Number of elements of the message, or of each block; None means all.
    starts : None, int, or list of int
        Offset of the message, or of each block, in elements.
    """

    call: str
    memory: NDArray[Any]
    counts: int | list[int] | None = None
    starts: int | list[int] | None = None

    @property
    def elements(self) -> NDArray[Any]:
        """A view of the elements of one message."""
        if isinstance(self.counts, list) or isinstance(self.starts, list):
            raise InputError(f"{self.call}: counts={self.counts}: expected one number of elements")
        start = self.starts or 0
        return self._view(start, self.memory.size - start if self.counts is None else self.counts)

    def blocks(self, rank_count: int) -> list[NDArray[Any]]:
        """Return views of the elements of each rank; a single count applies to every block."""
        if isinstance(self.counts, list):
            return self._listed(rank_count, self.counts)
        if isinstance(self.starts, list):
            raise InputError(f"{self.call}: displacements {self.starts}: expected as many counts")
        start, count = self.starts or 0, self.counts
        if count is None:
            count, rest = divmod(self._view(start, self.memory.size - start).size, rank_count)
            if rest:
                raise InputError(
                    f"{self.call}: {self.memory.size - start} elements: expected a multiple of {rank_count} ranks"
                )
        return [self._view(start + rank * count, count) for rank in range(rank_count)]

    def put(self, view: NDArray[Any], received: Any, *, is_whole: bool = True) -> None:
        """Write received elements into a view of the memory; unless `is_whole`, they may be fewer than the view's."""
        line = np.asarray(received).reshape(-1)
        if line.dtype != view.dtype.newbyteorder("="):
            line = self._reread(line, view.dtype)
        if line.size > view.size or (is_whole and line.size < view.size):
            limit = "expected" if is_whole else "expected no more than"
            raise InputError(f"{self.call}: {line.size} elements received: {limit} the {view.size} of the buffer")
        view[: line.size] = line

    def _view(self, start: int, count: int) -> NDArray[Any]:
        if start < 0 or count < 0 or start + count > self.memory.size:
            raise InputError(
                f"{self.call}: {count} elements from {start} on: expected some of the {self.memory.size} of the buffer"
            )
        return self.memory[start : start + count]

    def _listed(self, rank_count: int, counts: list[int]) -> list[NDArray[Any]]:
        starts = self.starts
        if starts is None:
            starts = [0, *np.cumsum(counts[:-1]).tolist()]
        elif isinstance(starts, int):
            starts = [rank * starts for rank in range(rank_count)]
        if len(counts) != rank_count or len(starts) != rank_count:
            raise InputError(
                f"{self.call}: {len(counts)} counts and {len(starts)} displacements: expected {rank_count} of each"
            )
        return [self._view(start, count) for start, count in zip(starts, counts, strict=True)]

    def _reread(self, line: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Reinterpret elements as another type. One of the types must represent bytes."""
        is_bytes = line.dtype.char in _BYTES or dtype.char in _BYTES
        if not is_bytes or (line.nbytes and line.nbytes % max(dtype.itemsize, 1)):
            raise InputError(f"{self.call}: elements of {line.dtype} received: expected {dtype}, as in the buffer")
        # The sender's bytes are interpreted in the byte order of the memory.
        reread: NDArray[Any] = np.ascontiguousarray(line).view(np.uint8).view(dtype)
        return reread


def is_in_place(given: Any) -> bool:
    """Return whether a call operates in place: its input lies in the result buffer."""
    return given is None or given is IN_PLACE


def outgoing(given: Any, call: str) -> NDArray[Any]:
    """Return the elements of a message, in the byte order of this machine."""
    return native(buffer_of(given, call).elements)


def incoming(given: Any, call: str) -> BufferArgument:
    """Return a writable buffer."""
    buffer = buffer_of(given, call)
    if not buffer.memory.flags.writeable:
        raise InputError(f"{call}: expected memory that can be written to")
    return buffer


def native(elements: NDArray[Any]) -> NDArray[Any]:
    """Return elements in the byte order of this machine."""
    return elements.astype(elements.dtype.newbyteorder("="), copy=False)


def buffer_of(given: Any, call: str) -> BufferArgument:
    """Parse a buffer argument: an array, or a list of an array with counts, displacements and a type.

    Lists are ``[memory, type]``, ``[memory, counts, type]``, ``[memory, (counts, displacements), type]`` and ``[memory,
    counts, displacements, type]``. The type may be omitted. Displacements are in elements.
    """
    if given is None:
        return BufferArgument(call, np.empty(0, np.uint8))
    if not isinstance(given, list | tuple):
        return BufferArgument(call, _memory(given, call))
    memory, *rest = given if given else (None,)
    types = [each for each in rest if isinstance(each, str | Datatype)]
    numbers = [each for each in rest if not isinstance(each, str | Datatype)]
    if len(numbers) == 1 and isinstance(numbers[0], tuple | list) and _is_pair(numbers[0]):
        numbers = list(numbers[0])
    if len(types) > 1 or len(numbers) > 2:
        raise InputError(f"{call}: a buffer of {len(given)} parts: expected memory, counts, displacements and a type")
    line = np.empty(0, np.uint8) if memory is None else _memory(memory, call)
    if types:
        line = _typed(line, types[0], call)
    counts, starts = (*(_numbers(each, call) for each in numbers), None, None)[:2]
    return BufferArgument(call, line, counts, starts)


def _is_pair(numbers: Any) -> bool:
    """Return whether `numbers` is a tuple of counts and displacements rather than a list of two counts."""
    if len(numbers) != 2:
        return False
    return isinstance(numbers, tuple) or any(each is None or np.ndim(each) for each in numbers)


def _numbers(given: Any, call: str) -> int | list[int] | None:
    if given is None or isinstance(given, Integral):
        return None if given is None else int(given)
    array = np.asarray(given)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"{call}: counts or displacements {given!r}: expected whole numbers")
    return [int(each) for each in array]


def _memory(given: Any, call: str) -> NDArray[Any]:
    """Return all elements of an array, a buffer or a DLPack object in memory order."""
    array = given if isinstance(given, np.ndarray) else as_array(given)
    if array is None:
        try:
            array = np.asarray(memoryview(given))
        except TypeError:
            raise InputError(f"{call}: a {type(given).__name__}: expected an array or another buffer") from None
    if array.dtype.hasobject:
        raise InputError(f"{call}: dtype {array.dtype}: expected one without Python objects, which small letters send")
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.flags.f_contiguous:
        return array.T.reshape(-1)
    raise InputError(f"{call}: shape {array.shape} and strides {array.strides}: expected a contiguous buffer")


def _typed(line: NDArray[Any], given: str | Datatype, call: str) -> NDArray[Any]:
    datatype = Datatype(given) if isinstance(given, str) else given
    if datatype.dtype == line.dtype.newbyteorder("="):
        return line
    if line.nbytes % max(datatype.size, 1):
        raise InputError(f"{call}: {line.nbytes} bytes: expected a multiple of the {datatype.size} of {datatype}")
    typed: NDArray[Any] = line.view(np.uint8).view(datatype.dtype)
    return typed
