"""Handles of asynchronous calls, and the queue in which calls of several steps wait for their turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import ripieno._native as _native
import ripieno.flight as flight
from ripieno.errors import CollectiveMismatch, InputError, RankFailed

R = TypeVar("R")

#: How often calls that no thread works through are looked at beside those that one does.
_LOOK_S = 0.001


class NativeCalls(NamedTuple, Generic[R]):
    """A call whose steps are known at once: native calls (a name and its arguments), and what makes the result."""

    calls: list[tuple[Any, ...]]
    finish: Callable[[], R]

    def run(self, native: Any) -> R:
        for name, *args in self.calls:
            getattr(native, name)(*args)
        return self.finish()


class StagedCall(NamedTuple, Generic[R]):
    """A call in which what comes tells what to do next."""

    run: Callable[[Any], R]


class PostedCall(NamedTuple, Generic[R]):
    """A call whose parts wait for other ranks alone: calls that come after it pass it."""

    begin: Callable[[Any], Any]
    finish: Callable[[Any], R]

    def run(self, native: Any) -> R:
        return self.finish(self.begin(native))


class Caller(Protocol):
    """A rank that makes calls: as much of a communicator as rooms below it know."""

    world_size: int
    threads: int

    def _do(self, call: StagedCall[R]) -> R:
        """Carry the call out, or begin it."""


class Pending(Protocol):
    """A part of a call that is on its way."""

    @property
    def done(self) -> bool: ...

    def wait(self) -> Any: ...


@runtime_checkable
class Posted(Pending, Protocol):
    """A part that makes progress only while it is waited for or looked at."""

    def attempt(self, timeout_s: float | None) -> bool:
        """Wait for its end, or until nothing has happened for so long; return whether it has ended."""


class Handle(Generic[R]):
    """A call that goes on by itself. A program that drops the handle loses only the result.

    Attributes
    ----------
    done : bool
        Whether the call has ended, well or not. If it ended well, ``out`` holds the result.
    """

    def __init__(self, pending: list[Pending], finish: Callable[[], R], owner: Any) -> None:
        self._pending = pending
        self._finish: Callable[[], R] | None = finish  # None once the call has ended
        self._owner = owner  # the communicator lives as long as what is in flight on it
        self._lock = threading.Lock()
        self._result: R | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Handle {'done' if self.done else 'in flight'}>"

    @property
    def done(self) -> bool:
        self._owner._check_process()
        # Whoever holds the lock waits, or makes the result.
        if self._lock.acquire(blocking=False):
            try:
                if self._finish is not None and all(part.done for part in self._pending):
                    with suppress(Exception):  # is kept for `wait`
                        self._end(self._finish)
            finally:
                self._lock.release()
        return self._finish is None

    def wait(self) -> R:
        """Return the result when the call has ended. May be called again.

        Raises
        ------
        RankFailed, CollectiveMismatch, CommunicatorClosed
            As the blocking call does.
        KeyboardInterrupt
            The wait was interrupted, not the call: wait again for its end.
        """
        self._owner._check_process()
        with self._lock:
            if self._finish is not None:
                self._end(self._finish)
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _undone(self) -> list[Any]:
        """The first part that is on its way, where there is one."""
        return [part for part in self._pending if not part.done][:1]

    def _end(self, finish: Callable[[], R]) -> None:
        try:
            for part in self._pending:
                part.wait()
            self._result = finish()
        except Exception as error:
            if isinstance(error, RankFailed | CollectiveMismatch):
                flight.attach_latest(error, self._owner._native_or_none)
            self._error = error
            self._finish = None
            raise
        self._finish = None


def wait_any(handles: Iterable[Handle[Any]]) -> int:
    """Return when one of the calls has ended, well or not: the place of its handle.

    Parameters
    ----------
    handles : iterable of Handle
        Calls of one world, at least one. Take out what has ended before the next time.

    Returns
    -------
    int
        Of several that have ended, the first.

    Examples
    --------
    >>> import ripieno as rp
    >>> def program(comm):
    ...     handles = [comm.allreduce_async(comm.rank), comm.barrier_async()]
    ...     first = rp.wait_any(handles)
    ...     return first in (0, 1), handles[0].wait()
    >>> with rp.launch(workers=2) as job:
    ...     job.run(program)[0]
    (True, 1)
    """
    listed = list(handles)
    if not listed:
        raise InputError("wait_any: no handles: expected at least one")
    while True:
        for index, handle in enumerate(listed):
            if handle.done:
                return index
        parts = [part for handle in listed for part in handle._undone()]
        queued = [part._future for part in parts if isinstance(part, QueuedCall)]
        posted = [part for part in parts if isinstance(part, Posted)]
        is_alone = len(parts) in (len(queued), len(posted))
        if queued:
            # A thread works through these; the others have to be looked at.
            wait(queued, None if is_alone else _LOOK_S, FIRST_COMPLETED)
        elif posted:
            posted[0].attempt(None if is_alone and len(posted) == 1 else _LOOK_S)
        else:
            _native.wait_any(parts)


class QueuedCall:
    """A call in a `CallQueue`."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def __repr__(self) -> str:
        return f"<QueuedCall {'done' if self.done else 'queued'}>"

    @property
    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> Any:
        return self._future.result()


class CallQueue:
    """Calls that follow each other: a thread works through them as long as there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        #: The latest one, until all are served.
        self.last: Future[Any] | None = None
        self._is_served = False

    @property
    def is_busy(self) -> bool:
        last = self.last
        return last is not None and not last.done()

    def add(self, call: Callable[[], Any]) -> QueuedCall:
        """Let `call` run behind all others."""
        future: Future[Any] = Future()
        with self._lock:
            self._calls.append((call, future))
            self.last = future
            if not self._is_served:
                self._is_served = True
                threading.Thread(target=self._serve, name="ripieno-calls", daemon=True).start()
        return QueuedCall(future)

    def drain(self) -> None:
        """Return when no call is left; how they ended is told by their handles."""
        while (last := self.last) is not None and not last.done():
            last.exception()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._is_served = False
                    self.last = None  # with its result
                    return
                call, future = self._calls.popleft()
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
