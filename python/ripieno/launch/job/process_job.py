"""`ProcessJob`: a job whose ranks are processes elsewhere, each with a channel to this one.

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
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from ripieno.errors import CommunicatorClosed, RankFailed, RendezvousError, SerializationError
from ripieno.flight.trace import Trace
from ripieno.launch.job.job import EventListener, Job, tell_all, unsendable
from ripieno.launch.job.programs import Returned, RunRequest
from ripieno.launch.job.replicas import replicas_of
from ripieno.launch.process.channel import Channel, HungUp
from ripieno.launch.process.interruption import held_back, interruptible
from ripieno.launch.process.report import FailureReport, other_rank

# Once a rank says that another one failed, that one has this long to give its own account.
CULPRIT_S = 2.0
# After a failure the other ranks have this long to report what they were at, or to return.
WITNESSES_S = 1.0
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
    can_read
        Whether it can read this process's memory, as it has told.
    """

    rank: int
    host: str
    channel: Channel
    can_read: bool = field(default=False, init=False)

    @property
    def sources(self) -> list[Any]:
        """What there is to listen to."""
        return [self.channel]

    def ending(self) -> str:
        """Why it has hung up, in one line; may wait a little for somebody who knows."""
        return "its process closed the connection to its launcher"


M = TypeVar("M", bound=Member)


class State(Enum):
    """What a job's ranks are ready for."""

    READY = "its ranks wait for programs"
    APART = "its ranks wait, and must meet anew before a program that communicates"
    GONE = "its ranks have ended, and others must be started"


class ProcessJob(Job, Generic[M]):
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
        self.members: list[M] = []
        # The thread that waits, or has waited last, for a program.
        self._runner = 0
        self._state = State.GONE
        # Of the program that runs, or ran last, by rank: of ranks that have failed, and what others have returned.
        self._reports: dict[int, FailureReport] = {}
        self._answers: dict[int, Any] = {}

    @abstractmethod
    def _form(self) -> None:
        """Start the members and let them meet."""

    @abstractmethod
    def _send(self, request: RunRequest) -> None:
        """Send a program to all members that live; `SerializationError` only if nobody has got any of it."""

    @abstractmethod
    def _say_goodbye(self) -> None:
        """Let the members that wait leave by themselves."""

    @abstractmethod
    def _end(self) -> None:
        """End all members, whatever they are at, and leave nothing behind. May be called again."""

    @abstractmethod
    def _meeting_s(self) -> float:
        """How long members that live may take to meet."""

    def _form_first(self) -> None:
        """Form, or be over."""
        try:
            self._form()
        except BaseException as error:
            self._over = f"its ranks did not start: {error}".partition("\n")[0]
            self._end()
            self._finish_trace(failed=True)
            raise
        self._state = State.READY

    def _run(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        self._runner = threading.get_ident()
        with self._recovering():
            self._come_together()
        return self._ask(program, args, kwargs)

    def _ask(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """What members that are ready return."""
        with self._recovering():
            try:
                self._send((program, args, kwargs, bool(self._listeners)))
                unsent = None
            except SerializationError as error:
                unsent = error
            if unsent is None:
                return self._replies("result")
        # Nothing has begun.
        raise unsendable(program, unsent) from unsent

    def _come_together(self) -> None:
        """Be ready: members that live meet anew, others are started in the place of those that have ended."""
        if self._state is State.APART:
            # One may have died since.
            with suppress(RankFailed, RendezvousError):
                for member in self.members:
                    tell(member, "meet")
                self._replies("ready", self._meeting_s())
                self._state = State.READY
        if self._state is not State.READY:
            self._form_again()

    def _form_again(self) -> None:
        """End the members and start others, which get the values that `broadcast` gave to those before."""
        self.epoch += 1
        with held_back():
            if self._state is State.READY:
                self._say_goodbye()
            self._end()
        self._state = State.GONE
        self.lost.clear()
        try:
            self._form()
        except BaseException:
            self._end()
            raise
        self._state = State.READY
        for each in list(self._kept):
            self._ask(*each.sent_again())

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """An error within tells what the ranks were at and have returned, and leaves a job that can go on."""
        try:
            yield
        except BaseException as error:
            self._has_failed = True
            if self._state is not State.GONE:
                if isinstance(error, Exception) and not self._was_closed:
                    self._hear_witnesses()
                    self._add_what_is_known(error)
                self._part()
            raise

    def _part(self) -> None:
        """Ranks have failed: those that live can meet again if all do, and wait; otherwise they are ended."""
        self.epoch += 1
        waiting = self._answers.keys() | self._reports.keys()
        if self._was_closed or self.lost or not self._is_whole() or len(waiting) < len(self.members):
            self._state = State.GONE
            self._end()
        else:
            self._state = State.APART
        self._answers.clear()

    def _is_whole(self) -> bool:
        """Whether nobody but the members has told of the end of one."""
        return True

    def _add_what_is_known(self, error: Exception) -> None:
        failed = other_rank(error)
        if failed is not None:
            failed.results = dict(sorted(self._answers.items()))
        for line in self._flight_lines():
            if line not in getattr(error, "__notes__", ()):
                error.add_note(line)

    def _forget(self, names: list[str]) -> None:
        if self._state is not State.GONE:
            for member in self._living():
                tell(member, "forget", names)

    def _hang_up(self) -> bool:
        if self._runner == threading.get_ident():
            return False
        for member in self.members:
            member.channel.hang_up()
        return True

    def _close(self) -> None:
        with held_back():
            if self._state is not State.GONE:
                self._say_goodbye()
            self._state = State.GONE
            self._end()

    def _living(self) -> list[Any]:
        return [member for member in self.members if member.rank not in self.lost]

    def _alarm(self) -> Any:
        """What else to listen to, or None; when it is ready, `_alarmed` is called."""
        return None

    def _alarmed(self) -> BaseException:
        """What to raise if no member gives a better account within `CULPRIT_S`."""
        raise AssertionError("a job that has an alarm says what it means")

    def _ending_of(self, member: M) -> tuple[M, str]:
        """Who has ended first, and why, now that `member` has hung up without a word."""
        return member, member.ending()

    def _hear_witnesses(self) -> None:
        """Wait for those that fail now, or return, because another rank has failed.

        Who reports has left its records by then.
        """
        deadline = time.monotonic() + WITNESSES_S
        with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
            for member in self._living():
                if member.rank not in self._reports and member.rank not in self._answers:
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
                    elif kind in ("result", "returned"):
                        self._answers[member.rank] = value if kind == "result" else value.value
                    else:
                        continue
                    selector.unregister(key.fileobj)

    def _flight_lines(self) -> list[str]:
        """What the ranks that have reported did last."""
        return [line for rank in sorted(self._reports) for line in self._reports[rank].flight]

    def _replies(self, kind: str, within_s: float | None = None) -> list[Any]:
        """One message of `kind` from every member; serves exchanges and events until then, and raises on failure."""
        self._reports.clear()
        self._answers.clear()
        self._added.clear()
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
        if conversation.apart:
            conversation.check_mismatch()
        results = conversation.results()
        if conversation.apart:
            self._part()
        # They are the caller's, who may let go of them before the next program.
        self._answers.clear()
        return results


class _Conversation:
    """What the members have said so far."""

    def __init__(self, awaited: str, job: ProcessJob[Any], within_s: float | None) -> None:
        self._awaited = awaited
        self._within_s = within_s
        self._deadline = None if within_s is None else time.monotonic() + within_s
        self._job = job
        self._members = job.members
        self._replicas = job.replicas
        self._reports = job._reports
        self._lost = job.lost
        self._exchange: dict[int, str] = {}
        # What is raised unless somebody gives a better account in time.
        self._verdict: Callable[[], NoReturn] | None = None
        self._verdict_by = 0.0
        self.replies = job._answers
        # Who has returned, but could not end the program together with the others.
        self.apart: list[Returned] = []

    @property
    def complete(self) -> bool:
        return all(member.rank in self.replies or member.rank in self._lost for member in self._members)

    def results(self) -> list[Any]:
        """The reply of every logical rank: of the first of its replicas that has replied."""
        by_rank = [self._replicas_of(logical) for logical in range(len(self._members) // self._replicas)]
        return [next(self.replies[rank] for rank in replicas if rank in self.replies) for replicas in by_rank]

    def check_mismatch(self) -> None:
        """Raise if the ranks have made different calls, and no program has met that: it came out in the end."""
        if not any(each.was_known for each in self.apart):
            for each in self.apart:
                if each.failure.victim is None:
                    each.failure.throw()

    def _replicas_of(self, rank: int) -> range:
        return replicas_of(rank, len(self._members), self._replicas)

    def expect(self, verdict: Callable[[], NoReturn]) -> None:
        """Somebody has failed: call `verdict`, the first one, unless the culprit comes forward in time."""
        if self._verdict is None:
            self._verdict = verdict
            self._verdict_by = time.monotonic() + CULPRIT_S

    def patience_s(self) -> float | None:
        """How long to wait for the next message; raises the verdict if no culprit has come forward in time."""
        now = time.monotonic()
        if self._verdict is not None:
            # Nobody else can come forward once all have spoken.
            if now >= self._verdict_by or len(self.replies.keys() | self._reports.keys()) == len(self._members):
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
                self._dead(member)
                return None
            kind, value = member.channel.receive()
        except HungUp:
            self._dead(member)
            return None
        if kind == self._awaited:
            self.replies[member.rank] = value
        elif kind == "returned":
            self.replies[member.rank] = value.value
            self.apart.append(value)
        elif kind == "exchange":
            self._exchanged(member, value)
        elif kind == "added":
            self._job._added[member.rank] = value
        elif kind == "can-read":
            member.can_read = value
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

    def _reported(self, member: Member, report: FailureReport) -> None:
        self._reports[member.rank] = report
        if report.victim is None or report.victim.rank in self._lost:
            report.throw()
        self.expect(report.throw)

    def _dead(self, member: Member) -> None:
        member, cause = self._job._ending_of(member)
        others = [rank for rank in self._replicas_of(member.rank) if rank != member.rank]
        if self._awaited == "result" and any(rank not in self._lost for rank in others):
            self._lost[member.rank] = cause
            return
        before = "".join(
            f"; before that its replica, rank {rank}: {self._lost[rank]}" for rank in others if rank in self._lost
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
