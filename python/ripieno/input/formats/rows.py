"""Provide arrays in NumPy or raw files: a split has rows of the first axis. Rows of local files are mapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.sources import File, blamed_on, is_url, opened
from ripieno.input.cuts import even
from ripieno.input.matrix.binary import npy_header

if TYPE_CHECKING:
    from ripieno.input.split import FormatOptions, Range, Split


@dataclass(frozen=True)
class ArrayRows:
    """An array with at least one axis in a file.

    Parameters
    ----------
    offset : int
        Byte offset of the first row.
    dtype : str
        Dtype of the elements, as NumPy's `dtype.str`.
    shape : tuple of int
        Shape of the whole array.
    """

    offset: int
    dtype: str
    shape: tuple[int, ...]

    name: ClassVar[str]
    unit = "rows"
    block_bytes = 8 << 20

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return np.dtype(self.dtype).itemsize * prod(self.shape[1:])

    def cut(self, file: File, count: int) -> list[Range]:
        """Return even ranges of rows."""
        return [(start, stop, (stop - start) * self.row_bytes) for start, stop in even(self.shape[0], count)]

    def read(self, split: Split) -> NDArray[Any]:
        """Return the rows, read-only."""
        return self._rows(split, split.place(), *self._range(split))

    def blocks(self, split: Split, block_bytes: int) -> Iterator[NDArray[Any]]:
        """Yield rows in blocks of at most `block_bytes`, but at least one row."""
        place, (first, last) = split.place(), self._range(split)
        step = max(1, block_bytes // max(1, self.row_bytes))
        for start in range(first, last, step):
            yield self._rows(split, place, start, min(start + step, last))

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the byte range of the rows."""
        return ((self.offset + split.start * self.row_bytes, self.offset + split.stop * self.row_bytes),)

    def _range(self, split: Split) -> tuple[int, int]:
        return (0, self.shape[0]) if split.compression else (split.start, split.stop)

    def _rows(self, split: Split, path: str, start: int, stop: int) -> NDArray[Any]:
        shape, at = (stop - start, *self.shape[1:]), self.offset + start * self.row_bytes
        short = InputError(f"{path} is shorter than it should be: rows {start:,} … {stop:,} are not all there")
        with blamed_on(path):
            if split.compression is None and not is_url(path) and all(shape):
                try:
                    return np.memmap(path, self.dtype, "r", at, shape)
                except ValueError:
                    raise short from None
            with split.opened(path) as file:
                file.seek(at)
                rows = file.read((stop - start) * self.row_bytes)
        if len(rows) < (stop - start) * self.row_bytes:
            raise short
        return np.frombuffer(rows, self.dtype).reshape(shape)


class Npy(ArrayRows):
    """A NumPy file, described by its header."""

    name = "npy"

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Npy:
        """Read the header."""
        with opened(file.path, file.compression) as stream, blamed_on(file.path):
            shape, fortran, dtype = npy_header(stream, file.path)
            offset = stream.tell()
        if not shape or dtype.hasobject or dtype.names:
            raise InputError(f"{file.path}: an array of shape {shape} and type {dtype}, expected rows of numbers")
        if fortran and len(shape) > 1:
            raise InputError(
                f"{file.path} is stored column by column, so its rows cannot be read one by one: save it anew with "
                "numpy.ascontiguousarray"
            )
        return cls(offset, dtype.str, shape)


class Binary(ArrayRows):
    """A file of records of equal length, described by the caller."""

    name = "binary"

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Binary:
        """Determine the length of the file."""
        assert options.record is not None, "records are described where binary files are opened"
        return cls(0, options.record.dtype, (options.record.count(file), *options.record.shape))
