"""How a rank's failure is told: what happened, and whether it was this rank's own fault."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import NoReturn

import cloudpickle

import ripieno.flight as flight
from ripieno.comm.communicator import Communicator
from ripieno.comm.rank import describe
from ripieno.errors import RankFailed


@dataclass(frozen=True)
class FailureReport:
    """A rank's account of an exception.

    Attributes
    ----------
    rank, host
        Who reports.
    cause, traceback
        The exception in one line, and in full.
    victim
        The rank that failed first, if the exception came of another rank's failure.
    pickled
        The exception itself, or None if it cannot travel.
    flight
        The latest collectives of the rank, a line each.
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
        """The report of `rank` about `error`."""
        cause, text = describe(error)
        return cls(rank, host, cause, text, other_rank(error), _pickled(error))

    def told_to_all(self, comm: Communicator | None) -> FailureReport:
        """With what the rank did over `comm`, after its other ranks were told of a failure of this rank's own."""
        if comm is None or comm.closed:
            return self
        if self.victim is None:
            # First: while a call is in flight its records can only be had when it ends, and this ends it.
            comm.abort(self.cause, self.traceback)
        return replace(self, flight=tuple(flight.lines(self.rank, comm.flight(flight.SHOWN_COUNT))))

    def throw(self) -> NoReturn:
        """Raise the exception itself where possible, from a `RankFailed` that says where it happened."""
        if self.victim is not None:
            raise self.victim
        failed = RankFailed(self.rank, self.host, self.cause, self.traceback)
        error = None if self.pickled is None else _unpickled(self.pickled)
        if error is None:
            raise failed
        raise error from failed


def other_rank(error: BaseException) -> RankFailed | None:
    """The `RankFailed` that `error` is, or was raised because of; not one of a job that this process has launched."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        if isinstance(link, RankFailed) and link.results is None:
            return link
        seen.add(id(link))
        link = link.__cause__ or link.__context__
    return None


def _pickled(error: BaseException) -> bytes | None:
    # SystemExit and KeyboardInterrupt would end the caller instead of telling it something.
    if not isinstance(error, Exception):
        return None
    try:
        pickled = cloudpickle.dumps(error)
    except Exception:
        return None
    # Exceptions whose __init__ takes other arguments than it passes on only fail when they are loaded.
    return pickled if _unpickled(pickled) is not None else None


def _unpickled(pickled: bytes) -> Exception | None:
    try:
        error = pickle.loads(pickled)
    except Exception:
        return None
    return error if isinstance(error, Exception) else None
