"""Serialize Python values as a pickle (protocol 5) and its raw buffers.

Large arrays are not copied into the pickle. Their memory is sent in place, and received into the memory of the new
array. A *blob* holds both in one piece, for collectives that need all ranks' chunks in one array. `pack` is for values
that ranks exchange. `pack_for_process` is for values between a launching process and its ranks.
"""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.errors import SerializationError
from ripieno.wire import main_module
from ripieno.wire.process_pickler import ProcessPickler

# Buffers inside a blob are aligned to this: a cache line, which suffices for any dtype.
ALIGNMENT_BYTES = 64

# Bytes of a head without buffers: the size of the pickle and the number of buffers.
HEAD_BYTES = 16


@dataclass
class SerializationTime:
    """Cost of serialization in this process.

    Attributes
    ----------
    seconds
        Seconds spent on serializing and deserializing values, except in the native module.
    """

    seconds: float = 0.0


TIME = SerializationTime()


def spent_s() -> float:
    """Return the seconds that this process has spent on serializing and deserializing values."""
    return TIME.seconds + _native.seconds_serializing()


class PackedValue(NamedTuple):
    """A serialized value: `pickled` refers to `buffers`, flat uint8 arrays on the value's own memory, in order."""

    pickled: bytes
    buffers: list[NDArray[Any]]


def pack(value: Any, inline_bytes: int = _native.MAX_INLINE_BYTES) -> PackedValue:
    """Pickle `value`. Contiguous buffers of more than `inline_bytes` stay in place.

    The standard pickler is several times faster, so it is tried first. Classes and functions that exist only in
    ``__main__`` need cloudpickle.
    """
    start_s = time.perf_counter()
    if type(value) is np.ndarray and not value.flags.forc:
        value = np.ascontiguousarray(value)
    for dumps in (pickle.dumps, cloudpickle.dumps):
        buffers: list[NDArray[Any]] = []

        def is_inline(buffer: pickle.PickleBuffer, buffers: list[NDArray[Any]] = buffers) -> bool:
            raw = buffer.raw()
            if raw.nbytes <= inline_bytes:
                return True
            buffers.append(np.frombuffer(raw, np.uint8))
            return False

        try:
            pickled = dumps(value, protocol=5, buffer_callback=is_inline)
            TIME.seconds += time.perf_counter() - start_s
            return PackedValue(pickled, buffers)
        except Exception as error:
            failure = error
    raise SerializationError(
        f"a value of type {type(value).__name__} cannot be sent: {type(failure).__name__}: {failure}"
    ) from failure


def pack_for_process(
    value: Any,
    persistent_id: Callable[[Any], Any] | None = None,
    *,
    files_by_name: bool = True,
    read_only: bool = False,
    zero_copy: bool = False,
) -> PackedValue:
    """Pickle `value` for another process, without copying the memory of its arrays.

    `persistent_id` is defined in `pickle.Pickler`: objects with an id are left out, and the receiver inserts them. The
    other options are defined in `ProcessPickler`.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    main_module.pickle_main_by_value()
    try:
        pickler = ProcessPickler(stream, protocol=5, buffer_callback=buffers.append)
        pickler.files_by_name, pickler.read_only, pickler.zero_copy = files_by_name, read_only, zero_copy
        if persistent_id is not None:
            pickler.persistent_id = persistent_id
        pickler.dump(value)
    except Exception as error:
        raise SerializationError(f"{type(error).__name__}: {error}") from error
    return PackedValue(stream.getvalue(), [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers])


def unpack(
    pickled: bytes | memoryview,
    buffers: Sequence[NDArray[Any]],
    persistent_load: Callable[[Any], Any] | None = None,
) -> Any:
    """Return the value. Its arrays use the memory of `buffers` and are writable if these are.

    `persistent_load` returns the objects that `persistent_id` left out.
    """
    start_s = time.perf_counter()
    if persistent_load is None:
        value = pickle.loads(pickled, buffers=buffers)
    else:
        opener = pickle.Unpickler(io.BytesIO(pickled), buffers=buffers)
        opener.persistent_load = persistent_load  # type: ignore[method-assign]  # as in pickle's documentation
        value = opener.load()
    TIME.seconds += time.perf_counter() - start_s
    return value


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

    packed = pack_for_process(value, in_place, read_only=True)
    for buffer in packed.buffers:
        buffer.flags.writeable = False
    return unpack(packed.pickled, packed.buffers, arrays.__getitem__)


def head(packed: PackedValue) -> NDArray[Any]:
    """Return the metadata that a receiver needs before the buffers, as uint8: all sizes, then the pickle."""
    sizes = [len(packed.pickled), len(packed.buffers), *(buffer.nbytes for buffer in packed.buffers)]
    return np.concatenate([np.array(sizes, np.int64).view(np.uint8), np.frombuffer(packed.pickled, np.uint8)])


def read_head(head: NDArray[Any]) -> tuple[memoryview, list[int]]:
    """Return the pickle and the sizes of its buffers in bytes, from an array that begins with a `head`."""
    pickled_bytes, buffer_count = head[:HEAD_BYTES].view(np.int64).tolist()
    pickled_at = HEAD_BYTES + 8 * buffer_count
    sizes_bytes = head[HEAD_BYTES:pickled_at].view(np.int64).tolist()
    return head[pickled_at : pickled_at + pickled_bytes].data, sizes_bytes


def blob_bytes(packed: PackedValue) -> int:
    """Return the size of the blob that `write_blob` creates from `packed`, a multiple of the alignment."""
    head_bytes = HEAD_BYTES + 8 * len(packed.buffers) + len(packed.pickled)
    return _aligned(head_bytes) + sum(_aligned(buffer.nbytes) for buffer in packed.buffers)


def blob_pieces(packed: PackedValue) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the pieces of a blob: offsets, and the bytes at these offsets."""
    start = head(packed)
    yield 0, start
    offset = _aligned(start.nbytes)
    for buffer in packed.buffers:
        yield offset, buffer
        offset += _aligned(buffer.nbytes)


def blob(packed: PackedValue) -> NDArray[Any]:
    """Return the blob of `packed`, a uint8 array."""
    found = np.zeros(blob_bytes(packed), np.uint8)
    write_blob(packed, found)
    return found


def write_blob(packed: PackedValue, into: NDArray[Any]) -> None:
    """Write the blob of `packed` into `into`, a uint8 array of `blob_bytes(packed)` elements."""
    for offset, piece in blob_pieces(packed):
        into[offset : offset + piece.nbytes] = piece


def read_blob(blob: NDArray[Any]) -> Any:
    """Return the value in `blob`. Its arrays are views of the blob."""
    pickled, sizes_bytes = read_head(blob)
    offset = _aligned(HEAD_BYTES + 8 * len(sizes_bytes) + pickled.nbytes)
    buffers = []
    for size_bytes in sizes_bytes:
        buffers.append(blob[offset : offset + size_bytes])
        offset += _aligned(size_bytes)
    return unpack(pickled, buffers)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
