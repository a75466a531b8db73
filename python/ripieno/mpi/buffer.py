"""Blocks of bytes with the interface of mpi4py's buffers."""

from __future__ import annotations

import ctypes
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.mpi.memory import BufferAccessError, memory_of
from ripieno.wire.arrays import empty


class buffer(np.ndarray[Any, Any]):
    """Bytes of memory that belong to this object or to another one, as a NumPy array with one axis.

    Parameters
    ----------
    buf : buffer, array or bytes-like, optional
        The object with the memory; by default there are no bytes.
    """

    #: The object that owns the memory.
    obj: Any

    def __new__(cls, *buf: Any) -> Self:
        return cls.frombuffer(*buf) if buf else cls._on(np.empty(0, np.uint8), None)

    @classmethod
    def _on(cls, memory: NDArray[np.uint8], obj: Any) -> Self:
        instance = memory.view(cls)
        instance.obj = obj
        return instance

    def __array_finalize__(self, whole: Any) -> None:
        self.obj = getattr(whole, "obj", None)

    @classmethod
    def allocate(cls, nbytes: int, clear: bool = False) -> Self:
        """Return new memory, which ranks of the same host can read in place; `clear` sets it to 0."""
        if nbytes < 0:
            raise InputError(f"allocate: nbytes={nbytes}: expected 0 or more")
        memory = empty(nbytes, np.uint8)
        if clear:
            memory[:] = 0
        return cls._on(memory, memory)

    @classmethod
    def frombuffer(cls, obj: Any, readonly: bool = False) -> Self:
        """Return the memory of another object."""
        memory = memory_of(obj, "buffer").view(np.uint8)
        return cls._on(memory, obj).toreadonly() if readonly else cls._on(memory, obj)

    @classmethod
    def writable(cls, obj: Any) -> Self:
        """Return the memory of another object. Raise `BufferAccessError` if it cannot be written to."""
        instance = cls.frombuffer(obj)
        if instance.readonly:
            raise BufferAccessError("buffer: expected memory that can be written to")
        return instance

    @classmethod
    def fromaddress(cls, address: int, nbytes: int, readonly: bool = False) -> Self:
        """Return memory at an address, which must remain valid."""
        if nbytes < 0 or (nbytes and not address):
            raise InputError(f"fromaddress: address={address}, nbytes={nbytes}: expected memory of this process")
        memory: Any = (ctypes.c_uint8 * nbytes).from_address(address) if nbytes else bytearray()
        instance = cls._on(np.frombuffer(memory, np.uint8), None)
        return instance.toreadonly() if readonly else instance

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.readonly:
            raise TypeError("buffer: read-only memory: expected memory that can be written to")
        # Other memory is copied as bytes; the type of its elements does not matter.
        if isinstance(key, slice) and not isinstance(value, int):
            value = type(self).frombuffer(value)
            if value.size != self[key].size:
                raise ValueError(f"buffer: {value.size} bytes: expected {self[key].size}")
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        raise NotImplementedError("buffer: the number of bytes is fixed")

    @property
    def address(self) -> int:
        """The address of the first byte; 0 for an empty buffer of no object."""
        return 0 if not self.size and self.obj is None else self.ctypes.data

    @property
    def readonly(self) -> bool:
        """Whether the memory cannot be written to."""
        return not self.flags.writeable

    @property
    def format(self) -> str:
        """The format of an element: ``"B"``."""
        return "B"

    def cast(self, format: str, shape: Any = None) -> memoryview:
        """Return a memoryview with another format, and optionally a shape."""
        view = np.asarray(self).data
        return view.cast(format) if shape is None else view.cast(format, shape)  # type: ignore[call-overload,no-any-return]

    def tobytes(self, order: Any = None) -> bytes:
        """Return a copy as bytes."""
        return super().tobytes()

    def toreadonly(self) -> Self:
        """Return a buffer on the same memory that cannot be written to."""
        instance = type(self)._on(np.asarray(self)[:], self.obj)
        instance.flags.writeable = False
        return instance

    def release(self) -> None:
        """Do nothing: memory is freed with its last reference."""
