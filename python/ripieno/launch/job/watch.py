"""What a job tells of itself: to the log, and to a dashboard if there is one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ripieno.dashboard import current
from ripieno.host import usable_cores
from ripieno.launch.job.programs import EventOptions
from ripieno.launch.process.pulse import PULSE_VARIABLE, LogLines

logger = logging.getLogger("ripieno.launch")

#: Ranks tell how they fare so often at most; and so that all pulses together cost this machine half a percent.
PULSE_S = 0.5
PULSE_COST_S = 0.6e-3
SHARE = 0.005


class JobWatch:
    """Of one job.

    Parameters
    ----------
    is_asked
        Whether the job is to have a dashboard of its own.
    """

    def __init__(self, is_asked: bool = False) -> None:
        self.dashboard, self._is_own = current(is_asked)
        self._lines = LogLines()
        # Of those that have met last.
        self._lost: set[int] = set()
        if self.dashboard is not None:
            self._lines.begin()

    @property
    def _board(self) -> Any:
        return None if self.dashboard is None else self.dashboard.board

    def hearing(self, is_heard: bool, workers: int) -> EventOptions:
        """Who hears of a program on so many ranks."""
        if self.dashboard is None:
            return EventOptions(is_heard)
        return EventOptions(is_heard, pulse_s(workers))

    def environment(self, workers: int) -> dict[str, str]:
        """What tells so many scripts that somebody watches."""
        return {} if self.dashboard is None else {PULSE_VARIABLE: str(pulse_s(workers))}

    def begins(self, job: str, place: str, threads: int, hosts: list[str]) -> None:
        """Ranks have met."""
        self._lost.clear()
        ranks = "1 rank is" if len(hosts) == 1 else f"{len(hosts)} ranks have met"
        logger.info("%s: %s in %s", job, ranks, place)
        if self.dashboard is not None:
            self._board.tell_job(name=job, place=place, threads=threads, state="ready")
            self._board.tell_ranks(hosts)
            self.dashboard.note("info", f"{ranks} in {place}")

    @contextmanager
    def program(self, name: str) -> Iterator[None]:
        """A program runs."""
        logger.debug("%s begins", name)
        if self.dashboard is None:
            yield
            return
        self._board.tell_job(state="running", program=name)
        try:
            yield
        except BaseException as error:
            self.dashboard.note("error", f"{name}: {type(error).__name__}: {error}".partition("\n")[0])
            raise
        finally:
            self._take_lines()
            self._board.rest()
            self._board.tell_job(state="ready")

    def fit(self, name: str, most: int | None) -> None:
        """A fit begins, of so many iterations at most."""
        if self.dashboard is not None:
            self._board.iterations.begin(name, most)

    def pulse(self, rank: int, told: Mapping[str, Any]) -> None:
        """A rank has told how it fares."""
        if self.dashboard is not None:
            self._board.pulse(rank, told)
            self._take_lines()

    def event(self, event: Mapping[str, Any]) -> None:
        """A rank has emitted something."""
        if self.dashboard is not None:
            self._board.event(event)

    def output(self, name: str, text: str) -> None:
        """A rank, by its name, has printed a line."""
        if self.dashboard is not None:
            self.dashboard.note("output", text, source=name)

    def lost(self, rank: int, cause: str) -> None:
        """The job goes on without a rank, or has failed because of it. May be told again."""
        if rank in self._lost:
            return
        self._lost.add(rank)
        first_line = cause.strip().partition("\n")[0]
        # No warning: the caller is told by an error, or goes on, as it has wished.
        logger.info("rank %d is lost: %s", rank, first_line)
        if self.dashboard is not None:
            self._board.tell_loss(rank, first_line)

    def note(self, text: str) -> None:
        """Something has happened, in words."""
        logger.info("%s", text)
        if self.dashboard is not None:
            self.dashboard.note("info", text)

    def close(self) -> None:
        """The job is over. May be called again."""
        if self.dashboard is not None:
            self._take_lines()
            self._lines.end()
            self._board.rest()
            if self._is_own:
                self.dashboard.end()

    def leave_lines(self) -> None:
        """What this process logs is told by its rank."""
        self._lines.end()

    def _take_lines(self) -> None:
        for ago_s, kind, source, text in self._lines.taken_now():
            # What the job itself has logged it has told already.
            if source != logger.name:
                self._board.line(kind, source, text, ago_s=ago_s)


def pulse_s(workers: int) -> float:
    """How often each of so many ranks is to tell how it fares."""
    return max(PULSE_S, workers * PULSE_COST_S / (SHARE * usable_cores()))
