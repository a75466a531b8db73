"""Which programs run in this process: a program that calls `init` gets its rank's communicator."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

_lock = threading.Lock()
# By thread; programs of single workers may run others.
_running: dict[int, list[Communicator]] = {}


@contextmanager
def running(comm: Communicator) -> Iterator[None]:
    """Within the ``with`` statement this thread runs a program that has got `comm`."""
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
    """What the program got that this thread runs, if it runs one."""
    with _lock:
        stack = _running.get(threading.get_ident())
        return stack[-1]._latest if stack else None


def of_this_process() -> Communicator | None:
    """What the program got that this process runs, if it runs one; for threads that programs start.

    Raises
    ------
    InputError
        If it runs several.
    """
    with _lock:
        found = [stack[-1]._latest for stack in _running.values()]
    if len(found) > 1:
        raise InputError(
            f"init: programs of {len(found)} ranks run in this process, and this thread is of any of them: give it the "
            "program's comm"
        )
    return found[0] if found else None
