"""The memory that values of broadcasts take in this process: what is beyond a bound lies on disk, and that is said."""

from __future__ import annotations

import os
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from ripieno import log
from ripieno._checks import check_count
from ripieno._native import ValueMemory
from ripieno.errors import InputError
from ripieno.host import memory_limit_bytes
from ripieno.units import bytes_text, size_of

#: Bytes that values may take in each process, such as 8GiB.
VARIABLE = "RIPIENO_BROADCAST_MEMORY"


class BroadcastMemory(NamedTuple):
    """What values of broadcasts take in a process.

    Attributes
    ----------
    limit_bytes : int
        How much they may take in memory, now: what was said, or half of what would be free without them, and no more
        than half of the memory of the machine or its cgroup.
    held_bytes : int
        How much they take. While a value comes for which others go to disk, it may be more by that value.
    spilled_count : int
        Values that have gone to disk since the process began, or came there.
    spilled_bytes : int
        Their bytes.
    spill_directory : str
        Where they go.
    """

    limit_bytes: int
    held_bytes: int
    spilled_count: int
    spilled_bytes: int
    spill_directory: str


class _OfProcess:
    """The one memory of this process."""

    def __init__(self) -> None:
        text = os.environ.get(VARIABLE)
        self._most_bytes = memory_limit_bytes() // 2
        self.native = ValueMemory(size_of(VARIABLE, text) if text else None, self._most_bytes, _spill_directory())
        # Until more than these have gone to disk, nothing is said of it.
        self._quiet_count: int | None = 0
        self._failure: str | None = None

    def set_limit(self, limit_bytes: int, directory: str) -> None:
        self.native.set_bound(limit_bytes, self._most_bytes, directory)
        self._quiet_count = self.now().spilled_count

    def now(self) -> BroadcastMemory:
        return BroadcastMemory(*self.native.tally()[:5])

    def say(self) -> None:
        """Warn when the first value goes to disk, or when one cannot."""
        *_, directory, failure = self.native.tally()
        now = self.now()
        if self._quiet_count is not None and now.spilled_count > self._quiet_count:
            self._quiet_count = None
            words = (
                f"values of broadcasts are more than the {bytes_text(now.limit_bytes)} of memory that they may take: "
                f"{bytes_text(now.spilled_bytes)} went to {directory}; {VARIABLE} allows more"
            )
            log.note("ripieno.comm", words)
            warnings.warn(words, RuntimeWarning, stacklevel=4)
        if failure is not None and failure != self._failure:
            self._failure = failure
            warnings.warn(f"a value of a broadcast was to go to {directory}: {failure}", RuntimeWarning, stacklevel=4)


@cache
def of_this_process() -> _OfProcess:
    """What bounds the values of all communicators."""
    return _OfProcess()


def limited(limit_bytes: int | None, spill_directory: str | os.PathLike[str] | None) -> BroadcastMemory:
    """Set the limit if there is one, and tell what there is, see `Communicator.broadcast_memory`."""
    memory = of_this_process()
    if limit_bytes is None and spill_directory is not None:
        raise InputError(f"spill_directory={os.fspath(spill_directory)!r}: expected a limit_bytes with it")
    if limit_bytes is not None:
        check_count("limit_bytes", limit_bytes, "expected a whole number of bytes >= 1")
        directory = _spill_directory() if spill_directory is None else os.fspath(spill_directory)
        if not os.path.isdir(directory):
            raise InputError(f"spill_directory={directory!r}: expected a directory")
        memory.set_limit(limit_bytes, directory)
    return memory.now()


def _spill_directory() -> str:
    """Where TMPDIR says, else /var/tmp: what lies in /tmp is in memory on many machines."""
    is_chosen = bool(os.environ.get("TMPDIR")) or not os.access("/var/tmp", os.W_OK)
    if is_chosen:
        # Where no directory can be written to, only a value that must be spilled has none, and `say` reports that.
        with suppress(FileNotFoundError):
            return tempfile.gettempdir()
    return "/var/tmp"
