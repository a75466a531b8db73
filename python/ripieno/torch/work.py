"""Provide `RipienoWork`, the handle of a process group's call, and its threads for futures and timeouts."""

from __future__ import annotations

import functools
import heapq
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.futures import Future

from ripieno.errors import InputError
from ripieno.wire.calls import Handle

# PyTorch passes this value if the caller sets no timeout.
_NO_TIMEOUT = timedelta(0)


class RipienoWork(dist.Work):
    """A call in flight.

    Parameters
    ----------
    description
        Name of the call, for errors.
    handles
        Handles of its parts.
    finish
        Copies received data to its destination. Called once.
    result
        The tensors with the result afterwards.
    threads
        Threads of the process group.
    sender
        Returns the rank of the sender after a receive from any rank.
    """

    def __init__(
        self,
        description: str,
        handles: Sequence[Handle[Any]],
        finish: Callable[[], None],
        result: Sequence[torch.Tensor],
        threads: WorkThreads,
        sender: Callable[[], int] | None = None,
    ) -> None:
        super().__init__()
        self.description = description
        self.handles = handles
        self._finish = finish
        self._result = list(result)
        self._threads = threads
        self._sender = sender
        self._future: Future[list[torch.Tensor]] | None = None
        self._lock = threading.Lock()
        self._has_ended = False
        self._error: BaseException | None = None
        self._late: TimeoutError | None = None

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Return True at the end of the call; raise `TimeoutError` after `timeout` or the time limit of the group."""
        if timeout > _NO_TIMEOUT:
            self._threads.limit(self, timeout.total_seconds())
        self.end()
        return True

    def synchronize(self) -> None:
        self.end()

    def is_completed(self) -> bool:
        """Return whether the call has ended; its result is then in place."""
        if not self._has_ended and self.has_arrived():
            with suppress(Exception):  # `wait` raises it
                self.end()
        return self._has_ended

    def has_arrived(self) -> bool:
        """Return whether all parts have ended."""
        return self._has_ended or all(handle.done for handle in self.handles)

    def is_success(self) -> bool:
        return self._has_ended and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[torch.Tensor]:
        return self._result

    def _source_rank(self) -> int:
        """Return the rank of the sender in the process group, after the end of a receive from any rank."""
        if self._sender is None:
            raise InputError(f"{self.description}: only a receive from any rank has a source")
        self.end()
        return self._sender()

    source_rank = _source_rank

    def get_future(self) -> Future[list[torch.Tensor]]:
        if _future_request.is_active:
            _future_request.found = self
            return _future_request.answer
        if self._future is None:
            self._future = Future()
            self._threads.fulfil(self, self._future)
        return self._future

    def end(self) -> None:
        """Wait for the parts and finish; raise the error of the call, on each call."""
        with self._lock:
            if not self._has_ended:
                try:
                    for handle in self.handles:
                        handle.wait()
                    with torch.no_grad():
                        self._finish()
                except BaseException as error:
                    if not isinstance(error, Exception):
                        raise  # the wait was interrupted, not the call
                    self._error = self._late or error
                    if self._late is not None:
                        self._late.__cause__ = error
                self._has_ended = True
        if self._error is not None:
            raise self._error

    def expire(self, limit_s: float) -> str | None:
        """Mark the call as expired; return the reason, or None if the call has already ended."""
        if self._has_ended:
            return None
        reason = f"{self.description} has taken longer than its timeout of {limit_s:g} s"
        self._late = TimeoutError(f"{reason}: the process group is aborted")
        return reason


class _FutureRequest(threading.local):
    """Find the `RipienoWork` inside a wrapper of PyTorch. State is per thread.

    PyTorch wraps the works of a backend in Python. A wrapper forwards only `wait` and `get_future`. While `is_active`
    is set, `get_future` of a `RipienoWork` therefore stores the work in `found`.
    """

    def __init__(self) -> None:
        self.is_active = False
        self.found: RipienoWork | None = None
        self.answer: Future[list[torch.Tensor]] = Future()

    def work_in(self, work: dist.Work) -> RipienoWork | None:
        """Return the work inside of a wrapper; None for works of other backends."""
        self.is_active, self.found = True, None
        try:
            work.get_future()
        except RuntimeError:
            return None  # a work of another backend, without a future
        finally:
            self.is_active = False
        return self.found


_future_request = _FutureRequest()


def _passed_on(name: str) -> Callable[[dist.Work], Any]:
    """Return a method for wrappers that calls the method `name` of the `RipienoWork` inside."""
    original = getattr(dist.Work, name)

    @functools.wraps(original)
    def method(self: dist.Work) -> Any:
        if isinstance(self, RipienoWork):
            return original(self)
        own = _future_request.work_in(self)
        return original(self) if own is None else getattr(own, name)()

    return method


def complete_wrappers() -> None:
    """Make PyTorch's wrappers forward all other methods to `RipienoWork`. Called once."""
    for name in ("is_completed", "is_success", "exception", "result", "synchronize", "source_rank", "_source_rank"):
        setattr(dist.Work, name, _passed_on(name))


class WorkThreads:
    """The threads of a process group: some complete works with futures, one enforces time limits.

    One thread at a time waits for the next work. Before it runs the callbacks of a future, another thread takes over.
    A callback may therefore wait for the future of another work.

    Parameters
    ----------
    abort
        Called with the reason if a work exceeds its time limit. It ends all calls of the ranks.
    """

    def __init__(self, abort: Callable[[str], None]) -> None:
        self._abort = abort
        self._pending: deque[tuple[RipienoWork, Future[list[torch.Tensor]]]] = deque()
        self._may_take = threading.Condition()
        # Whether a thread waits for a work, and the number of idle threads.
        self._is_waiting = False
        self._idle_count = 0
        # Weak references: a work without other references needs no limit, and must not keep tensors alive.
        self._limits: list[tuple[float, int, float, weakref.ref[RipienoWork]]] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._has_clock = False
        self._is_closed = False

    def fulfil(self, work: RipienoWork, future: Future[list[torch.Tensor]]) -> None:
        """Complete the future when the work ends."""
        with self._may_take:
            self._pending.append((work, future))
            self._call_a_thread()

    def limit(self, work: RipienoWork, limit_s: float) -> None:
        """Abort the ranks if the work has not ended after `limit_s`."""
        entry = (time.monotonic() + limit_s, next(self._count), limit_s, weakref.ref(work))
        with self._changed:
            self._drop_ended()
            heapq.heappush(self._limits, entry)
            if not self._has_clock:
                self._has_clock = True
                threading.Thread(target=self._watch, name="ripieno-timeouts", daemon=True).start()
            elif self._limits[0] is entry:
                self._changed.notify()

    def close(self) -> None:
        """End the threads after all futures are complete."""
        with self._may_take:
            self._is_closed = True
            self._may_take.notify_all()
        with self._changed:
            self._changed.notify()

    def _call_a_thread(self) -> None:
        """Assign the next work to an idle or new thread, unless another thread waits for a work."""
        if self._is_waiting or not self._pending:
            return
        if self._idle_count:
            self._may_take.notify()
        else:
            threading.Thread(target=self._fulfil_all, name="ripieno-futures", daemon=True).start()

    def _fulfil_all(self) -> None:
        while (pending := self._next_pending()) is not None:
            work, future = pending
            error: Exception | None = None
            try:
                work.end()
            except Exception as raised:
                error = raised
            with self._may_take:
                self._is_waiting = False
                self._call_a_thread()
            # Both calls run callbacks, which may wait.
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(work.result())

    def _next_pending(self) -> tuple[RipienoWork, Future[list[torch.Tensor]]] | None:
        """Return the next work to wait for; None if the thread is to end."""
        with self._may_take:
            self._idle_count += 1
            # One idle thread is enough.
            self._may_take.wait_for(lambda: self._may_end() or (self._pending and not self._is_waiting))
            self._idle_count -= 1
            if not self._pending or self._is_waiting:
                return None
            self._is_waiting = True
            return self._pending.popleft()

    def _may_end(self) -> bool:
        return (self._is_closed or self._idle_count > 1) and not (self._pending and not self._is_waiting)

    def _watch(self) -> None:
        with self._changed:
            while not self._is_closed:
                self._drop_ended()
                now = time.monotonic()
                if not self._limits:
                    self._changed.wait()
                elif self._limits[0][0] > now:
                    self._changed.wait(self._limits[0][0] - now)
                else:
                    _, _, limit_s, of_work = heapq.heappop(self._limits)
                    work = of_work()
                    reason = None if work is None else work.expire(limit_s)
                    if reason is not None:
                        self._abort(reason)

    def _drop_ended(self) -> None:
        while self._limits and ((work := self._limits[0][3]()) is None or work.has_arrived()):
            heapq.heappop(self._limits)
