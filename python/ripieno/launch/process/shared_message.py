"""Messages between the processes of one machine, with large values in shared memory.

A message is packed once and may be sent to several receivers. From `SHARED_FROM_BYTES` on it lies in a memfd, with one
copy for all receivers, which is freed with the last process that holds it. A view of a file is sent as the file's name
and an offset. The rows of an estimator's fit may stay in place for the receivers to read.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from ripieno.errors import SerializationError
from ripieno.launch.process import main_module
from ripieno.wire import packing
from ripieno.wire.zero_copy import ZeroCopyFields

SHARED_FROM_BYTES = 64 * 1024
_READ_ONLY = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class SharedMessage:
    """A packed value: `inline` bytes, or `size_bytes` in the memory behind `fd`.

    Parameters
    ----------
    value : object
        Anything that cloudpickle supports, including functions of ``__main__``.
    writable : bool
        Whether a receiver may write to the arrays inside. This is only safe with a single receiver.
    zero_copy : bool
        Whether receivers can read this process's memory. The sender waits until they have read it.
    """

    def __init__(self, value: Any, *, writable: bool = False, zero_copy: bool = False) -> None:
        packed = pack(value, read_only=not writable, zero_copy=zero_copy)
        self.writable = writable
        self.fd: int | None = None
        self.inline: bytes | None = None
        self.size_bytes = packing.blob_bytes(packed)
        if self.size_bytes < SHARED_FROM_BYTES:
            blob = np.zeros(self.size_bytes, np.uint8)
            packing.write_blob(packed, blob)
            self.inline = blob.tobytes()
        else:
            self.fd = _memfd_of(packed, self.size_bytes, writable)

    def close(self) -> None:
        """Close this process's descriptor of the shared memory; receivers keep theirs."""
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)

    def __enter__(self) -> SharedMessage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_inline(blob: bytearray, *, writable: bool) -> Any:
    """Return the value of an inline message."""
    array = np.frombuffer(blob, np.uint8)
    array.flags.writeable = writable
    return packing.read_blob(array)


def open_shared(fd: int, size_bytes: int) -> Any:
    """Return the value of a message in shared memory; takes ownership of `fd`. Its arrays are views of the memory."""
    try:
        sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE
        access = mmap.ACCESS_READ if sealed else mmap.ACCESS_WRITE
        # Without a descriptor per mapping (Python 3.13), kept results do not use up the limit of descriptors.
        options = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        memory = mmap.mmap(fd, size_bytes, access=access, **options)
    finally:
        os.close(fd)
    return packing.read_blob(np.frombuffer(memory, np.uint8))


def pack(
    value: Any,
    persistent_id: Callable[[Any], Any] | None = None,
    *,
    files_by_name: bool = True,
    read_only: bool = False,
    zero_copy: bool = False,
) -> packing.PackedValue:
    """Pickle `value` for another process, without copying the memory of its arrays.

    `persistent_id` is defined in `pickle.Pickler`: objects with an id are left out, and the receiver inserts them.
    Without `files_by_name`, a process on another machine receives the contents of files. With `read_only` the receiver
    cannot write to arrays of any kind. With `zero_copy` rows stay in this process, and receivers read them there.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    main_module.pickle_main_by_value()
    try:
        pickler = _Pickler(stream, protocol=5, buffer_callback=buffers.append)
        pickler.files_by_name, pickler.read_only, pickler.zero_copy = files_by_name, read_only, zero_copy
        if persistent_id is not None:
            pickler.persistent_id = persistent_id
        pickler.dump(value)
    except Exception as error:
        raise SerializationError(f"{type(error).__name__}: {error}") from error
    return packing.PackedValue(stream.getvalue(), [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers])


def as_received(value: Any) -> Any:
    """Return a copy of `value` as another process would receive it, with read-only views of its arrays.

    Raises
    ------
    SerializationError
        If it cannot be pickled.
    """
    arrays: list[NDArray[Any]] = []

    def in_place(obj: Any) -> int | None:
        if not isinstance(obj, np.ndarray) or obj.dtype.hasobject:
            return None
        view = obj.view()
        view.flags.writeable = False
        arrays.append(view)
        return len(arrays) - 1

    packed = pack(value, in_place, read_only=True)
    for buffer in packed.buffers:
        buffer.flags.writeable = False
    opener = pickle.Unpickler(io.BytesIO(packed.pickled), buffers=packed.buffers)
    opener.persistent_load = arrays.__getitem__  # type: ignore[method-assign]  # as in pickle's documentation
    return opener.load()


def _memfd_of(packed: packing.PackedValue, size_bytes: int, writable: bool) -> int:
    fd = os.memfd_create("ripieno-parcel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
        for offset, piece in packing.blob_pieces(packed):
            view = piece.data
            while view:
                written = os.pwrite(fd, view, offset)
                view, offset = view[written:], offset + written
        if not writable:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _READ_ONLY)
    except BaseException:
        os.close(fd)
        raise
    return fd


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    files_by_name = True
    read_only = False
    zero_copy = False

    def reducer_override(self, obj: Any) -> Any:
        if self.zero_copy and isinstance(obj, ZeroCopyFields):
            return type(obj), obj.field_descriptors()
        if isinstance(obj, np.ndarray):
            reduced = self._array(obj)
            if reduced is not None:
                return reduced
        return main_module.by_name(obj, super().reducer_override(obj))

    def _array(self, array: NDArray[Any]) -> tuple[Any, ...] | None:
        """Return the reduction of `array`; None leaves it to NumPy."""
        if type(array) in (np.ndarray, np.memmap) and not array.dtype.hasobject:
            in_file = _file_view(array) if self.files_by_name else None
            if in_file is not None:
                return _open_file_view, in_file
            array = np.asarray(array if array.flags.forc else np.ascontiguousarray(array))
            if array.dtype.kind in "mM":
                # NumPy exports no buffer of dates and times.
                return _as_dtype, (array.view(np.int64), array.dtype)
        reduced: Any = array.__reduce_ex__(5)
        if self.read_only and not any(isinstance(each, pickle.PickleBuffer) for each in reduced[1]):
            return _read_only_array, reduced[:3]
        return reduced if type(array) is np.ndarray else None


def _as_dtype(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return numbers.view(dtype)


def _read_only_array(make: Callable[..., NDArray[Any]], args: tuple[Any, ...], state: Any = None) -> NDArray[Any]:
    array = make(*args)
    if state is not None:
        array.__setstate__(state)
    array.flags.writeable = False
    return array


def _file_view(array: NDArray[Any]) -> tuple[Any, ...] | None:
    """Return, for a view of a mapped file, the file name, first byte and length, and the array's position there."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray) and not isinstance(mapped.base, mmap.mmap):
        mapped = mapped.base
    # A copy-on-write mapping may differ from its file.
    if not isinstance(mapped, np.memmap) or mapped.mode == "c" or not mapped.filename or array.size == 0:
        return None
    name = os.fspath(mapped.filename)
    # NumPy 1 has the function in another module.
    bounds: Any = getattr(np, "byte_bounds", None) or np.lib.array_utils.byte_bounds
    low, high = bounds(array)
    base = mapped.__array_interface__["data"][0]
    start, length = mapped.offset + low - base, high - low
    if not os.path.isfile(name) or os.path.getsize(name) < start + length:
        return None
    if mapped.mode != "r":
        mapped.flush()
    inner = array.__array_interface__["data"][0] - low
    return name, start, length, inner, array.shape, array.strides, array.dtype


def _open_file_view(
    name: str,
    start: int,
    length: int,
    inner: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    window = np.memmap(name, np.uint8, mode="r", offset=start, shape=(length,))
    return np.ndarray(shape, dtype, buffer=window, offset=inner, strides=strides)
