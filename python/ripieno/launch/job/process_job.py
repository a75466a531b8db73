"""Provide `ProcessJob`: a job with ranks in other processes, each with a channel to this process.

The channels carry programs, exchanged addresses, events, results and reports. Their end signals the end of a process.
"""

from __future__ import annotations

import itertools
import selectors
import sys
import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, Generic, TypeVar

from ripieno import log
from ripieno.errors import CallTimeout, CommunicatorClosed, RankFailed, RendezvousError, SerializationError
from ripieno.launch import limits
from ripieno.launch.job.job import Job
from ripieno.launch.job.programs import ProgramCall, RunRequest, current_directory
from ripieno.launch.job.result_collector import RankConnection, ResultCollector, try_send
from ripieno.launch.process.interruption import deferred_signals, interruptible
from ripieno.launch.process.report import other_rank
from ripieno.launch.process.waits import WaitingRanks
from ripieno.launch.supervisor import Policy, RankState, RankStatus

# With on_failure="respawn" a program restarts at most this often after losses.
RESPAWN_COUNT_MAX = 3


M = TypeVar("M", bound=RankConnection)


class JobState(Enum):
    """State of a job's ranks."""

    READY = "its ranks wait for programs"
    BUSY = "its ranks run a program or join each other, and have not all replied"
    DISCONNECTED = "its ranks wait, and must connect again before a program that communicates"
    ENDED = "its ranks have ended, and others must be started"


class ProcessJob(Job, Generic[M]):
    """A job that starts and ends all its ranks together.

    Attributes
    ----------
    members : list of Member
        In order of rank.
    """

    #: Whether the other members survive the death of a member.
    _SURVIVES = False
    #: How long members may take to start, before they join.
    _START_S = 0.0

    def __init__(self, workers: int, **options: Any) -> None:
        super().__init__(workers, **options)
        # How long live members may take to join.
        self._rendezvous_s: float = options.get("rendezvous_timeout_s", limits.RENDEZVOUS_TIMEOUT_S)
        self._heartbeat_s: float = options.get("heartbeat_timeout_s", limits.HEARTBEAT_S)
        self.members: list[M] = []
        # Hosts of the lost ranks, by their initial numbers.
        self._lost_hosts: dict[int, str] = {}
        # The thread that waits, or last waited, for a program.
        self._runner_thread = 0
        self._state = JobState.ENDED
        # Whether new ranks have replaced ranks that held kept values.
        self._has_replacements = False
        # Collector of the current or last program.
        self._collector = ResultCollector("result", [], Policy(self.replicas))
        self._waiting_ranks = WaitingRanks()

    @abstractmethod
    def _start_members(self) -> None:
        """Start the members and let them join."""

    @abstractmethod
    def _send(self, request: RunRequest) -> None:
        """Send a program to all live members; raise `SerializationError` only if no member has received any part."""

    @abstractmethod
    def _request_exit(self) -> None:
        """Request the waiting members to exit."""

    @abstractmethod
    def _end(self) -> None:
        """End all members in any state and release all resources. Repeated calls have no effect."""

    def _replace_lost(self, lost: list[M]) -> bool:
        """Replace lost members or renumber the others, as configured; return False if all must be restarted.

        All other members wait, and join again next.
        """
        return False

    def _begin(self, awaited: str, rendezvous_limit_s: float | None = None) -> None:
        """Begin to collect one message of the kind `awaited` from every member."""
        # An engine ends all its ranks when the first one ends.
        on_failure = self._on_failure if awaited == "result" and self._SURVIVES else "raise"
        policy = Policy(
            self.replicas, on_failure, stop_limit_s=self._stop_limit_s(awaited), rendezvous_limit_s=rendezvous_limit_s
        )
        self._state = JobState.BUSY
        self._waiting_ranks.forget()
        self._collector = ResultCollector(
            awaited, self.members, policy, on_telemetry=self._watch.telemetry, waiting_ranks=self._waiting_ranks
        )

    def _stop_limit_s(self, awaited: str) -> float | None:
        """Return the time limit for stopped members to send `awaited`; None if the launcher cannot detect stops."""
        return None

    def _start_or_close(self) -> None:
        """Start the members; close the job if that fails."""
        try:
            self._start_members()
        except BaseException as error:
            self._end_reason = f"its ranks did not start: {error}".partition("\n")[0]
            self._end()
            self._finish()
            raise

    def _run(self, call: ProgramCall) -> list[Any]:
        self._runner_thread = threading.get_ident()
        for attempt in itertools.count():
            with self._recovering():
                self._make_ready()
            try:
                return self._run_once(call, keeps_checkpoints=attempt > 0)
            except RankFailed as failed:
                if not self._may_restart(attempt):
                    raise
                restarts = f"{call.name} restarts on {self.workers} {'rank' if self.workers == 1 else 'ranks'}"
                self._watch.note(restarts)
                log.warn(f"{failed.with_traceback(None)}; {restarts}", RuntimeWarning)
        raise AssertionError("one attempt returns or raises")

    def _may_restart(self, attempt: int) -> bool:
        """Return, after a failure, whether the program may restart: only losses have occurred, and ranks are left."""
        if self._on_failure == "raise" or self._was_closed or self._collector.has_culprit:
            return False
        if self.workers == 0:
            self._end_reason = "all of its ranks have died"
            return False
        return attempt < RESPAWN_COUNT_MAX + (len(self.lost) if self._on_failure == "shrink" else 0)

    def _run_once(self, call: ProgramCall, *, keeps_checkpoints: bool = True) -> list[Any]:
        """Return the results of ready members; `keeps_checkpoints` keeps the checkpoints of earlier programs."""
        with self._recovering():
            try:
                event_options = self._watch.event_options(bool(self._listeners), self.workers)
                self._begin("result")
                directory = current_directory() if self._SHARES_FILES else None
                self._send(RunRequest(call, event_options, keeps_checkpoints, directory))
                unsent = None
            except SerializationError as error:
                self._state = JobState.READY
                unsent = error
            if unsent is None:
                return self._collect()
        # No member has started the program.
        raise call.unsendable(unsent) from unsent

    def _make_ready(self) -> None:
        """Make the job ready: live members join again, and new members replace ended ones."""
        if self._state is JobState.DISCONNECTED:
            # A member may have died since.
            with suppress(RankFailed, RendezvousError):
                self._join()
                self._resend_broadcasts(self._has_replacements)
        if self._state is not JobState.READY:
            self._restart_members()

    def _resend_broadcasts(self, were_replaced: bool) -> None:
        """Send broadcast values again if any rank was replaced."""
        if were_replaced:
            self._broadcast_generation += 1
            self._has_replacements = False
            for each in list(self._live_broadcasts):
                self._run_once(each.store_call())

    def _join(self) -> None:
        """Let the members join each other."""
        for member in self.members:
            try_send(member, "reconnect", (member.rank, len(self.members)))
        self._await_joined()

    def _await_joined(self) -> None:
        """Wait until the members have joined each other, and report it."""
        self._replies("ready", self._rendezvous_s + self._START_S)
        self._watch.begins(type(self).__name__, self._place, self.threads, [member.host for member in self.members])

    def _restart_members(self) -> None:
        """End the members and start new ones, which receive the values that `broadcast` has sent before."""
        self.epoch += 1
        with deferred_signals():
            if self._state is JobState.READY:
                self._request_exit()
            self._end()
        self._state = JobState.ENDED
        if self._on_failure == "raise":
            self.lost.clear()
        self._waiting_ranks = WaitingRanks()
        try:
            self._start_members()
        except BaseException:
            self._state = JobState.ENDED
            self._end()
            raise
        self._resend_broadcasts(True)

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """On an error, collect the states of the ranks, and leave a job that can run the next program."""
        try:
            yield
        except BaseException as error:
            if self._state is not JobState.ENDED and any(member.channel.closed for member in self._living()):
                # Another thread has closed the members' channels during the wait.
                self._state = JobState.ENDED
                raise CommunicatorClosed("the job was closed: its process ends") from None
            if self._state is not JobState.ENDED:
                # The next program must not receive replies of this one.
                try:
                    # Ranks that wait without end report nothing.
                    if isinstance(error, Exception) and not isinstance(error, CallTimeout) and not self._was_closed:
                        if self._collector.verdict is None:
                            self._collector.supervisor.abandon()
                            self._listen(passes_events=False)
                        self._add_details(error)
                finally:
                    self._disconnect_members()
            raise

    def _disconnect_members(self) -> None:
        """Handle failed ranks: live members can join again if all of them wait; otherwise they are ended."""
        self.epoch += 1
        lost = [member for member in self.members if member.loss is not None]
        all_wait = all(member.rank in self._collector.supervisor.waiting for member in self._living())
        if self._on_failure == "shrink":
            self.workers -= len(lost)
        if self._was_closed or not self._is_intact() or not all_wait or (lost and not self._replace_lost(lost)):
            self._state = JobState.ENDED
            self._end()
        else:
            self._has_replacements |= bool(lost)
            self._state = JobState.DISCONNECTED
        self._collector.replies.clear()

    def _rank_states(self) -> list[RankStatus]:
        # Another thread may replace members meanwhile.
        members = list(self.members)
        current = [
            RankStatus(each.rank, each.host, self._state_of(each), each.loss or each.failure or "") for each in members
        ]
        present = {each.number for each in members if each.loss is None}
        listed = {each.number for each in members} - present
        past = [
            RankStatus(number, host, RankState.REPLACED if number in present else RankState.LOST, self.lost[number])
            for number, host in sorted(self._lost_hosts.items())
            if number in self.lost and number not in listed
        ]
        return current + past

    def _state_of(self, member: M) -> RankState:
        if self._state is JobState.ENDED or member.loss is not None:
            return RankState.LOST
        supervisor = self._collector.supervisor
        if supervisor.verdict is None and member.rank < supervisor.world_size:
            return supervisor.state(member.rank)
        return RankState.READY if member.failure is None else RankState.FAILED

    def _note_lost(self) -> None:
        """Report lost members. If the job continues without them, they cannot return."""
        for member in self.members:
            if member.loss is not None:
                self._watch.lost(member.rank, member.loss)
        if self.replicas > 1 or self._on_failure != "raise":
            for member in self.members:
                if member.loss is not None:
                    self.lost[member.number] = member.loss
                    self._lost_hosts[member.number] = member.host
                    self._dismiss(member)

    def _dismiss(self, member: M) -> None:
        """End a member in any state, also a stopped one. Repeated calls have no effect."""
        member.channel.shut_down()

    def _is_intact(self) -> bool:
        """Return whether no source other than the members has reported the end of a member."""
        return True

    def _add_details(self, error: Exception) -> None:
        failed = other_rank(error)
        if failed is not None:
            failed.results = dict(sorted(self._collector.replies.items()))
        for line in self._flight_lines():
            if line not in getattr(error, "__notes__", ()):
                error.add_note(line)

    def _resize(self, workers: int) -> None:
        before, self.workers = self.workers, workers
        try:
            with self._recovering():
                self._restart_members()
        except BaseException:
            self.workers = before
            raise

    def _forget(self, names: list[str]) -> None:
        if self._state is not JobState.ENDED:
            for member in self._living():
                try_send(member, "forget", names)

    def _abort_program(self) -> bool:
        if self._runner_thread == threading.get_ident():
            return False
        for member in self.members:
            member.channel.shut_down()
        return True

    def _close(self) -> None:
        with deferred_signals():
            if self._state in (JobState.READY, JobState.DISCONNECTED):
                self._request_exit()
            self._state = JobState.ENDED
            self._end()

    def _living(self) -> list[Any]:
        return [member for member in self.members if member.loss is None]

    def _alarm(self) -> Any:
        """Return another object to poll, or None; when it is ready, `_handle_alarm` is called."""
        return None

    def _handle_alarm(self) -> None:
        """Report the event of the alarm to the supervisor."""
        raise AssertionError("a job with an alarm handles it")

    def _flight_lines(self) -> list[str]:
        """Return the last flight records of the ranks that have reported."""
        return [line for _, report in sorted(self._collector.reports.items()) for line in report.flight]

    def _replies(self, kind: str, rendezvous_limit_s: float | None = None) -> list[Any]:
        """Return one message of `kind` from every member; serve exchanges and events meanwhile; raise on failure."""
        self._begin(kind, rendezvous_limit_s)
        return self._collect()

    def _collect(self) -> list[Any]:
        """Collect the replies of the members and return them."""
        collector = self._collector
        self._added = collector.added
        try:
            self._listen()
            results = collector.results()
        finally:
            self._note_lost()
        if collector.end_failures or (self.replicas == 1 and len(self._living()) < len(self.members)):
            self._disconnect_members()
        elif self._state is JobState.BUSY:
            self._state = JobState.READY
        # The replies belong to the caller, which may free them before the next program.
        collector.replies.clear()
        return results

    def _explain(self, interrupt: KeyboardInterrupt, selector: selectors.BaseSelector) -> None:
        """Add to an interrupt the wait of each waiting rank, and the position of the others in the program."""

        def receive(key: selectors.SelectorKey) -> None:
            if key.data is None or self._collector.receive(key.data, key.fileobj)[0]:
                selector.unregister(key.fileobj)

        for line in self._waiting_ranks.explain(selector, receive, always=True):
            interrupt.add_note(line)

    def _listen(self, *, passes_events: bool = True) -> None:
        """Receive messages until the supervisor has decided."""
        collector = self._collector
        with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
            for member in self._living():
                for source in member.sources:
                    try:
                        selector.register(source, selectors.EVENT_READ, member)
                    except ValueError:
                        # Another thread has closed the channel because this process exits.
                        raise CommunicatorClosed("the job was closed") from None
            alarm = self._alarm()
            if alarm is not None:
                selector.register(alarm, selectors.EVENT_READ, None)
            collector.tick()
            try:
                while collector.verdict is None:
                    for line in self._waiting_ranks.answers():
                        print(f"ripieno: {line}", file=sys.stderr, flush=True)
                    for key, _ in ready(collector.wait_s()):
                        if key.data is None:
                            selector.unregister(key.fileobj)
                            self._handle_alarm()
                            continue
                        has_ended, events = collector.receive(key.data, key.fileobj)
                        if has_ended:
                            selector.unregister(key.fileobj)
                        for event in events if passes_events else ():
                            self._notify_listeners(event)
                            if self._was_closed:
                                raise CommunicatorClosed("a listener has closed the job")
                    if self._was_closed:
                        raise CommunicatorClosed("the job was closed")
                    collector.tick()
                    self._watch.states(collector.supervisor)
                    for key in [
                        each for each in selector.get_map().values() if each.data and each.data.loss is not None
                    ]:
                        selector.unregister(key.fileobj)
            except KeyboardInterrupt as interrupt:
                self._explain(interrupt, selector)
                raise
