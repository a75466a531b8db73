"""Requests: pending calls, and calls that can be started repeatedly. The wait for a receive performs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Self

from ripieno.errors import InputError
from ripieno.mpi.constants import UNDEFINED
from ripieno.mpi.status import Status
from ripieno.mpi.unsupported import refusing

#: Interval between two tests of pending requests.
_POLL_S = 0.0005

#: A list of statuses is extended to the number of requests.
Statuses = list[Status] | tuple[Status, ...] | None
Attempt = Callable[[float | None, Status | None], tuple[bool, Any]]


def _over(timeout_s: float | None, status: Status | None) -> tuple[bool, None]:
    return True, None


@refusing
class Request:
    """A pending call.

    Parameters
    ----------
    attempt : callable or Request, optional
        Tries to complete the call within the given number of seconds (None: without limit), and fills in a status.
        Returns whether the call is complete, and the result. By default the request is null.
    cancel : callable, optional
        Cancels the call, and returns whether it was still possible.
    """

    _attempt: Attempt
    _cancel: Callable[[], bool]
    _is_over: bool
    _is_cancelled: bool
    _result: Any

    def __new__(cls, attempt: Attempt | Request | None = None, cancel: Callable[[], bool] = lambda: False) -> Self:
        instance = object.__new__(cls)
        if isinstance(attempt, Request):
            instance.__dict__.update(attempt.__dict__)
            return instance
        if not callable(attempt) and attempt is not None:
            raise TypeError(f"{cls.__name__}: a {type(attempt).__name__}: expected a request")
        instance._attempt = attempt or _over
        instance._cancel = cancel
        instance._is_over = attempt is None
        instance._is_cancelled = False
        instance._result = None
        return instance

    def __bool__(self) -> bool:
        return not self._is_over

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same request, or both are complete and thus equal `REQUEST_NULL`."""
        if not isinstance(other, Request):
            return NotImplemented
        return self is other or (not self and not other) or (self._attempt is other._attempt and bool(self and other))

    def __reduce__(self) -> Any:
        if self:
            raise InputError("a pending request cannot be pickled; wait for it")
        return "REQUEST_NULL" if self is REQUEST_NULL else (type(self), ())

    def __hash__(self) -> int:
        # The state changes, so the hash must not depend on it. Complete requests are equal but differ in their hashes.
        return id(self)

    def wait(self, status: Status | None = None) -> Any:
        """Wait for completion, and return the received object; None for a send, and if the request was complete."""
        return self._waited(status)

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Return whether the call is complete, and the result of `wait`."""
        # Subclasses may override the public methods, which therefore do not call each other.
        was_over = self._is_over
        is_over = self._progress(0.0, status)
        return is_over, self._result if is_over and not was_over else None

    def Wait(self, status: Status | None = None) -> bool:
        """Return when the call is complete."""
        self._waited(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Return whether the call is complete."""
        return self._progress(0.0, status)

    def Get_status(self, status: Status | None = None) -> bool:
        """Return whether the call is complete; the request remains."""
        if self._is_over or self._is_cancelled:
            return Request(self)._progress(0.0, status)
        own = Status()
        is_over, result = self._attempt(0.0, own)
        if is_over:
            self._attempt = _ended(own, result)
        if status is not None:
            status.copy_from(own)
        return is_over

    get_status = Get_status

    def Free(self) -> None:
        """Turn the request into the null request; a call in flight continues to its end."""
        self._is_over = True

    free = Free

    def Cancel(self) -> None:
        """Cancel a receive that has not begun; other calls continue to their ends."""
        if not self._is_over and self._cancel():
            self._is_cancelled = True

    cancel = Cancel

    def _waited(self, status: Status | None) -> Any:
        """Return the result when the call is complete; None if it was complete before."""
        was_over = self._is_over
        self._progress(None, status)
        return None if was_over else self._result

    def _progress(self, timeout_s: float | None, status: Status | None) -> bool:
        """Try to complete the call. Fill in the status if it is complete: empty if it was complete before."""
        if self._is_over:
            if status is not None:
                status.clear()
            return True
        if status is not None:
            status.clear()
        if self._is_cancelled:
            if status is not None:
                status.Set_cancelled(True)
            is_over, result = True, None
        else:
            is_over, result = self._attempt(timeout_s, status)
        if is_over:
            self._end(result)
        return is_over

    def _end(self, result: Any) -> None:
        self._is_over, self._result = True, result

    # Several requests

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[Any]:
        """Wait for all requests, and return their results."""
        each = _statuses_for(statuses, len(requests))
        return [request._waited(status) for request, status in zip(requests, each, strict=True)]

    @classmethod
    def testall(cls, requests: Sequence[Request], statuses: Statuses = None) -> tuple[bool, list[Any] | None]:
        """Return whether all requests are complete, and their results. Until then, all requests remain."""
        if not cls.get_status_all(requests):
            return False, None
        return True, cls.waitall(requests, statuses)

    @classmethod
    def testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool, Any]:
        """Return the index of a completed request, whether one has completed, and its result.

        Without a pending request the index is `UNDEFINED`, and the second value is True.
        """
        pending = [index for index, request in enumerate(requests) if not request._is_over]
        for index in pending:
            if requests[index]._progress(0.0, status):
                return index, True, requests[index]._result
        if status is not None:
            status.clear()
        return UNDEFINED, not pending, None

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Return the index and the result of a completed request that was pending before; `UNDEFINED` without one."""
        while True:
            index, is_over, result = cls.testany(requests, status)
            if is_over:
                return index, result
            time.sleep(_POLL_S)

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: Statuses = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Return the indices and results of the requests that have completed; None if no request was pending."""
        if all(request._is_over for request in requests):
            return None, None
        found: list[int] = []
        filled: list[Status] = []
        for index, request in enumerate(requests):
            status = Status()
            if not request._is_over and request._progress(0.0, status):
                found.append(index)
                filled.append(status)
        _fill(statuses, filled)
        return found, [requests[index]._result for index in found]

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: Statuses = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Return the indices and results of at least one completed request; None if no request was pending."""
        while True:
            found, results = cls.testsome(requests, statuses)
            if found or found is None:
                return found, results
            time.sleep(_POLL_S)

    @classmethod
    def get_status_all(cls, requests: Sequence[Request], statuses: Statuses = None) -> bool:
        """Return whether all requests are complete."""
        each = _statuses_for(statuses, len(requests))
        # Every request is tested, even after an incomplete one.
        done = [request.Get_status(status) for request, status in zip(requests, each, strict=True)]
        return all(done)

    @classmethod
    def get_status_any(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """Return the index of a completed request, and whether one has completed."""
        pending = [index for index, request in enumerate(requests) if not request._is_over]
        index = next((index for index in pending if requests[index].Get_status(status)), UNDEFINED)
        if index == UNDEFINED and status is not None:
            status.clear()
        return index, index != UNDEFINED or not pending

    @classmethod
    def get_status_some(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[int] | None:
        """Return the indices of completed requests; None if no request was pending."""
        pending = [index for index, request in enumerate(requests) if not request._is_over]
        if not pending:
            return None
        own = {index: Status() for index in pending}
        found = [index for index in pending if requests[index].Get_status(own[index])]
        _fill(statuses, [own[index] for index in found])
        return found

    Get_status_all, Get_status_any, Get_status_some = get_status_all, get_status_any, get_status_some

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: Statuses = None) -> bool:
        """Return when all requests are complete."""
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: Statuses = None) -> bool:
        """Return whether all requests are complete."""
        return cls.testall(requests, statuses)[0]

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """Return the index of a completed request that was pending before; `UNDEFINED` without one."""
        return cls.waitany(requests, status)[0]

    @classmethod
    def Testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """Return the index of a completed request, and whether one has completed."""
        return cls.testany(requests, status)[:2]

    @classmethod
    def Waitsome(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[int] | None:
        """Return the indices of at least one completed request; None if no request was pending."""
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def Testsome(cls, requests: Sequence[Request], statuses: Statuses = None) -> list[int] | None:
        """Return the indices of the requests that have completed; None if no request was pending."""
        return cls.testsome(requests, statuses)[0]


class Prequest(Request):
    """A persistent request: a call that each `Start` starts again.

    Parameters
    ----------
    begin : callable or Request, optional
        Starts the call, and returns its request. By default the request is null.
    """

    _begin: Callable[[], Request] | None

    def __new__(cls, begin: Callable[[], Request] | Request | None = None) -> Self:
        if isinstance(begin, Request) or not callable(begin):
            instance = super().__new__(cls, begin)
            instance._begin = getattr(begin, "_begin", None)
            return instance
        instance = super().__new__(cls)
        instance._begin = begin
        return instance

    def __bool__(self) -> bool:
        return self._begin is not None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Prequest) and self and other:
            return self._begin is other._begin
        return super().__eq__(other)

    __hash__ = Request.__hash__

    def Start(self) -> None:
        """Start the call."""
        if self._begin is None:
            raise InputError("Start: a null request: expected one of Send_init, Recv_init, Allreduce_init, …")
        if not self._is_over:
            raise InputError("Start: the request is active: expected one that has completed")
        started = self._begin()
        self._attempt, self._cancel = started._attempt, started._cancel
        self._is_over, self._is_cancelled = started._is_over, False

    @classmethod
    def Startall(cls, requests: Sequence[Prequest]) -> None:
        """Start all calls."""
        for request in requests:
            request.Start()

    def Free(self) -> None:
        """Turn the request into the null request; a call in flight continues to its end."""
        super().Free()
        self._begin = None

    free = Free


def _ended(status: Status, result: Any) -> Attempt:
    """Return an attempt that completes with this status and result."""

    def attempt(timeout_s: float | None, given: Status | None) -> tuple[bool, Any]:
        if given is not None:
            given.copy_from(status)
        return True, result

    return attempt


def _statuses_for(statuses: Statuses, count: int) -> list[Status] | list[None]:
    """Return one status per request; a shorter list is extended."""
    if statuses is None:
        return [None] * count
    more = [Status() for _ in range(count - len(statuses))]
    if isinstance(statuses, list):
        statuses.extend(more)
        return statuses[:count]
    return [*statuses, *more][:count]


def _fill(statuses: Statuses, filled: Sequence[Status]) -> None:
    """Copy statuses into the first statuses of the caller."""
    for status, own in zip(_statuses_for(statuses, len(filled)), filled, strict=True):
        if status is not None:
            status.copy_from(own)


REQUEST_NULL = Request()
