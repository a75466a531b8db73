"""Provide the result collector: it receives the replies of a job's ranks and informs the supervisor."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ripieno.errors import EngineError, RankFailed, RendezvousError, SerializationError
from ripieno.launch.deadline import is_ready
from ripieno.launch.job.programs import Returned
from ripieno.launch.process.channel import Channel, ConnectionClosed, DamagedMessage
from ripieno.launch.process.report import FailureReport
from ripieno.launch.process.waits import WaitingRanks
from ripieno.launch.replicas import replicas_of
from ripieno.launch.supervisor import Ending, Policy, RankState, Supervisor, Verdict

#: Number of messages of a rank that are read before the next rank has its turn.
MESSAGE_COUNT = 64

#: The kinds of messages that end a member's program, and their names in error messages.
_LAST_MESSAGES = {"result": "the result", "returned": "the result", "error": "the exception"}


@dataclass(eq=False)
class RankConnection:
    """A rank as seen by its launcher.

    Attributes
    ----------
    rank, host
        Current rank and host name.
    channel
        Channel to the rank.
    number
        Initial rank. The current rank changes when lower ranks are lost; this number does not.
    can_read
        Whether the rank can read this process's memory, as it has reported.
    loss
        Cause of the loss, if the job continues without the rank.
    failure
        The own exception of its last program, in one line, if there was one.
    """

    rank: int
    host: str
    channel: Channel
    number: int = field(init=False)
    can_read: bool = field(default=False, init=False)
    loss: str | None = field(default=None, init=False)
    failure: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.number = self.rank

    @property
    def sources(self) -> list[Any]:
        """Return the objects to poll: the channel, and then another one that reports the end of the process."""
        return [self.channel]

    def ending(self) -> str | None:
        """Return the cause of the process's end in one line; None while it runs, or if its status is unknown here."""
        return None

    def is_stopped(self) -> bool:
        """Return whether the process is known to be stopped, so that it cannot send anything."""
        return False


def try_send(member: RankConnection, kind: str, value: Any = None) -> None:
    """Send a message. A broken connection is ignored here and detected by the receiving side."""
    with suppress(ConnectionClosed):
        member.channel.send(kind, value)


class ResultCollector:
    """Collects the replies and failures of the members while a program runs.

    Parameters
    ----------
    awaited
        The kind of message that each member is to send.
    members, policy
        The members of the job, and how the program ends.
    on_telemetry
        Called with the rank and the contents of each telemetry report.
    waiting_ranks
        The places of the members, which outlast a program.

    Attributes
    ----------
    supervisor : Supervisor
        Decides which rank has failed.
    replies : dict of int to object
        By rank.
    reports : dict of int to FailureReport
        Reports of failed ranks.
    end_failures : dict of int to FailureReport
        Why ranks that have returned could not end the program together with the others.
    added : dict of int to object
        Values that ranks have added to accumulators.
    """

    def __init__(
        self,
        awaited: str,
        members: list[Any],
        policy: Policy,
        *,
        on_telemetry: Callable[[int, Any], None] | None = None,
        waiting_ranks: WaitingRanks | None = None,
    ) -> None:
        self._awaited = awaited
        self._members = members
        self._on_telemetry = on_telemetry
        self._exchange: dict[int, str] = {}
        if awaited == "result":
            for member in members:
                member.failure = None
        begin = RankState.RUNNING if awaited == "result" else RankState.STARTING
        self.supervisor = Supervisor(len(members), policy, time.monotonic(), begin)
        self.replies: dict[int, Any] = {}
        self.reports: dict[int, FailureReport] = {}
        self.end_failures: dict[int, FailureReport] = {}
        # Reports about messages that this process cannot unpickle.
        self._garbled: dict[int, FailureReport] = {}
        self.added: dict[int, Any] = {}
        self.waiting_ranks = WaitingRanks() if waiting_ranks is None else waiting_ranks

    @property
    def verdict(self) -> Verdict | None:
        """Return the verdict once no further message is expected, and None before."""
        return self.supervisor.verdict

    @property
    def has_culprit(self) -> bool:
        """Return whether a rank's program has raised an error of its own."""
        return bool(self._garbled) or any(report.victim is None for report in self.reports.values())

    def results(self) -> list[Any]:
        """Return one reply per logical rank, from its first replica that has replied; skip ranks that were lost.

        Raises
        ------
        RankFailed
            If a rank was lost and the others did not continue without it.
        """
        assert self.verdict is not None, "results are read after the verdict"
        if self.verdict.ending is not Ending.DONE:
            self._throw(self.verdict)
        world_size, replicas = len(self._members), self.supervisor.policy.replicas
        by_rank = (replicas_of(logical, world_size, replicas) for logical in range(world_size // replicas))
        kept = ([rank for rank in ranks if rank in self.replies] for ranks in by_rank)
        return [self.replies[ranks[0]] for ranks in kept if ranks]

    def _throw(self, verdict: Verdict) -> NoReturn:
        if verdict.witness is not None:
            (self.end_failures | self.reports | self._garbled)[verdict.witness].throw()
        if verdict.ending is Ending.ENGINE:
            raise EngineError(verdict.cause)
        if verdict.culprit is not None:
            host = self._members[verdict.culprit].host
            raise RankFailed(verdict.culprit, host, verdict.cause)
        missing = [self._members[rank] for rank in self.supervisor.awaited]
        ranks = ", ".join(f"{member.rank} on {member.host}" for member in missing[:8])
        raise RendezvousError(
            f"{len(missing)} of {len(self._members)} ranks have not joined the others within "
            f"{self.supervisor.policy.rendezvous_limit_s:g} s: {ranks}{' …' if len(missing) > 8 else ''}; "
            "they are stopped, or cannot reach each other: raise rendezvous_timeout_s if they only need longer"
        )

    def tick(self) -> None:
        """Observe stopped processes, and let the supervisor decide."""
        now = time.monotonic()
        self.supervisor.set_time(now)
        self.supervisor.inspect(now, lambda rank: self._members[rank].is_stopped())
        self.supervisor.tick(now)
        for rank, cause in self.supervisor.lost.items():
            self._members[rank].loss = cause

    def wait_s(self) -> float | None:
        """Return the timeout of the wait for the next message."""
        return self.waiting_ranks.wait_s(self.supervisor.wait_s(time.monotonic()))

    def receive(self, member: RankConnection, source: Any) -> tuple[bool, list[dict[str, Any]]]:
        """Handle the messages of `member` that have arrived, or the end of its process; return its events.

        The first value is whether `source` has nothing more to report.
        """
        self.supervisor.set_time(time.monotonic())
        events: list[dict[str, Any]] = []
        try:
            # A process that has ended may have left messages. Read them before the process is declared dead.
            count = 0
            while is_ready(member.channel, 0.0) and (count < MESSAGE_COUNT or source is not member.channel):
                self._receive_one(member, events)
                count += 1
        except DamagedMessage as error:
            member.channel.shut_down()
            self.supervisor.ends(member.rank, str(error))
            return True, events
        except ConnectionClosed:
            self.supervisor.leaves(member.rank)
        else:
            if source is member.channel:
                return False, events
        cause = member.ending()
        if cause is not None:
            self.supervisor.ends(member.rank, cause)
        return True, events

    def _receive_one(self, member: RankConnection, events: list[dict[str, Any]]) -> None:
        kind, load = member.channel.receive_packed()
        try:
            value = load()
        except Exception as error:
            self._unreadable(member, kind, error)
            return
        if self.waiting_ranks.take(member.number, kind, value, member.channel):
            return
        if kind == "returned":
            self._returned(member, value)
        elif kind == self._awaited:
            self.replies[member.rank] = value
            self.supervisor.returns(member.rank)
        elif kind == "exchange":
            self._exchanged(member, value)
        elif kind == "added":
            self.added[member.rank] = value
        elif kind == "can-read":
            member.can_read = value
        elif kind == "telemetry" and self._on_telemetry is not None:
            self._on_telemetry(member.rank, value)
        elif kind == "event":
            events.append({"rank": member.rank, **value})
        elif kind == "error":
            self._reported(member, value)

    def _unreadable(self, member: RankConnection, kind: str, error: Exception) -> None:
        """Treat a message that the launching process cannot unpickle as a failure of the program."""
        report = _unreadable_report(member, kind, error)
        if kind not in _LAST_MESSAGES:
            self._garbled.setdefault(member.rank, report)
            self.supervisor.sends_unreadable(member.rank, report.cause)
            return
        self.reports[member.rank] = report
        # A member that sent "returned" knows of another failed rank. The report of the failed rank explains more.
        culprit = member.rank if kind == "returned" else None
        self.supervisor.fails(member.rank, report.cause, culprit)

    def _returned(self, member: RankConnection, returned: Returned) -> None:
        self.replies[member.rank] = returned.value
        self.supervisor.returns(member.rank, returned.without)
        failure = returned.failure
        if failure is not None:
            self.end_failures[member.rank] = failure
            self.supervisor.returns_incomplete(member.rank, **failure.accusation, was_known=returned.was_known)

    def _reported(self, member: RankConnection, report: FailureReport) -> None:
        self.reports[member.rank] = report
        if report.victim is None:
            member.failure = report.cause
        self.supervisor.fails(member.rank, **report.accusation)

    def _exchanged(self, member: RankConnection, text: str) -> None:
        self.supervisor.connects(member.rank)
        self._exchange[member.rank] = text
        if len(self._exchange) == len(self._members):
            texts = [self._exchange[rank] for rank in range(len(self._members))]
            self._exchange.clear()
            for each in self._members:
                try_send(each, "exchange", texts)


def _unreadable_report(member: RankConnection, kind: str, error: Exception) -> FailureReport:
    message = _LAST_MESSAGES.get(kind, f"a message ({kind})")
    cause = SerializationError(
        f"{message} of rank {member.rank} cannot be unpickled in the launching process: {type(error).__name__}: {error}"
    )
    return FailureReport.of(cause, member.rank, member.host)
