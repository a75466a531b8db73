"""Provide failure reports of ranks: the exception, and the rank that caused it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NoReturn, TypedDict

import ripieno.flight as flight
from ripieno.comm.agreement import pickled_error, unpickled_error
from ripieno.comm.communicator import Communicator
from ripieno.comm.rank import describe
from ripieno.errors import RankFailed
from ripieno.units import bytes_text

#: The largest pickled exception that a rank sends to the caller.
EXCEPTION_BYTES_MAX = 64 << 20


class Accusation(TypedDict):
    """The cause in a report, the accused rank, if any, and whether the accused rank sent no heartbeats."""

    cause: str
    culprit: int | None
    was_silent: bool


@dataclass(frozen=True)
class FailureReport:
    """A rank's report of an exception.

    Attributes
    ----------
    rank, host
        The reporting rank.
    cause, traceback
        The exception in one line, and its traceback.
    victim
        The rank that failed first, if the exception is a consequence of its failure.
    pickled
        The exception itself, or None if it cannot be pickled.
    flight
        The latest collectives of the rank, one per line.
    """

    rank: int
    host: str
    cause: str
    traceback: str
    victim: RankFailed | None = None
    pickled: bytes | None = None
    flight: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: BaseException, rank: int, host: str) -> FailureReport:
        """Return the report of `rank` about `error`."""
        cause, text = describe(error)
        # SystemExit and KeyboardInterrupt would end the caller instead of reporting an error.
        pickled = pickled_error(error) if isinstance(error, Exception) else None
        if pickled is not None and len(pickled) > EXCEPTION_BYTES_MAX:
            size, limit = bytes_text(len(pickled)), bytes_text(EXCEPTION_BYTES_MAX)
            cause, pickled = f"{type(error).__name__} of {size}, expected at most {limit}: {cause}", None
        return cls(rank, host, cause, text, other_rank(error), pickled)

    @property
    def accusation(self) -> Accusation:
        """Return the first failure as this rank knows it."""
        if self.victim is None:
            return {"cause": self.cause, "culprit": None, "was_silent": False}
        return {"cause": self.victim.cause, "culprit": self.victim.rank, "was_silent": self.victim.was_silent}

    def announce(self, comm: Communicator | None) -> FailureReport:
        """Abort `comm` if the failure is this rank's own; return the report with the rank's flight records."""
        if comm is None or comm.closed:
            return self
        if self.victim is None:
            # Abort first: it ends calls in flight, and their records are only available afterwards.
            comm.abort(self.cause, self.traceback)
        return replace(self, flight=tuple(flight.lines(self.rank, comm.flight(flight.SHOWN_COUNT))))

    def throw(self) -> NoReturn:
        """Raise the exception itself where possible, from a `RankFailed` with the rank and host."""
        if self.victim is not None:
            raise self.victim
        failed = RankFailed(self.rank, self.host, self.cause, self.traceback)
        error = None if self.pickled is None else unpickled_error(self.pickled)
        if error is None:
            raise failed
        raise error from failed


def other_rank(error: BaseException) -> RankFailed | None:
    """Return the `RankFailed` that is, or has caused, `error`; not one from a job that this process has launched."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if isinstance(link, RankFailed) and link.results is None:
            return link
        seen.add(id(link))
        link = link.__cause__ or link.__context__
    return None
