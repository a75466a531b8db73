"""Provide `Broadcast`: a value that ranks fetch on first use and keep until it is released.

The caller sends it to rank 0 only, which distributes it by `Communicator.broadcast_variable`. The transfers do not
depend on a communicator: fetched values, and transfers in progress, survive failures of programs.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ripieno.comm.broadcast_variables import BroadcastOptions
from ripieno.errors import InputError, SerializationError
from ripieno.launch.job.programs import ForRank0, ProgramCall
from ripieno.launch.job.stand_ins import local, rank_values

if TYPE_CHECKING:
    from ripieno.comm.broadcast_variables import BroadcastVariable
    from ripieno.comm.communicator import Communicator
    from ripieno.launch.job.job import Job

T = TypeVar("T")

_numbers = itertools.count()


class Broadcast(Generic[T]):
    """The handle returned by `Job.broadcast`; as an argument of a program it costs a few bytes.

    Attributes
    ----------
    value : object
        The value. On a rank the first access waits for it, and later accesses return the same object. Its arrays, also
        in lists and dicts, are read-only, in memory that the ranks of a host share. In the launching process it is the
        original value.
    """

    def __init__(self, job: Job, value: T, options: BroadcastOptions) -> None:
        self._key = f"broadcast {next(_numbers)}"
        self._job: Job | None = job
        self._value: T | None = value
        self._options = options
        # The finalizer only records the name, so it may run on any thread at any time.
        self._dropping = weakref.finalize(self, job._dropped.append, self._key)
        self._dropping.atexit = False
        try:
            call = self.store_call()
            job.run(call.program, *call.args)
        except BaseException as error:
            # Some ranks may have received the value.
            job._broadcast_generation += 1
            if isinstance(error, SerializationError):
                raise SerializationError(
                    f"broadcast: a {type(value).__name__} cannot be sent: {_cause(error)}"
                ) from error
            raise
        job._live_broadcasts.add(self)

    @property
    def value(self) -> T:
        if self._job is None:
            raise InputError("this broadcast value was released")
        return self._value  # type: ignore[return-value]  # it is None once released, or if the value is

    def release(self) -> None:
        """Delete the value on the ranks, at the latest before their next program, as when the handle is deleted.

        May be called repeatedly, and after the job's end.
        """
        job, self._job, self._value = self._job, None, None
        if job is not None:
            job._live_broadcasts.discard(self)
            self._dropping()
            job._forget_if_idle()

    def store_call(self) -> ProgramCall:
        """Return the call of the program that stores the value on all ranks, including replacements."""
        assert self._job is not None, "a value that was released is not sent"
        job, kind = self._job, type(self._value).__name__
        # A single rank, or ranks with replicas, receive the value itself: they do not relay it.
        packed = job._packed(self._value) if job.workers > 1 and job.replicas == 1 else None
        if packed is None:
            return ProgramCall(_store_value, (self._key, kind, self._value))
        args = (self._key, kind, ForRank0(packed), self._options, _CurrentGeneration(job))
        return ProgramCall(_store_variable, args)

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
        return _restored, (self._key,)


class RankBroadcast:
    """A `Broadcast` as seen by programs."""

    def __init__(self, kind: str, value: Any = None, variable: BroadcastVariable[Any] | None = None) -> None:
        self._kind = kind
        self._value = value
        self._variable = variable
        self._is_released = False
        # The first thread that uses the value resolves its objects.
        self._local = {} if variable is None else local()

    @property
    def value(self) -> Any:
        if self._is_released:
            raise InputError("this broadcast value was released")
        if self._variable is None:
            return self._value
        with rank_values(self._local):
            return self._variable.value

    def release(self) -> None:
        """Free the value on this rank, for this and later programs. Repeated calls have no effect."""
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
        return RankBroadcast, (self._kind, self.value)


class _CurrentGeneration:
    """The broadcast generation of a job. It is read at pickling, because a restart may replace ranks later."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (self._job._broadcast_generation,)


def _restored(key: str) -> RankBroadcast:
    found: dict[str, Any] = local()
    if key not in found:
        raise SerializationError(
            "a broadcast value of another job: a value is kept by the ranks of the job that sent it"
        )
    received: RankBroadcast = found[key]
    return received


def _store_value(comm: Communicator, key: str, kind: str, value: Any) -> None:
    local()[key] = RankBroadcast(kind, value)


def _store_variable(
    comm: Communicator, key: str, kind: str, given: ForRank0, options: BroadcastOptions, generation: int
) -> None:
    packed = given.value if comm.rank == 0 else None
    local()[key] = RankBroadcast(kind, variable=comm._lasting_variable(packed, options, generation))


def _cause(error: SerializationError) -> BaseException:
    """Return the reason why the value cannot be sent, without the outer error about its program."""
    return error.__cause__ if isinstance(error.__cause__, SerializationError) else error
