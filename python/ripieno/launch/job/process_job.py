"""`ProcessJob`: a job whose ranks are processes elsewhere, each with a channel to this one.

Programs, exchanged addresses, events, results and reports pass there, and the end of either side is noticed there.
"""

from __future__ import annotations

import itertools
import selectors
import threading
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

from ripieno._types import OnFailure
from ripieno.errors import CommunicatorClosed, RankFailed, RendezvousError, SerializationError
from ripieno.flight.trace import Trace
from ripieno.launch.job.conversation import RankConnection, ResultCollector, tell
from ripieno.launch.job.job import EventListener, Job, name_of, unsendable
from ripieno.launch.job.programs import RunRequest, current_directory
from ripieno.launch.job.watch import JobWatch
from ripieno.launch.process.interruption import held_back, interruptible
from ripieno.launch.process.report import other_rank

# After a failure the other ranks have this long to report what they were at, or to return.
WITNESSES_S = 1.0
# Members of a job that has done its work get this long to leave.
GOODBYE_S = 5.0
# With on_failure="respawn" a program whose ranks die begins again so often, before it is taken for their end.
RESPAWNS = 3


M = TypeVar("M", bound=RankConnection)


class JobState(Enum):
    """What a job's ranks are ready for."""

    READY = "its ranks wait for programs"
    BUSY = "its ranks run a program or meet, and have not all replied"
    APART = "its ranks wait, and must meet anew before a program that communicates"
    GONE = "its ranks have ended, and others must be started"


class ProcessJob(Job, Generic[M]):
    """Ranks that live and die together.

    Attributes
    ----------
    members : list of Member
        In order of rank.
    """

    #: Whether members live on when one of them has died.
    _SURVIVES = False

    def __init__(
        self,
        workers: int,
        threads: int,
        *,
        replicas: int,
        on_event: EventListener | None,
        trace: Trace | None,
        on_failure: OnFailure = "raise",
        watch: JobWatch | None = None,
    ) -> None:
        super().__init__(workers, threads, trace, on_event, replicas, watch)
        self.members: list[M] = []
        self._on_failure = on_failure
        # The thread that waits, or has waited last, for a program.
        self._runner = 0
        self._state = JobState.GONE
        # Whether ranks have taken the place of others, which had the values that are kept.
        self._has_others = False
        # Of the program that runs, or ran last.
        self._heard = ResultCollector("result", self.members, replicas, self._ending_of)

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

    def _close_ranks(self, lost: list[M]) -> bool:
        """Do without members that are lost, whose rank others get if there are any; False if all must be started anew.

        All others wait, and meet next.
        """
        return False

    def _conversation(self, awaited: str, within_s: float | None = None) -> ResultCollector:
        # Elsewhere an engine ends all ranks with the first.
        on_failure = self._on_failure if awaited == "result" and self._SURVIVES else "raise"
        return ResultCollector(
            awaited,
            self.members,
            self.replicas,
            self._ending_of,
            on_failure=on_failure,
            within_s=within_s,
            still_s=self._still_s(awaited),
            on_pulse=self._watch.pulse,
        )

    def _still_s(self, awaited: str) -> float | None:
        """How long members may stand still that are to send such a message; None where that cannot be seen."""
        return None

    def _form_first(self) -> None:
        """Form, or be over."""
        try:
            self._form()
        except BaseException as error:
            self._over = f"its ranks did not start: {error}".partition("\n")[0]
            self._end()
            self._finish()
            raise
        self._state = JobState.READY
        self._tell_hosts()

    def _run(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        self._runner = threading.get_ident()
        for attempt in itertools.count():
            with self._recovering():
                self._come_together()
            try:
                return self._ask(program, args, kwargs, goes_on=attempt > 0)
            except RankFailed as failed:
                if not self._begins_again(attempt):
                    raise
                ranks = "rank" if self.workers == 1 else "ranks"
                self._watch.note(f"{name_of(program)} begins again on {self.workers} {ranks}")
                warnings.warn(
                    f"{failed.with_traceback(None)}; {name_of(program)} begins again on {self.workers} {ranks}",
                    RuntimeWarning,
                    stacklevel=3,
                )
        raise AssertionError("one attempt returns or raises")

    def _begins_again(self, attempt: int) -> bool:
        """After a failure: whether ranks were lost, none has failed on its own account, and some are left."""
        if self._on_failure == "raise" or self._was_closed or self._heard.has_culprit:
            return False
        if self.workers == 0:
            self._over = "all of its ranks have died"
            return False
        return attempt < RESPAWNS + (len(self.lost) if self._on_failure == "shrink" else 0)

    def _ask(
        self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, goes_on: bool = True
    ) -> list[Any]:
        """What members that are ready return; they keep checkpoints in memory if the program goes on from them."""
        with self._recovering():
            try:
                hearing = self._watch.hearing(bool(self._listeners), self.workers)
                self._state = JobState.BUSY
                directory = current_directory() if self._SHARES_FILES else None
                self._send((program, args, kwargs, hearing, goes_on, directory))
                unsent = None
            except SerializationError as error:
                self._state = JobState.READY
                unsent = error
            if unsent is None:
                return self._replies("result")
        # Nothing has begun.
        raise unsendable(program, unsent) from unsent

    def _come_together(self) -> None:
        """Be ready: members that live meet anew, others are started in the place of those that have ended."""
        if self._state is JobState.APART:
            # One may have died since.
            self._state = JobState.BUSY
            with suppress(RankFailed, RendezvousError):
                for member in self.members:
                    tell(member, "meet", (member.rank, len(self.members)))
                self._replies("ready", self._meeting_s() + self._starting_s())
                self._state = JobState.READY
                self._tell_hosts()
                self._give_again(self._has_others)
        if self._state is not JobState.READY:
            self._form_again()

    def _give_again(self, are_others: bool) -> None:
        """Send the values that `broadcast` gave to those before, if ranks are others than those."""
        if are_others:
            self._broadcast_generation += 1
            self._has_others = False
            for each in list(self._kept):
                self._ask(*each.sent_again())

    def _tell_hosts(self) -> None:
        """The members have met."""
        self._watch.begins(type(self).__name__, self._place, self.threads, [member.host for member in self.members])

    def _starting_s(self) -> float:
        """How long members may take to begin, before they meet."""
        return 0.0

    def _form_again(self) -> None:
        """End the members and start others, which get the values that `broadcast` gave to those before."""
        self.epoch += 1
        with held_back():
            if self._state is JobState.READY:
                self._say_goodbye()
            self._end()
        self._state = JobState.GONE
        if self._on_failure == "raise":
            self.lost.clear()
        try:
            self._form()
        except BaseException:
            self._end()
            raise
        self._state = JobState.READY
        self._tell_hosts()
        self._give_again(True)

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """An error within tells what the ranks were at and have returned, and leaves a job that can go on."""
        try:
            yield
        except BaseException as error:
            if self._state is not JobState.GONE and any(member.channel.closed for member in self._living()):
                # Another thread has ended the members while this one waited.
                self._state = JobState.GONE
                raise CommunicatorClosed("the job was closed: its process ends") from None
            if self._state is not JobState.GONE:
                # Whatever happens here, no reply of this program may be taken for one of the next.
                try:
                    if isinstance(error, Exception) and not self._was_closed:
                        self._hear_witnesses()
                        self._add_what_is_known(error)
                finally:
                    self._part()
            raise

    def _part(self) -> None:
        """Ranks have failed: those that live can meet again if all do, and wait; otherwise they are ended."""
        self.epoch += 1
        lost = [member for member in self.members if member.loss is not None]
        all_wait = all(member.rank in self._heard.spoken for member in self._living())
        if self._on_failure == "shrink":
            self.workers -= len(lost)
        if self._was_closed or not self._is_whole() or not all_wait or (lost and not self._close_ranks(lost)):
            self._state = JobState.GONE
            self._end()
        else:
            self._has_others |= bool(lost)
            self._state = JobState.APART
        self._heard.replies.clear()

    def _note_lost(self) -> None:
        """Tell of those that are lost; those that the job goes on without will not come back."""
        for member in self.members:
            if member.loss is not None:
                self._watch.lost(member.rank, member.loss)
        if self.replicas > 1 or self._on_failure != "raise":
            for member in self.members:
                if member.loss is not None:
                    self.lost[member.number] = member.loss
                    self._dismiss(member)

    def _dismiss(self, member: M) -> None:
        """End a member whatever it is at, also one that stands still. May be called again."""
        member.channel.hang_up()

    def _is_whole(self) -> bool:
        """Whether nobody but the members has told of the end of one."""
        return True

    def _add_what_is_known(self, error: Exception) -> None:
        failed = other_rank(error)
        if failed is not None:
            failed.results = dict(sorted(self._heard.replies.items()))
        for line in self._flight_lines():
            if line not in getattr(error, "__notes__", ()):
                error.add_note(line)

    def _resize(self, workers: int) -> None:
        before, self.workers = self.workers, workers
        try:
            with self._recovering():
                self._form_again()
        except BaseException:
            self.workers = before
            raise

    def _forget(self, names: list[str]) -> None:
        if self._state is not JobState.GONE:
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
            if self._state in (JobState.READY, JobState.APART):
                self._say_goodbye()
            self._state = JobState.GONE
            self._end()

    def _living(self) -> list[Any]:
        return [member for member in self.members if member.loss is None]

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
                if member.rank not in self._heard.spoken and not self._heard.is_silent(member):
                    selector.register(member.channel, selectors.EVENT_READ, member)
            while selector.get_map() and (left_s := deadline - time.monotonic()) > 0:
                for key, _ in ready(left_s):
                    if self._heard.hear_witness(key.data):
                        selector.unregister(key.fileobj)

    def _flight_lines(self) -> list[str]:
        """What the ranks that have reported did last."""
        return [line for _, report in sorted(self._heard.reports.items()) for line in report.flight]

    def _replies(self, kind: str, within_s: float | None = None) -> list[Any]:
        """One message of `kind` from every member; serves exchanges and events until then, and raises on failure."""
        self._heard = conversation = self._conversation(kind, within_s)
        self._added = conversation.added
        try:
            self._listen(conversation)
            if conversation.apart:
                conversation.check_mismatch()
            results = conversation.results()
        finally:
            self._note_lost()
        if conversation.apart or (self.replicas == 1 and len(self._living()) < len(self.members)):
            self._part()
        elif self._state is JobState.BUSY:
            self._state = JobState.READY
        # They are the caller's, who may let go of them before the next program.
        conversation.replies.clear()
        return results

    def _listen(self, conversation: ResultCollector) -> None:
        """Until it is complete."""
        with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
            for member in self._living():
                for source in member.sources:
                    try:
                        selector.register(source, selectors.EVENT_READ, member)
                    except ValueError:
                        # Another thread has closed it: this process ends.
                        raise CommunicatorClosed("the job was closed") from None
            alarm = self._alarm()
            if alarm is not None:
                selector.register(alarm, selectors.EVENT_READ, None)
            while not conversation.complete:
                for key, _ in ready(conversation.patience_s()):
                    if key.data is None:
                        selector.unregister(key.fileobj)
                        conversation.expect(partial(_throw, self._alarmed()))
                        continue
                    if key.data.loss is not None:
                        continue
                    event = conversation.hear(key.data)
                    if event is not None:
                        self._tell_all(event)
                        if self._was_closed:
                            raise CommunicatorClosed("who listens to the job has closed it")
                    if key.data.loss is not None:
                        for source in key.data.sources:
                            selector.unregister(source)


def _throw(error: BaseException) -> NoReturn:
    raise error
