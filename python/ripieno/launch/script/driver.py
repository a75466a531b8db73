"""Provide the driver of a script: it receives messages of the ranks on this machine and informs the supervisor."""

from __future__ import annotations

import selectors
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ripieno.launch import limits
from ripieno.launch.job.watch import JobWatch
from ripieno.launch.process import processes as process
from ripieno.launch.process.channel import Channel, ConnectionClosed
from ripieno.launch.process.forked import ForkedProcess
from ripieno.launch.process.interruption import Wait, interruptible
from ripieno.launch.process.report import FailureReport
from ripieno.launch.process.waits import WaitingRanks
from ripieno.launch.supervisor import Ending, Event, Policy, Supervisor

if TYPE_CHECKING:
    from ripieno.launch.script.run import Script


@dataclass
class ScriptRank:
    """One rank of the script.

    Attributes
    ----------
    report
        Report of the failure, by the rank itself or by the driver.
    status
        Exit status of the process.
    """

    rank: int
    process: ForkedProcess
    channel: Channel
    report: FailureReport | None = None
    status: int | None = None


class ScriptDriver:
    """Receives messages of a script's ranks, and reports lost and stopped ranks on stderr.

    Parameters
    ----------
    ranks
        All ranks, already started.
    script
        The script and its options.
    watch
        Receives telemetry and losses.
    """

    def __init__(self, ranks: Sequence[ScriptRank], script: Script, watch: JobWatch) -> None:
        self._ranks = ranks
        self._script = script
        self._watch = watch
        self._selector = selectors.DefaultSelector()
        self._waiting_ranks = WaitingRanks()
        policy = Policy(
            script.replicas,
            script.on_failure,
            is_script=True,
            is_independent=script.independent,
            stop_limit_s=limits.STOPPED_S,
        )
        self._supervisor = Supervisor(len(ranks), policy, time.monotonic())

    def wait(self) -> ScriptRank | None:
        """Wait until the supervisor has decided; return the rank with the report of the first failure, if any."""
        supervisor = self._supervisor
        with self._selector, interruptible(self._selector) as ready:
            for each in self._ranks:
                self._selector.register(each.channel, selectors.EVENT_READ, each)
            try:
                while supervisor.verdict is None:
                    self._wait_once(ready)
            except KeyboardInterrupt:
                for line in self._waiting_ranks.explain(self._selector, self._receive):
                    self._print(f"ripieno: {line}")
                raise
        return self._culprit()

    def _wait_once(self, ready: Wait) -> None:
        """Print waits, and handle the events that arrive until the next deadline."""
        supervisor = self._supervisor
        for line in self._waiting_ranks.answers():
            self._print(f"ripieno: {line}")
        for key, _ in ready(self._waiting_ranks.wait_s(supervisor.wait_s(time.monotonic()))):
            supervisor.set_time(time.monotonic())
            self._receive(key)
        now = time.monotonic()
        supervisor.inspect(now, lambda rank: process.is_stopped(self._ranks[rank].process.pid))
        supervisor.tick(now)
        self._watch.states(supervisor)
        self._report_news()

    def _receive(self, key: selectors.SelectorKey) -> None:
        """Handle one message of a rank, the end of its channel, or the end of its process."""
        rank: ScriptRank = key.data
        if key.fileobj is not rank.channel:
            self._selector.unregister(key.fileobj)
            rank.status = rank.process.wait()
            cause = process.ending(rank.status) if rank.status else None
            self._supervisor.ends(rank.rank, cause, was_killed=rank.status < 0)
            return
        try:
            kind, value = rank.channel.receive()
        except ConnectionClosed:
            self._selector.unregister(key.fileobj)
            # The kernel closes the channel when the process exits, so the wait for the process is short.
            self._supervisor.leaves(rank.rank)
            self._selector.register(rank.process, selectors.EVENT_READ, rank)
            return
        if self._waiting_ranks.take(rank.rank, kind, value, rank.channel):
            return
        if kind == "telemetry":
            self._watch.telemetry(rank.rank, value)
        elif kind == "connecting":
            self._supervisor.connects(rank.rank)
        elif kind == "connected":
            self._supervisor.runs(rank.rank)
        elif kind == "done":
            self._supervisor.returns(rank.rank)
        elif kind == "exiting":
            self._supervisor.leaves(rank.rank, is_announced=True)
        else:
            rank.report = value
            self._supervisor.fails(rank.rank, **value.accusation)
            if value.victim is None:
                self._watch.lost(rank.rank, value.cause)

    def _report_news(self) -> None:
        """Report events in the supervisor's order, and end a process that does not exit after its success."""
        for rank, cause in self._supervisor.lost.items():
            self._watch.lost(rank, cause)
        for event, number in self._supervisor.events:
            if event is Event.SUSPENDED:
                pids = " ".join(str(self._ranks[rank].process.pid) for rank in self._supervisor.awaited)
                text = f"all ranks of {self._script.target} that have not ended are stopped"
                self._print(f"ripieno: {text}: resume them by kill -CONT {pids}, or interrupt this")
                continue
            assert number is not None, "all other events belong to a rank"
            name = name_of_rank(number, self._script)
            if event is Event.LOST:
                replica = self._supervisor.replica_of(number)
                others = (
                    "the others continue without it" if replica is None else f"its replica, rank {replica}, continues"
                )
                self._print(f"{name}: {self._supervisor.lost[number]}; {others}")
            elif event is Event.KILLED:
                self._ranks[number].process.kill()
                self._ranks[number].process.wait()
                self._print(
                    f"{name}: its script has ended, but its process had not {limits.END_S:g} s later, and was killed; "
                    "the result counts"
                )
            else:
                self._print(f"{name}: it is stopped; the others have ended without it")
        self._supervisor.events.clear()

    def _culprit(self) -> ScriptRank | None:
        """Return the rank with the report of the first failure, or with the status of its process."""
        verdict = self._supervisor.verdict
        if verdict is None or verdict.ending is Ending.DONE:
            return None
        number = verdict.culprit if verdict.witness is None else verdict.witness
        assert number is not None, "a script fails because of a rank"
        rank = self._ranks[number]
        if rank.report is None and not rank.status:
            rank.report = FailureReport(number, socket.gethostname(), verdict.cause, "")
        return rank

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def name_of_rank(rank: int, script: Script) -> str:
    """Return the name of a rank in messages."""
    return f"ripieno: rank {rank} of {script.target} on {socket.gethostname()}"
