"""Provide collectives of arbitrary objects on top of native collectives of bytes: a header first, then the data.

Cost: one small collective before the data, or no data phase at all if all objects fit into the header.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.errors import SerializationError
from ripieno.wire import packing
from ripieno.wire.arrays import as_array, empty, split
from ripieno.wire.signatures import OBJECT_PART

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator

#: Up to this many ranks, gather and scatter use header messages unless a call names an algorithm. For more ranks,
#: an exchange of sizes is far smaller.
_FEW_RANKS = 64

#: Contents of a header message: its kind, and the bytes or the number of bytes that follow.
First = tuple[int, bytes | int]

#: Kind of a header message with the dtype and the shape of an array. Its elements follow.
_ARRAY_HEAD = 4
#: Kinds of dtypes of arrays that are sent without a pickle.
_PLAIN_KINDS = "biufc"
#: Characters of a dtype in the header message of an array, such as "<f8" or "<c16".
_DTYPE_BYTES = 8


class Unsendable:
    """A replacement for a value that cannot be pickled. It makes the other ranks raise the same error.

    Parameters
    ----------
    rank
        The rank that has the value.
    error
        Why the value cannot be pickled.
    """

    def __init__(self, rank: int, error: SerializationError) -> None:
        self._message = f"rank {rank}: {error}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, (self._message,)


def _raise(message: str) -> NoReturn:
    raise SerializationError(message)


def _unsendable(native: NativeCommunicator, value: Any) -> Unsendable | None:
    """Return the replacement for `value`, or None if it can be pickled: then another rank's value has failed."""
    try:
        packing.pack(movable(value))
    except SerializationError as error:
        return Unsendable(native.rank, error)
    return None


def send(native: NativeCommunicator, value: Any, to: int) -> None:
    """Send a value to rank `to`, which receives it with `receive`."""
    array_head = _array_head(value)
    if array_head is not None:
        _native.send_frame(native, _ARRAY_HEAD, array_head, to, OBJECT_PART)
        native.collective(("send", to), _octets(value), None, OBJECT_PART)
        return
    packed = _native.send_object(native, value, to, OBJECT_PART)
    if packed is not None:
        _send_value(
            packed,
            lambda kind, content: _native.send_frame(native, kind, content, to, OBJECT_PART),
            lambda piece: native.collective(("send", to), piece, None, OBJECT_PART),
        )


def receive(
    native: NativeCommunicator,
    source: int,
    lengths_bytes: list[int] | None = None,
    memory: NDArray[Any] | None = None,
) -> Any:
    """Return the next value of rank `source`. Append the number of bytes after the header to `lengths_bytes`.

    A long array with the dtype and the shape of `memory` is received into this array, which is then the result.
    """
    is_done, received = _native.receive_object(native, source, OBJECT_PART)
    if is_done:
        return received

    def take(piece: NDArray[Any]) -> None:
        if lengths_bytes is not None:
            lengths_bytes.append(piece.nbytes)
        native.collective(("receive", source), piece, None, OBJECT_PART)

    return _take(received, take, memory)


def pieces(value: Any) -> list[NDArray[Any]]:
    """Return the messages for a value and a receiver, for asynchronous calls."""
    array_head = _array_head(value)
    if array_head is not None:
        return [_native.frame(_ARRAY_HEAD, array_head), _octets(value)]
    found: list[NDArray[Any]] = []
    packed = packing.pack(movable(value))
    _send_value(packed, lambda kind, content: found.append(_native.frame(kind, content)), found.append)
    return found


def broadcast(
    native: NativeCommunicator, value: Any, root: int, algorithm: str | None, signature: str = OBJECT_PART
) -> Any:
    """Return the root's value on every rank: the same object at the root."""
    try:
        is_done, rest = _native.broadcast_object(native, value, root, algorithm, signature)
    except SerializationError as error:
        if native.rank == root:
            broadcast(native, Unsendable(root, error), root, algorithm, signature)
        raise
    if is_done:
        return rest

    def move(piece: NDArray[Any]) -> object:
        return native.collective(("broadcast", root), piece, algorithm, signature)

    if native.rank != root:
        return _take(rest, move)
    _send_value(
        rest, lambda kind, content: _native.broadcast_frame(native, kind, content, root, algorithm, signature), move
    )
    return value


def _send_value(
    packed: packing.PackedValue,
    begin: Callable[[int, bytes | int], object],
    send_bytes: Callable[[NDArray[Any]], object],
) -> None:
    """Send a value: `begin` sends the header, `send_bytes` the bytes of arrays, each buffer in place."""
    if not packed.buffers and len(packed.pickled) <= _native.FRAME_ROOM_BYTES:
        begin(_native.PICKLE, packed.pickled)
        return
    head = packing.head(packed)
    if head.nbytes <= _native.FRAME_ROOM_BYTES:
        begin(_native.HEAD, head.tobytes())
    else:
        begin(_native.HEAD, head.nbytes)
        send_bytes(head)
    for buffer in packed.buffers:
        send_bytes(buffer)


def is_plain(value: Any) -> bool:
    """Return whether a value is an array of numbers that is sent without a pickle, in a header message or after it."""
    return (
        type(value) is np.ndarray
        and value.dtype.kind in _PLAIN_KINDS
        and value.dtype.isnative
        and value.flags.c_contiguous
    )


def _array_head(value: Any) -> bytes | None:
    """Return the content of the header message of a plain array that does not fit into it itself; else None."""
    # 8 bytes of the native format of short arrays, and the shape.
    if not is_plain(value) or 8 * (1 + value.ndim) + value.nbytes <= _native.FRAME_ROOM_BYTES:
        return None
    dtype_name: bytes = value.dtype.str.encode().ljust(_DTYPE_BYTES)
    head = dtype_name + struct.pack(f"<{value.ndim}q", *value.shape)
    return head if len(head) <= _native.FRAME_ROOM_BYTES else None


def _octets(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of a contiguous array, in place."""
    return array.reshape(-1).view(np.uint8)


def _empty_array(array_head: bytes, memory: NDArray[Any] | None) -> NDArray[Any]:
    """Return an array for the elements after a header message: `memory` if it has the dtype and the shape."""
    try:
        dtype = np.dtype(array_head[:_DTYPE_BYTES].decode().rstrip())
        shape = struct.unpack(f"<{len(array_head) // 8 - 1}q", array_head[_DTYPE_BYTES:])
        if memory is not None and is_plain(memory) and (memory.dtype, memory.shape) == (dtype, shape):
            return memory
        return empty(shape, dtype)
    except (TypeError, ValueError, struct.error) as error:
        raise SerializationError(f"the header of an array is malformed: {error}") from error


def _take(first: First, take: Callable[[NDArray[Any]], object], memory: NDArray[Any] | None = None) -> Any:
    """Return the value with the header `first`. `take` fills an array with the next bytes."""
    kind, content = first
    if kind == _ARRAY_HEAD and isinstance(content, bytes):
        array = _empty_array(content, memory)
        take(_octets(array))
        return array
    if isinstance(content, bytes):
        head = np.frombuffer(content, np.uint8)
    else:
        head = np.empty(content, np.uint8)
        take(head)
    pickled, sizes_bytes = packing.read_head(head)
    buffers = [empty(size_bytes, np.uint8) for size_bytes in sizes_bytes]
    for buffer in buffers:
        take(buffer)
    return packing.unpack(pickled, buffers)


def allgather(native: NativeCommunicator, value: Any, algorithm: str | None, signature: str = OBJECT_PART) -> list[Any]:
    """Return every rank's value on every rank."""
    try:
        is_done, rest = _native.gather_objects(native, value, None, algorithm, signature)
    except SerializationError:
        if not isinstance(value, Unsendable) and (replacement := _unsendable(native, value)) is not None:
            allgather(native, replacement, algorithm, signature)
        raise
    if is_done:
        found: list[Any] = rest
        return found
    packed, firsts = rest
    sizes, blobs, chunks = _rest(firsts)
    _write(packed, chunks[native.rank])
    native.collective(("allgather", sizes), blobs, algorithm, signature)
    return list(map(_value, firsts, chunks))


def gather(
    native: NativeCommunicator, value: Any, root: int, algorithm: str | None, signature: str = OBJECT_PART
) -> list[Any] | None:
    """Return every rank's value at the root."""
    try:
        return _gather(native, value, root, algorithm, signature)
    except SerializationError:
        if (replacement := _unsendable(native, value)) is not None:
            _gather(native, replacement, root, algorithm, signature)
        raise


def _gather(
    native: NativeCommunicator, value: Any, root: int, algorithm: str | None, signature: str
) -> list[Any] | None:
    if algorithm is None and native.world_size <= _FEW_RANKS:
        is_done, rest = _native.gather_objects(native, value, root, None, signature)
        if is_done:
            found: list[Any] | None = rest
            return found
        packed, firsts = rest
    else:
        packed = packing.pack(movable(value))
        sizes_array = np.zeros(native.world_size, np.int64)
        sizes_array[native.rank] = packing.blob_bytes(packed)
        native.collective(("allgather", [1] * native.world_size), sizes_array, None, signature)
        firsts = [(False, (_native.BLOB, size)) for size in sizes_array.tolist()]
    sizes, blobs, chunks = _rest(firsts)
    _write(packed, chunks[native.rank])
    native.collective(("gather", sizes, root), blobs, algorithm, signature)
    return list(map(_value, firsts, chunks)) if native.rank == root else None


def scatter(native: NativeCommunicator, values: Sequence[Any] | None, root: int, algorithm: str | None) -> Any:
    """Return the root's i-th value at rank i."""
    try:
        return _scatter(native, values, root, algorithm)
    except SerializationError:
        if native.rank == root and (replacement := _unsendable(native, values)) is not None:
            _scatter(native, [replacement] * native.world_size, root, algorithm)
        raise


def _scatter(native: NativeCommunicator, values: Sequence[Any] | None, root: int, algorithm: str | None) -> Any:
    if algorithm is None and native.world_size <= _FEW_RANKS:
        is_done, rest = _native.scatter_object(native, list(values or ()), root, OBJECT_PART)
        if is_done:
            return rest
        packed, firsts = rest
    else:
        packed = [packing.pack(movable(value)) for value in values or ()]
        sizes_array = np.zeros(native.world_size, np.int64)
        sizes_array[: len(packed)] = [packing.blob_bytes(each) for each in packed]
        native.collective(("broadcast", root), sizes_array, None, OBJECT_PART)
        firsts = [(False, (_native.BLOB, size)) for size in sizes_array.tolist()]
    sizes, blobs, chunks = _rest(firsts)
    for each, chunk in zip(packed, chunks, strict=False):
        _write(each, chunk)
    native.collective(("scatter", sizes, root), blobs, algorithm, OBJECT_PART)
    # Copy, because a view would keep the memory of all ranks' values.
    return _value(firsts[native.rank], chunks[native.rank].copy())


def alltoall(native: NativeCommunicator, values: Sequence[Any], algorithm: str | None) -> list[Any]:
    """Return the value of every rank for this rank."""
    try:
        packed = [packing.pack(movable(value)) for value in values]
    except SerializationError as error:
        alltoall(native, [Unsendable(native.rank, error)] * native.world_size, algorithm)
        raise
    sizes_array = np.array([packing.blob_bytes(each) for each in packed], np.int64)
    in_sizes_array = np.empty_like(sizes_array)
    ones = [1] * native.world_size
    native.collective(("alltoall", ones, ones), sizes_array, None, OBJECT_PART, in_sizes_array)
    blobs, chunks = _chunks(sizes_array.tolist())
    for each, chunk in zip(packed, chunks, strict=True):
        packing.write_blob(each, chunk)
    in_blobs, in_chunks = _chunks(in_sizes_array.tolist())
    task = ("alltoall", sizes_array.tolist(), in_sizes_array.tolist())
    native.collective(task, blobs, algorithm, OBJECT_PART, in_blobs)
    return [packing.read_blob(chunk) for chunk in in_chunks]


def rotate(native: NativeCommunicator, value: Any, distance: int, algorithm: str | None) -> Any:
    """Return the value of the rank `distance` before this one."""
    try:
        packed = packing.pack(movable(value))
    except SerializationError as error:
        rotate(native, Unsendable(native.rank, error), distance, algorithm)
        raise
    sizes_array, in_sizes_array = np.array([packing.blob_bytes(packed)], np.int64), np.empty(1, np.int64)
    native.collective(("rotate", distance), sizes_array, None, OBJECT_PART, in_sizes_array)
    blob, in_blob = empty(int(sizes_array[0]), np.uint8), empty(int(in_sizes_array[0]), np.uint8)
    packing.write_blob(packed, blob)
    native.collective(("rotate", distance), blob, algorithm, OBJECT_PART, in_blob)
    return packing.read_blob(in_blob)


def neighbour_exchange(
    native: NativeCommunicator, values: dict[int, Any], algorithm: str | None, sources: Sequence[int] | None = None
) -> dict[int, Any]:
    """Return the values that ranks have for this rank. `sources` are the senders, if they are known."""
    try:
        packed = {peer: packing.pack(movable(value)) for peer, value in values.items()}
    except SerializationError as error:
        neighbour_exchange(native, dict.fromkeys(values, Unsendable(native.rank, error)), algorithm, sources)
        raise
    peers = [(peer, packing.blob_bytes(packed[peer])) for peer in sorted(packed)]
    in_peers = _announced(native, peers) if sources is None else _announced_by(native, peers, sources)
    blobs, chunks = _chunks([size for _, size in peers])
    for (peer, _), chunk in zip(peers, chunks, strict=True):
        packing.write_blob(packed[peer], chunk)
    in_blobs, in_chunks = _chunks([size for _, size in in_peers])
    native.collective(("neighbour_exchange", peers, in_peers), blobs, algorithm, OBJECT_PART, in_blobs)
    return {peer: packing.read_blob(chunk) for (peer, _), chunk in zip(in_peers, in_chunks, strict=True)}


def _announced(native: NativeCommunicator, peers: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return each rank that sends to this one, and its number of bytes."""
    sizes_array, in_sizes_array = np.zeros((2, native.world_size), np.int64)
    for peer, size_bytes in peers:
        sizes_array[peer] = size_bytes
    ones = [1] * native.world_size
    native.collective(("alltoall", ones, ones), sizes_array, None, OBJECT_PART, in_sizes_array)
    return [(peer, int(size)) for peer, size in enumerate(in_sizes_array) if size]


def _announced_by(
    native: NativeCommunicator, peers: Sequence[tuple[int, int]], sources: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the same as `_announced`, if `sources` are the sending ranks."""
    sizes_array, in_sizes_array = np.array([size for _, size in peers], np.int64), np.zeros(len(sources), np.int64)
    to, of = [(peer, 1) for peer, _ in peers], [(peer, 1) for peer in sorted(sources)]
    native.collective(("neighbour_exchange", to, of), sizes_array, None, OBJECT_PART, in_sizes_array)
    return list(zip(sorted(sources), in_sizes_array.tolist(), strict=True))


def movable(value: Any) -> Any:
    """Return arrays of other libraries as NumPy arrays, read-only ones as copies, and other objects unchanged."""
    array = as_array(value)
    if array is None:
        return value
    # Objects unpickled from read-only memory are read-only, but results must be writable.
    return array if array.flags.writeable else np.array(array)


def _rest(firsts: Sequence[tuple[bool, Any]]) -> tuple[list[int], NDArray[Any], list[NDArray[Any]]]:
    """Return the sizes of the blobs that follow these headers, memory for all, and the part of each rank."""
    sizes = [0 if is_done else rest[1] for is_done, rest in firsts]
    return sizes, *_chunks(sizes)


def _write(packed: packing.PackedValue, chunk: NDArray[Any]) -> None:
    if chunk.size:
        packing.write_blob(packed, chunk)


def _value(first: tuple[bool, Any], chunk: NDArray[Any]) -> Any:
    """Return a rank's value from its header message or from its blob."""
    is_done, value = first
    return value if is_done else packing.read_blob(chunk)


def _chunks(sizes: list[int]) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Return one array for all ranks' blobs, and the part of each rank. Only written pages take memory."""
    blobs = empty(sum(sizes), np.uint8)
    return blobs, split(blobs, sizes)
