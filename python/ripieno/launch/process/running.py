"""Provide the registry of the programs that run in this process. `init` returns a communicator from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

_lock = threading.Lock()
# Communicators by thread. Programs of single workers may run other programs.
_running: dict[int, list[Communicator]] = {}


@contextmanager
def running(comm: Communicator) -> Iterator[None]:
    """Register, within the ``with`` statement, that this thread runs a program with `comm`."""
    thread = threading.get_ident()
    with _lock:
        _running.setdefault(thread, []).append(comm)
    try:
        yield
    finally:
        with _lock:
            _running[thread].pop()
            if not _running[thread]:
                del _running[thread]


def of_this_thread() -> Communicator | None:
    """Return the communicator of the program that this thread runs, or None."""
    with _lock:
        stack = _running.get(threading.get_ident())
        return stack[-1]._latest if stack else None


def of_this_process() -> Communicator | None:
    """Return the communicator of the program that this process runs, or None; for threads that programs start.

    Raises
    ------
    InputError
        If the process runs several programs.
    """
    with _lock:
        found = [stack[-1]._latest for stack in _running.values()]
    if len(found) > 1:
        raise InputError(
            f"init: programs of {len(found)} ranks run in this process, and this thread may belong to any: pass the "
            "program's comm"
        )
    return found[0] if found else None
