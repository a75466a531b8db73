"""The supervisor of a script: waits for its ranks on this machine and detects failed, lost and stopped ranks."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ripieno.launch.job.watch import JobWatch
from ripieno.launch.process import processes as process
from ripieno.launch.process.channel import Channel, HungUp
from ripieno.launch.process.interruption import interruptible
from ripieno.launch.process.report import FailureReport
from ripieno.launch.replicas import replicas_of

if TYPE_CHECKING:
    from ripieno.launch.script.run import Script

# After the first failure the other ranks have this long to report, clean up and exit by themselves.
LAST_WORDS_S = 1.5
# If reports name a rank as the cause, that rank has this long to exit: the run returns its exit code.
CULPRIT_S = 5.0
# A rank that has begun to report, or has closed its channel, has this long to continue or to exit.
REPORT_S = 10.0
# After its script has finished and its channel is closed, a rank has this long to exit.
END_S = 60.0
# With independent ranks, ranks that stand still have this long to exit after rank 0 has exited.
STRAGGLERS_S = 5.0
# A stopped process is not resumed by the launcher. It fails after this time if other ranks wait for it to join.
STOPPED_S = 5.0
# Interval between two checks for stopped processes.
LOOK_S = 0.5


@dataclass
class ScriptRank:
    """State of one rank of the script.

    Attributes
    ----------
    is_meeting, has_met
        Whether the rank waits for the initial rendezvous, and whether it has completed it.
    stopped_at
        Time since which the rank is stopped while other ranks wait for it to join.
    is_done
        Whether the script has ended successfully. The process may still join threads and free memory.
    hung_up_at
        Time at which the rank closed its channel. The process ends shortly after.
    report
        Report of the failure, by the rank itself or by the supervisor.
    status
        Exit status of the process.
    """

    rank: int
    process: subprocess.Popen[bytes]
    channel: Channel
    is_meeting: bool = False
    has_met: bool = False
    stopped_at: float | None = None
    is_done: bool = False
    hung_up_at: float | None = None
    report: FailureReport | None = None
    status: int | None = None

    @property
    def failed(self) -> bool:
        return bool(self.status) or self.report is not None

    @property
    def victim(self) -> bool:
        """Return whether the rank has failed because another rank failed."""
        return self.report is not None and self.report.victim is not None

    @property
    def is_stopped(self) -> bool:
        return process.is_stopped(self.process.pid)

    @property
    def cause(self) -> str:
        """Return the cause of the failure."""
        return self.report.cause if self.report is not None else process.ending(self.status or 0)

    def note(self, cause: str) -> None:
        """Record a failure that the rank does not report itself."""
        self.report = FailureReport(self.rank, socket.gethostname(), cause, "")


class Supervisor:
    """Waits for the ranks of a script, reports lost and stopped ranks on stderr, and finds the first failure.

    Parameters
    ----------
    ranks
        All ranks, already started.
    script
        The script and its options.
    watch
        Receives pulses and losses.
    """

    def __init__(self, ranks: Sequence[ScriptRank], script: Script, watch: JobWatch) -> None:
        self._ranks = ranks
        self._script = script
        self._watch = watch
        self._selector = selectors.DefaultSelector()
        self._first: ScriptRank | None = None
        # Ranks that have failed and without which the other ranks continue.
        self._lost: set[int] = set()
        self._failed_at: float | None = None
        # Time at which rank 0 exited, if ranks are independent.
        self._over_at: float | None = None
        # Time since which all ranks are stopped, and the time of the stop that was last reported.
        self._suspended_at: float | None = None
        self._said_at: float | None = None

    def until_the_end(self) -> ScriptRank | None:
        """Wait until all ranks have ended, or until the grace period after a failure has passed; return the culprit."""
        with self._selector, ExitStack() as ends, interruptible(self._selector) as ready:
            for each in self._ranks:
                self._selector.register(each.channel, selectors.EVENT_READ, each)
            while self._selector.get_map():
                left_s = self._left_s()
                if self._all_end_without_the_stopped() if left_s is None else left_s <= 0:
                    break
                heard: list[ScriptRank] = []
                for key, _ in ready(LOOK_S if left_s is None else left_s):
                    self._hear(key, ends)
                    heard.append(key.data)
                for each in [*heard, *self._without_an_end(), *self._stopped_ahead_of_the_meeting()]:
                    if each.failed and each.rank not in self._lost:
                        self._take_failure(each)
        return self._culprit()

    def _left_s(self) -> float | None:
        """Return how long the ranks have left, or None if no rank has failed."""
        if self._over_at is not None:
            return self._over_at + STRAGGLERS_S - time.monotonic()
        if self._failed_at is not None:
            return self._failed_at + self._patience_s() - time.monotonic()
        return None

    def _patience_s(self) -> float:
        """Return how long to wait for the other ranks after a failure."""
        named = None if self._first is None or self._first.report is None else self._first.report.victim
        culprit = None if named is None else self._ranks[named.rank]
        # A stopped process does not exit by itself.
        is_awaited = culprit is not None and not culprit.failed and not culprit.is_stopped
        return CULPRIT_S if is_awaited else LAST_WORDS_S

    def _hear(self, key: selectors.SelectorKey, ends: ExitStack) -> None:
        """Handle one message of a rank, the end of its channel, or the end of its process."""
        rank: ScriptRank = key.data
        if rank.hung_up_at is not None:
            self._selector.unregister(key.fileobj)
            self._take_end(rank)
            return
        try:
            kind, value = rank.channel.receive()
        except HungUp:
            self._selector.unregister(key.fileobj)
            # The kernel closes the channel when the process exits, so the wait for the process is short.
            rank.hung_up_at = time.monotonic()
            end = os.pidfd_open(rank.process.pid)
            ends.callback(os.close, end)
            self._selector.register(end, selectors.EVENT_READ, rank)
            return
        if kind == "pulse":
            self._watch.pulse(rank.rank, value)
        elif kind == "meeting":
            rank.is_meeting = True
        elif kind == "met":
            rank.has_met = True
        elif kind == "done":
            rank.is_done = True
        else:
            rank.report = value

    def _take_end(self, rank: ScriptRank) -> None:
        rank.status = rank.process.wait()
        if self._script.independent and rank.rank == 0 and rank.status in range(256):
            self._over_at = time.monotonic()

    def _without_an_end(self) -> list[ScriptRank]:
        """Return the ranks that have closed their channels, have not ended, and have used up their time."""
        now, found = time.monotonic(), []
        for end, key in list(self._selector.get_map().items()):
            rank: ScriptRank = key.data
            if rank.hung_up_at is None or now <= rank.hung_up_at + (END_S if rank.is_done else REPORT_S):
                continue
            self._selector.unregister(end)
            if rank.is_done:
                self._end(rank)
                continue
            if rank.report is None:
                rank.note("its process closed the connection to its launcher")
            found.append(rank)
        return found

    def _end(self, rank: ScriptRank) -> None:
        """Kill the process of a rank that does not exit after its script has ended successfully."""
        rank.process.kill()
        rank.process.wait()
        rank.status = 0
        self._say(
            f"{named(rank.rank, self._script)}: its script has ended, but its process had not {END_S:g} s later, and "
            "was killed; the result counts"
        )

    def _take_failure(self, rank: ScriptRank) -> None:
        """Record the failure of a rank without which the other ranks cannot yet continue."""
        if not rank.victim:
            self._watch.lost(rank.rank, rank.cause)
        if self._failed_at is None:
            if self._is_done_without(rank):
                return
            if not self._script.independent:
                self._failed_at = time.monotonic()
        # A rank that failed by itself replaces a rank that failed because of another rank.
        if self._first is None or (self._first.victim and not rank.victim):
            self._first = rank

    def _is_done_without(self, rank: ScriptRank) -> bool:
        """Return whether the other ranks continue without a failed rank, and report the loss."""
        going_on = self._replica_of(rank)
        if going_on is not None:
            self._lost.add(rank.rank)
            self._say(f"{named(rank.rank, self._script)}: {rank.cause}; its replica, rank {going_on}, goes on")
            return True
        if not self._is_left_behind(rank):
            return False
        self._lost.add(rank.rank)
        if all(other.failed for other in self._ranks):
            return False
        self._say(f"{named(rank.rank, self._script)}: {rank.cause}; the others go on without it")
        return True

    def _replica_of(self, rank: ScriptRank) -> int | None:
        """Return a replica that has not failed, if `rank` has ended without a report."""
        if not rank.status or rank.report is not None:
            return None
        replicas = replicas_of(rank.rank, len(self._ranks), self._script.replicas)
        return next((replica for replica in replicas if not self._ranks[replica].failed), None)

    def _is_left_behind(self, rank: ScriptRank) -> bool:
        """Return whether the remaining ranks may continue without `rank`: it has died, or failed because others did.

        They cannot continue before the initial rendezvous.
        """
        return self._script.on_failure == "shrink" and rank.has_met and (rank.report is None or rank.victim)

    def _stopped_ahead_of_the_meeting(self) -> list[ScriptRank]:
        """Mark ranks as failed that have been stopped for a while although others wait for them, and return them.

        Processes are only inspected while another rank waits.
        """
        missed = []
        early = [each for each in self._ranks if each.status is None and not each.has_met]
        meeting = [each for each in early if each.is_meeting and not each.failed]
        stopped = [each.rank for each in early if each.is_stopped] if meeting else []
        are_awaited = any(each.rank not in stopped for each in meeting)
        for each in self._ranks:
            is_stopped = each.rank in stopped
            each.stopped_at = (each.stopped_at or time.monotonic()) if is_stopped and are_awaited else None
            if each.stopped_at is not None and time.monotonic() > each.stopped_at + STOPPED_S and not each.failed:
                each.note(f"its process has been stopped for {STOPPED_S:g} s, and others wait to meet it")
                missed.append(each)
        return missed

    def _all_end_without_the_stopped(self) -> bool:
        """Return whether all remaining ranks are stopped and need not end; otherwise report the stop once."""
        left = [each for each in self._ranks if each.status is None]
        if not left or not all(each.is_stopped for each in left):
            self._suspended_at = None
            return False
        self._suspended_at = self._suspended_at or time.monotonic()
        if time.monotonic() <= self._suspended_at + STRAGGLERS_S:
            return False
        if self._need_not_end(left):
            for each in left:
                self._say(f"{named(each.rank, self._script)}: it is stopped; the others have ended without it")
            return True
        # The user may have suspended the job and may resume it. Each suspension is reported once.
        if self._said_at != self._suspended_at:
            self._said_at = self._suspended_at
            pids = " ".join(str(each.process.pid) for each in left)
            what = f"all ranks of {self._script.target} that have not ended are stopped"
            self._say(f"ripieno: {what}: let them go on by kill -CONT {pids}, or interrupt this")
        return False

    def _need_not_end(self, left: list[ScriptRank]) -> bool:
        """Return whether other ranks have ended successfully in place of the remaining ranks."""
        if self._script.on_failure == "shrink":
            return any(each.status == 0 for each in self._ranks)
        replicas = [replicas_of(each.rank, len(self._ranks), self._script.replicas) for each in left]
        return all(any(self._ranks[replica].status == 0 for replica in those) for those in replicas)

    def _culprit(self) -> ScriptRank | None:
        """Return the rank that failed first, except ranks without which the others continued."""
        first = self._first
        if first is not None and first.report is not None and first.report.victim is not None:
            # The replicas could continue without the culprit, but another rank could not.
            culprit = first.report.victim.rank
            return self._ranks[culprit] if culprit in self._lost else first
        return first

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def named(rank: int, script: Script) -> str:
    """Return the name of a rank in messages."""
    return f"ripieno: rank {rank} of {script.target} on {socket.gethostname()}"
