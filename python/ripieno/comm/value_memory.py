"""Provide a memory limit for the broadcast values of a process: values beyond it are stored on disk, with a warning."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from ripieno import log
from ripieno._checks import check_count
from ripieno._native import ValueMemory
from ripieno.errors import InputError
from ripieno.host import memory_limit_bytes
from ripieno.units import bytes_text, size_of

#: Environment variable with the limit in bytes per process, for example 8GiB.
VARIABLE = "RIPIENO_BROADCAST_MEMORY"


class BroadcastMemory(NamedTuple):
    """Memory use of broadcast values in a process.

    Attributes
    ----------
    limit_bytes : int
        The current limit in memory: the configured one, or half of the memory that would be free without the values,
        and at most half of the memory of the machine or its cgroup.
    held_bytes : int
        Size of the values in memory. It may exceed the limit by one value while that value arrives.
    spilled_count : int
        The number of values that were moved to disk, or received there, since the process began.
    spilled_bytes : int
        Their total size.
    spill_directory : str
        The directory for them.
    """

    limit_bytes: int
    held_bytes: int
    spilled_count: int
    spilled_bytes: int
    spill_directory: str


class ProcessMemory:
    """The memory of this process's broadcast values."""

    def __init__(self) -> None:
        text = os.environ.get(VARIABLE)
        self._default_limit_bytes = memory_limit_bytes() // 2
        self.native = ValueMemory(
            size_of(VARIABLE, text) if text else None, self._default_limit_bytes, _spill_directory()
        )
        # Warn once more values than this have moved to disk; None after the warning.
        self._warn_above_count: int | None = 0
        self._failure: str | None = None

    def set_limit(self, limit_bytes: int, directory: str) -> None:
        self.native.set_limit(limit_bytes, self._default_limit_bytes, directory)
        self._warn_above_count = self.usage().spilled_count

    def usage(self) -> BroadcastMemory:
        return BroadcastMemory(*self.native.stats()[:5])

    def log_spills(self) -> None:
        """Warn when the first value moves to disk, or when moving a value fails."""
        *_, directory, failure = self.native.stats()
        usage = self.usage()
        if self._warn_above_count is not None and usage.spilled_count > self._warn_above_count:
            self._warn_above_count = None
            warning = (
                f"broadcast values exceed the {bytes_text(usage.limit_bytes)} of memory that they may use: "
                f"{bytes_text(usage.spilled_bytes)} were written to {directory}; {VARIABLE} sets the limit"
            )
            log.note("ripieno.comm", warning)
            log.warn(warning, RuntimeWarning)
        if failure is not None and failure != self._failure:
            self._failure = failure
            log.warn(f"a value of a broadcast could not be written to {directory}: {failure}", RuntimeWarning)


@cache
def process_memory() -> ProcessMemory:
    """Return the limit shared by all communicators of this process."""
    return ProcessMemory()


def broadcast_memory(limit_bytes: int | None, spill_directory: str | os.PathLike[str] | None) -> BroadcastMemory:
    """Set the limit if one is given, and return the current state; see `Communicator.broadcast_memory`."""
    memory = process_memory()
    if limit_bytes is None and spill_directory is not None:
        raise InputError(f"spill_directory={os.fspath(spill_directory)!r}: expected limit_bytes, too")
    if limit_bytes is not None:
        check_count("limit_bytes", limit_bytes, "expected a whole number of bytes >= 1")
        directory = _spill_directory() if spill_directory is None else os.fspath(spill_directory)
        if not os.path.isdir(directory):
            raise InputError(f"spill_directory={directory!r}: expected a directory")
        memory.set_limit(limit_bytes, directory)
    return memory.usage()


def _spill_directory() -> str:
    """Return TMPDIR if set, else /var/tmp: on many machines /tmp lies in memory."""
    is_chosen = bool(os.environ.get("TMPDIR")) or not os.access("/var/tmp", os.W_OK)
    if is_chosen:
        # Without a writable directory, spilling a value fails later, and `log_spills` reports the failure.
        with suppress(FileNotFoundError):
            return tempfile.gettempdir()
    return "/var/tmp"
