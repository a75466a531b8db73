"""Provide the supervisor, which decides which rank failed first, why, and when to stop waiting for the other ranks.

It is a state machine without I/O: a driver passes its observations and the time, and calls `tick`. Jobs on this
machine, jobs in an engine and scripts under ``ripieno run`` differ only in how their drivers start processes, send
signals and receive messages. `ripieno.launch.limits` has all time limits.

The first evidence of a failure opens a window in which the other ranks may still report. The window closes when all of
them have reported, or at a time limit. The supervisor then judges the evidence once. A rank's own report, or an
observation of the launcher, outweighs the accusations of other ranks, because a victim cannot distinguish a dead peer
from a lost connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from ripieno.launch import limits
from ripieno.launch.replicas import replicas_of

# Cause of the end of a process, if its exit status is unknown.
DISCONNECTED = "its process closed the connection to its launcher"
# The same, if it is true of all ranks and no rank has reported a cause.
ALL_DISCONNECTED = (
    "its process closed the connection to its launcher, and so did all other ranks at about the same time: the engine "
    "has ended them, or the launcher's host was disconnected from the network"
)


class RankState(Enum):
    """State of a rank, as its launcher knows it.

    Attributes
    ----------
    STARTING
        Its process has been started and does not yet wait for the others. It imports packages, or runs a script.
    CONNECTING
        It waits for the others to join. The launcher ends the wait after ``rendezvous_timeout_s``.
    RUNNING
        It runs a program. It has joined the others, and sends heartbeats to them.
    READY
        It waits for a program. It has joined the others, or has returned from the last program.
    STOPPED
        Its process is stopped by a signal or a debugger. It is lost unless it is resumed in time.
    SILENT
        Other ranks miss its heartbeats: it is stopped, overloaded or disconnected. It is lost unless it objects.
    LEAVING
        It has closed its connection to the launcher, or exits. The launcher waits for its exit status.
    FAILED
        Its program has raised an exception. Its process lives, and can join the others again.
    LOST
        Its process has ended or is given up. A replica or the other ranks continue, if this was requested.
    REPLACED
        It was lost, and another process has its number. This one has joined the others in its place.
    FINISHED
        Its script has ended successfully. Its process may still join threads and free memory.
    """

    STARTING = "starting"
    CONNECTING = "connecting"
    RUNNING = "running"
    READY = "ready"
    STOPPED = "stopped"
    SILENT = "silent"
    LEAVING = "leaving"
    FAILED = "failed"
    LOST = "lost"
    REPLACED = "replaced"
    FINISHED = "finished"
    # The former name of CONNECTING.
    MEETING = "connecting"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class RankStatus:
    """A rank of a job, and its state.

    Attributes
    ----------
    rank, host
        Number and host of the rank. A lost rank has its initial number.
    state
        State of the rank.
    cause
        Why the rank was lost or has failed, in one line; otherwise empty.
    """

    rank: int
    host: str
    state: RankState
    cause: str = ""

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}: {self.state}" + (f" ({self.cause})" if self.cause else "")


#: States of a rank that has not sent its last message.
_OPEN = (RankState.STARTING, RankState.CONNECTING, RankState.RUNNING, RankState.LEAVING)
#: States of a rank that cannot replace another one.
_GONE = (RankState.FAILED, RankState.LOST)


@dataclass(frozen=True)
class Policy:
    """The conditions under which a job or script ends.

    Attributes
    ----------
    replicas
        Number of replicas of each logical rank.
    on_failure
        With "shrink" or "respawn" the ranks that are left continue after a loss.
    is_script
        Whether ranks are processes of a script: they end by their exit, and continue by themselves after a loss.
    is_independent
        Whether failures end no other ranks. The script ends with rank 0.
    stop_limit_s
        How long a process may be stopped; None if the driver cannot detect it.
    rendezvous_limit_s
        Limit for all ranks to become ready.
    """

    replicas: int = 1
    on_failure: str = "raise"
    is_script: bool = False
    is_independent: bool = False
    stop_limit_s: float | None = None
    rendezvous_limit_s: float | None = None

    @property
    def continues_after_loss(self) -> bool:
        """Whether the ranks that are left continue after a loss."""
        return self.on_failure != "raise"


class Ending(Enum):
    """Kinds of verdicts."""

    DONE = "all ranks that are needed have finished"
    FAILED = "a rank failed by itself, or others have accused it"
    ENGINE = "the engine has ended the ranks"
    ABSENT = "ranks have not joined the others in time"
    ABANDONED = "the driver has given up"


@dataclass(frozen=True)
class Verdict:
    """The end of a job's program or of a script.

    Attributes
    ----------
    ending
        Kind of the verdict.
    culprit, cause
        The rank that failed first, if one is known, and why.
    witness
        The rank that reported the failure: the culprit or a victim. None if the launcher observed the failure.
    """

    ending: Ending
    culprit: int | None = None
    cause: str = ""
    witness: int | None = None


class Event(Enum):
    """Events that a driver may print."""

    LOST = "the others continue without the rank"
    KILLED = "the rank is to be killed; its success counts"
    SUSPENDED = "all ranks that have not ended are stopped"
    LEFT = "the rank is stopped, and the others have ended without it"


@dataclass
class _Rank:
    state: RankState
    has_met: bool
    cause: str = ""
    # The rank that its report names as the culprit.
    culprit: int | None = None
    without: frozenset[int] = frozenset()
    # Whether the driver has the exit status, or expects none.
    has_ended: bool = False
    has_succeeded: bool = False
    left_at: float | None = None
    exit_limit_s: float = 0.0
    stopped_at: float | None = None
    # Time of the last inspection that found it stopped.
    seen_stopped_at: float = 0.0


class _Weight(Enum):
    CERTAIN = 0
    BY_ENGINE = 1
    BY_OTHERS = 2


@dataclass(frozen=True)
class _Evidence:
    """Evidence of a failure of `rank`: `opens` is whether it opens the window, `by` the reporting rank.

    A rank that fails while it connects to the others (`was_connecting`) may be a victim of another rank that has ended.
    """

    weight: _Weight
    rank: int | None
    cause: str
    at: float
    by: int | None = None
    opens: bool = True
    is_silence: bool = False
    was_connecting: bool = False


@dataclass(frozen=True)
class _IncompleteReturn:
    """A return without the final collective: the rank, whether another rank caused it, whether the program knew."""

    rank: int
    is_victim: bool
    was_known: bool


@dataclass
class _Clock:
    """The earliest time of the next call of `Supervisor.tick`."""

    now: float
    wake_at: float | None = None

    def is_past(self, at: float) -> bool:
        """Return whether `at` has passed; otherwise wake up then."""
        if self.now >= at:
            return True
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)
        return False


@dataclass
class Supervisor:
    """Decides about the ranks of one program, rendezvous or script.

    Inputs: `connects`, `runs`, `returns`, `returns_incomplete`, `fails`, `sends_unreadable`, `leaves`, `ends`,
    `engine_reports`, `inspect`, `set_stopped`, `abandon`.
    Time: `tick`, after all inputs of a moment; it is called again after `wait_s`.
    Outputs: `verdict`, `lost`, `events`, `state`.

    Parameters
    ----------
    world_size, policy
        The number of ranks, and the conditions under which they end.
    now
        The current time in seconds.
    state
        Initial state of all ranks: STARTING, or RUNNING if they have joined before.

    Attributes
    ----------
    verdict : Verdict or None
        The result, once it is known. It does not change.
    lost : dict of int to str
        The cause for each rank that has failed or that the others continue without.
    events : list of (Event, int or None)
        Events that the driver removes.
    """

    world_size: int
    policy: Policy
    now: float
    begin: RankState = RankState.STARTING
    verdict: Verdict | None = field(default=None, init=False)
    lost: dict[int, str] = field(default_factory=dict, init=False)
    events: list[tuple[Event, int | None]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._ranks = [_Rank(self.begin, self.begin is RankState.RUNNING) for _ in range(self.world_size)]
        self._evidence: list[_Evidence] = []
        self._incomplete_returns: list[_IncompleteReturn] = []
        self._clock = _Clock(self.now)
        self._inspect_at = self.now + limits.POLL_S
        self._deadline = None if self.policy.rendezvous_limit_s is None else self.now + self.policy.rendezvous_limit_s
        # The first loss that the remaining ranks have to survive.
        self._first_loss: int | None = None
        # Ranks that have failed because of another rank, while the others continue. The driver does not report them.
        self._victims: set[int] = set()
        # Time since which only accused ranks are missing.
        self._alone_since: float | None = None
        # With independent ranks: time at which rank 0 exited.
        self._rank_0_exited_at: float | None = None
        # Time since which all ranks that have not ended are stopped, and the last one that was reported.
        self._suspended_at: float | None = None
        self._reported_at: float | None = None
        self._engine_cause: str | None = None
        self._engine_named: int | None = None

    # Inputs

    def connects(self, rank: int) -> None:
        """Record that a rank waits for the others."""
        if self._ranks[rank].state is RankState.STARTING:
            self._ranks[rank].state = RankState.CONNECTING

    def runs(self, rank: int) -> None:
        """Record that a rank has joined the others."""
        if self._ranks[rank].state in (RankState.STARTING, RankState.CONNECTING):
            self._ranks[rank].state = RankState.RUNNING
        self._ranks[rank].has_met = True

    def returns(self, rank: int, without: Iterable[int] = ()) -> None:
        """Record that a rank has returned, and the ranks that it has lost meanwhile."""
        each = self._ranks[rank]
        if each.state is RankState.LOST:
            return
        each.state = RankState.FINISHED if self.policy.is_script else RankState.READY
        each.without = frozenset(without)
        for lost in each.without:
            self._accuse(rank, lost, f"rank {rank} continued without it", opens=False)
        # A rank that has returned lives. A rank that has returned, too, may have accused it in error.
        self._evidence = [e for e in self._evidence if not (e.rank == rank and self._is_doubtful(e))]

    def returns_incomplete(
        self, rank: int, cause: str, culprit: int | None, *, was_silent: bool, was_known: bool
    ) -> None:
        """Record, after `returns`, the reason why a rank missed the collective that ends a program."""
        self._incomplete_returns.append(_IncompleteReturn(rank, culprit is not None, was_known))
        if culprit is not None and not self._has_returned(culprit):
            opens = not (self.policy.continues_after_loss or self._has_replica(culprit))
            self._accuse(rank, culprit, cause, opens=opens, is_silence=was_silent)

    def fails(self, rank: int, cause: str, culprit: int | None = None, *, was_silent: bool = False) -> None:
        """Record the report of a failed rank: its own failure, or a consequence of the failure of `culprit`."""
        each = self._ranks[rank]
        if each.state is RankState.LOST:
            # The others may have continued without it.
            return
        can_continue, was_connecting = self._can_continue_without(rank), each.state is RankState.CONNECTING
        each.state, each.cause, each.culprit = RankState.FAILED, cause, culprit
        if culprit is None:
            self._add(_Weight.CERTAIN, rank, cause, by=rank, was_connecting=was_connecting)
            return
        is_spared = self._has_replica(rank) and self._has_replica(culprit)
        self._accuse(
            rank, culprit, cause, opens=not (self.policy.continues_after_loss or is_spared), is_silence=was_silent
        )
        if can_continue and (self.policy.is_script or (culprit == rank and self._has_replica(rank))):
            # The process of a script ends with the report. Otherwise, the others have continued without the rank.
            self._lose(rank, cause)

    def sends_unreadable(self, rank: int, cause: str) -> None:
        """Record that a message of a rank is unreadable. Its program still runs."""
        self._add(_Weight.CERTAIN, rank, cause, by=rank)

    def leaves(self, rank: int, *, is_announced: bool = False) -> None:
        """Record that a rank has closed its connection, or has announced its exit."""
        each = self._ranks[rank]
        if each.left_at is None:
            each.left_at = self._clock.now
            is_expected = is_announced or each.state is RankState.FAILED
            each.exit_limit_s = limits.EXIT_S if is_expected else limits.OWN_REPORT_S
        if each.state is RankState.FINISHED:
            each.exit_limit_s = limits.END_S
        if each.state in (*_OPEN, RankState.READY):
            each.state = RankState.LEAVING
            if self._engine_named == rank:
                self._lose(rank, f"its process ended; {self._engine_cause}")

    def ends(self, rank: int, cause: str | None, *, was_killed: bool = False) -> None:
        """Record the end of a process, its cause after a failure, and whether a signal ended it."""
        each = self._ranks[rank]
        if each.has_ended:
            # The rank was already treated as lost.
            return
        each.has_ended, each.has_succeeded = True, cause is None
        if rank == 0 and self.policy.is_independent and not was_killed:
            self._rank_0_exited_at = self._clock.now
        if cause is None:
            each.state = RankState.LOST if each.state is RankState.LOST else RankState.FINISHED
        elif not (self.policy.is_script and each.state is RankState.FAILED):
            self._lose(rank, cause)

    def engine_reports(self, rank: int | None, cause: str) -> None:
        """Record that an engine has reported the end of a rank, or of all ranks."""
        self._engine_cause, self._engine_named = cause, rank
        leaving = [each for each, found in enumerate(self._ranks) if found.state is RankState.LEAVING]
        if rank in leaving or (rank is None and leaving):
            for each in sorted(leaving, key=lambda other: other != rank):
                self._lose(each, f"its process ended; {cause}" if each == rank or rank is None else DISCONNECTED)
        elif rank is None or self._ranks[rank].culprit is None:
            self._add(_Weight.BY_ENGINE, rank, cause)

    def inspect(self, now: float, is_stopped: Callable[[int], bool]) -> None:
        """Record the stopped processes, at most once per `POLL_S`: no event reports them."""
        if self.policy.stop_limit_s is not None and now >= self._inspect_at:
            self._inspect_at = now + limits.POLL_S
            for rank in self.awaited:
                self.set_stopped(rank, is_stopped(rank))

    def set_stopped(self, rank: int, is_stopped: bool) -> None:
        """Record whether the process of a rank is stopped."""
        each = self._ranks[rank]
        if not is_stopped:
            each.stopped_at = None
            return
        each.seen_stopped_at = self._clock.now
        if each.stopped_at is None:
            each.stopped_at = self._clock.now

    def abandon(self) -> None:
        """Record that the driver gives up. The ranks may still report."""
        self._add(_Weight.CERTAIN, None, "")

    # Outputs

    def state(self, rank: int) -> RankState:
        """Return the state of a rank."""
        each = self._ranks[rank]
        if each.state in _OPEN and each.stopped_at is not None:
            return RankState.STOPPED
        if each.state in _OPEN and any(e.rank == rank and e.is_silence for e in self._evidence):
            return RankState.SILENT
        return each.state

    @property
    def awaited(self) -> list[int]:
        """Return the ranks that have not sent their last message or, in a script, have not ended."""
        if self.policy.is_script:
            return [rank for rank, each in enumerate(self._ranks) if not each.has_ended]
        return [rank for rank, each in enumerate(self._ranks) if each.state in _OPEN]

    @property
    def waiting(self) -> set[int]:
        """Return the ranks that have sent their last message, and live."""
        return {rank for rank, each in enumerate(self._ranks) if each.state in (RankState.READY, RankState.FAILED)}

    def replica_of(self, rank: int) -> int | None:
        """Return a live replica that has not failed, if the ranks have joined, and None without one."""
        if self._at(rank) is None or not self._ranks[rank].has_met:
            return None
        replicas = replicas_of(rank, self.world_size, self.policy.replicas)
        live = (other for other in replicas if other != rank and self._ranks[other].state not in _GONE)
        return next(live, None)

    def set_time(self, now: float) -> None:
        """Set the time of the inputs that follow."""
        self._clock.now = max(now, self._clock.now)

    def wait_s(self, now: float) -> float | None:
        """Return the driver's time limit for inputs before the next `tick`; None without a limit."""
        return None if self._clock.wake_at is None else max(0.0, self._clock.wake_at - now)

    # Time

    def tick(self, now: float) -> None:
        """Update the verdict from the inputs so far."""
        self.set_time(now)
        self._clock.wake_at = None
        if self.verdict is not None:
            return
        if self.policy.stop_limit_s is not None:
            self._clock.is_past(self._inspect_at)
        self._lose_leaving()
        self._lose_stopped()
        self._report_accused()
        if any(each.opens for each in self._evidence):
            if self._window_is_closed():
                self.verdict = self._judge()
            return
        self._lose_accused()
        if any(each.opens for each in self._evidence):
            self._clock.wake_at = now
        elif not self.awaited or self._may_end_early():
            self.verdict = self._conclude()
        elif self._deadline is not None and self._clock.is_past(self._deadline):
            self.verdict = Verdict(Ending.ABSENT)

    def _lose_leaving(self) -> None:
        """Mark ranks as lost if they have closed their connections and no cause arrives in time."""
        for rank, each in enumerate(self._ranks):
            if each.left_at is None or each.has_ended or not self._is_awaited(each):
                continue
            if not self._clock.is_past(each.left_at + each.exit_limit_s):
                continue
            each.has_ended = True
            if each.state is RankState.FINISHED:
                each.has_succeeded = True
                self.events.append((Event.KILLED, rank))
            elif each.state is not RankState.FAILED:
                self._lose(rank, ALL_DISCONNECTED if self._all_leave() else DISCONNECTED)

    def _all_leave(self) -> bool:
        """Return whether all ranks have left without a known cause, so that none of them is the culprit."""
        is_explained = self._engine_cause is not None or self.world_size == 1
        return not is_explained and all(each.state is RankState.LEAVING for each in self._ranks)

    def _is_awaited(self, each: _Rank) -> bool:
        return not each.has_ended if self.policy.is_script else each.state in _OPEN

    def _lose_stopped(self) -> None:
        """Mark ranks as lost if their processes are stopped for too long."""
        limit_s = self.policy.stop_limit_s
        if limit_s is None:
            return
        # A user may suspend a script as a whole. Then no rank waits for another one.
        counts = not self.policy.is_script or any(
            each.state is RankState.CONNECTING and each.stopped_at is None for each in self._ranks
        )
        for rank, each in enumerate(self._ranks):
            if each.stopped_at is None or each.state not in _OPEN or (self.policy.is_script and each.has_met):
                continue
            if not counts:
                each.stopped_at = self._clock.now
            elif each.seen_stopped_at >= each.stopped_at + limit_s:
                others = ", and others wait until it joins" if self.policy.is_script else ""
                self._lose(rank, f"its process has been stopped for {limit_s:g} s{others}")

    def _report_accused(self) -> None:
        """Report ranks that accuse another one and are accused themselves: they were disconnected."""
        self._report_victims(self._victims & self._accused().keys())

    def _report_victims(self, ranks: set[int]) -> None:
        self._victims -= ranks
        self.events.extend((Event.LOST, rank) for rank in sorted(ranks))

    def _window_is_closed(self) -> bool:
        opening = [each for each in self._evidence if each.opens]
        first = min(each.at for each in opening)
        certain = [each.at for each in opening if each.weight is _Weight.CERTAIN]
        if certain:
            # Ranks that have not joined know nothing of each other.
            can_witness = self.policy.is_script or any(each.has_met for each in self._ranks)
            closes_at = min(certain) + (limits.OTHER_REPORTS_S if can_witness else 0.0)
        else:
            closes_at = first + (
                limits.OTHER_REPORTS_S if all(each.is_silence for each in opening) else limits.OWN_REPORT_S
            )
            for each in opening:
                accused = None if each.rank is None else self._at(each.rank)
                if accused is not None and accused.left_at is not None and self._is_awaited(accused):
                    closes_at = max(closes_at, accused.left_at + accused.exit_limit_s)
        silent = {e.rank for e in opening if e.is_silence and self._clock.is_past(e.at + limits.OBJECTION_S)}
        missing = [rank for rank in self.awaited if rank not in silent and self._ranks[rank].stopped_at is None]
        return not missing or self._clock.is_past(closes_at)

    def _judge(self) -> Verdict:
        """Return the verdict that the evidence supports best."""
        by_weight = {weight: [each for each in self._evidence if each.weight is weight] for weight in _Weight}
        certain, engine, accusations = by_weight.values()
        if certain:
            first = min(certain, key=lambda each: (each.was_connecting, each.at))
            if first.rank is None:
                return Verdict(Ending.ABANDONED)
            return Verdict(Ending.FAILED, first.rank, first.cause + self._lost_before(first.rank), first.by)
        named = [each for each in engine if each.rank is not None and not self._blames_another(each.rank)]
        if named:
            return Verdict(Ending.FAILED, named[0].rank, named[0].cause)
        if not accusations:
            return Verdict(Ending.ENGINE, cause=engine[0].cause)
        votes = Counter(each.rank for each in accusations)
        # An isolated rank receives nothing, so it accuses another rank while all others accuse it.
        best = max(accusations, key=lambda each: (votes[each.rank], self._blames_another(each.rank)))
        while not best.is_silence and (deeper := [each for each in accusations if each.by == best.rank != each.rank]):
            # The rank has failed because of another one.
            accusations.remove(best)
            best = deeper[0]
        accused = None if best.rank is None else self._at(best.rank)
        if accused is not None and accused.state is RankState.LOST:
            return Verdict(Ending.FAILED, best.rank, accused.cause)
        return Verdict(Ending.FAILED, best.rank, best.cause, best.by)

    def _lose_accused(self) -> None:
        """Mark accused ranks of a job as lost once all others have reported. Processes of scripts end by themselves."""
        if self.policy.is_script:
            return
        accused = self._accused()
        missing = [rank for rank in self.awaited if self._ranks[rank].state in _OPEN]
        if not missing or any(rank not in accused for rank in missing):
            self._alone_since = None
            return
        self._alone_since = self._clock.now if self._alone_since is None else self._alone_since
        if self._clock.is_past(self._alone_since + limits.OBJECTION_S):
            for rank in missing:
                self._lose(rank, accused[rank].cause)

    def _accused(self) -> dict[int | None, _Evidence]:
        """Return the first accusation of each rank, without accusations by isolated ranks, which others accuse."""
        accusations = [each for each in reversed(self._evidence) if each.weight is _Weight.BY_OTHERS]
        votes = Counter(each.rank for each in accusations)
        return {each.rank: each for each in accusations if votes[each.by] < votes[each.rank]}

    def _may_end_early(self) -> bool:
        """Return whether a script may end before all of its ranks."""
        if not self.policy.is_script:
            return False
        if self._rank_0_exited_at is not None:
            return self._clock.is_past(self._rank_0_exited_at + limits.SHUTDOWN_S)
        left = self.awaited
        if any(self._ranks[rank].stopped_at is None for rank in left):
            self._suspended_at = None
            return False
        self._suspended_at = self._clock.now if self._suspended_at is None else self._suspended_at
        if not self._clock.is_past(self._suspended_at + limits.SHUTDOWN_S):
            return False
        if self._need_not_end(left):
            self.events.extend((Event.LEFT, rank) for rank in left)
            return True
        # Each suspension is reported once.
        if self._reported_at != self._suspended_at:
            self._reported_at = self._suspended_at
            self.events.append((Event.SUSPENDED, None))
        return False

    def _need_not_end(self, left: list[int]) -> bool:
        """Return whether other ranks have succeeded in place of the ranks `left`."""
        if self.policy.continues_after_loss:
            return any(each.has_succeeded for each in self._ranks)
        return all(any(self._ranks[other].has_succeeded for other in self._replicas(rank)) for rank in left)

    def _conclude(self) -> Verdict:
        """Return the verdict after all ranks have sent their last messages and no evidence has ended the wait."""
        if self.policy.is_independent and self._evidence:
            return self._judge()
        returned = [rank for rank in range(self.world_size) if self._has_returned(rank)]
        self._lose_left_behind(returned)
        self._report_victims({rank for rank in self._victims if self._has_returned(self._ranks[rank].culprit)})
        if self._incomplete_returns and not any(each.was_known for each in self._incomplete_returns):
            own = next((each.rank for each in self._incomplete_returns if not each.is_victim), None)
            if own is not None:
                return Verdict(Ending.FAILED, own, "", own)
        failed = [rank for rank, each in enumerate(self._ranks) if each.state is RankState.FAILED]
        if self._first_loss is not None:
            lost = self.lost.keys()
            all_continued = self.policy.is_script or all(lost <= self._ranks[rank].without for rank in returned)
            if failed or not returned or not all_continued or self.policy.on_failure == "respawn":
                return Verdict(Ending.FAILED, self._first_loss, self.lost[self._first_loss])
        elif failed:
            # All ranks live, but one was reported as failed.
            return self._judge()
        return Verdict(Ending.DONE)

    def _lose_left_behind(self, returned: list[int]) -> None:
        """Mark failed ranks as lost if all returned ranks, or one of their replicas, continued without them."""
        for rank, each in enumerate(self._ranks):
            if each.state is not RankState.FAILED or not returned:
                continue
            if any(other in returned for other in self._replicas(rank)) or (
                self.policy.continues_after_loss and all(rank in self._ranks[other].without for other in returned)
            ):
                self._lose(rank, each.cause, continues=True)

    # Losses and evidence

    def _lose(self, rank: int, cause: str, *, continues: bool | None = None) -> None:
        """Continue without a rank, or open the window if the others cannot."""
        each = self._ranks[rank]
        if each.state is RankState.LOST:
            return
        has_replica = self._has_replica(rank)
        continues = self._can_continue_without(rank) if continues is None else continues
        # The report of a failed rank is evidence already. The engine ends the other ranks after the one that it names.
        is_consequence = each.state is RankState.FAILED or (cause == DISCONNECTED and self._engine_cause is not None)
        is_victim = self.policy.is_script and each.state is RankState.FAILED
        each.state, each.cause = RankState.LOST, cause
        self.lost[rank] = cause
        if continues:
            if not has_replica and not is_victim and self._first_loss is None:
                self._first_loss = rank
            if is_victim and self._blames_another(rank):
                self._victims.add(rank)
            else:
                self.events.append((Event.LOST, rank))
        elif not is_consequence:
            self._add(_Weight.CERTAIN, rank, cause)

    def _can_continue_without(self, rank: int) -> bool:
        """Return whether the others continue without a rank: it has joined them, and they do not need it."""
        if not self._ranks[rank].has_met:
            return False
        if not self.policy.is_script:
            return self.policy.continues_after_loss or self._has_replica(rank)
        others = (other for number, other in enumerate(self._ranks) if number != rank)
        return self._has_replica(rank) or (
            self.policy.continues_after_loss and any(each.state not in _GONE for each in others)
        )

    def _has_replica(self, rank: int) -> bool:
        """Return whether a live replica that has not failed continues in place of a rank."""
        return self.replica_of(rank) is not None

    def _replicas(self, rank: int) -> range:
        return replicas_of(rank, self.world_size, self.policy.replicas)

    def _lost_before(self, rank: int) -> str:
        others = [other for other in self._replicas(rank) if other != rank and other in self.lost]
        return "".join(f"; before that its replica, rank {other}: {self.lost[other]}" for other in others)

    def _accuse(self, by: int, rank: int, cause: str, *, opens: bool, is_silence: bool = False) -> None:
        self._add(_Weight.BY_OTHERS, rank, cause, by=by, opens=opens, is_silence=is_silence)

    def _add(
        self,
        weight: _Weight,
        rank: int | None,
        cause: str,
        *,
        by: int | None = None,
        opens: bool = True,
        is_silence: bool = False,
        was_connecting: bool = False,
    ) -> None:
        opens = opens and not self.policy.is_independent
        self._evidence.append(_Evidence(weight, rank, cause, self._clock.now, by, opens, is_silence, was_connecting))

    def _at(self, rank: int) -> _Rank | None:
        # Ranks may name a rank of another communicator.
        return self._ranks[rank] if 0 <= rank < self.world_size else None

    def _has_returned(self, rank: int | None) -> bool:
        each = None if rank is None else self._at(rank)
        return each is not None and each.state in (RankState.READY, RankState.FINISHED)

    def _is_doubtful(self, evidence: _Evidence) -> bool:
        return evidence.weight is _Weight.BY_OTHERS and evidence.by is not None and self._has_returned(evidence.by)

    def _blames_another(self, rank: int | None) -> bool:
        each = None if rank is None else self._at(rank)
        return each is not None and each.culprit not in (None, rank)
