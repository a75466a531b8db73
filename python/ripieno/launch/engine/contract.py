"""`Engine`: the interface to a system that runs ranks as its tasks; `EngineJob`: a job with ranks in an engine."""

from __future__ import annotations

import os
import secrets
import selectors
import site
import sys
import sysconfig
import threading
import time
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ripieno._types import OnFailure
from ripieno.errors import CommunicatorClosed, EngineError, InputError, RankFailed
from ripieno.flight.trace import Trace
from ripieno.launch.engine.member_server import Invitation, Join, MemberServer, versions
from ripieno.launch.engine.remote import RemoteChannel
from ripieno.launch.job.job import EventListener
from ripieno.launch.job.process_job import ProcessJob
from ripieno.launch.job.programs import RunRequest, elsewhere
from ripieno.launch.job.result_collector import RankConnection, tell
from ripieno.launch.job.watch import JobWatch
from ripieno.launch.limits import GOODBYE_S, HEARTBEAT_S, MEETING_S
from ripieno.launch.process.channel import HungUp
from ripieno.launch.process.interruption import held_back, interruptible
from ripieno.launch.process.shared_message import pack
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
        """Return the address at which tasks reach this process."""

    @abstractmethod
    def start(self, workers: int, invitation: Invitation) -> Run:
        """Start a task per rank. Each task calls `ripieno.launch.member.serve`.

        Raises
        ------
        TooFewSlots
            If the slots stay occupied for some seconds. It holds the needed, free and total slots, and advice.
        """

    def handover(self) -> Handover:
        """Return how invitations, which contain the token, travel to tasks."""
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
    way : str
        Name of the connection.
    is_authentic, is_encrypted : bool
        Whether both ends authenticate each other, and whether the connection is encrypted.
    advice : str
        How to add the missing properties, in the engine's terms.
    """

    way: str
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
        self._heard = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._unheard = weakref.finalize(self, os.close, self._heard)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, {'started' if self.failure is None else f'failed: {self.failure[1]}'}>"

    def fileno(self) -> int:
        """Return a descriptor that is readable after the engine has reported a failure."""
        return self._heard

    def failed(self, rank: int | None, cause: str) -> None:
        """Record a failure that the engine reports. Only the first one is kept."""
        with self._lock:
            if self.failure is None and self._unheard.alive:
                self.failure = (rank, cause)
                os.eventfd_write(self._heard, 1)

    def close(self) -> None:
        """End the tasks and stop listening. Repeated calls have no effect."""
        self.end()
        with self._lock:
            self._unheard()

    @abstractmethod
    def end(self) -> None:
        """Return all slots. Members are notified that the job is over, and members that do not exit are cancelled.

        Takes at most 15 s, may be called again, and raises nothing.
        """


@dataclass
class _Hold:
    """Resources that must be released, whatever the state of the job."""

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
    workers, threads, on_event, trace, replicas, watch
        As in `ripieno.launch.launch`.
    **options
        For the native communicator; ``rendezvous_timeout_s`` also limits the time that tasks may take to join.
    """

    _SHARES_FILES = False

    def __init__(
        self,
        engine: Engine,
        workers: int,
        *,
        threads: int,
        on_event: EventListener | None,
        trace: Trace | None,
        replicas: int = 1,
        on_failure: OnFailure = "raise",
        spares: int = 0,
        watch: JobWatch | None = None,
        **options: Any,
    ) -> None:
        if spares:
            raise InputError(f"spares={spares}: an engine starts replacements on demand: leave it out")
        if trace is not None:
            raise InputError("trace= is for workers of this machine: an engine's ranks leave their records elsewhere")
        if replicas != 1:
            raise InputError(
                f"replicas={replicas}: engines end all ranks with the first that dies; only local ones do not"
            )
        super().__init__(
            workers, threads, replicas=1, on_event=on_event, trace=None, on_failure=on_failure, watch=watch
        )
        self.engine = engine
        self._options = options
        self._hold = _Hold()
        weakref.finalize(self, _end_members, self.members, self._hold, self._owner_pid)
        self._form_first()

    def _start(self, invitation: Invitation) -> Run:
        return self.engine.start(self.workers, invitation)

    def _patience_s(self) -> float:
        """Return how long tasks may take to join."""
        return self._meeting_s()

    @property
    def _place(self) -> str:
        return self.engine.NAME

    def _meeting_s(self) -> float:
        meeting_s: float = self._options.get("rendezvous_timeout_s", MEETING_S)
        return meeting_s

    def _form(self) -> None:
        token = secrets.token_bytes(32)
        host = self.engine.host()
        try:
            heartbeat_s = self._options.get("heartbeat_timeout_s", HEARTBEAT_S)
            server = MemberServer(host, token, tls=self._options.get("tls"), heartbeat_s=heartbeat_s)
            self._hold.server = server
        except OSError as error:
            raise EngineError(
                f"ranks in {self.engine.NAME} must reach this process at {host}, where it cannot listen: "
                f"{error.strerror or error}; see docs/engines for how to name another address of this machine"
            ) from None
        invitation = Invitation(host, server.port, token, self.workers, self.threads, self._options, _own_folders())
        self._hold.run = self._start(invitation)
        self.members[:] = self._gathered(server, self._hold.run)
        # Later connections belong to no rank of this job.
        server.close()
        for member in self.members:
            tell(member, "welcome")
        self._replies("ready", self._meeting_s())

    def _gathered(self, server: MemberServer, run: Run) -> list[RemoteMember]:
        """Return a member for every rank, all from one attempt."""
        patience_s = self._patience_s()
        deadline = time.monotonic() + patience_s
        attempts: dict[str, dict[int, RemoteMember]] = {}
        try:
            with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
                selector.register(server, selectors.EVENT_READ)
                selector.register(run, selectors.EVENT_READ)
                while True:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        raise EngineError(self._absent(attempts, patience_s, server.shortage))
                    for key, _ in ready(left_s):
                        if key.fileobj is run:
                            raise self._alarmed()
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
        for name, mine in versions().items():
            if join.versions.get(name) != mine:
                raise EngineError(
                    f"rank {join.rank} on {join.host} has {name} {join.versions.get(name)}, the process that launches "
                    f"it has {name} {mine}: install the same there"
                )

    def _absent(self, attempts: dict[str, dict[int, RemoteMember]], patience_s: float, shortage: str | None) -> str:
        best = max(attempts.values(), key=len, default={})
        missing = [str(rank) for rank in range(self.workers) if rank not in best]
        told = (
            f"{len(best)} of {self.workers} ranks have joined within {patience_s:g} s, missing are "
            f"{', '.join(missing[:8])}{' …' if len(missing) > 8 else ''}"
        )
        if shortage is not None:
            return f"{told}: this process cannot accept them: {shortage}"
        return (
            f"{told}: check whether {self.engine.NAME} has room for "
            f"all of them at once, and whether its tasks can reach {self.engine.host()} (ripieno doctor --engine "
            f"{self.engine.NAME}), or raise rendezvous_timeout_s"
        )

    def _send(self, request: RunRequest) -> None:
        packed = pack(request, files_by_name=self._SHARES_FILES, read_only=True)
        rest = elsewhere(request)
        if rest is not request:
            theirs = pack(rest, files_by_name=self._SHARES_FILES, read_only=True)
            for member in self.members:
                with suppress(HungUp):
                    member.channel.send_packed("run", packed if member.rank == 0 else theirs)
            return
        size_bytes = packing.blob_bytes(packed)
        relayed = self.workers > 1 and size_bytes >= RELAYED_FROM_BYTES
        for member in self.members:
            # If the member has ended, a later receive reports it with the cause.
            with suppress(HungUp):
                if not relayed:
                    member.channel.send_packed("run", packed)
                elif member.rank > 0:
                    member.channel.send("relayed", size_bytes)
        if relayed:
            with suppress(HungUp):
                self.members[0].channel.send_packed("relay", packed)

    def _alarm(self) -> Run | None:
        return self._hold.run

    def _hear_alarm(self) -> None:
        self._heard.supervisor.engine_says(*self._engine_failure())

    def _engine_failure(self) -> tuple[int | None, str]:
        """Return the failure that the engine has reported: the rank, if known, and the cause."""
        failure = self._started.failure
        assert failure is not None, "the engine has said what failed"
        rank, cause = failure
        return rank, f"{self.engine.NAME} {'has ended the ranks' if rank is None else 'says'}: {cause}"

    @property
    def _started(self) -> Run:
        """Return the tasks of the ranks."""
        assert self._hold.run is not None, "ranks are heard of once tasks were started"
        return self._hold.run

    def _check_ranks(self) -> None:
        """Raise the failure of a rank, if one has failed, during a wait for another event."""
        if self._was_closed or self._started.failure is not None:
            with self._recovering():
                raise CommunicatorClosed("the job was closed") if self._was_closed else self._alarmed()

    def _alarmed(self) -> BaseException:
        rank, cause = self._engine_failure()
        if rank is None:
            return EngineError(cause)
        host = next((member.host for member in self.members if member.rank == rank), "")
        return RankFailed(rank, host, cause)

    def _part(self) -> None:
        failure = None if self._hold.run is None else self._hold.run.failure
        for member in self.members:
            if failure is not None and member.rank == failure[0]:
                member.loss = member.loss or failure[1]
        super()._part()

    def _is_whole(self) -> bool:
        return self._hold.run is not None and self._hold.run.failure is None

    def _say_goodbye(self) -> None:
        """Ask the members to exit. A member with a broken connection assumes that the launching process died."""
        for member in self.members:
            tell(member, "close")
        deadline = time.monotonic() + GOODBYE_S
        for member in self.members:
            with suppress(HungUp):
                while (left_s := deadline - time.monotonic()) > 0:
                    member.channel.receive(left_s)

    def _end(self) -> None:
        with held_back():
            _end_members(self.members, self._hold, self._owner_pid)


def _own_folders() -> tuple[str, ...]:
    """Return the folders of modules that belong to no installation, such as the folder of a script or notebook."""
    folders = [Path(folder).absolute() for folder in sys.path]
    paths = sysconfig.get_paths()
    installed = (paths["stdlib"], paths["platstdlib"], *site.getsitepackages(), site.getusersitepackages())
    return tuple(str(folder) for folder in folders if not any(map(folder.is_relative_to, installed)))


def _end_members(members: list[Any], hold: _Hold, owner_pid: int) -> None:
    """Close all connections, tasks and threads. Repeated calls have no effect."""
    if os.getpid() != owner_pid:
        return  # a fork of the launcher owns no ranks
    for member in members:
        member.channel.close()
    members.clear()
    if hold.server is not None:
        hold.server.close()
    if hold.run is not None:
        hold.run.close()
