"""Requests: calls that go on, or receives that are made when they are waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ripieno.mpi.status import Status

#: How long a request that is not over sleeps before it is looked at again.
_LOOK_S = 0.0005


class Request:
    """Something that ends later.

    Parameters
    ----------
    attempt : callable
        Tries to bring it to its end, not longer than the seconds it is given, None without a limit, and fills in a
        status; whether that is done, and the result.
    """

    def __init__(self, attempt: Callable[[float | None, Status | None], tuple[bool, Any]]) -> None:
        self._attempt = attempt
        self._is_over = False
        self._result: Any = None

    def __bool__(self) -> bool:
        return not self._is_over

    def __eq__(self, other: object) -> bool:
        """Whether it is the same, or both are over and so `REQUEST_NULL`."""
        return self is other or (isinstance(other, Request) and self._is_over and other._is_over)

    def __hash__(self) -> int:
        # The state changes, so requests that are over differ in their hashes.
        return id(self)

    def wait(self, status: Status | None = None) -> Any:
        """The object that came, once it has; None of what is sent."""
        if not self._is_over:
            self._is_over, self._result = self._attempt(None, status)
        return self._result

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Whether it is over, and what `wait` would give."""
        if not self._is_over:
            self._is_over, self._result = self._attempt(0.0, status)
        return self._is_over, self._result

    def Wait(self, status: Status | None = None) -> bool:
        """Return when it is over."""
        self.wait(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Whether it is over."""
        return self.test(status)[0]

    def Free(self) -> None:
        """Nothing: what is in flight goes on to its end."""

    def Cancel(self) -> None:
        """Nothing: a receive that is not waited for takes nothing."""

    @staticmethod
    def waitall(requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> list[Any]:
        """The results of all."""
        each = statuses or [None] * len(requests)  # type: ignore[list-item]
        return [request.wait(status) for request, status in zip(requests, each, strict=False)]

    @staticmethod
    def Waitall(requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> bool:
        """Return when all are over."""
        Request.waitall(requests, statuses)
        return True

    @staticmethod
    def waitany(requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """The place of one that is over and that was not waited for before, and its result."""
        while True:
            for index, request in enumerate(requests):
                if not request._is_over and request.test(status)[0]:
                    return index, request._result
            if all(request._is_over for request in requests):
                from ripieno.mpi.constants import UNDEFINED

                return UNDEFINED, None
            time.sleep(_LOOK_S)

    @staticmethod
    def Waitany(requests: Sequence[Request], status: Status | None = None) -> int:
        """The place of one that is over and that was not waited for before."""
        return Request.waitany(requests, status)[0]

    @staticmethod
    def testall(requests: Sequence[Request]) -> tuple[bool, list[Any] | None]:
        """Whether all are over, and their results."""
        # Each is looked at, whatever the others are.
        done = not [request for request in requests if not request.test()[0]]
        return done, [request._result for request in requests] if done else None

    @staticmethod
    def Testall(requests: Sequence[Request]) -> bool:
        """Whether all are over."""
        return Request.testall(requests)[0]


def _over(timeout_s: float | None, status: Status | None) -> tuple[bool, Any]:
    return True, None


REQUEST_NULL = Request(_over)
REQUEST_NULL._is_over = True
