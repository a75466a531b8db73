"""Provide `serve`, which runs a task of an engine as a rank of a job."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.comm.communicator import Communicator
from ripieno.comm.rank import describe
from ripieno.errors import CommunicatorClosed, EngineError, RendezvousError
from ripieno.launch.binding import Binding, bind_together, restored_affinity
from ripieno.launch.engine import remote
from ripieno.launch.engine.member_server import Invitation, Join, versions
from ripieno.launch.engine.remote import NotAuthentic, RemoteChannel
from ripieno.launch.job import programs
from ripieno.launch.job.stand_ins import rank_values
from ripieno.launch.limits import CONNECT_S
from ripieno.launch.process.channel import ConnectionClosed, DamagedMessage
from ripieno.launch.process.processes import fill_standard_descriptors
from ripieno.launch.process.report import FailureReport
from ripieno.launch.process.waits import QUERY, WaitReporter
from ripieno.wire import packing
from ripieno.wire.arrays import empty


def serve(
    invitation: Invitation,
    rank: int,
    *,
    exchange: programs.Exchange | None = None,
    attempt: str = "",
    bind_host: str | None = None,
    rack: str | None = None,
    local: dict[str, Any] | None = None,
    on_disconnect: Callable[[], None] | None = None,
) -> None:
    """Run rank `rank` of the job that sent `invitation`, until the job is over.

    All sockets are closed when the call returns or raises. It may run in any thread.

    Parameters
    ----------
    invitation : Invitation
    rank : int
    exchange : callable, optional
        The engine's own exchange: takes a string, and returns the strings of all ranks, in order of rank. By default
        ranks exchange through the member server. With an exchange, ranks join each other before they join the member
        server, so that ranks of different attempts never mix.
    attempt : str
        Distinguishes restarted tasks from earlier ones, if there is no `exchange`.
    bind_host : str, optional
        Address on which to listen for the other ranks, unless the job's options set one. By default it is the local
        address of the connection to the server, or with an `exchange` all addresses.
    rack : str, optional
        The rack of this host as known to the engine, on all ranks or on none.
    local : dict, optional
        The values of `RankValue` arguments by name.
    on_disconnect : callable, optional
        Called in another thread after the connection to the launcher has ended, for any reason.

    Raises
    ------
    RendezvousError
        If the member server is unreachable, has started without this task, or is closed; or if the ranks cannot join.
    EngineError
        If the job has failed, and its caller has the error, or if the launching process has ended.
    """
    if invitation.is_survey:
        _answer(invitation, rank, attempt, bind_host)
        return
    fill_standard_descriptors()
    for folder in invitation.sys_path:
        if folder not in sys.path and os.path.isdir(folder):
            sys.path.append(folder)
    options = {**({} if bind_host is None else {"bind_host": bind_host}), **invitation.options, "rack_by_engine": rack}
    member = _Member(invitation, rank, options, {} if local is None else local, on_disconnect)
    with restored_affinity():
        if exchange is None:
            member.serve_by_server(attempt)
        else:
            member.serve_by_engine(exchange)


def _answer(invitation: Invitation, rank: int, attempt: str, bind_host: str | None) -> None:
    # Imported here, because only `ripieno doctor` runs a survey.
    from ripieno.launch.engine import survey

    with _joined(invitation, rank, attempt) as channel:
        survey.answer(channel, invitation, rank, bind_host)


@dataclass
class _Member:
    """A rank that runs in this task, with the arguments of `serve`, and `options` for its communicators."""

    invitation: Invitation
    rank: int
    options: dict[str, Any]
    local: dict[str, Any]
    on_disconnect: Callable[[], None] | None
    events: programs.Events = field(default_factory=programs.Events)

    def serve_by_server(self, attempt: str) -> None:
        """Serve; the ranks exchange through the member server."""
        with _joined(self.invitation, self.rank, attempt) as channel:
            self.options.setdefault("bind_host", channel.own_address)
            try:
                comm = self._connect(self.rank, self.invitation.world_size, programs.through(channel))
            except ConnectionClosed:
                raise
            except Exception as error:
                channel.send("error", FailureReport.of(error, self.rank, socket.gethostname()))
                raise
            self._serve(channel, comm)

    def serve_by_engine(self, exchange: programs.Exchange) -> None:
        """Serve; the ranks join each other by the engine's exchange first."""
        attempts = []

        def recording_exchange(text: str) -> list[str]:
            texts = exchange(text)
            # The text of rank 0 contains its nonce.
            attempts.append(hashlib.sha256(texts[0].encode()).hexdigest())
            return texts

        comm = self._connect(self.rank, self.invitation.world_size, recording_exchange)
        try:
            with _joined(self.invitation, self.rank, attempts[0]) as channel:
                self._serve(channel, comm)
        finally:
            comm.close()

    def _connect(self, rank: int, world_size: int, exchange: programs.Exchange) -> Communicator:
        token, threads = self.invitation.token, self.invitation.threads
        comm = programs.connect(
            rank, world_size, exchange, token=token, threads=threads, on_event=self.events, **self.options
        )
        try:
            # The engine reuses the process, so the variables stay in the environment.
            bind_together(comm, Binding.of(os.environ), whole_process=False)
        except BaseException:
            comm.close()
            raise
        return comm

    def _serve(self, channel: RemoteChannel, comm: Communicator) -> None:
        """Serve as `comm.rank`; finally close the latest communicator."""

        def connect(rank: int, world_size: int) -> Communicator:
            # The engine's own exchange works only at the start; later the launching process exchanges.
            return self._connect(rank, world_size, programs.through(messages))

        # Events come only from programs, which start now.
        self.events.send = channel.send
        session = programs.RankSession(comm, connect, events=self.events)
        waits = WaitReporter(lambda: session.comm._latest, channel.send, is_remote=True)
        messages = _Messages(channel, session, waits, self.on_disconnect)
        waits.start()
        messages.start()
        try:
            with rank_values(self.local):
                programs.serve(messages, session)
        except BaseException as error:
            if not session.comm.closed:
                session.comm.abort(*describe(error))
            raise
        finally:
            waits.close()
            session.close()


@contextmanager
def _joined(invitation: Invitation, rank: int, attempt: str) -> Iterator[RemoteChannel]:
    """Open the channel to the member server, and return it when all ranks have joined."""
    where = f"the member server at {invitation.host}:{invitation.port}"
    try:
        channel = remote.connect(
            invitation.host,
            invitation.port,
            invitation.token,
            CONNECT_S,
            tls=invitation.tls,
            heartbeat_s=invitation.heartbeat_s,
        )
    except NotAuthentic as error:
        raise RendezvousError(f"rank {rank}: {where} is not of this job: {error}") from None
    except ConnectionError as error:
        raise RendezvousError(
            f"rank {rank}: {where} is closed ({error}): the job is over, or has begun without this attempt of the task"
        ) from None
    except OSError as error:
        raise RendezvousError(
            f"rank {rank} on {socket.gethostname()} cannot reach {where}: {error}; the process that launched the job "
            "must be reachable from where its ranks run"
        ) from None
    try:
        channel.send("join", Join(rank, socket.gethostname(), os.getpid(), attempt, versions()))
        channel.receive()
        yield channel
    except DamagedMessage as error:
        raise EngineError(f"rank {rank}: from {where}: {error}") from None
    except ConnectionClosed:
        raise EngineError(
            f"rank {rank}: {where} closed the connection: the job has failed, or its process has ended"
        ) from None
    finally:
        channel.close()


class _Messages:
    """The messages of the launcher. A thread receives them also while a program runs, and answers queries.

    Large programs arrive on rank 0 only, which broadcasts them. If the launcher disconnects, the thread aborts the
    calls of this rank, in any state of the program.
    """

    def __init__(
        self,
        channel: RemoteChannel,
        session: programs.RankSession,
        waits: WaitReporter,
        on_disconnect: Callable[[], None] | None,
    ) -> None:
        self._channel = channel
        self._session = session
        self._waits = waits
        self._on_disconnect = on_disconnect
        self._received: SimpleQueue[tuple[str, NDArray[Any]] | Exception] = SimpleQueue()
        self.send = channel.send

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="ripieno-messages", daemon=True).start()

    def receive(self) -> tuple[str, Any]:
        kind, blob = self._next()
        return kind, packing.read_blob(blob)

    def receive_packed(self) -> tuple[str, Callable[[], Any]]:
        kind, blob = self._next()
        if kind in ("relay", "relayed"):
            if kind == "relayed":
                blob = empty(packing.read_blob(blob), np.uint8)
            # The time limit is for the calls of programs.
            with self._session.comm.timeout(None):
                self._session.comm.broadcast(out=blob)
            kind = "run"
        # As with local workers, arguments that several ranks receive are read-only.
        blob.flags.writeable = False
        return kind, partial(packing.read_blob, blob)

    def _next(self) -> tuple[str, NDArray[Any]]:
        received = self._received.get()
        if isinstance(received, Exception):
            raise received
        return received

    def _run(self) -> None:
        try:
            while True:
                kind, blob = self._channel.receive_blob()
                if kind == QUERY:
                    self._waits.query()
                else:
                    self._received.put((kind, blob))
                del blob
        except Exception as error:
            # Errors include a message that exceeds the memory, and a channel that this rank has closed itself.
            self._received.put(error)
        with suppress(CommunicatorClosed):
            self._session.comm.abort("its launcher closed the connection")
        if self._on_disconnect is not None:
            self._on_disconnect()
