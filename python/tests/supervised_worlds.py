"""Simulated worlds for the supervisor: ranks, faults, and the reports that reach the launcher.

A seed determines a world. Time is virtual. The supervisor is the real one.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ripieno.launch import limits
from ripieno.launch.supervisor import ALL_DISCONNECTED, Ending, Event, Policy, RankState, Supervisor, Verdict

KINDS = ("job", "engine", "script")
#: Limit of the virtual time of a world.
HORIZON_S = 400.0
#: Ranks notice nothing new after this time.
LATE_S = 100.0


@dataclass
class Fault:
    """A fault: "kill", "raise", "stop", "isolate" or "one-way"."""

    kind: str
    rank: int
    at: float
    lasts_s: float = float("inf")
    #: With "one-way": the rank that gets no messages of `rank`.
    receiver: int = -1


@dataclass
class _SimulatedRank:
    is_alive: bool = True
    has_reported: bool = False
    has_returned: bool = False
    stopped_until: float = 0.0
    #: The first failed rank that it has noticed.
    noticed: int | None = None
    #: It reacts to a failure only when its computation ends.
    busy_until: float = 0.0


@dataclass
class World:
    """One run of a program, rendezvous or script."""

    seed: int
    events: list[tuple[float, int, Callable[..., None], tuple]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = draw = random.Random(self.seed)
        self.numbers = itertools.count()
        self.kind = draw.choice(KINDS)
        self.replicas = 2 if self.kind != "engine" and draw.random() < 0.25 else 1
        self.size = 2 * draw.randint(1, 3) if self.replicas == 2 else draw.randint(2, 6)
        policies = {"job": ["raise", "shrink", "respawn"], "script": ["raise", "shrink"], "engine": ["raise"]}
        self.on_failure = "raise" if self.replicas == 2 else draw.choice(policies[self.kind])
        self.heartbeat_s = draw.choice([1.0, 2.0, 10.0])
        self.is_rendezvous = self.kind != "script" and draw.random() < 0.15
        self.ranks = [_SimulatedRank() for _ in range(self.size)]
        self.finish_s = draw.uniform(0.5, 5.0)
        #: The launcher handles nothing between these times.
        pause = draw.uniform(0.0, 8.0) if draw.random() < 0.1 else HORIZON_S
        self.pause = (pause, pause + draw.uniform(0.5, 20.0))
        #: From this time on, the launcher of an engine job is disconnected from all ranks.
        self.cut_s = draw.uniform(0.0, self.finish_s) if self.kind == "engine" and draw.random() < 0.05 else HORIZON_S
        #: Ranks without which the others have continued, as these ranks themselves report.
        self.excluded: set[int] = set()
        #: Ranks that were reported as lost to the user.
        self.reported: set[int | None] = set()
        #: Whether the supervisor has reported to the user that all ranks are suspended.
        self.is_suspended = False
        self.faults = self._drawn_faults()
        self.now = 0.0
        #: Ranks that another one has noticed to have failed.
        self.known: set[int] = set()
        self.first_evidence_s: float | None = None
        self.last_input_s = 0.0
        stop_limit_s = None if self.kind == "engine" else limits.STOPPED_S if self.is_rendezvous else self.heartbeat_s
        if self.kind == "script":
            stop_limit_s = limits.STOPPED_S
        self.supervisor = Supervisor(
            self.size,
            Policy(
                self.replicas,
                self.on_failure,
                is_script=self.kind == "script",
                stop_limit_s=stop_limit_s,
                rendezvous_limit_s=60.0 if self.is_rendezvous else None,
            ),
            0.0,
            RankState.STARTING if self.is_rendezvous or self.kind == "script" else RankState.RUNNING,
        )

    def _drawn_faults(self) -> list[Fault]:
        draw, faults = self.random, []
        count = draw.choices([0, 1, 2, 3], [1, 6, 3, 1])[0]
        at = draw.uniform(0.0, self.finish_s)
        for _ in range(count):
            kind = draw.choices(["kill", "raise", "stop", "isolate", "one-way"], [4, 3, 2, 2, 1])[0]
            rank = draw.randrange(self.size)
            # "Brief" faults are not failures: the heartbeats resume in time.
            lasts_s = draw.choice([0.5 * self.heartbeat_s, float("inf")])
            receiver = draw.choice([other for other in range(self.size) if other != rank])
            if not any(fault.rank == rank for fault in faults):
                faults.append(Fault(kind, rank, at, lasts_s, receiver))
            # Two at once, or while the first is handled.
            at += draw.choice([0.0, draw.uniform(0.0, 2.5)])
        return faults

    # Observations

    def at(self, time_s: float, action: Callable[..., None], *values: object) -> None:
        heapq.heappush(self.events, (max(time_s, self.now), next(self.numbers), action, values))

    def reaches(self, rank: int, of: int, since_s: float = 0.0) -> bool:
        """Return whether a message of `of` reaches `rank` now."""
        for fault in self.faults:
            if fault.at <= self.now < fault.at + fault.lasts_s:
                if fault.kind == "isolate" and fault.rank in (rank, of):
                    return False
                if fault.kind == "one-way" and (fault.rank, fault.receiver) == (of, rank):
                    return False
        return True

    def notify(
        self, delay_s: float, observation: Callable[..., None], *values: object, is_evidence: bool = False
    ) -> None:
        """Let the launcher observe an event after a delay, or after its pause."""
        if self.now + delay_s < self.cut_s:
            self._notify_at(self.now + delay_s, observation, *values, is_evidence=is_evidence)

    def _notify_at(self, time_s: float, observation: Callable[..., None], *values: object, is_evidence: bool) -> None:
        if self.pause[0] <= time_s < self.pause[1]:
            time_s = self.pause[1]
        self.at(time_s, self._observe, observation, values, is_evidence)

    def _observe(self, observation: Callable[..., None], values: tuple, is_evidence: bool) -> None:
        if self.supervisor.verdict is not None:
            return
        self.last_input_s = self.now
        if is_evidence and self.first_evidence_s is None:
            self.first_evidence_s = self.now
        self.supervisor.set_time(self.now)
        observation(*values)

    def jitter_s(self, max_s: float = 0.05) -> float:
        return self.random.uniform(0.0, max_s)

    def run(self) -> Verdict | None:
        """Run the world to its end, and return the verdict."""
        for rank in range(self.size):
            if self.is_rendezvous or self.kind == "script":
                self.notify(self.jitter_s(), self._connect, rank)
        # All ranks of a script join before any fault. A rendezvous may have a fault before.
        if self.kind == "script":
            self.at(0.06, self._all_connect)
        for fault in self.faults:
            self.at(fault.at + 0.1, self._inject, fault)
        self.at(self.finish_s + 0.1, self._finish)
        for rank in range(self.size) if self.cut_s < HORIZON_S else ():
            late_s = limits.DELIVERY_HEARTBEATS * self.heartbeat_s + self.jitter_s(0.5 * limits.OWN_REPORT_S)
            self._notify_at(self.cut_s + late_s, self.supervisor.leaves, rank, is_evidence=True)
        self.tick()
        supervisor = self.supervisor
        while supervisor.verdict is None and self.now < HORIZON_S:
            wait_s = supervisor.wait_s(self.now)
            wake = HORIZON_S if wait_s is None else self.now + wait_s
            if self.pause[0] <= wake < self.pause[1]:
                wake = self.pause[1]
            if self.events and self.events[0][0] <= wake:
                self.now = self.events[0][0]
                # The driver reads everything that has arrived before it lets the supervisor decide.
                while self.events and self.events[0][0] <= self.now:
                    _, _, action, values = heapq.heappop(self.events)
                    action(*values)
            else:
                self.now = wake
            if not self.pause[0] <= self.now < self.pause[1]:
                self.tick()
        return supervisor.verdict

    def tick(self) -> None:
        self.supervisor.set_time(self.now)
        self.supervisor.inspect(self.now, self.is_stopped)
        self.supervisor.tick(self.now)
        self.is_suspended |= (Event.SUSPENDED, None) in self.supervisor.events
        self.reported |= {rank for event, rank in self.supervisor.events if event is Event.LOST}
        self.supervisor.events.clear()

    def is_stopped(self, rank: int) -> bool:
        return self.ranks[rank].is_alive and self.now < self.ranks[rank].stopped_until

    # Actions of ranks

    def _connect(self, rank: int) -> None:
        if self.ranks[rank].is_alive and not self.is_stopped(rank):
            self.supervisor.connects(rank)

    def _all_connect(self) -> None:
        for rank in range(self.size):
            self.notify(self.jitter_s(0.01), self.supervisor.runs, rank)

    def _inject(self, fault: Fault) -> None:
        rank = self.ranks[fault.rank]
        if not rank.is_alive or (rank.has_reported and fault.kind not in ("kill", "stop")):
            return
        if fault.kind == "kill":
            self._die(fault.rank, "killed")
        elif fault.kind == "raise":
            self._raise(fault.rank)
        elif fault.kind == "stop":
            rank.stopped_until = self.now + fault.lasts_s
            self._stop_heartbeats(fault)
        else:
            self._stop_heartbeats(fault)

    def _die(self, dead: int, cause: str) -> None:
        rank = self.ranks[dead]
        if not rank.is_alive:
            return
        rank.is_alive = False
        if self.kind == "engine":
            self.notify(self.jitter_s(), self.supervisor.leaves, dead, is_evidence=True)
            if self.random.random() < 0.7:
                self.notify(
                    self.random.uniform(0.0, 1.5), self.supervisor.engine_reports, dead, cause, is_evidence=True
                )
                if self.random.random() < 0.5:
                    # It ends the others, too.
                    for other in range(self.size):
                        self.at(self.now + 0.06 + self.jitter_s(1.0), self._end_by_engine, other)
        else:
            left_s = self.jitter_s()
            self.notify(left_s, self.supervisor.leaves, dead, is_evidence=True)
            self.notify(left_s + self.jitter_s(), self.supervisor.ends, dead, cause, is_evidence=True)
        if not rank.has_reported:
            self._spread_failure(dead, dead, is_silence=False)

    def _end_by_engine(self, rank: int) -> None:
        if self.ranks[rank].is_alive:
            self.ranks[rank].is_alive = False
            self.notify(self.jitter_s(), self.supervisor.leaves, rank, is_evidence=True)

    def _raise(self, rank: int) -> None:
        """Raise an exception: the others notice it at once, and the launcher perhaps later, or never."""
        self.ranks[rank].has_reported = True
        delay_s = self.random.choice([self.jitter_s(), self.random.uniform(0.0, 1.5)])
        if self.random.random() < 0.1:
            self.ranks[rank].noticed = rank
            self.at(self.now + delay_s, self._die, rank, "killed before it has reported")
        else:
            self.notify(delay_s, self.supervisor.fails, rank, "its own", is_evidence=True)
            self._exit(rank, delay_s)
        self._spread_failure(rank, rank, is_silence=False)

    def _exit(self, rank: int, delay_s: float) -> None:
        """Let the process of a script end after its report."""
        if self.kind == "script":
            self.at(self.now + delay_s + self.jitter_s(0.3), self._end_script, rank, "exited with status 1")

    def _end_script(self, rank: int, cause: str | None) -> None:
        if self.ranks[rank].is_alive:
            self.ranks[rank].is_alive = False
            left_s = self.jitter_s()
            self.notify(left_s, self.supervisor.leaves, rank)
            self.notify(left_s + self.jitter_s(), self.supervisor.ends, rank, cause)

    def _stop_heartbeats(self, fault: Fault) -> None:
        """Let the others miss the heartbeats of a rank. An isolated rank also misses the heartbeats of all others."""
        for rank in range(self.size):
            if fault.kind == "one-way":
                pairs = [(fault.receiver, fault.rank)] if rank == fault.receiver else []
            elif rank == fault.rank:
                pairs = [(rank, other) for other in range(self.size)] if fault.kind == "isolate" else []
            else:
                pairs = [(rank, fault.rank)]
            for listener, silent in pairs:
                if listener != silent and fault.lasts_s > self.heartbeat_s:
                    late_s = self.heartbeat_s + self.jitter_s(0.1 * self.heartbeat_s)
                    self.at(self.now + late_s, self._notice, listener, silent, True)

    def _spread_failure(self, by: int, failed: int, *, is_silence: bool) -> None:
        """Let all ranks that `by` reaches notice a failure."""
        for rank in range(self.size):
            if rank != by:
                self.at(self.now + self.jitter_s(), self._notice_from, rank, by, failed, is_silence)

    def _notice_from(self, rank: int, by: int, failed: int, is_silence: bool) -> None:
        if self.reaches(rank, by):
            self._notice(rank, failed, is_silence)
            return
        if self.now < LATE_S:
            # The report arrives after the interruption.
            self.at(self.now + 2.0, self._notice_from, rank, by, failed, is_silence)
        if not self.reaches(rank, failed) or not self.ranks[failed].is_alive or self.is_stopped(failed):
            # A rank that gets no report misses the heartbeats.
            self.at(self.now + self.heartbeat_s, self._notice, rank, failed, True)

    def _notice(self, rank: int, failed: int, is_silence: bool) -> None:
        each = self.ranks[rank]
        if self.is_rendezvous or not each.is_alive or each.has_reported:
            # During a rendezvous, ranks wait for the launcher, not for each other.
            return
        if each.noticed is not None:
            if self.on_failure == "shrink" and self.now < LATE_S and each.noticed not in (rank, failed):
                # It continues without the first one, and then notices the next one.
                self.at(self.now + 1.0, self._notice, rank, failed, is_silence)
            return
        if self.is_stopped(rank):
            if each.stopped_until < HORIZON_S:
                self.at(each.stopped_until, self._notice, rank, failed, is_silence)
            return
        self.known.add(failed)
        if self.replicas == 2 and self._has_replica(failed) and not any(f.rank == rank for f in self.faults):
            return
        each.noticed = failed
        self._spread_failure(rank, failed, is_silence=is_silence)
        # A slow rank computes before it enters the call that fails.
        is_slow = self.random.random() < 0.2
        each.busy_until = self.now + (self.random.uniform(0.0, 6.0) if is_slow else self.jitter_s())
        self.at(each.busy_until, self._report, rank, failed, is_silence)

    def _has_replica(self, rank: int) -> bool:
        half = self.size // 2
        other = self.ranks[(rank + half) % self.size]
        return (
            (rank + half) % self.size not in self.known
            and other.is_alive
            and other.stopped_until < HORIZON_S
            and other.noticed is None
            and not other.has_reported
        )

    def _report(self, rank: int, failed: int, is_silence: bool) -> None:
        each = self.ranks[rank]
        if not each.is_alive or each.has_reported:
            return
        if self.is_stopped(rank):
            if each.stopped_until < HORIZON_S:
                self.at(each.stopped_until, self._report, rank, failed, is_silence)
            return
        each.has_reported = True
        if failed == rank:
            self.excluded.add(rank)
        cause = "no heartbeat" if is_silence else "its process ended"
        is_isolated = any(fault.kind == "isolate" and fault.rank == rank for fault in self.faults)
        if (
            self.kind == "script"
            and self.on_failure == "shrink"
            and failed in self.faulty_ranks - {rank}
            and not is_isolated
        ):
            # The program continues without the failed rank.
            each.has_reported, each.noticed = False, None
            return
        self.notify(
            self.jitter_s(),
            lambda: self.supervisor.fails(rank, cause, failed, was_silent=is_silence),
            is_evidence=True,
        )
        self._exit(rank, 0.05)

    @property
    def faulty_ranks(self) -> set[int]:
        """Return the ranks that the verdict may name."""
        return {fault.rank for fault in self.faults} | {
            fault.receiver for fault in self.faults if fault.kind == "one-way"
        }

    def _finish(self) -> None:
        """Let the program return, if all ranks take part in its last call."""
        ranks = range(self.size)
        has_returned = [rank for rank in ranks if self.ranks[rank].has_returned]
        gone = [rank for rank in ranks if not self._can_finish(rank)]
        if any(self.ranks[rank].is_alive and not self.ranks[rank].has_reported for rank in ranks):
            self.at(self.now + 0.5, self._finish)
        missing = {*gone} - {*has_returned}
        are_known = all(
            rank in self.known or not self.ranks[rank].is_alive or self.ranks[rank].has_reported for rank in missing
        )
        if not are_known or not self._may_finish_without(missing):
            return
        for rank in missing:
            # The others have continued without the rank. It gets a report of that, or no more messages.
            if not self.ranks[rank].has_reported:
                self.at(self.now + self.heartbeat_s, self._report, rank, rank, True)
        for rank in ranks:
            each = self.ranks[rank]
            if rank not in gone:
                each.has_reported = each.has_returned = True
                self.notify(self.jitter_s(), self.supervisor.returns, rank)
                if self.kind == "script":
                    self.at(self.now + 0.1 + self.jitter_s(0.5), self._end_script, rank, None)

    def _can_finish(self, rank: int) -> bool:
        each = self.ranks[rank]
        cut = any(
            rank == fault.rank
            and fault.at <= self.now < fault.at + fault.lasts_s
            and (fault.kind == "isolate" or (fault.kind == "one-way" and self._takes_part(fault.receiver)))
            for fault in self.faults
        )
        return (
            each.is_alive and not self.is_stopped(rank) and each.noticed is None and not each.has_reported and not cut
        )

    def _takes_part(self, rank: int) -> bool:
        return self.ranks[rank].is_alive and not self.is_stopped(rank) and rank not in self.known

    def _may_finish_without(self, gone: set[int]) -> bool:
        half = self.size // 2
        if not gone:
            return True
        if self.replicas == 2:
            return all((rank + half) % self.size not in gone for rank in gone)
        return self.kind == "script" and self.on_failure == "shrink" and len(gone) < self.size

    # Laws

    def check(self) -> None:
        """Assert the laws of supervision."""
        verdict = self.run()
        is_unseen = self.kind == "engine" and all(map(self.is_stopped, range(self.size)))
        if verdict is None and (self.is_suspended or is_unseen):
            # The suspension was reported. Only an engine itself can notice that all of its tasks are stopped.
            return
        assert verdict is not None, "the caller gets no verdict"
        self._check_time(verdict)
        self._check_culprit(verdict)
        self._check_usable()
        self._check_once(verdict)

    def _check_once(self, verdict: Verdict) -> None:
        for rank in range(self.size):
            self.supervisor.fails(rank, "late")
        self.supervisor.tick(self.now + 100.0)
        assert self.supervisor.verdict is verdict, "a second verdict"

    def _check_time(self, verdict: Verdict) -> None:
        first_s = self.first_evidence_s
        if self.on_failure == "raise" and self.replicas == 1 and first_s is not None and self.kind != "script":
            bound_s = limits.OWN_REPORT_S + limits.OTHER_REPORTS_S + limits.OWN_REPORT_S
            waited_s = self.now - first_s
            assert waited_s <= bound_s + 1e-6 or self._was_paused(first_s), f"waited {waited_s:.2f} s for a verdict"

    def _was_paused(self, since_s: float) -> bool:
        return self.pause[0] <= self.now <= self.pause[1] + 5.0 or since_s <= self.pause[0] <= self.now

    def _check_culprit(self, verdict: Verdict) -> None:
        lasting = [
            fault for fault in self.faults if fault.kind in ("kill", "raise") or fault.lasts_s > self.heartbeat_s
        ]
        if self.cut_s < self.now:
            # Faults do not count if no report of them reaches the launcher.
            assert verdict.ending is not Ending.ABANDONED
            if not lasting and verdict.ending is not Ending.DONE:
                assert verdict.cause == ALL_DISCONNECTED, "a single rank is named"
            return
        if not lasting:
            assert verdict.ending is Ending.DONE, "a failure without a fault"
            assert not self.supervisor.lost, "a loss without a fault"
            return
        if verdict.ending is Ending.ABSENT:
            # Ranks that cannot reach each other during a rendezvous do not know more.
            assert self.is_rendezvous and all(fault.kind != "kill" for fault in lasting), "a dead rank is not absent"
        elif verdict.ending is Ending.FAILED and all(self._is_identifiable(fault) for fault in lasting):
            assert verdict.culprit in self.faulty_ranks, "a rank without a fault is named"
            assert len(lasting) > 1 or verdict.culprit == lasting[0].rank, "the wrong rank is named"
        # Others are lost only if the engine has ended them.
        if self.kind != "engine" and all(self._is_identifiable(fault) for fault in lasting):
            assert self.supervisor.lost.keys() <= self.faulty_ranks | self._affected_ranks(), "a healthy rank is lost"
            assert self.reported <= self.faulty_ranks | self.excluded, (
                "a rank that failed because of others is reported as lost"
            )

    def _affected_ranks(self) -> set[int]:
        """Return the ranks that have failed because of others and without which a script continues."""
        return {rank for rank in range(self.size) if self.ranks[rank].noticed is not None}

    def _is_identifiable(self, fault: Fault) -> bool:
        if fault.kind != "isolate":
            return True
        # Only other ranks can report that a rank is isolated, and slow ones report too late.
        return (
            sum(
                each.has_reported and each.noticed == fault.rank and number != fault.rank
                for number, each in enumerate(self.ranks)
            )
            >= 2
        )

    def _check_usable(self) -> None:
        """Check that only ranks without a running program wait for the next program."""
        for rank in self.supervisor.waiting:
            assert self.ranks[rank].has_reported, "a rank that computes gets another program"
