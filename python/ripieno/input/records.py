"""Provide `RecordType`: a record of a raw binary file, as an array of some dtype and shape."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ripieno._checks import check_count
from ripieno.errors import InputError
from ripieno.files.sources import File, unpacked_bytes


@dataclass(frozen=True)
class RecordType:
    """The dtype of the elements, as NumPy's `dtype.str`, and the shape."""

    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(
        cls, record_bytes: int | None, dtype: DTypeLike | None = None, shape: int | tuple[int, ...] | None = None
    ) -> RecordType | None:
        """Return the record type from the arguments, or None without arguments.

        Raises
        ------
        InputError
            The arguments are insufficient, invalid or contradictory.
        """
        if record_bytes is None and shape is None:
            if dtype is not None:
                raise InputError(
                    f"dtype={dtype!r} does not give the length of a record: expected record_bytes or shape"
                )
            return None
        kind = _numbers(np.uint8 if dtype is None else dtype)
        if record_bytes is not None:
            check_count("record_bytes", record_bytes)
            if record_bytes % kind.itemsize:
                raise InputError(
                    f"record_bytes={record_bytes}: no whole values of {kind}, of {kind.itemsize} bytes each"
                )
            if shape is None:
                return cls(kind.str, (record_bytes // kind.itemsize,))
        axes: Any = shape
        lengths = (axes,) if isinstance(axes, Integral) else tuple(axes)
        for length in lengths:
            check_count("shape", length, "expected whole numbers >= 1")
        record = cls(kind.str, tuple(map(int, lengths)))
        if record_bytes not in (None, record.size_bytes):
            raise InputError(f"record_bytes={record_bytes}, but shape={lengths} of {kind} takes {record.size_bytes}")
        return record

    @property
    def size_bytes(self) -> int:
        """The size of a record in the file, in bytes."""
        return np.dtype(self.dtype).itemsize * prod(self.shape)

    def count(self, file: File) -> int:
        """Return the number of records of a file. A compressed file is read for this.

        Raises
        ------
        InputError
            The file does not end with a whole record.
        """
        count, left = divmod(unpacked_bytes(file), self.size_bytes)
        if left:
            raise InputError(
                f"{file.path}: {self.size_bytes * count + left:,} bytes are {count:,} records of {self.size_bytes:,} "
                f"bytes and {left:,} more: expected whole records"
            )
        return count


def _numbers(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise InputError(f"dtype={dtype!r}: NumPy knows no such type") from None
    if kind.kind not in "biufc" or kind.shape:
        raise InputError(f"dtype={dtype!r}: expected a type of numbers, such as uint8 or float32")
    return kind
