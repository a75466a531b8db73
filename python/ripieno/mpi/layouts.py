"""The memory layout of one element of a datatype: strided pieces with one NumPy dtype.

A contiguous type, a vector and a subarray of a plain type are one piece. An indexed type has one piece per block. A
structure of different types is laid out in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Piece(NamedTuple):
    """A strided array of elements; `offset` and `strides` are in bytes."""

    offset: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def bounds(self, itemsize: int) -> tuple[int, int]:
        """Return the first byte, and the byte after the last one."""
        reach = [stride * (count - 1) for count, stride in zip(self.shape, self.strides, strict=True)]
        low, high = sum(min(each, 0) for each in reach), sum(max(each, 0) for each in reach)
        return self.offset + low, self.offset + high + itemsize

    def repeated(self, counts: Sequence[int], strides: Sequence[int], offset: int = 0) -> Piece:
        """Return an array of such pieces, with the new axes first."""
        axes = zip((*counts, *self.shape), (*strides, *self.strides), strict=True)
        merged: list[tuple[int, int]] = []
        for count, stride in axes:
            if count == 1:
                continue
            if merged and merged[-1][1] == count * stride:
                merged[-1] = (merged[-1][0] * count, stride)
            else:
                merged.append((count, stride))
        shape, steps = tuple(count for count, _ in merged), tuple(stride for _, stride in merged)
        return Piece(self.offset + offset, shape, steps)


class Layout(NamedTuple):
    """The pieces of one element, in the order of sending, and its extent; all sizes are in bytes."""

    dtype: np.dtype[Any]
    pieces: tuple[Piece, ...]
    lb: int
    extent: int

    @property
    def value_count(self) -> int:
        """Number of values in one element."""
        return sum(math.prod(piece.shape) for piece in self.pieces)

    @property
    def is_plain(self) -> bool:
        """Whether consecutive elements are an array without gaps."""
        size = self.dtype.itemsize
        return (
            self.pieces in ((Piece(0),), (Piece(0, (self.value_count,), (size,)),))
            and self.extent == self.value_count * size
        )

    @property
    def bounds(self) -> tuple[int, int]:
        """First byte that the values occupy, and the byte after the last one."""
        bounds = [piece.bounds(self.dtype.itemsize) for piece in self.pieces]
        return min((low for low, _ in bounds), default=0), max((high for _, high in bounds), default=0)

    def repeated(self, counts: Sequence[int], strides: Sequence[int], offset: int = 0) -> Layout:
        """Return an array of such elements, with `strides` between them."""
        if 0 in counts:
            return Layout(self.dtype, (), 0, 0)
        if len(self.pieces) == 1:
            pieces: tuple[Piece, ...] = (self.pieces[0].repeated(counts, strides, offset),)
        else:
            places = product(*(range(count) for count in counts))
            starts = [
                offset + sum(index * stride for index, stride in zip(place, strides, strict=True)) for place in places
            ]
            pieces = tuple(piece._replace(offset=piece.offset + start) for start in starts for piece in self.pieces)
        ends = [stride * (count - 1) for count, stride in zip(counts, strides, strict=True)]
        low = offset + self.lb + sum(min(each, 0) for each in ends)
        high = offset + self.lb + self.extent + sum(max(each, 0) for each in ends)
        return Layout(self.dtype, pieces, low, high - low)

    def in_bytes(self) -> Layout:
        """Return the layout with bytes as its values."""
        size = self.dtype.itemsize
        pieces = tuple(Piece(0, (size,), (1,)).repeated(each.shape, each.strides, each.offset) for each in self.pieces)
        return Layout(np.dtype("u1"), pieces, self.lb, self.extent)

    def views(self, memory: NDArray[np.uint8], offset: int, count: int) -> list[NDArray[Any]]:
        """Return one view per piece of `count` elements from byte `offset` on. Raise ValueError beyond the memory."""
        return [
            np.ndarray(
                (count, *piece.shape), self.dtype, memory.data, offset + piece.offset, (self.extent, *piece.strides)
            )
            for piece in self.pieces
        ]


def joined(layouts: Iterable[Layout]) -> Layout:
    """Return the layout of a structure: the values of all layouts, one after the other."""
    parts = [each for each in layouts if each.pieces]
    if not parts:
        return Layout(np.dtype("u1"), (), 0, 0)
    if len({each.dtype for each in parts}) > 1:
        parts = [each.in_bytes() for each in parts]
    low = min(each.lb for each in parts)
    high = max(each.lb + each.extent for each in parts)
    return Layout(parts[0].dtype, tuple(piece for each in parts for piece in each.pieces), low, high - low)
