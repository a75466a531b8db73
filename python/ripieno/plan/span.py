"""Spans: ranges of elements of a buffer, the operands of all steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from ripieno._checks import check_count, whole_number
from ripieno.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Buffer: TypeAlias = Literal["main", "output", "scratch"]
#: Names of the buffers, by number.
BUFFERS: tuple[Buffer, ...] = ("main", "output", "scratch")

COUNT_MAX = 1 << 46
ITEMSIZE_MAX = 16


@dataclass(frozen=True)
class Span:
    """Consecutive elements of a buffer.

    ``span[2:5]`` is a part of it, `chunk` and `chunks` divide it evenly.

    Attributes
    ----------
    buffer : {"main", "output", "scratch"}
        "main" holds the value that a rank passes to `Communicator.run`, and the result, unless a plan has a span in
        "output": then "output" holds the result and starts with zeros. "scratch" is undefined until a step writes it.
    first : int
        Number of the first element.
    count : int
        Number of elements.
    itemsize : int
        Bytes of an element.
    """

    buffer: Buffer
    first: int
    count: int
    itemsize: int

    def __post_init__(self) -> None:
        if self.buffer not in BUFFERS:
            raise InputError(f"buffer={self.buffer!r}: expected one of {', '.join(BUFFERS)}")
        whole_number("first", self.first, 0, COUNT_MAX)
        whole_number("count", self.count, 0, COUNT_MAX)
        whole_number("itemsize", self.itemsize, 1, ITEMSIZE_MAX)

    @property
    def fields(self) -> tuple[int, int, int, int]:
        """The number of the buffer, the first byte, the length in bytes, and the size of an element."""
        return BUFFERS.index(self.buffer), self.first * self.itemsize, self.count * self.itemsize, self.itemsize

    def __len__(self) -> int:
        return self.count

    def __str__(self) -> str:
        return f"{self.buffer}[{self.first}:{self.first + self.count}]"

    def __getitem__(self, part: slice) -> Span:
        if not isinstance(part, slice) or part.step not in (None, 1):
            raise InputError(f"{self}[{part!r}]: expected a range of elements, such as span[2:5]")
        start, stop, _ = part.indices(self.count)
        return Span(self.buffer, self.first + start, max(0, stop - start), self.itemsize)

    def chunk(self, index: int, count: int) -> Span:
        """Return chunk `index` of `count`. Sizes differ by at most one element, and larger chunks are first."""
        check_count("count", count)
        whole_number("index", index, 0, count - 1)
        each, larger = divmod(self.count, count)
        start = index * each + min(index, larger)
        return self[start : start + each + (index < larger)]

    def chunks(self, count: int) -> list[Span]:
        """Return all `count` chunks in order."""
        return [self.chunk(index, count) for index in range(count)]

    def placed(self, buffer: Buffer, first: int | None = None) -> Span:
        """Return a span of the same length in another buffer, at the same position or from element `first` on."""
        return Span(buffer, self.first if first is None else first, self.count, self.itemsize)


def vector(count: int, dtype: DTypeLike = np.float64, buffer: Buffer = "main") -> Span:
    """Return the span of all `count` elements of a buffer.

    Parameters
    ----------
    count
        Number of elements.
    dtype
        Type of the elements. A plan depends on the size of an element only.
    buffer
        The buffer, by default the value that a rank passes to `Communicator.run`.

    Raises
    ------
    InputError
        If a number or the name of the buffer is invalid.
    """
    return Span(buffer, 0, whole_number("count", count, 0, COUNT_MAX), np.dtype(dtype).itemsize)
