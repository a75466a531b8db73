"""Access to the memory of a DLPack object, including types and devices that `numpy.from_dlpack` rejects.

Source: DLPack, "Python specification for DLPack" and dlpack.h, version 1.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

#: Devices: memory of the host, and memory of the host for CUDA.
_CPU, _CUDA_HOST = 1, 3
#: NumPy's kinds of types, by DLPack's codes.
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_IS_READ_ONLY = 1
_VERSION = 1


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class DlpackMemory(NamedTuple):
    """The memory of a tensor.

    Attributes
    ----------
    interface : dict
        As ``__array_interface__`` of NumPy.
    is_host : bool
        Whether the object says that it is memory of the host.
    capsule : object
        Keeps the memory of the producer alive.
    """

    interface: dict[str, Any]
    is_host: bool
    capsule: Any


def dlpack_memory(given: Any) -> DlpackMemory:
    """Return the memory of an object with ``__dlpack__``. Types unknown to NumPy become bytes of the same size."""
    device_type, device_id = given.__dlpack_device__()
    if not isinstance(device_type, int) or not isinstance(device_id, int):
        raise TypeError(f"__dlpack_device__: {(device_type, device_id)}: expected two whole numbers")
    is_host = device_type in (_CPU, _CUDA_HOST)
    # -1 means that the producer does not synchronize a stream.
    options: dict[str, Any] = {} if is_host else {"stream": -1}
    try:
        capsule = given.__dlpack__(max_version=(_VERSION, 0), **options)
    except TypeError:
        # Producers before version 1 do not know the argument.
        capsule = given.__dlpack__(**options)
    tensor, is_readonly = _tensor_of(capsule)
    return DlpackMemory(_interface(tensor, is_readonly), is_host, capsule)


def _tensor_of(capsule: Any) -> tuple[_Tensor, bool]:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    if is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
        if versioned.major != _VERSION:
            raise BufferError(f"DLPack {versioned.major}.{versioned.minor}: expected version {_VERSION}")
        return versioned.tensor, bool(versioned.flags & _IS_READ_ONLY)
    if is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(pointer(capsule, b"dltensor")), False
    raise BufferError(f"__dlpack__: {capsule!r}: expected a capsule with an unused tensor")


def _interface(tensor: _Tensor, is_readonly: bool) -> dict[str, Any]:
    kind, bits = _KINDS.get(tensor.code), tensor.bits
    if kind == "f" and tensor.lanes == 2:
        # A pair of long doubles is a complex number: its number of bits does not fit into the field.
        kind, bits = "c", 2 * tensor.bits
    elif tensor.lanes != 1:
        kind, bits = None, tensor.bits * tensor.lanes
    try:
        dtype = np.dtype(f"{kind}{bits // 8}")
    except TypeError:
        dtype = np.dtype(f"V{bits // 8}")
    if (
        tensor.ndim < 0
        or (tensor.ndim and not tensor.shape)
        or any(tensor.shape[: tensor.ndim][axis] < 0 for axis in range(tensor.ndim))
    ):
        raise BufferError(f"DLPack tensor of {tensor.ndim} axes: expected the length of each axis")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] * dtype.itemsize for axis in range(tensor.ndim)) if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    return {"version": 3, "shape": shape, "typestr": dtype.str, "strides": strides, "data": (address, is_readonly)}
