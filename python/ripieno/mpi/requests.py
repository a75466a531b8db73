"""Requests: pending sends and receives. A receive is performed by its wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ripieno.mpi.status import Status

#: Interval between two tests of a pending request.
_POLL_S = 0.0005


class Request:
    """A pending call.

    Parameters
    ----------
    attempt : callable
        Tries to complete the call within the given number of seconds (None: without limit), and fills in a status.
        Returns whether the call is complete, and the result.
    """

    def __init__(self, attempt: Callable[[float | None, Status | None], tuple[bool, Any]]) -> None:
        self._attempt = attempt
        self._is_over = False
        self._result: Any = None

    def __bool__(self) -> bool:
        return not self._is_over

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same request, or both are complete and thus equal `REQUEST_NULL`."""
        return self is other or (isinstance(other, Request) and self._is_over and other._is_over)

    def __hash__(self) -> int:
        # The state changes, so the hash must not depend on it. Complete requests are equal but differ in their hashes.
        return id(self)

    def wait(self, status: Status | None = None) -> Any:
        """Wait for completion, and return the received object; None for a send."""
        if not self._is_over:
            self._is_over, self._result = self._attempt(None, status)
        return self._result

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """Return whether the call is complete, and the result of `wait`."""
        if not self._is_over:
            self._is_over, self._result = self._attempt(0.0, status)
        return self._is_over, self._result

    def Wait(self, status: Status | None = None) -> bool:
        """Return when the call is complete."""
        self.wait(status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Return whether the call is complete."""
        return self.test(status)[0]

    def Free(self) -> None:
        """Do nothing: a call in flight continues to its end."""

    def Cancel(self) -> None:
        """Do nothing: a receive without a wait receives no message."""

    @staticmethod
    def waitall(requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> list[Any]:
        """Wait for all requests, and return their results."""
        each = statuses or [None] * len(requests)  # type: ignore[list-item]
        return [request.wait(status) for request, status in zip(requests, each, strict=False)]

    @staticmethod
    def Waitall(requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> bool:
        """Return when all requests are complete."""
        Request.waitall(requests, statuses)
        return True

    @staticmethod
    def waitany(requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Return the index and the result of a completed request that was not returned before."""
        while True:
            for index, request in enumerate(requests):
                if not request._is_over and request.test(status)[0]:
                    return index, request._result
            if all(request._is_over for request in requests):
                from ripieno.mpi.constants import UNDEFINED

                return UNDEFINED, None
            time.sleep(_POLL_S)

    @staticmethod
    def Waitany(requests: Sequence[Request], status: Status | None = None) -> int:
        """Return the index of a completed request that was not returned before."""
        return Request.waitany(requests, status)[0]

    @staticmethod
    def testall(requests: Sequence[Request]) -> tuple[bool, list[Any] | None]:
        """Return whether all requests are complete, and their results."""
        # Every request is tested, even after an incomplete one.
        done = not [request for request in requests if not request.test()[0]]
        return done, [request._result for request in requests] if done else None

    @staticmethod
    def Testall(requests: Sequence[Request]) -> bool:
        """Return whether all requests are complete."""
        return Request.testall(requests)[0]


def _over(timeout_s: float | None, status: Status | None) -> tuple[bool, Any]:
    return True, None


REQUEST_NULL = Request(_over)
REQUEST_NULL._is_over = True
