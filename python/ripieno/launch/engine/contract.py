"""Provide `Engine`, the interface to a system that runs ranks as its tasks, and `EngineJob`, a job with such ranks."""

from __future__ import annotations

import os
import secrets
import selectors
import site
import sys
import sysconfig
import threading
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ripieno.errors import CommunicatorClosed, EngineError, InputError, RankFailed
from ripieno.launch.deadline import Deadline
from ripieno.launch.engine.member_server import Invitation, Join, MemberServer, versions
from ripieno.launch.engine.remote import RemoteChannel
from ripieno.launch.job.process_job import ProcessJob
from ripieno.launch.job.programs import RunRequest, without_rank_0_values
from ripieno.launch.job.result_collector import RankConnection, try_send
from ripieno.launch.limits import SHUTDOWN_S
from ripieno.launch.process.channel import ConnectionClosed
from ripieno.launch.process.interruption import deferred_signals, interruptible
from ripieno.wire import packing

# Larger programs and arguments are sent to rank 0 only, which relays them to the others.
RELAYED_FROM_BYTES = 1 << 18


class Engine(ABC):
    """A system with slots for ranks. A subclass connects to a running system.

    Attributes
    ----------
    NAME : str
        The name for ``launch(engine=NAME)``.
    OPTIONS : frozenset of str
        Options of `launch` that `__init__` accepts as keywords.
    threads : int
        Threads per rank, unless the caller sets another number.
    is_own : bool
        Whether this process has started the system, which then ends with the process.
    """

    NAME: ClassVar[str]
    OPTIONS: ClassVar[frozenset[str]] = frozenset()
    threads: int = 1
    is_own: bool = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, ranks in {self.NAME}>"

    @abstractmethod
    def slots(self) -> int:
        """Return the total number of slots."""

    @abstractmethod
    def host(self) -> str:
        """Return the address of this process for its tasks."""

    @abstractmethod
    def start(self, workers: int, invitation: Invitation) -> Run:
        """Start a task per rank. Each task calls `ripieno.launch.member.serve`.

        Raises
        ------
        TooFewSlots
            If the slots stay occupied for some seconds. It holds the needed, free and total slots, and advice.
        """

    def handover(self) -> Handover:
        """Return how the engine sends invitations, which contain the token, to its tasks."""
        return Handover(f"as {self.NAME} sends its tasks", False, False, f"see how {self.NAME} can be made to encrypt")

    def job(self, workers: int, **options: Any) -> EngineJob:
        """Return a job of `workers` ranks in this engine."""
        return EngineJob(self, workers, **options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        # Cloned estimators share the engine.
        return self


@dataclass(frozen=True)
class Handover:
    """Security of the connection that carries tokens from the engine to its tasks.

    Attributes
    ----------
    transport : str
        Name of the connection.
    is_authentic, is_encrypted : bool
        Whether both ends authenticate each other, and whether the connection is encrypted.
    advice : str
        Instructions for adding the missing properties, in the engine's terms.
    """

    transport: str
    is_authentic: bool
    is_encrypted: bool
    advice: str = ""


class Run(ABC):
    """The tasks that an engine has started for a job.

    Attributes
    ----------
    failure : tuple of (int or None, str), or None
        The first failure that the engine reported: the rank, if known, and the cause in one line.
    """

    def __init__(self) -> None:
        self.failure: tuple[int | None, str] | None = None
        self._failure_event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._close_event = weakref.finalize(self, os.close, self._failure_event)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {'started' if self.failure is None else f'failed: {self.failure[1]}'}>"

    def fileno(self) -> int:
        """Return a descriptor that is readable after the engine has reported a failure."""
        return self._failure_event

    def failed(self, rank: int | None, cause: str) -> None:
        """Record a failure that the engine reports. Only the first one is kept."""
        with self._lock:
            if self.failure is None and self._close_event.alive:
                self.failure = (rank, cause)
                os.eventfd_write(self._failure_event, 1)

    def close(self) -> None:
        """End the tasks and stop listening. Repeated calls have no effect."""
        self.end()
        with self._lock:
            self._close_event()

    @abstractmethod
    def end(self) -> None:
        """Return all slots. Members are notified that the job is over, and members that do not exit are cancelled.

        Takes at most 15 s, may be called again, and raises nothing.
        """


@dataclass
class _Resources:
    """Resources that the end of the job releases, in any state of the job."""

    server: MemberServer | None = None
    run: Run | None = None


@dataclass(eq=False)
class RemoteMember(RankConnection):
    """A rank that is connected over a network."""

    channel: RemoteChannel


class EngineJob(ProcessJob[RemoteMember]):
    """A job with ranks that are tasks of an engine.

    Parameters
    ----------
    engine : Engine
    workers, **options
        As in `ripieno.launch.launch`; ``rendezvous_timeout_s`` also limits the time until all tasks have joined.
    """

    _SHARES_FILES = False

    def __init__(self, engine: Engine, workers: int, *, spares: int = 0, **options: Any) -> None:
        super().__init__(workers, **options)
        if spares:
            raise InputError(f"spares={spares}: an engine starts replacements on demand: leave it out")
        if self._trace is not None:
            raise InputError("trace= is for workers of this machine: an engine's ranks leave their records there")
        if self.replicas != 1:
            raise InputError(
                f"replicas={self.replicas}: engines end all ranks with the first that dies; only local ones do not"
            )
        self.engine = engine
        self._resources = _Resources()
        weakref.finalize(self, _end_members, self.members, self._resources, self._owner_pid)
        self._start_or_close()

    def _start(self, invitation: Invitation) -> Run:
        return self.engine.start(self.workers, invitation)

    def _join_limit_s(self) -> float:
        """Return the time limit for tasks to join."""
        return self._rendezvous_s

    @property
    def _place(self) -> str:
        return self.engine.NAME

    def _start_members(self) -> None:
        self.members.clear()
        token = secrets.token_bytes(32)
        host = self.engine.host()
        try:
            server = MemberServer(host, token, tls=self._options.get("tls"), heartbeat_s=self._heartbeat_s)
            self._resources.server = server
        except OSError as error:
            raise EngineError(
                f"ranks in {self.engine.NAME} must reach this process at {host}, where it cannot listen: "
                f"{error.strerror or error}; see docs/engines for how to name another address of this machine"
            ) from None
        invitation = Invitation(host, server.port, token, self.workers, self.threads, self._options, _own_folders())
        self._resources.run = self._start(invitation)
        self.members[:] = self._accept_members(server, self._resources.run)
        # Later connections belong to no rank of this job.
        server.close()
        for member in self.members:
            try_send(member, "welcome")
        self._await_joined()

    def _accept_members(self, server: MemberServer, run: Run) -> list[RemoteMember]:
        """Return a member for every rank, all from one attempt."""
        join_limit_s = self._join_limit_s()
        deadline = Deadline(join_limit_s)
        attempts: dict[str, dict[int, RemoteMember]] = {}
        try:
            with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
                selector.register(server, selectors.EVENT_READ)
                selector.register(run, selectors.EVENT_READ)
                while True:
                    if not (left_s := deadline.left_s):
                        raise EngineError(self._missing_message(attempts, join_limit_s, server.shortage))
                    for key, _ in ready(left_s):
                        if key.fileobj is run:
                            raise self._engine_error()
                    for join, channel in server.joined():
                        members = attempts.setdefault(join.attempt, {})
                        earlier = members.pop(join.rank, None)
                        if earlier is not None:
                            earlier.channel.close()
                        members[join.rank] = self._member(join, channel)
                        if len(members) == self.workers:
                            del attempts[join.attempt]
                            return [members[rank] for rank in range(self.workers)]
        finally:
            for members in attempts.values():
                for member in members.values():
                    member.channel.close()

    def _member(self, join: Join, channel: RemoteChannel) -> RemoteMember:
        try:
            self._check(join)
        except EngineError:
            channel.close()
            raise
        return RemoteMember(join.rank, join.host, channel)

    def _check(self, join: Join) -> None:
        if not 0 <= join.rank < self.workers:
            raise EngineError(
                f"rank {join.rank} on {join.host} has joined a job of {self.workers} ranks: "
                f"{self.engine.NAME} started more tasks than workers= allows"
            )
        for name, version in versions().items():
            if join.versions.get(name) != version:
                raise EngineError(
                    f"rank {join.rank} on {join.host} has {name} {join.versions.get(name)}, the process that launches "
                    f"it has {name} {version}: install the same version there"
                )

    def _missing_message(
        self, attempts: dict[str, dict[int, RemoteMember]], join_limit_s: float, shortage: str | None
    ) -> str:
        best = max(attempts.values(), key=len, default={})
        missing = [str(rank) for rank in range(self.workers) if rank not in best]
        summary = (
            f"{len(best)} of {self.workers} ranks have joined within {join_limit_s:g} s, missing are "
            f"{', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}"
        )
        if shortage is not None:
            return f"{summary}: this process cannot accept them: {shortage}"
        return (
            f"{summary}: check whether {self.engine.NAME} has room for "
            f"all of them at once, and whether its tasks can reach {self.engine.host()} (ripieno doctor --engine "
            f"{self.engine.NAME}), or raise rendezvous_timeout_s"
        )

    def _send(self, request: RunRequest) -> None:
        packed, rest = self._packed(request), without_rank_0_values(request)
        first = others = ("run", packed)
        if rest is not request:
            others = ("run", self._packed(rest))
        elif self.workers > 1 and packing.blob_bytes(packed) >= RELAYED_FROM_BYTES:
            first, others = ("relay", packed), ("relayed", self._packed(packing.blob_bytes(packed)))
        # Rank 0 comes last: it takes a large value while the other ranks wait for its broadcast already.
        for member in reversed(self.members):
            # If the member has ended, the next receive raises the error with its cause.
            with suppress(ConnectionClosed):
                member.channel.send_packed(*(first if member.rank == 0 else others))

    def _alarm(self) -> Run | None:
        return self._resources.run

    def _handle_alarm(self) -> None:
        self._collector.supervisor.engine_reports(*self._engine_failure())

    def _engine_failure(self) -> tuple[int | None, str]:
        """Return the failure that the engine has reported: the rank, if known, and the cause."""
        failure = self._started.failure
        assert failure is not None, "the engine has reported a failure"
        rank, cause = failure
        return rank, f"{self.engine.NAME} {'has ended the ranks' if rank is None else 'reports'}: {cause}"

    @property
    def _started(self) -> Run:
        """Return the tasks of the ranks."""
        assert self._resources.run is not None, "tasks were started before any rank reports"
        return self._resources.run

    def _check_ranks(self) -> None:
        """Raise the failure of a rank, if one has failed, during a wait for another event."""
        if self._was_closed or self._started.failure is not None:
            with self._recovering():
                raise CommunicatorClosed("the job was closed") if self._was_closed else self._engine_error()

    def _engine_error(self) -> BaseException:
        rank, cause = self._engine_failure()
        if rank is None:
            return EngineError(cause)
        host = next((member.host for member in self.members if member.rank == rank), "")
        return RankFailed(rank, host, cause)

    def _disconnect_members(self) -> None:
        failure = None if self._resources.run is None else self._resources.run.failure
        for member in self.members:
            if failure is not None and member.rank == failure[0]:
                member.loss = member.loss or failure[1]
        super()._disconnect_members()

    def _is_intact(self) -> bool:
        return self._resources.run is not None and self._resources.run.failure is None

    def _request_exit(self) -> None:
        """Ask the members to exit. A member without a connection exits by itself."""
        for member in self.members:
            try_send(member, "close")
        deadline = Deadline(SHUTDOWN_S)
        for member in self.members:
            with suppress(ConnectionClosed):
                while left_s := deadline.left_s:
                    member.channel.receive(left_s)

    def _end(self) -> None:
        with deferred_signals():
            _end_members(self.members, self._resources, self._owner_pid)


def _own_folders() -> tuple[str, ...]:
    """Return the folders of modules that belong to no installation, such as the folder of a script or notebook."""
    folders = [Path(folder).absolute() for folder in sys.path]
    paths = sysconfig.get_paths()
    installed = (paths["stdlib"], paths["platstdlib"], *site.getsitepackages(), site.getusersitepackages())
    return tuple(str(folder) for folder in folders if not any(map(folder.is_relative_to, installed)))


def _end_members(members: list[Any], resources: _Resources, owner_pid: int) -> None:
    """Close all connections, tasks and threads. Repeated calls have no effect."""
    if os.getpid() != owner_pid:
        return  # a fork of the launcher owns no ranks
    for member in members:
        member.channel.close()
    if resources.server is not None:
        resources.server.close()
    if resources.run is not None:
        resources.run.close()
