"""Provide the part of a rank that its launcher controls: it joins its peers, then runs received programs."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

import ripieno.flight as flight
from ripieno._checks import time_limit
from ripieno.comm.added_amounts import AddedAmounts
from ripieno.comm.communicator import Communicator
from ripieno.errors import CollectiveMismatch, CommunicatorClosed, InputError, RankFailed, SerializationError
from ripieno.launch.job.accumulators import PROGRAMS
from ripieno.launch.job.stand_ins import forget
from ripieno.launch.limits import HEARTBEAT_S
from ripieno.launch.process.channel import ConnectionClosed
from ripieno.launch.process.processes import exit_at_once, flush_output
from ripieno.launch.process.report import FailureReport
from ripieno.launch.process.running import running
from ripieno.launch.process.telemetry import Telemetry
from ripieno.launch.racks import FIND, found_racks, rack_of_this_host
from ripieno.wire import packing

#: The largest pickled event.
EVENT_BYTES_MAX = 16 << 20

# The collective that ends a program. No program makes this call, so ranks that still wait in another call get an error.
_END = np.zeros(11, np.uint8)
_END_IS_CALLED = re.compile(r"called allreduce\(uint8 × 11, xor\b[^)]*\)(?: as its collective \d+)?")

Exchange = Callable[[str], list[str]]


class LauncherChannel(Protocol):
    """A channel to the launcher, or the received messages of one."""

    @property
    def send(self) -> Callable[..., None]: ...

    def receive(self) -> tuple[str, Any]: ...

    def receive_packed(self) -> tuple[str, Callable[[], Any]]: ...


def through(channel: LauncherChannel) -> Exchange:
    """Return an exchange that the launcher at the other end of `channel` answers."""

    def exchange(text: str) -> list[str]:
        channel.send("exchange", text)
        kind, answer = channel.receive()
        assert kind == "exchange", "the launcher answers an exchange before anything else"
        texts: list[str] = answer
        return texts

    return exchange


def connect(
    rank: int,
    world_size: int,
    exchange: Exchange | None,
    *,
    threads: int,
    on_event: Callable[[dict[str, Any]], None] | None,
    **options: Any,
) -> Communicator:
    """Join the other ranks and return this rank's communicator; `options` are passed to the native module.

    Without an exchange, the options contain a directory or a store in which ranks join.
    """
    import ripieno._native as _native

    racks = options.pop("racks", None)
    call_timeout_s = time_limit("call_timeout_s", options.pop("call_timeout_s", None))
    options["rack"] = rack_of_this_host(racks, by_engine=options.pop("rack_by_engine", None))
    heartbeat_s = options.get("heartbeat_timeout_s", HEARTBEAT_S)

    native = _native.Communicator.connect(rank, world_size, exchange, **flight.with_flight_folder(options))
    comm = Communicator(native, threads=threads, on_event=on_event, heartbeat_timeout_s=heartbeat_s)
    comm._call_timeout_s = call_timeout_s
    if racks == FIND and world_size > 1 and None in comm.racks and (found := found_racks(comm)) is not None:
        comm.adopt_racks(found)
    return comm


@dataclass(frozen=True)
class Returned:
    """Result of a program on a rank that could not end the program together with all ranks.

    Attributes
    ----------
    value
        Return value of the program.
    failure
        The failure that made the communicator unusable, if any.
    was_known
        Whether the program continued after that failure, or after closing the communicator itself.
    without
        The lost ranks; the program continued without them.
    """

    value: Any
    failure: FailureReport | None = None
    was_known: bool = False
    without: tuple[int, ...] = ()


class EventOptions(NamedTuple):
    """The choice of events that the ranks of a running program send to the launcher.

    Attributes
    ----------
    has_listener
        Whether the launcher listens to emitted events.
    telemetry_interval_s
        Interval between telemetry reports of each rank in seconds; None without a dashboard.
    """

    has_listener: bool
    telemetry_interval_s: float | None = None


class ProgramCall(NamedTuple):
    """A program and its arguments."""

    program: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """Return the name of the program in messages: the wrapped function of a partial, the class of other objects."""
        program = self.program
        while isinstance(program, partial):
            program = program.func
        return str(getattr(program, "__qualname__", type(program).__qualname__))

    def mapped(self, function: Callable[[Any], Any]) -> ProgramCall:
        """Return the call with ``function(argument)`` in place of each argument."""
        return ProgramCall(
            self.program,
            tuple(map(function, self.args)),
            {name: function(value) for name, value in self.kwargs.items()},
        )

    def unsendable(self, error: SerializationError) -> SerializationError:
        """Return the error for a program that cannot be sent to its ranks."""
        return SerializationError(f"{self.name} or its arguments cannot be sent to workers: {error}")


class RunRequest(NamedTuple):
    """A request of the launcher to run a program.

    Attributes
    ----------
    call
        The program and its arguments.
    event_options
        The events to send.
    keeps_checkpoints
        Whether ranks keep values that earlier programs have stored.
    directory
        The caller's directory, if ranks find files by the caller's names.
    """

    call: ProgramCall
    event_options: EventOptions
    keeps_checkpoints: bool
    directory: str | None


@dataclass(frozen=True)
class ForRank0:
    """An argument of a program that only rank 0 needs. An engine sends it empty to the other ranks."""

    value: Any


def without_rank_0_values(request: RunRequest) -> RunRequest:
    """Return the request for ranks other than 0, without values for rank 0. If it has none, return it unchanged."""
    if not any(isinstance(each, ForRank0) for each in request.call.args):
        return request
    return request._replace(
        call=request.call.mapped(lambda each: ForRank0(None) if isinstance(each, ForRank0) else each)
    )


def _check_size(event: dict[str, Any]) -> None:
    """Raise InputError if an event is larger than `EVENT_BYTES_MAX`."""
    size_bytes = packing.blob_bytes(packing.pack(event))
    if size_bytes > EVENT_BYTES_MAX:
        raise InputError(f"emit: an event of {size_bytes:,} bytes: expected at most {EVENT_BYTES_MAX:,} when pickled")


class Events:
    """Forwards events of a rank to the launcher, but only while the launcher listens: each event wakes it up.

    Attributes
    ----------
    send : callable
        Sends a message of a kind to the launcher.
    event_options : EventOptions
        Which events the launcher listens to.
    """

    send: Callable[[str, Any], None]

    def __init__(self) -> None:
        self.event_options = EventOptions(False)
        self._telemetry: Telemetry | None = None

    def __call__(self, event: dict[str, Any]) -> None:
        if self.event_options.has_listener:
            _check_size(event)
            self.send("event", event)
        elif self.event_options.telemetry_interval_s is not None and self._telemetry is not None:
            _check_size(event)
            self._telemetry.event(event)

    @contextmanager
    def of_program(self, comm: Communicator, event_options: EventOptions) -> Iterator[None]:
        """Forward events while a program runs, as `event_options` requests."""
        end = self.begin(comm, event_options)
        try:
            yield
        finally:
            end()

    def begin(self, comm: Communicator, event_options: EventOptions) -> Callable[[], None]:
        """Begin to forward events like `of_program`, and return the function that ends it."""
        self.event_options = event_options
        if event_options.telemetry_interval_s is None:
            return _nothing
        self._telemetry = self._telemetry or Telemetry(lambda kind, value: self.send(kind, value))
        self._telemetry.begin(comm, event_options.telemetry_interval_s)
        return self._telemetry.end


def _nothing() -> None:
    """Do nothing: without a dashboard no events are forwarded."""


class RankSession:
    """State of a rank that lasts from one program to the next: its communicator and its directory.

    Parameters
    ----------
    comm : Communicator
        The first communicator.
    connect : callable
        Connects to the other ranks; takes the arguments of `reconnect`.
    replicas : int
        Number of replicas of each logical rank.
    events : Events, optional
        Destination of the rank's events; not needed in the launching process.
    restarts_on_failure : bool
        Whether programs restart on the ranks that survive a failure.

    Attributes
    ----------
    comm : Communicator
        Communicator of the current program.
    """

    def __init__(
        self,
        comm: Communicator,
        connect: Callable[..., Communicator],
        replicas: int = 1,
        events: Events | None = None,
        restarts_on_failure: bool = False,
    ) -> None:
        self.events = events or Events()
        self._connect = connect
        self._replicas = replicas
        self._restarts_on_failure = restarts_on_failure
        # The caller's directory, as last received.
        self._directory = current_directory()
        self._take(comm)

    def reconnect(self, *place: int) -> None:
        """Close the communicator in any state and join again; keep broadcast values and checkpoints.

        `place` is the new rank and the number of ranks, unless the job has only one rank.
        """
        self.comm.close()
        lasting, memory = self.comm._lasting, self.comm._memory
        self._take(self._connect(*place))
        self.comm._lasting, self.comm._memory = lasting, memory

    def enter(self, directory: str | None) -> None:
        """Change to the caller's directory if it differs from the last one. A program may change it too."""
        if directory is not None and directory != self._directory:
            os.chdir(directory)
            self._directory = directory

    def close(self) -> None:
        """Close the communicator. Values stored here remain available as long as other ranks fetch them."""
        self.comm.close()
        while self.comm._lasting:
            self.comm._lasting.pop()[1].close()

    def end_program(self) -> None:
        """Return when all ranks have returned from the program. A rank that waits in another call gets an error."""
        self.follow()
        self._together.allreduce(_END, op="xor")

    def follow(self) -> None:
        """Switch to the program's latest communicator, if the program has continued after a failure."""
        if self.comm._successor is not None:
            self._take(self.comm._latest)

    def knew_of_failure(self) -> bool:
        """Return, after `end_program` has failed, whether the program saw the failure or closed the communicator."""
        if self.comm.closed:
            return True
        records = self.comm.flight(2)
        return len(records) == 2 and records[0]["outcome"] == "failed"

    def _take(self, comm: Communicator) -> None:
        self.comm = comm
        comm.restarts_on_failure = self._restarts_on_failure
        # With replicas, this communicator spans all ranks, also after some have died.
        self._together = comm if self._replicas == 1 else comm.replicate(self._replicas)


def current_directory() -> str | None:
    """Return the directory of this process, or None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def serve(channel: LauncherChannel, session: RankSession) -> None:
    """Handle messages until one ends the service; raise `ConnectionClosed` if the channel closes first."""
    _ready(channel, session)
    while _serve_one(channel, session):
        flush_output()


def _ready(channel: LauncherChannel, session: RankSession) -> None:
    channel.send("ready", session.comm.hosts[session.comm.rank])


def _serve_one(channel: LauncherChannel, session: RankSession) -> bool:
    """Handle one message; return False if it ends the service. Drop the request and its result before returning."""
    try:
        kind, load = channel.receive_packed()
        # Modules of the program may call `init` when unpickling imports them.
        with running(session.comm):
            value = load()
        if kind == "close":
            return False
        if kind == "reconnect":
            session.reconnect(*value)
            _ready(channel, session)
        elif kind == "forget":
            forget(value)
        elif kind == "path":
            sys.path[:] = value
            # Files may have appeared since a folder was last searched.
            importlib.invalidate_caches()
        else:
            _run(channel, session, value)
    except ConnectionClosed:
        raise
    except BaseException as error:
        session.follow()
        _fail(channel, session.comm, _with_readable_end(error))
    return True


def _run(channel: LauncherChannel, session: RankSession, request: RunRequest) -> None:
    session.enter(request.directory)
    rank, host = session.comm.rank, session.comm.hosts[session.comm.rank]
    session.comm._fits.clear()
    if not request.keeps_checkpoints:
        session.comm._memory.clear()
    with (
        session.events.of_program(session.comm, request.event_options),
        running(session.comm),
        PROGRAMS.collecting() as amounts,
    ):
        added = session.comm._added = AddedAmounts(amounts)
        result = _call_program(session.comm, request.call)
    if added.all:
        channel.send("added", added.all)
    try:
        session.end_program()
    except (CollectiveMismatch, CommunicatorClosed, RankFailed) as error:
        report = FailureReport.of(_with_readable_end(error), rank, host)
        session.comm._withdraw()
        _send_result(channel, rank, "returned", result, Returned(result, report, session.knew_of_failure()))
    else:
        without = tuple(session.comm.lost_ranks)
        kind, message = ("returned", Returned(result, without=without)) if without else ("result", result)
        _send_result(channel, rank, kind, result, message)


def _call_program(comm: Communicator, call: ProgramCall) -> Any:
    """Call the program. If the program forks, the child process ends with the program and reports nothing."""
    rank_pid = os.getpid()
    try:
        result = call.program(comm, *call.args, **call.kwargs)
    except BaseException as error:
        if os.getpid() != rank_pid:
            exit_at_once(error)
        raise
    if os.getpid() != rank_pid:
        exit_at_once(None)
    return result


def _send_result(channel: LauncherChannel, rank: int, kind: str, result: Any, message: Any) -> None:
    try:
        channel.send(kind, message)
    except SerializationError as error:
        sentence = f"the result of rank {rank}, a {type(result).__name__}, cannot be sent: {error}"
        raise SerializationError(sentence) from None


def _with_readable_end(error: BaseException) -> BaseException:
    """Replace the name of the final collective in an error message by a statement that ranks have returned."""
    if isinstance(error, CollectiveMismatch):
        error.args = tuple(_END_IS_CALLED.sub("has returned from its program", str(each)) for each in error.args)
    return error


def _fail(channel: LauncherChannel, comm: Communicator, error: BaseException) -> None:
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_globals is globals():
        inner = inner.tb_next
    # The traceback starts in the program, not in this module.
    rank, host = comm.first_ranks[comm.rank], comm.hosts[comm.rank]
    report = FailureReport.of(error.with_traceback(inner), rank, host)
    if comm.first_ranks != list(range(comm.world_size)):
        # After a shrink, ranks have other numbers than in the report. The program decides whether to continue again.
        report = replace(report, victim=None)
    report = report.announce(comm)
    comm._withdraw()
    flush_output()
    channel.send("error", report)
