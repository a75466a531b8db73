"""The result collector: receives one reply of each member of a job and detects members that are lost meanwhile."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ripieno._types import OnFailure
from ripieno.errors import RankFailed, RendezvousError, SerializationError
from ripieno.launch.job.programs import Returned
from ripieno.launch.job.replicas import replicas_of
from ripieno.launch.process.channel import Channel, HungUp
from ripieno.launch.process.report import FailureReport

# After a rank has reported the failure of another rank, that rank has this long to send its own report.
CULPRIT_S = 2.0
# A rank reported as failed that stays silent when all others have replied has this long left.
SILENT_S = 0.3
# Interval at which ranks that have not replied are checked after others have failed.
LOOK_S = 0.5

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
    """

    rank: int
    host: str
    channel: Channel
    number: int = field(init=False)
    can_read: bool = field(default=False, init=False)
    loss: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.number = self.rank

    @property
    def sources(self) -> list[Any]:
        """Return the objects to poll for messages of this rank."""
        return [self.channel]

    def ending(self) -> str:
        """Return in one line why the rank has hung up; may wait briefly for the cause."""
        return "its process closed the connection to its launcher"

    def stands_still(self) -> bool:
        """Return whether the process is known to be stopped, so that it cannot send anything."""
        return False


def tell(member: RankConnection, kind: str, value: Any = None) -> None:
    """Send a message. A broken connection is ignored here and detected by the receiving side."""
    with suppress(HungUp):
        member.channel.send(kind, value)


class ResultCollector:
    """Collects the replies and failures of the members while a program runs.

    Parameters
    ----------
    awaited
        The kind of message that each member is to send.
    members, replicas
        The members of the job, and the number of replicas of each logical rank.
    ending_of
        Returns the member that ended first and the cause, after a member has hung up without a report.
    on_failure
        The job's policy for lost members; unless it is "raise", the collector waits for all other members.
    within_s
        Time limit for all replies in seconds.
    still_s
        How long a process may be stopped, in seconds, if the launcher can detect it.
    on_pulse
        Called with the rank and the contents of each pulse.

    Attributes
    ----------
    replies : dict of int to object
        By rank.
    reports : dict of int to FailureReport
        Reports of failed ranks.
    added : dict of int to object
        Values that ranks have added to accumulators.
    apart : list of Returned
        Returns of ranks that could not end the program together with the others.
    """

    def __init__(
        self,
        awaited: str,
        members: list[Any],
        replicas: int,
        ending_of: Callable[[Any], tuple[Any, str]],
        *,
        on_failure: OnFailure = "raise",
        within_s: float | None = None,
        still_s: float | None = None,
        on_pulse: Callable[[int, Any], None] | None = None,
    ) -> None:
        self._awaited = awaited
        self._members = members
        self._replicas = replicas
        self._ending_of = ending_of
        self._on_failure = on_failure
        self._outlives = on_failure != "raise"
        self._within_s = within_s
        self._still_s = still_s
        self._on_pulse = on_pulse
        self._deadline = None if within_s is None else time.monotonic() + within_s
        self._exchange: dict[int, str] = {}
        # Raises the error, unless a better report arrives in time.
        self._verdict: Callable[[], NoReturn] | None = None
        self._verdict_by = 0.0
        self._blamed: int | None = None
        self._silent: set[int] = set()
        # For each awaited member that is stopped: the time since which it is.
        self._still_since: dict[int, float] = {}
        # Failures that ranks report about other ranks, and the time since which only accused ranks are missing.
        self._accused: dict[int, RankFailed] = {}
        self._silent_since: float | None = None
        # The first loss, if the collector waits for all other members.
        self._loss: RankFailed | None = None
        # For each rank that has returned: the ranks without which it has continued.
        self._without: dict[int, Iterable[int]] = {}
        self.replies: dict[int, Any] = {}
        self.reports: dict[int, FailureReport] = {}
        self.added: dict[int, Any] = {}
        self.apart: list[Returned] = []

    @property
    def spoken(self) -> set[int]:
        """Return the ranks that have sent their last message and wait."""
        return self.replies.keys() | self.reports.keys()

    @property
    def has_culprit(self) -> bool:
        """Return whether a program has raised an error that no other rank caused."""
        return any(report.victim is None for report in self.reports.values())

    def is_silent(self, member: RankConnection) -> bool:
        """Return whether other ranks have reported the member as silent."""
        return member.rank in self._silent

    @property
    def complete(self) -> bool:
        """Return whether no further message is expected."""
        heard = self.spoken if self._outlives else self.replies
        return all(member.rank in heard or member.loss is not None for member in self._members)

    def results(self) -> list[Any]:
        """Return one reply per logical rank, from its first replica that has replied; skip ranks that were lost.

        Raises
        ------
        RankFailed
            If a rank was lost and the others did not continue without it.
        """
        self._note_left_behind()
        if self._loss is not None:
            lost = {member.rank for member in self._members if member.loss is not None}
            went_on = all(lost <= set(self._without.get(rank, ())) for rank in self.replies)
            if self.reports or not self.replies or not went_on or self._on_failure == "respawn":
                raise self._loss
        elif any(self._members[rank].loss is None for rank in self.reports):
            # All ranks live, but one was reported as failed.
            min(self.reports.values(), key=lambda report: report.rank).throw()
        by_rank = [self._replicas_of(logical) for logical in range(len(self._members) // self._replicas)]
        kept = ([rank for rank in replicas if rank in self.replies] for replicas in by_rank)
        return [self.replies[replicas[0]] for replicas in kept if replicas]

    def _note_left_behind(self) -> None:
        """Mark a live rank as lost if it has failed and all ranks that returned continued without it."""
        for rank in list(self.reports):
            if self._outlives and self.replies and all(rank in self._without.get(each, ()) for each in self.replies):
                self._lose(self._members[rank], self.reports.pop(rank).cause)

    def check_mismatch(self) -> None:
        """Raise if ranks made different calls and no program saw the error: the final collective detected it."""
        if not any(each.was_known for each in self.apart):
            for each in self.apart:
                if each.failure is not None and each.failure.victim is None:
                    each.failure.throw()

    def _replicas_of(self, rank: int) -> range:
        return replicas_of(rank, len(self._members), self._replicas)

    def expect(self, verdict: Callable[[], NoReturn], within_s: float = CULPRIT_S) -> None:
        """Schedule `verdict`, if it is the first, to be called unless the culprit reports in time."""
        if self._verdict is None:
            self._verdict = verdict
            self._verdict_by = time.monotonic() + within_s

    def patience_s(self) -> float | None:
        """Return how long to wait for the next message; call the verdict if no culprit has reported in time."""
        now = time.monotonic()
        silent = [member for member in self._members if member.loss is None and member.rank not in self.spoken]
        if self._still_s is not None:
            self._look_after(silent, now, self._still_s)
            silent = [member for member in silent if member.loss is None]
        if self._blamed in self.replies:
            # The accused rank lives, and ranks that have continued may still compute.
            self._verdict = self._blamed = None
        if self._verdict is not None:
            # If all ranks have replied, no other report can arrive.
            if now >= self._verdict_by or not silent:
                self._verdict()
            return self._verdict_by - now
        if self._accused and silent:
            return self._until_silence_counts(silent, now)
        if self._deadline is not None and now >= self._deadline:
            who = ", ".join(f"{member.rank} on {member.host}" for member in silent[:8])
            raise RendezvousError(
                f"{len(silent)} of {len(self._members)} ranks have not met the others within {self._within_s:g} s: "
                f"{who}{' …' if len(silent) > 8 else ''}; they are stopped, or cannot reach each other: raise "
                "rendezvous_timeout_s if they only need longer"
            )
        waits = [] if self._deadline is None else [self._deadline - now]
        if self._still_s is not None:
            waits.append(0.0 if self.complete else LOOK_S)
        return min(waits, default=None)

    def _look_after(self, awaited: list[RankConnection], now: float, still_s: float) -> None:
        """Mark members as lost that have been stopped for `still_s` seconds, even if no other member waits for them."""
        still = {member.rank: member for member in awaited if member.stands_still()}
        self._still_since = {rank: self._still_since.get(rank, now) for rank in still}
        for rank, since in self._still_since.items():
            if now - since >= still_s:
                self._lose(still[rank], f"its process has been stopped for {still_s:g} s")

    def hear(self, member: RankConnection) -> dict[str, Any] | None:
        """Handle one message of `member`, or its end; return the message if it is an event."""
        try:
            # A process that has ended may have left messages. Read them before the process is declared dead.
            if not _readable(member.channel):
                self._dead(member)
                return None
            kind, load = member.channel.receive_packed()
        except HungUp:
            self._dead(member)
            return None
        try:
            value = load()
        except Exception as error:
            self._unreadable(member, kind, error)
            return None
        if kind == "returned":
            self._returned(member, value)
        elif kind == self._awaited:
            self.replies[member.rank] = value
        elif kind == "exchange":
            self._exchanged(member, value)
        elif kind == "added":
            self.added[member.rank] = value
        elif kind == "can-read":
            member.can_read = value
        elif kind == "pulse" and self._on_pulse is not None:
            self._on_pulse(member.rank, value)
        elif kind == "event":
            return {"rank": member.rank, **value}
        elif kind == "error":
            self._reported(member, value)
        self._do_without_failed()
        return None

    def hear_witness(self, member: RankConnection) -> bool:
        """Handle one message like `hear` while an error is pending; return whether it was the member's last message."""
        try:
            kind, load = member.channel.receive_packed()
        except HungUp:
            return True
        try:
            value = load()
        except Exception as error:
            kind, value = "error", _unreadable_report(member, kind, error)
        if kind == "error":
            self.reports[member.rank] = value
        elif kind == "returned":
            self.replies[member.rank] = value.value
        elif kind == "result":
            self.replies[member.rank] = value
        else:
            return False
        return True

    def _unreadable(self, member: RankConnection, kind: str, error: Exception) -> None:
        """Treat a message that the launching process cannot unpickle as a failure of the program."""
        report = _unreadable_report(member, kind, error)
        if kind in _LAST_MESSAGES:
            self.reports[member.rank] = report
        if kind == "returned":
            # The member knows of another failed rank. The report of that rank explains more.
            self.expect(report.throw)
        else:
            report.throw()

    def _returned(self, member: RankConnection, returned: Returned) -> None:
        self.replies[member.rank] = returned.value
        self._without[member.rank] = returned.without
        if returned.failure is not None:
            self.apart.append(returned)
            if returned.failure.victim is not None:
                self._blame(member, returned.failure, returned.failure.victim, unless_it_returns=True)
        for rank in returned.without:
            self._accuse(RankFailed(rank, self._members[rank].host, f"rank {member.rank} went on without it"))

    def _accuse(self, failed: RankFailed) -> None:
        if failed.rank < len(self._members):
            self._accused.setdefault(failed.rank, failed)

    def _spares(self, rank: int) -> bool:
        """Return whether the job contains `rank` and does not need it."""
        return any(each.rank == rank and self._is_spared(each) for each in self._members)

    def _is_spared(self, member: RankConnection) -> bool:
        """Return whether a live replica that has not failed continues in place of the member."""
        others = (self._members[rank] for rank in self._replicas_of(member.rank) if rank != member.rank)
        return self._awaited == "result" and any(each.loss is None and each.rank not in self.reports for each in others)

    def _do_without_failed(self) -> None:
        """Mark ranks as lost that failed because of another rank, if one of their replicas has returned."""
        for rank, report in self.reports.items():
            member, replicas = self._members[rank], self._replicas_of(rank)
            if member.loss is None and any(replica in self.replies for replica in replicas if replica != rank):
                self._lose(member, report.cause)

    def _until_silence_counts(self, silent: list[RankConnection], now: float) -> float:
        """Return how long to wait; mark accused ranks as lost that stay silent for too long."""
        if any(member.rank not in self._accused for member in silent):
            self._silent_since = None
            for member in silent:
                if self._outlives and member.stands_still():
                    accused = self._accused.get(member.rank)
                    self._lose(member, "its process is stopped" if accused is None else accused.cause)
            return LOOK_S
        self._silent_since = self._silent_since or now
        left_s = self._silent_since + SILENT_S - now
        if left_s <= 0:
            for member in silent:
                self._lose(member, self._accused[member.rank].cause)
        return max(left_s, 0.0)

    def _lose(self, member: RankConnection, cause: str) -> None:
        """Continue without a member, or raise `RankFailed` if the job cannot."""
        if not (self._outlives or self._is_spared(member)):
            member.loss = cause
            raise RankFailed(member.rank, member.host, cause + self._lost_before(member)) from None
        member.loss = cause
        if not self._is_spared(member) and self._loss is None:
            self._loss = RankFailed(member.rank, member.host, cause)

    def _lost_before(self, member: RankConnection) -> str:
        lost = ((rank, self._members[rank].loss) for rank in self._replicas_of(member.rank) if rank != member.rank)
        return "".join(f"; before that its replica, rank {rank}: {loss}" for rank, loss in lost if loss is not None)

    def _exchanged(self, member: RankConnection, text: str) -> None:
        self._exchange[member.rank] = text
        if len(self._exchange) == len(self._members):
            texts = [self._exchange[rank] for rank in range(len(self._members))]
            self._exchange.clear()
            for each in self._members:
                tell(each, "exchange", texts)

    def _reported(self, member: RankConnection, report: FailureReport) -> None:
        self.reports[member.rank] = report
        victim = report.victim
        if victim is None:
            report.throw()
        self._blame(member, report, victim)
        if victim.rank == member.rank and self._is_spared(member):
            # The member lives, but the other ranks have continued without it.
            self._lose(member, victim.cause)

    def _blame(
        self, member: RankConnection, report: FailureReport, victim: RankFailed, *, unless_it_returns: bool = False
    ) -> None:
        """Handle a member's report that another rank has failed. The member itself may have continued."""
        if victim.was_silent:
            self._silent.add(victim.rank)
        goes_on = unless_it_returns or self._is_spared(member)
        if self._outlives or (goes_on and self._spares(victim.rank)):
            self._accuse(victim)
        elif any(each.rank == victim.rank and each.loss is not None for each in self._members):
            report.throw()
        else:
            self.expect(report.throw, SILENT_S if victim.was_silent else CULPRIT_S)
            self._blamed = victim.rank if unless_it_returns else None

    def _dead(self, member: RankConnection) -> None:
        self._lose(*self._ending_of(member))


def _unreadable_report(member: RankConnection, kind: str, error: Exception) -> FailureReport:
    message = _LAST_MESSAGES.get(kind, f"a message ({kind})")
    cause = SerializationError(
        f"{message} of rank {member.rank} cannot be unpickled in the launching process: {type(error).__name__}: {error}"
    )
    return FailureReport.of(cause, member.rank, member.host)


def _readable(channel: Channel) -> bool:
    watch = select.poll()
    watch.register(channel.fileno(), select.POLLIN)
    return bool(watch.poll(0))
