"""The memory of buffers: arrays, bytes, and objects with DLPack or CUDA's interface, if the host can read it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.mpi.dlpack import dlpack_memory


class BufferTypeError(InputError, TypeError):
    """An argument has no type of a buffer, a count or a displacement."""


class BufferAccessError(InputError, BufferError):
    """The memory of a buffer has gaps, cannot be written to, or is not memory of the host."""


class _Holder:
    """The base of an array: keeps the memory of another object alive."""

    def __init__(self, interface: dict[str, Any], *held: Any) -> None:
        self.__array_interface__ = interface
        self.held = held


def memory_of(given: Any, call: str) -> NDArray[Any]:
    """Return all elements of an array, a buffer or a DLPack object in memory order."""
    array = given if isinstance(given, np.ndarray) else _foreign(given, call)
    if array is None:
        try:
            array = np.asarray(memoryview(given))
        except TypeError:
            raise BufferTypeError(f"{call}: a {type(given).__name__}: expected an array or another buffer") from None
    if array.dtype.hasobject:
        raise InputError(f"{call}: dtype {array.dtype}: expected no Python objects; lower-case calls send objects")
    if array.flags.c_contiguous:
        return array.reshape(-1)
    if array.flags.f_contiguous:
        return array.T.reshape(-1)
    raise BufferAccessError(f"{call}: shape {array.shape} and strides {array.strides}: expected a contiguous buffer")


def _foreign(given: Any, call: str) -> NDArray[Any] | None:
    """Return the memory of an object with DLPack or CUDA's interface, or None for another object."""
    if hasattr(given, "__dlpack__"):
        memory = dlpack_memory(given)
        return _array_on(memory.interface, memory.is_host, call, given, memory.capsule)
    interface = getattr(given, "__cuda_array_interface__", None)
    if interface is None:
        return None
    if not isinstance(interface, dict):
        raise BufferTypeError(f"{call}: __cuda_array_interface__ is a {type(interface).__name__}: expected a dict")
    if interface.get("mask") is not None:
        raise BufferAccessError(f"{call}: a masked array: expected one without a mask")
    kept = {key: interface[key] for key in ("shape", "typestr", "data")}
    return _array_on({**kept, "strides": interface.get("strides"), "version": 3}, False, call, given)


def _array_on(interface: dict[str, Any], is_host: bool, call: str, *owners: Any) -> NDArray[Any]:
    if 0 in interface["shape"]:
        return np.empty(interface["shape"], interface["typestr"])
    if not is_host:
        _check_readable(interface["data"][0], call)
    return np.asarray(_Holder(interface, *owners))


def _check_readable(address: int, call: str) -> None:
    """Raise `BufferAccessError` for memory of a device. The kernel reads it, so an access fault raises no signal."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            is_readable = bool(memory.read(1))
    except (OSError, ValueError, OverflowError):
        is_readable = False
    if not is_readable:
        raise BufferAccessError(
            f"{call}: memory of a device: expected memory of the host; copy the array, as with cupy.asnumpy"
        )
