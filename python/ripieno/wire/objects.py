"""Collectives of arbitrary objects, built from the native collectives of bytes: first the sizes, then the data.

Cost: one small collective ahead of the data; none if the objects are small enough to travel with their sizes.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.wire import packing
from ripieno.wire.arrays import as_array, empty, split
from ripieno.wire.forms import OBJECT

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator

# First message about an object: the length of what follows and, if it fits, that itself. An array's head does.
FRAME_BYTES = 256
_LENGTH_BYTES = 8
_INLINE_BYTES = FRAME_BYTES - _LENGTH_BYTES

# A frame with a pickle that refers to no buffer: the length of what follows, that of the pickle, 0, and the pickle.
_PICKLE_AT = _LENGTH_BYTES + packing.HEAD_BYTES
_PICKLE_BYTES = FRAME_BYTES - _PICKLE_AT
_frame = struct.Struct(f"=qqq{_PICKLE_BYTES}s")
_start = struct.Struct(f"=qqq{_PICKLE_BYTES}x")

# Up to so many ranks gather and scatter frames; of more, sizes are far less.
_FRAMED_RANKS = 64


def send(value: Any, give: Callable[[NDArray[Any]], object]) -> None:
    """Pass a value on through `give`, which moves an array's bytes: a frame, then each buffer from its place."""
    packed = packing.pack(movable(value))
    if not packed.buffers and len(packed.pickled) <= _PICKLE_BYTES:
        give(np.frombuffer(_framed(packing.HEAD_BYTES + len(packed.pickled), packed), np.uint8))
        return
    head = packing.head(packed)
    frame = np.zeros(FRAME_BYTES, np.uint8)
    frame[:_LENGTH_BYTES].view(np.int64)[0] = head.nbytes
    if head.nbytes <= _INLINE_BYTES:
        frame[_LENGTH_BYTES : _LENGTH_BYTES + head.nbytes] = head
        give(frame)
    else:
        give(frame)
        give(head)
    for buffer in packed.buffers:
        give(buffer)


def receive(take: Callable[[NDArray[Any]], object]) -> Any:
    """The value that `send` passed on; `take` fills an array with the next bytes."""
    frame = np.empty(FRAME_BYTES, np.uint8)
    take(frame)
    head_bytes, pickled_bytes, buffer_count = _start.unpack(frame.data)
    if head_bytes <= _INLINE_BYTES and buffer_count == 0:
        return packing.unpack(frame.data[_PICKLE_AT : _PICKLE_AT + pickled_bytes], ())
    head = frame[_LENGTH_BYTES : _LENGTH_BYTES + head_bytes]
    if head_bytes > _INLINE_BYTES:
        head = np.empty(head_bytes, np.uint8)
        take(head)
    pickled, sizes_bytes = packing.read_head(head)
    buffers = [empty(size_bytes, np.uint8) for size_bytes in sizes_bytes]
    for buffer in buffers:
        take(buffer)
    return packing.unpack(pickled, buffers)


def allgather(native: NativeCommunicator, value: Any, algorithm: str | None, form: str = OBJECT) -> list[Any]:
    """Every rank's value, on every rank."""
    packed = packing.pack(movable(value))
    frames = bytearray(FRAME_BYTES * native.world_size)
    _put_frame(packed, frames, native.rank)
    native.allgather(np.frombuffer(frames, np.uint8), [FRAME_BYTES] * native.world_size, algorithm, form)
    sizes, values = _read_frames(frames)
    if values is not None:
        return values
    blobs, chunks = _chunks(sizes)
    packing.write_blob(packed, chunks[native.rank])
    native.allgather(blobs, sizes, algorithm, form)
    return [packing.read_blob(chunk) for chunk in chunks]


def gather(native: NativeCommunicator, value: Any, root: int, algorithm: str | None) -> list[Any] | None:
    """Every rank's value, at the root."""
    packed = packing.pack(movable(value))
    if native.world_size <= _FRAMED_RANKS:
        frames = bytearray(FRAME_BYTES * native.world_size)
        _put_frame(packed, frames, native.rank)
        native.allgather(np.frombuffer(frames, np.uint8), [FRAME_BYTES] * native.world_size, None, OBJECT)
        sizes, values = _read_frames(frames, range(native.world_size) if native.rank == root else ())
        if values is not None:
            return values if native.rank == root else None
    else:
        sizes_array = np.zeros(native.world_size, np.int64)
        sizes_array[native.rank] = packing.blob_bytes(packed)
        native.allgather(sizes_array, [1] * native.world_size, None, OBJECT)
        sizes = sizes_array.tolist()
    blobs, chunks = _chunks(sizes)
    packing.write_blob(packed, chunks[native.rank])
    native.gather(blobs, sizes, root, algorithm, OBJECT)
    return [packing.read_blob(chunk) for chunk in chunks] if native.rank == root else None


def scatter(native: NativeCommunicator, values: Sequence[Any] | None, root: int, algorithm: str | None) -> Any:
    """The root's i-th value, at rank i."""
    packed = [packing.pack(movable(value)) for value in values or ()]
    if native.world_size <= _FRAMED_RANKS:
        frames = bytearray(FRAME_BYTES * native.world_size)
        for rank, each in enumerate(packed):
            _put_frame(each, frames, rank)
        native.broadcast(np.frombuffer(frames, np.uint8), root, None, OBJECT)
        sizes, values = _read_frames(frames, (native.rank,))
        if values is not None:
            return values[0]
    else:
        sizes_array = np.zeros(native.world_size, np.int64)
        sizes_array[: len(packed)] = [packing.blob_bytes(each) for each in packed]
        native.broadcast(sizes_array, root, None, OBJECT)
        sizes = sizes_array.tolist()
    blobs, chunks = _chunks(sizes)
    for each, chunk in zip(packed, chunks, strict=False):
        packing.write_blob(each, chunk)
    native.scatter(blobs, sizes, root, algorithm, OBJECT)
    # A copy, for a view would keep the memory of all ranks' values.
    return packing.read_blob(chunks[native.rank].copy())


def alltoall(native: NativeCommunicator, values: Sequence[Any], algorithm: str | None) -> list[Any]:
    """From every rank, the value that it has for this one."""
    packed = [packing.pack(movable(value)) for value in values]
    sizes_array = np.array([packing.blob_bytes(each) for each in packed], np.int64)
    in_sizes_array = np.empty_like(sizes_array)
    ones = [1] * native.world_size
    native.alltoall(sizes_array, ones, in_sizes_array, ones, None, OBJECT)
    blobs, chunks = _chunks(sizes_array.tolist())
    for each, chunk in zip(packed, chunks, strict=True):
        packing.write_blob(each, chunk)
    in_blobs, in_chunks = _chunks(in_sizes_array.tolist())
    native.alltoall(blobs, sizes_array.tolist(), in_blobs, in_sizes_array.tolist(), algorithm, OBJECT)
    return [packing.read_blob(chunk) for chunk in in_chunks]


def rotate(native: NativeCommunicator, value: Any, distance: int, algorithm: str | None) -> Any:
    """The value of the rank `distance` before this one."""
    packed = packing.pack(movable(value))
    sizes_array, in_sizes_array = np.array([packing.blob_bytes(packed)], np.int64), np.empty(1, np.int64)
    native.rotate(sizes_array, in_sizes_array, distance, None, OBJECT)
    blob, in_blob = empty(int(sizes_array[0]), np.uint8), empty(int(in_sizes_array[0]), np.uint8)
    packing.write_blob(packed, blob)
    native.rotate(blob, in_blob, distance, algorithm, OBJECT)
    return packing.read_blob(in_blob)


def neighbour_exchange(native: NativeCommunicator, values: dict[int, Any], algorithm: str | None) -> dict[int, Any]:
    """From every rank that has a value for this one, that value."""
    packed = {peer: packing.pack(movable(value)) for peer, value in values.items()}
    sizes_array, in_sizes_array = np.zeros((2, native.world_size), np.int64)
    for peer, each in packed.items():
        sizes_array[peer] = packing.blob_bytes(each)
    ones = [1] * native.world_size
    native.alltoall(sizes_array, ones, in_sizes_array, ones, None, OBJECT)
    peers = [(peer, int(size)) for peer, size in enumerate(sizes_array) if size]
    in_peers = [(peer, int(size)) for peer, size in enumerate(in_sizes_array) if size]
    blobs, chunks = _chunks([size for _, size in peers])
    for (peer, _), chunk in zip(peers, chunks, strict=True):
        packing.write_blob(packed[peer], chunk)
    in_blobs, in_chunks = _chunks([size for _, size in in_peers])
    native.neighbour_exchange(blobs, peers, in_blobs, in_peers, algorithm, OBJECT)
    return {peer: packing.read_blob(chunk) for (peer, _), chunk in zip(in_peers, in_chunks, strict=True)}


def movable(value: Any) -> Any:
    """Arrays of other libraries as NumPy arrays, read-only ones as copies; anything else as it is."""
    array = as_array(value)
    if array is None:
        return value
    # What is unpickled from read-only memory is read-only, and results are not.
    return array if array.flags.writeable else np.array(array)


def _framed(length_bytes: int, packed: packing.Packed) -> bytes:
    """A frame of a value whose pickle fits into it and refers to no buffer."""
    return _frame.pack(length_bytes, len(packed.pickled), 0, packed.pickled)


def _put_frame(packed: packing.Packed, frames: bytearray, rank: int) -> None:
    """Write the frame of a rank's value: the size of its blob and, if it fits, the blob."""
    blob_bytes = packing.blob_bytes(packed)
    at = FRAME_BYTES * rank
    if blob_bytes > _INLINE_BYTES:
        frames[at : at + _LENGTH_BYTES] = blob_bytes.to_bytes(_LENGTH_BYTES, sys.byteorder)
    else:
        # No buffer is so short that it is none of the pickle's.
        frames[at : at + FRAME_BYTES] = _framed(blob_bytes, packed)


def _read_frames(frames: bytearray, ranks: Sequence[int] | None = None) -> tuple[list[int], list[Any] | None]:
    """The size of each rank's blob, and if all are in the frames the values of these ranks, by default of all."""
    heads = list(_start.iter_unpack(frames))
    sizes = [size for size, _, _ in heads]
    if max(sizes) > _INLINE_BYTES:
        return sizes, None
    starts = [FRAME_BYTES * rank + _PICKLE_AT for rank in (range(len(heads)) if ranks is None else ranks)]
    view = memoryview(frames)
    pickles = [view[start : start + heads[start // FRAME_BYTES][1]] for start in starts]
    return sizes, packing.unpack_all(pickles)


def _chunks(sizes: list[int]) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """One array for all ranks' blobs, and each one's part of it. Memory is only taken for what is written."""
    blobs = empty(sum(sizes), np.uint8)
    return blobs, split(blobs, sizes)
