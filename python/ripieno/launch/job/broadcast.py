"""`Broadcast`: a value for the ranks of a job, fetched when a program first uses it, and kept until it is released.

The caller gives it to rank 0 only, whence it goes by the machines of `Communicator.broadcast_variable`. They do not end
with a communicator: what has been fetched, or is still to be, outlives the failure of programs.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ripieno.comm.broadcast_variables import check_strategy, checked_for
from ripieno.errors import InputError, SerializationError
from ripieno.launch.job.programs import ForRank0
from ripieno.launch.job.stand_ins import local, standing_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ripieno.comm.broadcast_variables import BroadcastVariable
    from ripieno.comm.communicator import Communicator
    from ripieno.comm.shared_files import Place
    from ripieno.launch.job.job import Job

T = TypeVar("T")

_numbers = itertools.count()


class Broadcast(Generic[T]):
    """What `Job.broadcast` returns; among a program's arguments it costs a few bytes.

    Attributes
    ----------
    value : object
        The value. On a rank the first access waits for it, the others return the same object. Its arrays, also those in
        lists and dicts, are read-only, and lie in memory that the ranks of a host share. In the launching process it is
        the value itself.
    """

    def __init__(self, job: Job, value: T, strategy: str, places: Place | Sequence[Place]) -> None:
        check_strategy(strategy)
        self._places = checked_for(strategy, places)
        self._key = f"broadcast {next(_numbers)}"
        self._job: Job | None = job
        self._value: T | None = value
        self._strategy = strategy
        # It only notes the name: it may run anywhere, at any time.
        self._dropping = weakref.finalize(self, job._dropped.append, self._key)
        self._dropping.atexit = False
        try:
            program, args, kwargs = self.sent_again()
            job.run(program, *args, **kwargs)
        except BaseException as error:
            # Some ranks may have begun it.
            job._broadcast_generation += 1
            if isinstance(error, SerializationError):
                raise SerializationError(
                    f"broadcast: a {type(value).__name__} cannot be sent: {_cause(error)}"
                ) from error
            raise
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
        """What ranks, also those that come in the place of others, are to run, with its arguments."""
        assert self._job is not None, "a value that was released is not sent"
        job, kind = self._job, type(self._value).__name__
        # Where there is nobody to hand it on to, each rank is given the value itself.
        sealed = job._sealed(self._value) if job.workers > 1 and job.replicas == 1 else None
        if sealed is None:
            return _keep, (self._key, kind, self._value), {}
        return _expect, (self._key, kind, ForRank0(sealed), self._strategy, self._places, job._broadcast_generation), {}

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

    def __init__(self, kind: str, value: Any = None, variable: BroadcastVariable[Any] | None = None) -> None:
        self._kind = kind
        self._value = value
        self._variable = variable
        self._is_released = False
        # What the value refers to is found by any thread that first uses it.
        self._local = {} if variable is None else local()

    @property
    def value(self) -> Any:
        if self._is_released:
            raise InputError("this broadcast value was released")
        if self._variable is None:
            return self._value
        with standing_for(self._local):
            return self._variable.value

    def release(self) -> None:
        """Let go of it on this rank, for this program and those to come. May be called again."""
        variable, self._variable, self._value, self._is_released = self._variable, None, None, True
        if variable is not None:
            variable.release()

    def __repr__(self) -> str:
        return f"<Broadcast of a {self._kind}{', released' if self._is_released else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Received, (self._kind, self.value)


def _received(key: str) -> Received:
    found: dict[str, Any] = local()
    if key not in found:
        raise SerializationError(
            "a broadcast value of another job: a value is kept by the ranks of the job that sent it"
        )
    received: Received = found[key]
    return received


def _keep(comm: Communicator, key: str, kind: str, value: Any) -> None:
    local()[key] = Received(kind, value)


def _expect(
    comm: Communicator, key: str, kind: str, given: ForRank0, strategy: str, places: list[str], generation: int
) -> None:
    sealed = given.value if comm.rank == 0 else None
    local()[key] = Received(kind, variable=comm._lasting_variable(sealed, strategy, places, generation))


def _cause(error: SerializationError) -> BaseException:
    """Why the value cannot be sent, without that of the program which was to take it."""
    return error.__cause__ if isinstance(error.__cause__, SerializationError) else error
