"""Provide values in shared files: the root writes to folders or URLs that all ranks see, and every rank reads.

A file is either complete or absent, in up to `REPLICAS_MAX` places. A rank begins with one copy and tries the next if
that copy is missing or corrupt. Ranks that map a file of a folder share the page cache of their host.

Source: Chowdhury et al., "Performance and scalability of broadcast in Spark", section 5.1.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import BroadcastError, InputError
from ripieno.files import disk, results
from ripieno.files.sources import file_system, is_url, opened
from ripieno.wire import packing

#: The maximum number of copies of a value.
REPLICAS_MAX = 3
#: The maximum number of processes that read a file of a folder at once.
READERS_MAX = 8
#: The maximum wait of a process for a slot, and the polling interval.
SLOT_WAIT_S = 600.0
POLL_S = 0.02
_DIGEST_BYTES = 16
_LOCK_SUFFIX = ".readers"

Place = str | os.PathLike[str]


class SharedFile(NamedTuple):
    """A value that was written to files.

    Attributes
    ----------
    names : list of str
        Paths and URLs of its copies.
    size_bytes : int
    digest : bytes or None
        BLAKE2b digest of all bytes; None if they are not verified.
    """

    names: list[str]
    size_bytes: int
    digest: bytes | None

    def read(self, first: int) -> NDArray[np.uint8]:
        """Return the bytes, read-only, from copy number `first` (modulo their count), or from the next correct copy.

        Raises
        ------
        BroadcastError
            No copy is correct. The message gives the reason for each.
        """
        reasons = []
        for at in range(len(self.names)):
            name = self.names[(first + at) % len(self.names)]
            try:
                return self._copy(name)
            except (OSError, InputError) as error:
                reasons.append(reason_of(error))
        raise BroadcastError(f"no copy of the value can be read: {'; '.join(reasons)}")

    def _copy(self, name: str) -> NDArray[np.uint8]:
        """Return the contents of one copy, if they are correct."""
        with reading_slot(name):
            found = _downloaded(name, self.size_bytes) if is_url(name) else _mapped(name)
            if found.nbytes != self.size_bytes or (self.digest is not None and _digest(found) != self.digest):
                raise InputError(f"{name}: its bytes differ from the value")
        return found

    def remove(self) -> None:
        """Remove all remaining copies."""
        remove(self.names)


def checked_places(places: Place | Sequence[Place]) -> list[str]:
    """Return the places as a list, or raise `InputError`."""
    listed = [places] if isinstance(places, str | os.PathLike) else list(places)
    if not listed:
        raise InputError("strategy='shared-file': expected places=, a folder or URL that all ranks see, or several")
    for place in listed:
        if not isinstance(place, str | os.PathLike):
            raise InputError(f"places={place!r}: expected a folder or URL, or a list of these")
    names = [os.fspath(place) for place in listed]
    return [name if is_url(name) else os.path.abspath(name) for name in names]


def write(
    packed: packing.PackedValue, places: Sequence[str], copy_count: int | None = None, *, verify: bool = True
) -> SharedFile:
    """Write copies of a value to places in turn, and sync them; by default one to each of the first `REPLICAS_MAX`.

    If a copy fails, all are removed.

    Raises
    ------
    BroadcastError
        The value cannot be written. The message names the place and reports a full disk.
    """
    blob = packing.blob(packed)
    names = write_copies(lambda file: file.write(blob.data), blob.nbytes, places, copy_count)
    return SharedFile(names, blob.nbytes, _digest(blob) if verify else None)


def write_copies(
    write_to: Callable[[BinaryIO], object], size_bytes: int, places: Sequence[str], copy_count: int | None = None
) -> list[str]:
    """Write copies of a file to places in turn, and return the names of the copies; see `write`."""
    token = secrets.token_hex(8)
    names = []
    for at in range(copy_count or min(len(places), REPLICAS_MAX)):
        turn, place = divmod(at, len(places))
        names.append(f"{places[place].rstrip('/')}/ripieno-{token}{f'-{turn}' if turn else ''}.value")
    for name in names:
        try:
            with results.new_file(name) as part, disk.create(part) as file:
                write_to(file)
            if not is_url(name):
                disk.create(name + _LOCK_SUFFIX, exclusive=True).close()
        except (OSError, InputError) as error:
            remove(names)
            raise BroadcastError(f"a value of {size_bytes:,} bytes cannot be written: {reason_of(error)}") from None
    return names


def remove(names: Sequence[str]) -> None:
    """Remove the remaining copies."""
    for name in names:
        with suppress(OSError, InputError):
            if is_url(name):
                system, inner = file_system(name)
                system.rm(inner)
            else:
                disk.remove(name)
        if not is_url(name):
            with suppress(OSError):
                disk.remove(name + _LOCK_SUFFIX)


def reason_of(error: OSError | InputError) -> str:
    """Return the reason why a copy cannot be written or read."""
    return results.explain(error) if isinstance(error, OSError) else str(error)


def _digest(blob: NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(blob.data, digest_size=_DIGEST_BYTES).digest()


def _mapped(path: str) -> NDArray[np.uint8]:
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def _downloaded(url: str, size_bytes: int) -> NDArray[np.uint8]:
    found = np.empty(size_bytes, np.uint8)
    view, done = found.data, 0
    with opened(url) as file:
        while done < size_bytes and (count := file.readinto(view[done:])):  # type: ignore[attr-defined]
            done += count
    found = found[:done]
    found.flags.writeable = False
    return found


@contextmanager
def reading_slot(name: str) -> Iterator[None]:
    """Hold one of the `READERS_MAX` slots for reading a file of a folder. URLs need no slot."""
    if is_url(name):
        yield
        return
    with disk.update(name + _LOCK_SUFFIX) as file:
        # The kernel releases the lock when the process ends in any way.
        deadline = time.monotonic() + SLOT_WAIT_S
        while not any(_try_lock(file.fileno(), slot) for slot in range(READERS_MAX)):
            if time.monotonic() > deadline:
                raise InputError(f"{name}: {READERS_MAX} other processes have been reading it for {SLOT_WAIT_S:g} s")
            time.sleep(POLL_S)
        yield


def _try_lock(descriptor: int, slot: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
    except BlockingIOError:
        return False
    return True
