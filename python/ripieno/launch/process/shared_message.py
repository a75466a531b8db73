"""Provide messages between the processes of one machine, with large values in shared memory.

A message is packed once and may be sent to several receivers. From `SHARED_FROM_BYTES` on it lies in a memfd, with one
copy for all receivers, which is freed with the last process that holds it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from typing import Any

import numpy as np

from ripieno.wire import packing

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
        packed = packing.pack_for_process(value, read_only=not writable, zero_copy=zero_copy)
        self.writable = writable
        self.fd: int | None = None
        self.inline: bytes | None = None
        self.size_bytes = packing.blob_bytes(packed)
        if self.size_bytes < SHARED_FROM_BYTES:
            self.inline = packing.blob(packed).tobytes()
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


def _memfd_of(packed: packing.PackedValue, size_bytes: int, writable: bool) -> int:
    fd = os.memfd_create("ripieno-message", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
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
