"""`Broadcast`: a value that a job's ranks keep until it is released, sent once for all programs that use it."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ripieno.errors import InputError, SerializationError
from ripieno.launch.job.stand_ins import local

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.launch.job.job import Job

T = TypeVar("T")

_numbers = itertools.count()


class Broadcast(Generic[T]):
    """What `Job.broadcast` returns; among a program's arguments it costs a few bytes.

    Attributes
    ----------
    value : object
        The value: read-only arrays, on a rank, of memory that is kept there; in the launching process the value itself.
    """

    def __init__(self, job: Job, value: T) -> None:
        self._key = f"broadcast {next(_numbers)}"
        self._job: Job | None = job
        self._value: T | None = value
        # It only notes the name: it may run anywhere, at any time.
        self._dropping = weakref.finalize(self, job._dropped.append, self._key)
        self._dropping.atexit = False
        try:
            job.run(_keep, self._key, value)
        except SerializationError as error:
            raise SerializationError(
                f"broadcast: a {type(value).__name__} cannot be sent: {error.__cause__}"
            ) from error
        job._kept.add(self)

    @property
    def value(self) -> T:
        if self._job is None:
            raise InputError("this broadcast value was released")
        return self._value  # type: ignore[return-value]  # it is None once released, or if the value is

    def release(self) -> None:
        """Let the ranks forget it, at the latest before their next program; the same when the handle is let go of.

        May be called again, and after the job's end.
        """
        job, self._job, self._value = self._job, None, None
        if job is not None:
            job._kept.discard(self)
            self._dropping()
            job._forget_now()

    def sent_again(self) -> tuple[Any, ...]:
        """What ranks that come in the place of others are to run, with its arguments."""
        return _keep, (self._key, self._value), {}

    def __repr__(self) -> str:
        if self._job is None:
            return "<Broadcast, released>"
        ranks = "rank" if self._job.workers == 1 else "ranks"
        return f"<Broadcast of a {type(self._value).__name__} on {self._job.workers} {ranks}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._job is None:
            raise InputError("this broadcast value was released")
        return _received, (self._key,)


class Received:
    """A `Broadcast` as programs see it."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<Broadcast of a {type(self.value).__name__}>"


def _received(key: str) -> Received:
    found = local()
    if key not in found:
        raise SerializationError(
            "a broadcast value of another job: a value is kept by the ranks of the job that sent it"
        )
    return Received(found[key])


def _keep(comm: Communicator, key: str, value: Any) -> None:
    local()[key] = value
