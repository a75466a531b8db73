"""The elements of a message within a buffer, contiguous or at strides."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError

#: NumPy type codes that represent raw bytes of any type.
_BYTES = frozenset("BbSV")


class Elements(NamedTuple):
    """The elements of a message, which `read` and `write` convert to and from an array without gaps.

    Elements travel in the byte order of this machine; `write` converts them to the memory's byte order.

    Attributes
    ----------
    call : str
        The name of the call, for messages.
    pieces : list of ndarray
        Views of the memory. If there are several, or one with more than one axis, the first axis counts the elements
        of a derived type; each consists of its part of the first piece, then of the second one, and so on.
    dtype : dtype
        The type of the values, in the byte order of this machine.
    """

    call: str
    pieces: list[NDArray[Any]]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of values."""
        return sum(piece.size for piece in self.pieces)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the values."""
        return self.size * self.dtype.itemsize

    @property
    def memory(self) -> NDArray[Any] | None:
        """The memory, if it is in one piece."""
        return self.pieces[0] if len(self.pieces) == 1 else None

    def read(self) -> NDArray[Any]:
        """Return the values as an array of one axis, which may share the memory."""
        if len(self.pieces) == 1:
            # Strided values are copied here.
            values = np.ascontiguousarray(self.pieces[0]).reshape(-1)
        elif self.pieces:
            values = np.concatenate([piece.reshape(piece.shape[0], -1) for piece in self.pieces], axis=1).reshape(-1)
        else:
            values = np.empty(0, self.dtype)
        return values.astype(self.dtype, copy=False)

    def copy(self) -> NDArray[Any]:
        """Return the values as a new array of one axis."""
        values = self.read()
        return values.copy() if any(np.may_share_memory(values, piece) for piece in self.pieces) else values

    def write(self, received: Any, *, is_whole: bool = True) -> None:
        """Write received values; unless `is_whole`, they may be fewer, and the remaining memory stays unchanged."""
        line = np.asarray(received).reshape(-1)
        if line.dtype != self.dtype:
            line = self._reread(line)
        size = self.size
        if line.size > size or (is_whole and line.size < size):
            limit = "expected" if is_whole else "expected no more than"
            raise InputError(f"{self.call}: {line.size} elements received: {limit} the {size} of the buffer")
        if len(self.pieces) == 1 and self.pieces[0].ndim == 1:
            self.pieces[0][: line.size] = line
        elif line.size == size:
            self._scatter(line)
        else:
            values = self.read()
            values[: line.size] = line
            self._scatter(values)

    def _scatter(self, line: NDArray[Any]) -> None:
        start, count = 0, len(self.pieces[0]) if self.pieces else 0
        rows = line.reshape(count, -1) if line.size else line
        for piece in self.pieces:
            if piece.size:
                width = piece.size // count
                piece[...] = rows[:, start : start + width].reshape(piece.shape)
                start += width

    def _reread(self, line: NDArray[Any]) -> NDArray[Any]:
        """Reinterpret values as the type of the buffer. One of the types must represent bytes."""
        is_bytes = line.dtype.char in _BYTES or self.dtype.char in _BYTES
        itemsize = max(self.dtype.itemsize, 1)
        if not is_bytes or (line.nbytes and line.nbytes % itemsize):
            raise InputError(f"{self.call}: elements of {line.dtype} received: expected {self.dtype}, as in the buffer")
        reread: NDArray[Any] = np.ascontiguousarray(line).view(np.uint8).view(self.dtype)
        return reread
