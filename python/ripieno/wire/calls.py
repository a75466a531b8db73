"""Provide handles of asynchronous calls, and the queue of calls of several steps."""

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

#: Polling interval for calls without a thread, while other calls are queued on a thread.
_POLL_S = 0.001
#: How long the thread of a queue waits for the next call. Starting a thread per call takes most of a short call.
_IDLE_S = 0.1


class NativeCalls(NamedTuple, Generic[R]):
    """A call of known steps: native calls (a name and arguments), and a function for the result."""

    calls: list[tuple[Any, ...]]
    finish: Callable[[], R]

    def run(self, native: Any) -> R:
        for name, *args in self.calls:
            getattr(native, name)(*args)
        return self.finish()


class StagedCall(NamedTuple, Generic[R]):
    """A multi-step call: later steps depend on received data."""

    run: Callable[[Any], R]


class PostedCall(NamedTuple, Generic[R]):
    """A call that consists of waits for other ranks. Later calls may run before its end."""

    begin: Callable[[Any], Any]
    finish: Callable[[Any], R]

    def run(self, native: Any) -> R:
        return self.finish(self.begin(native))


class Caller(Protocol):
    """A rank that makes calls: the part of a communicator that lower layers use."""

    world_size: int
    threads: int

    def _do(self, call: StagedCall[R]) -> R:
        """Run the call, or begin it."""


class Pending(Protocol):
    """A part of a call that is in flight."""

    @property
    def done(self) -> bool: ...

    def wait(self) -> Any: ...


@runtime_checkable
class Posted(Pending, Protocol):
    """A part that makes progress only while the program waits for or polls it."""

    def attempt(self, timeout_s: float | None) -> bool:
        """Wait for its end, or until nothing has happened for `timeout_s`; return whether it has ended."""


class Handle(Generic[R]):
    """A call that runs asynchronously. A program that drops the handle loses only the result.

    Attributes
    ----------
    done : bool
        Whether the call has ended, with a result or an error. After success, ``out`` holds the result.
    """

    def __init__(self, pending: list[Pending], finish: Callable[[], R], owner: Any) -> None:
        self._pending = pending
        self._finish: Callable[[], R] | None = finish  # None once the call has ended
        self._owner = owner  # keeps the communicator alive while calls are in flight
        self._lock = threading.Lock()
        self._result: R | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Handle {'done' if self.done else 'in flight'}>"

    @property
    def done(self) -> bool:
        self._owner._check_process()
        # A thread that holds the lock waits for the call, or builds the result.
        if self._lock.acquire(blocking=False):
            try:
                if self._finish is not None and all(part.done for part in self._pending):
                    with suppress(Exception):  # `wait` raises it
                        self._end(self._finish)
            finally:
                self._lock.release()
        return self._finish is None

    def wait(self) -> R:
        """Wait for the end of the call and return the result. May be called again.

        Raises
        ------
        RankFailed, CollectiveMismatch, CommunicatorClosed
            As the blocking call does.
        KeyboardInterrupt
            The wait was interrupted, but not the call. Call it again to wait for the end.
        """
        self._owner._check_process()
        with self._lock:
            if self._finish is not None:
                self._end(self._finish)
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _first_pending(self) -> list[Any]:
        """Return a list with the first part in flight, empty if none is."""
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
    """Wait until one of the calls has ended, with a result or an error, and return the index of its handle.

    Parameters
    ----------
    handles : iterable of Handle
        At least one handle; all belong to one world. Remove an ended call before the next `wait_any`.

    Returns
    -------
    int
        If several have ended, the lowest index.

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
        parts = [part for handle in listed for part in handle._first_pending()]
        queued = [part._future for part in parts if isinstance(part, QueuedCall)]
        posted = [part for part in parts if isinstance(part, Posted)]
        is_alone = len(parts) in (len(queued), len(posted))
        if queued:
            # A thread runs the queued calls. The others must be polled.
            wait(queued, None if is_alone else _POLL_S, FIRST_COMPLETED)
        elif posted:
            posted[0].attempt(None if is_alone and len(posted) == 1 else _POLL_S)
        else:
            _native.wait_any(parts)


class QueuedCall:
    """A call in a `CallQueue`, or one that has ended."""

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
    """Calls that run one after the other, on a thread that ends when it has been idle for `_IDLE_S`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        #: The latest call, until all have ended.
        self.last: Future[Any] | None = None
        self._has_thread = False

    @property
    def is_busy(self) -> bool:
        last = self.last
        return last is not None and not last.done()

    def add(self, call: Callable[[], Any]) -> QueuedCall:
        """Queue `call` behind all others."""
        future: Future[Any] = Future()
        with self._changed:
            self._calls.append((call, future))
            self.last = future
            if self._has_thread:
                self._changed.notify()
            else:
                self._has_thread = True
                threading.Thread(target=self._serve, name="ripieno-calls", daemon=True).start()
        return QueuedCall(future)

    def drain(self) -> None:
        """Wait until the queue is empty. The handles report results and errors."""
        while (last := self.last) is not None and not last.done():
            last.exception()

    def _serve(self) -> None:
        while self._awaits_call():
            self._run_next()

    def _awaits_call(self) -> bool:
        """Wait for a queued call; return False, and end the thread, if there is none for a while."""
        with self._changed:
            if not self._calls:
                self.last = None  # drops its result, too
            self._has_thread = self._changed.wait_for(lambda: bool(self._calls), _IDLE_S)
            return self._has_thread

    def _run_next(self) -> None:
        call, future = self._calls.popleft()
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            # The caller may free or resize its arrays as soon as it has the result.
            del call
            future.set_result(result)


def run_now(call: Callable[[], Any]) -> QueuedCall:
    """Run a call that waits for no other rank. Its handle reports the result or the error."""
    future: Future[Any] = Future()
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
    return QueuedCall(future)
