"""Provide `JobWatch`, which reports the events of a job to the log and, if there is one, to the dashboard."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ripieno.dashboard import current
from ripieno.host import usable_cores
from ripieno.launch.job.programs import EventOptions
from ripieno.launch.process.telemetry import TELEMETRY_VARIABLE, LogLines
from ripieno.launch.supervisor import RankState, RankStatus, Supervisor

#: States of a rank that is not ready after a program.
_UNABLE = (RankState.FAILED, RankState.LOST)
#: States of a rank that sends no telemetry.
_INACTIVE = (RankState.STARTING, RankState.CONNECTING, RankState.STOPPED, RankState.SILENT, RankState.LEAVING)

logger = logging.getLogger("ripieno.launch")

#: Minimum interval between telemetry reports of a rank. All reports together use at most half a percent of this host.
INTERVAL_S_MIN = 0.5
REPORT_COST_S = 0.6e-3
SHARE = 0.005


class JobWatch:
    """Reports the events of one job.

    Parameters
    ----------
    is_requested
        Whether to open a dashboard for this job.
    """

    def __init__(self, is_requested: bool = False) -> None:
        self.dashboard, self._is_own = current(is_requested)
        self._lines = LogLines()
        # Lost ranks since the last rendezvous.
        self._lost: set[int] = set()
        # Ranks that send nothing, as last reported.
        self._inactive: dict[int, RankState] = {}
        if self.dashboard is not None:
            self._lines.begin()

    @property
    def _board(self) -> Any:
        return None if self.dashboard is None else self.dashboard.board

    def event_options(self, has_listener: bool, workers: int) -> EventOptions:
        """Return the options that select the events of a program on `workers` ranks."""
        if self.dashboard is None:
            return EventOptions(has_listener)
        return EventOptions(has_listener, telemetry_interval_s(workers))

    def environment(self, workers: int) -> dict[str, str]:
        """Return the environment variables that request telemetry from the ranks of a script."""
        return {} if self.dashboard is None else {TELEMETRY_VARIABLE: str(telemetry_interval_s(workers))}

    def begins(self, job: str, place: str, threads: int, hosts: list[str]) -> None:
        """Report that ranks have joined."""
        self._lost.clear()
        ranks = "1 rank is" if len(hosts) == 1 else f"{len(hosts)} ranks have joined"
        logger.info("%s: %s in %s", job, ranks, place)
        if self.dashboard is not None:
            self._board.update_job(name=job, place=place, threads=threads, state="ready")
            self._board.set_ranks(hosts)
            self.dashboard.note("info", f"{ranks} in {place}")

    @contextmanager
    def program(self, name: str, ranks: Callable[[], list[RankStatus]] = list) -> Iterator[None]:
        """Report the run of a program, and the states of its ranks after it."""
        logger.debug("%s begins", name)
        if self.dashboard is None:
            yield
            return
        self._board.update_job(state="running", program=name)
        try:
            yield
        except BaseException as error:
            self.dashboard.note("error", f"{name}: {type(error).__name__}: {error}".partition("\n")[0])
            raise
        finally:
            self._take_lines()
            # Lost ranks come last. Another rank may have their number now.
            states = {each.rank: each.state for each in reversed(ranks())}
            self._board.mark_idle({rank: str(state) for rank, state in states.items() if state in _UNABLE})
            self._board.update_job(state="ready")

    def fit(self, name: str, max_iter: int | None) -> None:
        """Report the start of a fit with at most `max_iter` iterations."""
        if self.dashboard is not None:
            self._board.iterations.begin(name, max_iter)

    def telemetry(self, rank: int, report: Mapping[str, Any]) -> None:
        """Record a telemetry report of a rank."""
        if self.dashboard is not None:
            self._board.record_telemetry(rank, report)
            self._take_lines()

    def event(self, event: Mapping[str, Any]) -> None:
        """Report an event that a rank has emitted."""
        if self.dashboard is not None:
            self._board.event(event)

    def output(self, name: str, text: str) -> None:
        """Report a line that the rank named `name` has printed."""
        if self.dashboard is not None:
            self.dashboard.note("output", text, source=name)

    def lost(self, rank: int, cause: str) -> None:
        """Report that the job continues without a rank, or has failed because of it. Repeated calls have no effect."""
        if rank in self._lost:
            return
        self._lost.add(rank)
        first_line = cause.strip().partition("\n")[0]
        # Not a warning: the caller gets an exception, or has requested that the job continue.
        logger.info("rank %d is lost: %s", rank, first_line)
        if self.dashboard is not None:
            self._board.record_loss(rank, first_line)

    def states(self, supervisor: Supervisor) -> None:
        """Report the states of ranks that send nothing. Repeated calls have no effect."""
        if self.dashboard is None:
            return
        now = {rank: state for rank in supervisor.awaited if (state := supervisor.state(rank)) in _INACTIVE}
        for rank, state in now.items():
            if self._inactive.get(rank) is not state:
                self._board.record_state(rank, str(state))
        self._inactive = now

    def note(self, text: str) -> None:
        """Report an event as text."""
        logger.info("%s", text)
        if self.dashboard is not None:
            self.dashboard.note("info", text)

    def close(self) -> None:
        """Report the end of the job. Repeated calls have no effect."""
        if self.dashboard is not None:
            self._take_lines()
            self._lines.end()
            self._board.mark_idle()
            if self._is_own:
                self.dashboard.end()

    def stop_lines(self) -> None:
        """Stop collecting log lines here: the rank in this process reports them."""
        self._lines.end()

    def _take_lines(self) -> None:
        for ago_s, kind, source, text in self._lines.taken(time.monotonic()):
            # The job's own log lines were reported when they were logged.
            if source != logger.name:
                self._board.line(kind, source, text, ago_s=ago_s)


def telemetry_interval_s(workers: int) -> float:
    """Return the interval in seconds between two telemetry reports of each of `workers` ranks."""
    return max(INTERVAL_S_MIN, workers * REPORT_COST_S / (SHARE * usable_cores()))
