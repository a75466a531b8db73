"""Provide zero-copy sends of arrays: a process of the same machine reads the required rows from the owner's memory.

A process may read another process's memory if the system permits it to trace that process. Cost: one copy.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import SerializationError
from ripieno.wire.arrays import ZERO_COPY_BYTES

_libc = ctypes.CDLL(None, use_errno=True)


class _IoVec(ctypes.Structure):
    """The `iovec` structure of the C library."""

    _fields_ = (("address", ctypes.c_void_p), ("size_bytes", ctypes.c_size_t))


@dataclass(frozen=True)
class ZeroCopyArray:
    """A C-contiguous array of another process. The owner waits and does not change it while this process reads.

    Parameters
    ----------
    pid, address
        Location of the array.
    shape, dtype
        Form of the array.
    """

    pid: int
    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: NDArray[Any]) -> ZeroCopyArray:
        """Describe an array of this process for other processes."""
        return cls(os.getpid(), array.ctypes.data, array.shape, array.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Return consecutive rows, copied into their own memory, read-only.

        Raises
        ------
        SerializationError
            The other process has ended, or its memory cannot be read.
        """
        first, last, _ = rows.indices(len(self))
        found = np.empty((max(last - first, 0), *self.shape[1:]), self.dtype)
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        done = 0
        while done < found.nbytes:
            local = _IoVec(found.ctypes.data + done, found.nbytes - done)
            remote = _IoVec(self.address + first * row_bytes + done, found.nbytes - done)
            # A call copies at most 2 GiB.
            copied = _read(self.pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
            if copied <= 0:
                reason = os.strerror(ctypes.get_errno())
                raise SerializationError(f"rows in the memory of process {self.pid} cannot be read: {reason}")
            done += copied
        found.flags.writeable = False
        return found


class ZeroCopyFields:
    """A dataclass with rows that receivers read in place. Its arrays may be `ZeroCopyArray`, which supports slices."""

    def field_descriptors(self) -> tuple[Any, ...]:
        """Return the field values, with large arrays as descriptors."""
        values: list[Any] = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        return tuple(ZeroCopyArray.of(value) if _is_readable_in_place(value) else value for value in values)


def can_read(array: ZeroCopyArray, content: NDArray[Any]) -> bool:
    """Whether this process can read an array of another one."""
    try:
        return np.array_equal(array[:], content)
    except SerializationError:
        return False


def _is_readable_in_place(value: Any) -> bool:
    # Mapped files are excluded: a receiver opens them by file name.
    is_plain = type(value) is np.ndarray and not value.dtype.hasobject and value.flags.c_contiguous
    return is_plain and value.nbytes >= ZERO_COPY_BYTES and not isinstance(_owner(value), np.memmap)


def _owner(array: NDArray[Any]) -> Any:
    owner: Any = array
    while type(owner) is np.ndarray and owner.base is not None:
        owner = owner.base
    return owner


def _read(*arguments: Any) -> int:
    copied: int = _process_vm_readv(*arguments)
    return copied


_process_vm_readv = _libc.process_vm_readv
_process_vm_readv.restype = ctypes.c_ssize_t
_process_vm_readv.argtypes = (
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_ulong,
)
