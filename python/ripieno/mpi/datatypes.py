"""Types of elements, and buffers of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.mpi.constants import Exception


class Datatype:
    """The type of an element; derived types are not there."""

    def __init__(self, code: str) -> None:
        self.dtype = np.dtype(code)

    def Get_size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    def Get_extent(self) -> tuple[int, int]:
        """Where an element begins, and how far the next one is."""
        return 0, self.dtype.itemsize

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    extent = size

    def tocode(self) -> str:
        """What NumPy calls it."""
        return self.dtype.str

    def __repr__(self) -> str:
        return f"<Datatype {self.dtype}>"


BYTE = UNSIGNED_CHAR = UINT8_T = Datatype("u1")
CHAR = SIGNED_CHAR = INT8_T = Datatype("i1")
SHORT = INT16_T = Datatype("i2")
INT = INT32_T = Datatype("i4")
LONG = LONG_LONG = INT64_T = Datatype("i8")
UNSIGNED_SHORT = UINT16_T = Datatype("u2")
UNSIGNED = UINT32_T = Datatype("u4")
UNSIGNED_LONG = UINT64_T = Datatype("u8")
FLOAT = Datatype("f4")
DOUBLE = Datatype("f8")
COMPLEX = C_FLOAT_COMPLEX = Datatype("c8")
DOUBLE_COMPLEX = C_DOUBLE_COMPLEX = Datatype("c16")
BOOL = C_BOOL = Datatype("?")


class Buffer(NamedTuple):
    """The elements of a buffer, in a line, and where those of each rank lie, if that is said.

    With one count, that of a single block, `following` are the elements from that block on.
    """

    array: NDArray[Any]
    counts: list[int] | None
    starts: list[int] | None
    following: NDArray[Any] | None = None

    def parts(self, rank_count: int) -> list[NDArray[Any]]:
        """What is of each rank."""
        if self.counts is None:
            line, each = self.array, self.array.size // rank_count
            if self.following is not None:
                line, each = self.following, self.array.size
            return [line[rank * each : (rank + 1) * each] for rank in range(rank_count)]
        starts = self.starts if self.starts is not None else [0, *np.cumsum(self.counts[:-1]).tolist()]
        return [self.array[start : start + count] for start, count in zip(starts, self.counts, strict=True)]


def buffer_of(given: Any) -> Buffer:
    """A buffer as calls are given it: an array, or a list of it with counts, displacements and a type."""
    if given is None:
        return Buffer(np.empty(0, np.uint8), None, None)
    if not isinstance(given, list | tuple):
        return Buffer(_line(given), None, None)
    memory, *rest = given
    datatype = next((Datatype(each) if isinstance(each, str) else each for each in rest if _is_type(each)), None)
    numbers = [each for each in rest if not _is_type(each) and each is not None]
    array = np.empty(0, np.uint8) if memory is None else _line(memory)
    if datatype is not None and array.dtype != datatype.dtype:
        array = array.view(np.uint8).view(datatype.dtype)
    if not numbers:
        return Buffer(array, None, None)
    counts, starts = numbers[0], numbers[1] if len(numbers) > 1 else None
    if isinstance(counts, tuple) and len(counts) == 2 and starts is None:
        # Counts and displacements, or those of a single part.
        counts, starts = counts
    if np.ndim(counts) == 0:
        start = 0 if starts is None else int(starts)
        return Buffer(array[start : start + int(counts)], None, None, array[start:])
    return Buffer(array, [int(each) for each in counts], None if starts is None else [int(each) for each in starts])


def _is_type(value: Any) -> bool:
    return isinstance(value, str | Datatype)


def _line(memory: Any) -> NDArray[Any]:
    array = memory if isinstance(memory, np.ndarray) else np.asarray(memoryview(memory))
    if not array.flags.c_contiguous:
        raise Exception(f"a buffer of shape {array.shape} and strides {array.strides}: expected a contiguous one")
    return array.reshape(-1)
