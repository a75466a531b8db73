"""Provide the job of a single rank, which runs in the calling process with all its cores."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from ripieno.comm.added_amounts import AddedAmounts
from ripieno.comm.communicator import Communicator
from ripieno.comm.rank import describe
from ripieno.errors import CommunicatorClosed, InputError, RankFailed, SerializationError
from ripieno.launch.job.accumulators import PROGRAMS
from ripieno.launch.job.job import Job
from ripieno.launch.job.programs import Events, ProgramCall, RankSession, connect
from ripieno.launch.job.stand_ins import forget, rank_values
from ripieno.launch.process.running import running
from ripieno.launch.supervisor import RankState, RankStatus
from ripieno.wire.packing import as_received


class InlineJob(Job):
    """A job of one rank in the calling process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(1, **options)
        events = Events()
        events.send = self._handle_event
        connect_again = partial(single_rank, threads=self.threads, on_event=events, **self._options)
        self._session = RankSession(connect_again(), connect_again, events=events)
        self._local: dict[str, Any] = {}
        self._watch.stop_lines()
        self._watch.begins(type(self).__name__, self._place, self.threads, self._session.comm.hosts)

    def _run(self, call: ProgramCall) -> list[Any]:
        if self._session.comm.closed:
            self._session.reconnect()
        self._session.comm._fits.clear()
        self._session.comm._memory.clear()
        with rank_values(self._local):
            try:
                args, kwargs = as_received((call.args, call.kwargs))
            except SerializationError as error:
                raise call.unsendable(error) from error
            try:
                comm, event_options = self._session.comm, self._watch.event_options(True, 1)
                with (
                    self._session.events.of_program(comm, event_options),
                    running(comm),
                    PROGRAMS.collecting() as amounts,
                ):
                    comm._added = AddedAmounts(amounts)
                    self._added[0] = [amounts]
                    result = call.program(comm, *args, **kwargs)
            except BaseException as error:
                if os.getpid() != self._owner_pid:
                    # A process forked by the program is not a rank.
                    raise
                self._disconnect_members()
                _raise_from_rank_failed(error)
        try:
            self._session.end_program()
        except (CommunicatorClosed, RankFailed):
            self._disconnect_members()
        return [result]

    def _rank_states(self) -> list[RankStatus]:
        state = RankState.RUNNING if self._running else RankState.READY
        return [RankStatus(0, socket.gethostname(), state)]

    def _handle_event(self, kind: str, value: Any) -> None:
        if kind == "telemetry":
            self._watch.telemetry(0, value)
        else:
            self._notify_listeners({"rank": 0, **value})

    def _disconnect_members(self) -> None:
        self.epoch += 1
        self._session.comm.close()

    def _resize(self, workers: int) -> None:
        raise InputError(
            f"resize({workers}): the only rank of this job is the calling process: launch(workers={workers}) another"
        )

    def _forget(self, names: list[str]) -> None:
        with rank_values(self._local):
            forget(names)

    def _close(self) -> None:
        self._session.close()


def _raise_from_rank_failed(error: BaseException) -> NoReturn:
    failed = RankFailed(0, socket.gethostname(), describe(error)[0])
    failed.results = {}
    if isinstance(error, SystemExit):
        raise failed from error
    if error.__cause__ is None:
        raise error from failed
    raise error


def single_rank(
    *, threads: int, on_event: Callable[[dict[str, Any]], None] | None = None, **options: Any
) -> Communicator:
    """Return a communicator of one rank."""
    token = secrets.token_bytes(32)
    return connect(0, 1, lambda text: [text], threads=threads, on_event=on_event, token=token, **options)
