"""`Gang`: a job whose ranks are processes elsewhere, each with a channel to this one.

Programs, exchanged addresses, events, results and reports pass there, and the end of either side is noticed there.
"""

from __future__ import annotations

import select
import selectors
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from ripieno.errors import CommunicatorClosed, RankFailed, RendezvousError, SerializationError
from ripieno.flight.trace import Trace
from ripieno.launch.channel import Channel, HungUp
from ripieno.launch.copies import copies_of
from ripieno.launch.interruption import interruptible
from ripieno.launch.job import EventListener, Job, tell_all
from ripieno.launch.report import Report

# Once a rank says that another one failed, that one has this long to give its own account.
CULPRIT_S = 2.0
# After a failure the other ranks have this long to report what they were at.
WITNESSES_S = 0.5
# Members of a job that has done its work get this long to leave.
GOODBYE_S = 5.0


@dataclass(eq=False)
class Member:
    """A rank as its launcher knows it.

    Attributes
    ----------
    rank, host
        Which, and where.
    channel
        The way to it.
    """

    rank: int
    host: str
    channel: Channel

    @property
    def sources(self) -> list[Any]:
        """What there is to listen to."""
        return [self.channel]

    def ending(self) -> str:
        """Why it has hung up, in one line; may wait a little for somebody who knows."""
        return "its process closed the connection to its launcher"


class Gang(Job):
    """Ranks that live and die together.

    Attributes
    ----------
    members : list of Member
        In order of rank.
    """

    def __init__(
        self, workers: int, threads: int, *, replicas: int, on_event: EventListener | None, trace: Trace | None
    ) -> None:
        super().__init__(workers, threads, trace, on_event, replicas)
        self.members: list[Member] = []
        # The thread that waits, or has waited last, for a program.
        self._runner = 0
        # Of ranks that have failed, by rank.
        self._reports: dict[int, Report] = {}

    @abstractmethod
    def _send(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Send a program to all members that live; `SerializationError` only if nobody has got any of it."""

    @abstractmethod
    def _end(self) -> None:
        """End all members, whatever they are at, and leave nothing behind."""

    def _run(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        self._runner = threading.get_ident()
        with self._over_if_it_fails():
            try:
                self._send(program, args, kwargs)
                unsent = None
            except SerializationError as error:
                unsent = error
            if unsent is None:
                return self._replies("result")
        # Nothing has begun, so the job can go on.
        name = getattr(program, "__qualname__", repr(program))
        raise SerializationError(f"{name} or its arguments cannot be sent to workers: {unsent}") from unsent

    @contextmanager
    def _over_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if isinstance(error, Exception):
                self._hear_witnesses()
                for line in self._flight_lines():
                    if line not in getattr(error, "__notes__", ()):
                        error.add_note(line)
            self._fail(f"its program failed: {type(error).__name__}: {error}".partition("\n")[0])
            raise

    def _hang_up(self) -> bool:
        if self._runner == threading.get_ident():
            return False
        for member in self.members:
            member.channel.hang_up()
        return True

    def _fail(self, sentence: str) -> None:
        self._over = sentence
        self._end()
        self._finish_trace(failed=True)

    def _living(self) -> list[Any]:
        return [member for member in self.members if member.rank not in self.lost]

    def _alarm(self) -> Any:
        """What else to listen to, or None; when it is ready, `_alarmed` is called."""
        return None

    def _alarmed(self) -> BaseException:
        """What to raise if no member gives a better account within `CULPRIT_S`."""
        raise AssertionError("a gang that has an alarm says what it means")

    def _ending_of(self, member: Member) -> tuple[Member, str]:
        """Who has ended first, and why, now that `member` has hung up without a word."""
        return member, member.ending()

    def _hear_witnesses(self) -> None:
        """Wait for the reports of ranks that fail now because another one has; each has left its records by then."""
        deadline = time.monotonic() + WITNESSES_S
        with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
            for member in self._living():
                if member.rank not in self._reports:
                    selector.register(member.channel, selectors.EVENT_READ, member)
            while selector.get_map() and (left_s := deadline - time.monotonic()) > 0:
                for key, _ in ready(left_s):
                    member = key.data
                    try:
                        kind, value = member.channel.receive()
                    except HungUp:
                        selector.unregister(key.fileobj)
                        continue
                    if kind == "error":
                        self._reports[member.rank] = value
                        selector.unregister(key.fileobj)

    def _flight_lines(self) -> list[str]:
        """What the ranks that have reported did last."""
        return [line for rank in sorted(self._reports) for line in self._reports[rank].flight]

    def _replies(self, kind: str, within_s: float | None = None) -> list[Any]:
        """One message of `kind` from every member; serves exchanges and events until then, and raises on failure."""
        conversation = _Conversation(kind, self, within_s)
        with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
            for member in self._living():
                for source in member.sources:
                    selector.register(source, selectors.EVENT_READ, member)
            alarm = self._alarm()
            if alarm is not None:
                selector.register(alarm, selectors.EVENT_READ, None)
            while not conversation.complete:
                for key, _ in ready(conversation.patience_s()):
                    if key.data is None:
                        selector.unregister(key.fileobj)
                        conversation.expect(partial(_throw, self._alarmed()))
                        continue
                    if key.data.rank in self.lost:
                        continue
                    event = conversation.hear(key.data)
                    if event is not None:
                        tell_all(self._listeners, event)
                        if self._was_closed:
                            raise CommunicatorClosed("who listens to the job has closed it")
                    if key.data.rank in self.lost:
                        for source in key.data.sources:
                            selector.unregister(source)
        return conversation.results()


class _Conversation:
    """What the members have said so far."""

    def __init__(self, awaited: str, gang: Gang, within_s: float | None) -> None:
        self._awaited = awaited
        self._within_s = within_s
        self._deadline = None if within_s is None else time.monotonic() + within_s
        self._gang = gang
        self._members = gang.members
        self._replicas = gang.replicas
        self._reports = gang._reports
        self._lost = gang.lost
        self._exchange: dict[int, str] = {}
        # What is raised unless somebody gives a better account in time.
        self._verdict: Callable[[], NoReturn] | None = None
        self._verdict_by = 0.0
        self.replies: dict[int, Any] = {}

    @property
    def complete(self) -> bool:
        return all(member.rank in self.replies or member.rank in self._lost for member in self._members)

    def results(self) -> list[Any]:
        """The reply of every logical rank: of the first of its copies that has replied."""
        by_copy = [self._copies(logical) for logical in range(len(self._members) // self._replicas)]
        return [next(self.replies[rank] for rank in copies if rank in self.replies) for copies in by_copy]

    def _copies(self, rank: int) -> range:
        return copies_of(rank, len(self._members), self._replicas)

    def expect(self, verdict: Callable[[], NoReturn]) -> None:
        """Somebody has failed: call `verdict`, the first one, unless the culprit comes forward in time."""
        if self._verdict is None:
            self._verdict = verdict
            self._verdict_by = time.monotonic() + CULPRIT_S

    def patience_s(self) -> float | None:
        """How long to wait for the next message; raises the verdict if no culprit has come forward in time."""
        now = time.monotonic()
        if self._verdict is not None:
            if now >= self._verdict_by:
                self._verdict()
            return self._verdict_by - now
        if self._deadline is None:
            return None
        if now >= self._deadline:
            silent = [member for member in self._members if member.rank not in self.replies]
            who = ", ".join(f"{member.rank} on {member.host}" for member in silent[:8])
            raise RendezvousError(
                f"{len(silent)} of {len(self._members)} ranks have not met the others within {self._within_s:g} s: "
                f"{who}{' …' if len(silent) > 8 else ''}; they stand still, or cannot reach each other: raise "
                "rendezvous_timeout_s if they only need longer"
            )
        return self._deadline - now

    def hear(self, member: Member) -> dict[str, Any] | None:
        """Take one message from `member`, whose channel or whose end has shown up; an event is returned."""
        try:
            # A process that has ended may still have left messages, and must be heard before it is called dead.
            if not _readable(member.channel):
                return self._dead(member)
            kind, value = member.channel.receive()
        except HungUp:
            return self._dead(member)
        if kind == self._awaited:
            self.replies[member.rank] = value
        elif kind == "exchange":
            self._exchanged(member, value)
        elif kind == "event":
            return {"rank": member.rank, **value}
        elif kind == "error":
            self._reported(member, value)
        return None

    def _exchanged(self, member: Member, text: str) -> None:
        self._exchange[member.rank] = text
        if len(self._exchange) == len(self._members):
            texts = [self._exchange[rank] for rank in range(len(self._members))]
            self._exchange.clear()
            for each in self._members:
                tell(each, "exchange", texts)

    def _reported(self, member: Member, report: Report) -> None:
        self._reports[member.rank] = report
        if report.victim is None or report.victim.rank in self._lost:
            report.throw()
        self.expect(report.throw)

    def _dead(self, member: Member) -> None:
        member, cause = self._gang._ending_of(member)
        others = [rank for rank in self._copies(member.rank) if rank != member.rank]
        if self._awaited == "result" and any(rank not in self._lost for rank in others):
            self._lost[member.rank] = cause
            return
        before = "".join(
            f"; before that its copy, rank {rank}: {self._lost[rank]}" for rank in others if rank in self._lost
        )
        raise RankFailed(member.rank, member.host, cause + before) from None


def tell(member: Member, kind: str, value: Any = None) -> None:
    """Send a message; whoever listens to `member` learns of its end there."""
    with suppress(HungUp):
        member.channel.send(kind, value)


def _readable(channel: Channel) -> bool:
    watch = select.poll()
    watch.register(channel.fileno(), select.POLLIN)
    return bool(watch.poll(0))


def _throw(error: BaseException) -> NoReturn:
    raise error
