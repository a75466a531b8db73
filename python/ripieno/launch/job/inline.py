"""The job of a single rank: it runs in the calling process, with all its cores, and starts nothing."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import ripieno.flight as flight
from ripieno.comm.communicator import Communicator
from ripieno.comm.rank import describe
from ripieno.errors import CommunicatorClosed, InputError, RankFailed, SerializationError
from ripieno.flight.trace import Trace
from ripieno.launch.job.accumulators import PROGRAMS
from ripieno.launch.job.job import EventListener, Job, tell_all, unsendable
from ripieno.launch.job.programs import Seat
from ripieno.launch.job.stand_ins import forget, standing_for
from ripieno.launch.process.parcel import handed_over
from ripieno.launch.process.running import running
from ripieno.launch.racks import rack_of_this_host


class InlineJob(Job):
    """`workers=1`."""

    def __init__(self, *, threads: int, on_event: EventListener | None, trace: Trace | None, **options: Any) -> None:
        super().__init__(1, threads, trace, on_event)
        options |= {} if trace is None else {"flight_folder": trace.folder}
        meet = partial(single_rank, threads=threads, on_event=partial(tell_all, self._listeners), **options)
        self._seat = Seat(meet(), meet)
        self._local: dict[str, Any] = {}

    def _run(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if self._seat.comm.closed:
            self._seat.meet_again()
        self._seat.comm._fits.clear()
        self._seat.comm._memory.clear()
        with standing_for(self._local):
            try:
                args, kwargs = handed_over((args, kwargs))
            except SerializationError as error:
                raise unsendable(program, error) from error
            try:
                with running(self._seat.comm), PROGRAMS.page() as self._added[0]:
                    result = program(self._seat.comm, *args, **kwargs)
            except BaseException as error:
                self._has_failed = True
                self._part()
                _raise_as_of_a_rank(error)
        try:
            self._seat.end_program()
        except (CommunicatorClosed, RankFailed):
            self._part()
        return [result]

    def _part(self) -> None:
        self.epoch += 1
        self._seat.comm.close()

    def _resize(self, workers: int) -> None:
        raise InputError(
            f"resize({workers}): the only rank of this job is the calling process: launch(workers={workers}) another"
        )

    def _forget(self, names: list[str]) -> None:
        with standing_for(self._local):
            forget(names)

    def _close(self) -> None:
        self._seat.close()


def _raise_as_of_a_rank(error: BaseException) -> NoReturn:
    failed = RankFailed(0, socket.gethostname(), describe(error)[0])
    failed.results = {}
    if isinstance(error, SystemExit):
        raise failed from error
    if error.__cause__ is None:
        raise error from failed
    raise error


def single_rank(*, threads: int, on_event: EventListener | None = None, **options: Any) -> Communicator:
    """A communicator of one rank."""
    import ripieno._native as _native

    options["rack"] = rack_of_this_host(options.pop("racks", None))
    options = flight.prepared(options)
    native = _native.Communicator.connect(0, 1, lambda text: [text], token=secrets.token_bytes(32), **options)
    listener = None if on_event is None else lambda event: on_event({"rank": 0, **event})
    return Communicator(native, threads=threads, on_event=listener)
