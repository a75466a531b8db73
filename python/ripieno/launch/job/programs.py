"""What a rank does for its launcher, wherever it runs: it meets its peers, then runs the programs that come."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

import ripieno.flight as flight
from ripieno.comm.communicator import Communicator
from ripieno.errors import CollectiveMismatch, CommunicatorClosed, RankFailed, SerializationError
from ripieno.launch.job.accumulators import PROGRAMS
from ripieno.launch.job.stand_ins import forget
from ripieno.launch.process.channel import Channel, HungUp
from ripieno.launch.process.processes import end_fork, flush_output
from ripieno.launch.process.pulse import Telemetry
from ripieno.launch.process.report import FailureReport
from ripieno.launch.process.running import running
from ripieno.launch.racks import rack_of_this_host

# What ranks do together after a program. No program does the same, so those that still wait for one another are told.
_END = np.zeros(11, np.uint8)
_END_IS_CALLED = re.compile(r"called allreduce\(uint8 × 11, xor\b[^)]*\)(?: as its collective \d+)?")

Exchange = Callable[[str], list[str]]


class ProgramSource(Protocol):
    """Where programs come from and what they say goes to: a channel."""

    def send(self, kind: str, value: Any = None) -> None: ...

    def receive(self) -> tuple[str, Any]: ...


def through(channel: Channel) -> Exchange:
    """The exchange that the launcher at the other end of `channel` answers."""

    def exchange(text: str) -> list[str]:
        channel.send("exchange", text)
        kind, answer = channel.receive()
        assert kind == "exchange", "the launcher answers an exchange before anything else"
        texts: list[str] = answer
        return texts

    return exchange


def meet(
    rank: int,
    world_size: int,
    exchange: Exchange,
    *,
    threads: int,
    on_event: Callable[[dict[str, Any]], None],
    **options: Any,
) -> Communicator:
    """The communicator of this rank, once it has met the others; `options` are those of the native module."""
    import ripieno._native as _native

    options["rack"] = rack_of_this_host(options.pop("racks", None), by_engine=options.pop("rack_by_engine", None))
    native = _native.Communicator.connect(rank, world_size, exchange, **flight.prepared(options))
    return Communicator(native, threads=threads, on_event=on_event)


@dataclass(frozen=True)
class Returned:
    """What a rank has returned from a program that did not end as programs do, with all ranks.

    Attributes
    ----------
    value
        What it has returned.
    failure
        Why its communicator cannot be used any more, if so.
    was_known
        Whether the program met that failure, or closed the communicator itself, and went on.
    without
        The ranks that it has gone on without.
    """

    value: Any
    failure: FailureReport | None = None
    was_known: bool = False
    without: tuple[int, ...] = ()


class EventOptions(NamedTuple):
    """Who hears of a program while it runs.

    Attributes
    ----------
    is_heard
        Whether somebody listens to what ranks emit.
    pulse_s
        How often each rank is to tell how it fares; None if nobody watches.
    """

    is_heard: bool
    pulse_s: float | None = None


#: A program, its arguments by place and by name, who hears of it, whether ranks keep what programs before it have put
#: by, and the directory of the caller, if ranks find files by its names.
RunRequest = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], EventOptions, bool, str | None]


@dataclass(frozen=True)
class ForRank0:
    """Among a program's arguments, by place, it holds what rank 0 needs; to the others an engine sends it empty."""

    value: Any


def elsewhere(request: RunRequest) -> RunRequest:
    """What the ranks other than 0 get of a program that rank 0 has something of its own for; else the very same."""
    program, args, kwargs, hearing, goes_on, directory = request
    if not any(isinstance(each, ForRank0) for each in args):
        return request
    args = tuple(ForRank0(None) if isinstance(each, ForRank0) else each for each in args)
    return program, args, kwargs, hearing, goes_on, directory


class Events:
    """What ranks emit, handed on to the launcher while somebody listens there: it would have to wake up for each.

    Attributes
    ----------
    send : callable
        Sends a message of a kind to the launcher.
    hearing : Hearing
        Who listens.
    """

    send: Callable[[str, Any], None]

    def __init__(self) -> None:
        self.hearing = EventOptions(False)
        self._pulse: Telemetry | None = None

    def __call__(self, event: dict[str, Any]) -> None:
        if self.hearing.is_heard:
            self.send("event", event)
        elif self.hearing.pulse_s is not None and self._pulse is not None:
            self._pulse.event(event)

    @contextmanager
    def of_program(self, comm: Communicator, hearing: EventOptions) -> Iterator[None]:
        """A program runs, of which `hearing` says who hears."""
        end = self.begin(comm, hearing)
        try:
            yield
        finally:
            end()

    def begin(self, comm: Communicator, hearing: EventOptions) -> Callable[[], None]:
        """As `of_program`, whose end is what is returned."""
        self.hearing = hearing
        if hearing.pulse_s is None:
            return _nothing
        self._pulse = self._pulse or Telemetry(lambda kind, value: self.send(kind, value))
        self._pulse.begin(comm, hearing.pulse_s)
        return self._pulse.end


def _nothing() -> None:
    """Nobody watches."""


class RankSession:
    """A rank's place among the others, where it stays while programs come and go.

    Parameters
    ----------
    comm : Communicator
        By which it has met them.
    meet : callable
        Meets others; its arguments are those of `meet_again`.
    replicas : int
        How many replicas there are of each rank.
    events : Events, optional
        Where its events go, unless it is in the launching process.
    begins_again : bool
        Whether programs begin again on ranks that have lost others.

    Attributes
    ----------
    comm : Communicator
        By which programs talk now.
    """

    def __init__(
        self,
        comm: Communicator,
        meet: Callable[..., Communicator],
        replicas: int = 1,
        events: Events | None = None,
        begins_again: bool = False,
    ) -> None:
        self.events = events or Events()
        self._meet = meet
        self._replicas = replicas
        self._begins_again = begins_again
        # The directory of the caller, as far as this rank knows.
        self._directory = current_directory()
        self._take(comm)

    def meet_again(self, *place: int) -> None:
        """Leave the others, whatever has become of them, and meet anew; broadcast values and checkpoints are kept.

        The place, where there is more than one, is the rank there and the number of ranks.
        """
        self.comm.close()
        lasting, memory = self.comm._lasting, self.comm._memory
        self._take(self._meet(*place))
        self.comm._lasting, self.comm._memory = lasting, memory

    def enter(self, directory: str | None) -> None:
        """Change to the caller's directory, if the caller has changed it. A program may leave it."""
        if directory is not None and directory != self._directory:
            os.chdir(directory)
            self._directory = directory

    def close(self) -> None:
        """Leave the others for good. Values that come from here are given to those that fetch them, 10 s at most."""
        self.comm.close()
        while self.comm._lasting:
            self.comm._lasting.pop()[1].close()

    def end_program(self) -> None:
        """Return when all ranks have returned from the program; one that still waits for this rank is told here."""
        self.follow()
        self._together.allreduce(_END, op="xor")

    def follow(self) -> None:
        """Be where the program is, which may have gone on with those who were left of a world that failed."""
        if self.comm._successor is not None:
            self._take(self.comm._latest)

    def knew_of_failure(self) -> bool:
        """After `end_program` has failed: whether the program had seen that, or had closed the communicator."""
        if self.comm.closed:
            return True
        records = self.comm.flight(2)
        return len(records) == 2 and records[0]["outcome"] == "failed"

    def _take(self, comm: Communicator) -> None:
        self.comm = comm
        comm.begins_again = self._begins_again
        # Of all ranks, whoever has died, where ranks have replicas.
        self._together = comm if self._replicas == 1 else comm.replicate(self._replicas)


def current_directory() -> str | None:
    """Return the directory of this process, or None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def serve(channel: ProgramSource, seat: RankSession) -> None:
    """Do what comes over `channel` until it says that this is all; `HungUp` if it ends before."""
    _ready(channel, seat)
    while _serve_one(channel, seat):
        flush_output()


def _ready(channel: ProgramSource, seat: RankSession) -> None:
    channel.send("ready", seat.comm.hosts[seat.comm.rank])


def _serve_one(channel: ProgramSource, seat: RankSession) -> bool:
    """Do what comes next; False if that is the end. What came, and what became of it, is let go of then."""
    try:
        kind, value = channel.receive()
        if kind == "close":
            return False
        if kind == "meet":
            seat.meet_again(*value)
            _ready(channel, seat)
        elif kind == "forget":
            forget(value)
        else:
            _run(channel, seat, *value)
    except HungUp:
        raise
    except BaseException as error:
        seat.follow()
        _fail(channel, seat.comm, _in_terms_of_programs(error))
    return True


def _run(
    channel: ProgramSource,
    seat: RankSession,
    program: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    hearing: EventOptions,
    goes_on: bool,
    directory: str | None,
) -> None:
    seat.enter(directory)
    rank, host = seat.comm.rank, seat.comm.hosts[seat.comm.rank]
    seat.comm._fits.clear()
    if not goes_on:
        seat.comm._memory.clear()
    with seat.events.of_program(seat.comm, hearing), running(seat.comm), PROGRAMS.page() as amounts:
        result = _call(program, seat.comm, *args, **kwargs)
    if amounts:
        channel.send("added", amounts)
    try:
        seat.end_program()
    except (CollectiveMismatch, CommunicatorClosed, RankFailed) as error:
        report = FailureReport.of(_in_terms_of_programs(error), rank, host)
        seat.comm._withdraw()
        _send_result(channel, rank, "returned", result, Returned(result, report, seat.knew_of_failure()))
    else:
        without = tuple(seat.comm.lost_ranks)
        kind, message = ("returned", Returned(result, without=without)) if without else ("result", result)
        _send_result(channel, rank, kind, result, message)


def _call(program: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the program. A process that it forks ends with the program there, and reports nothing."""
    rank_pid = os.getpid()
    try:
        result = program(*args, **kwargs)
    except BaseException as error:
        if os.getpid() != rank_pid:
            end_fork(error)
        raise
    if os.getpid() != rank_pid:
        end_fork(None)
    return result


def _send_result(channel: ProgramSource, rank: int, kind: str, result: Any, message: Any) -> None:
    try:
        channel.send(kind, message)
    except SerializationError as error:
        sentence = f"the result of rank {rank}, a {type(result).__name__}, cannot be sent: {error}"
        raise SerializationError(sentence) from None


def _in_terms_of_programs(error: BaseException) -> BaseException:
    """An error that names what ranks do together after a program says instead that they have returned from it."""
    if isinstance(error, CollectiveMismatch):
        error.args = tuple(_END_IS_CALLED.sub("has returned from its program", str(each)) for each in error.args)
    return error


def _fail(channel: ProgramSource, comm: Communicator, error: BaseException) -> None:
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_globals is globals():
        inner = inner.tb_next
    # A program's traceback begins in the program.
    rank, host = comm.first_ranks[comm.rank], comm.hosts[comm.rank]
    report = FailureReport.of(error.with_traceback(inner), rank, host)
    if comm.first_ranks != list(range(comm.world_size)):
        # Whom it blames has another number here. And it is up to a program that shrinks to go on once more.
        report = replace(report, victim=None)
    report = report.told_to_all(comm)
    comm._withdraw()
    flush_output()
    channel.send("error", report)
