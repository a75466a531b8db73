"""The board: what a dashboard knows of a job, told by those who launch it, asked by those who look."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ripieno.dashboard.history import MetricHistory
from ripieno.dashboard.iterations import Iterations

#: Lines that are kept; of more the latest.
LINE_COUNT = 1000
#: Waits between pairs of ranks are kept for so many ranks; of more only whom they waited for.
PAIRED_COUNT = 256

COUNTERS = ("call_count", "bytes_sent", "bytes_received", "called_s", "waited_s", "busy_s", "cpu_s")


@dataclass(frozen=True)
class BoardEvent:
    """Something that happened.

    Attributes
    ----------
    at_s
        When, since the board began.
    kind
        "error", "warning", "info", "debug", "note" or "output".
    rank
        On which rank; None in the launching process.
    source
        Which logger.
    text
        What.
    """

    at_s: float
    kind: str
    rank: int | None
    source: str
    text: str

    def told(self) -> list[Any]:
        """For the page."""
        return [round(self.at_s, 2), self.kind, self.rank, self.source, self.text]


@dataclass
class RankState:
    """What is known of a rank.

    Attributes
    ----------
    sums
        Since the board began, also over several worlds: see `COUNTERS`.
    """

    rank: int
    host: str = ""
    lost: str | None = None
    #: When it was last heard of, on the board's clock.
    heard_s: float | None = None
    state: str = "starting"
    collective: str | None = None
    waits_for: tuple[int, float] | None = None
    memory_bytes: int = 0
    cores: float = 0.0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0.0))
    broadcasts: list[tuple[int, str, int, int, int]] = field(default_factory=list)


class Board:
    """Safe for any thread; nothing in it grows with time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.begun = time.time()
        self._begun_s = time.monotonic()
        self.version = 0
        self.job: dict[str, Any] = {"name": "", "place": "", "workers": 0, "threads": 0, "state": "starting"}
        self.ranks: dict[int, RankState] = {}
        self.history = MetricHistory()
        self.iterations = Iterations()
        self.lines: deque[BoardEvent] = deque(maxlen=LINE_COUNT)
        self.line_count = 0
        #: By collective and algorithm: calls of all ranks, and bytes that they sent.
        self.usage: dict[tuple[str, str], list[float]] = {}
        self.waited_for_s: dict[int, float] = {}
        self.pairs_s: dict[tuple[int, int], float] = {}
        self.links_bytes: dict[tuple[int, int], float] = {}
        # By who has told it, whose rank may change: what the last pulse said.
        self._last: dict[str, dict[str, Any]] = {}
        self._usage_before: dict[str, dict[tuple[str, str], tuple[float, float]]] = {}

    def now_s(self) -> float:
        """Since it began."""
        return time.monotonic() - self._begun_s

    def tell_job(self, **facts: Any) -> None:
        """Something of the job has changed."""
        with self.lock:
            self.job.update(facts)
            self.version += 1

    def tell_ranks(self, hosts: list[str]) -> None:
        """These ranks have met, perhaps instead of others."""
        with self.lock:
            for rank, host in enumerate(hosts):
                known = self.ranks.setdefault(rank, RankState(rank))
                known.host, known.lost, known.state = host, None, "ready"
            for rank in [rank for rank in self.ranks if rank >= len(hosts)]:
                self.ranks[rank].state = "gone"
            self.tell_job(workers=len(hosts))

    def tell_loss(self, rank: int, cause: str) -> None:
        """A rank is lost."""
        with self.lock:
            known = self.ranks.setdefault(rank, RankState(rank))
            known.lost, known.state, known.waits_for, known.collective = cause, "lost", None, None
            self.line("error", "ripieno.launch", f"rank {rank} is lost: {cause}", rank=rank)

    def line(self, kind: str, source: str, text: str, *, rank: int | None = None, ago_s: float = 0.0) -> None:
        """Something has happened."""
        with self.lock:
            self.lines.append(BoardEvent(max(self.now_s() - ago_s, 0.0), kind, rank, source, text))
            self.line_count += 1
            self.version += 1

    def event(self, event: Mapping[str, Any], *, ago_s: float = 0.0) -> None:
        """A program has emitted something, which has the rank in it."""
        with self.lock:
            self.iterations.take(event, self.now_s() - ago_s)
            self.version += 1

    def rest(self) -> None:
        """No program runs any more."""
        with self.lock:
            for known in self.ranks.values():
                if known.state not in ("lost", "gone"):
                    known.state, known.waits_for, known.collective, known.cores = "ready", None, None, 0.0
            self.version += 1

    def pulse(self, rank: int, told: Mapping[str, Any]) -> None:
        """A rank has told how it fares."""
        now_s = self.now_s()
        with self.lock:
            known = self.ranks.setdefault(rank, RankState(rank))
            last = self._last.get(told["teller"], {})
            self._last[told["teller"]] = {**last, **told}
            growth = {name: _growth(name, last, told) for name in COUNTERS}
            for name, more in growth.items():
                known.sums[name] += more
            self._take_time(known, last, told, growth, now_s)
            self._take_traffic(rank, told)
            known.memory_bytes, known.broadcasts, known.heard_s = told["memory_bytes"], told["broadcasts"], now_s
            known.collective, known.waits_for = told.get("collective"), told.get("waits_for")
            known.state = "waiting" if known.waits_for else "communicating" if known.collective else "computing"
            for ago_s, kind, source, text in told["lines"]:
                self.line(kind, source, text, rank=rank, ago_s=ago_s)
            for ago_s, event in told["events"]:
                self.event({"rank": rank, **event}, ago_s=ago_s)
            self.version += 1

    def _take_time(
        self,
        known: RankState,
        last: Mapping[str, Any],
        told: Mapping[str, Any],
        growth: Mapping[str, float],
        now_s: float,
    ) -> None:
        busy_s = growth["busy_s"]
        if busy_s <= 0:
            return
        passed_s = told["at_s"] - last["at_s"] if last else busy_s
        called_s = min(growth["called_s"], busy_s)
        waited_s = min(growth["waited_s"], called_s)
        known.cores = growth["cpu_s"] / passed_s if passed_s > 0 else 0.0
        sums = {
            "computing": busy_s - called_s,
            "waiting": waited_s,
            "communicating": called_s - waited_s,
            "cpu": growth["cpu_s"],
        }
        # A rank that was idle for most of the time was busy at the end of it.
        self.history.add(known.rank, max(now_s - min(passed_s, busy_s), 0.0), now_s, sums, told["memory_bytes"])

    def _take_traffic(self, rank: int, told: Mapping[str, Any]) -> None:
        for peer, more_s in told.get("waited_for_s", {}).items():
            self.waited_for_s[peer] = self.waited_for_s.get(peer, 0.0) + more_s
            if max(rank, peer) < PAIRED_COUNT:
                self.pairs_s[rank, peer] = self.pairs_s.get((rank, peer), 0.0) + more_s
        for peer, more in told.get("sent_to", {}).items():
            if max(rank, peer) < PAIRED_COUNT:
                self.links_bytes[rank, peer] = self.links_bytes.get((rank, peer), 0.0) + more
        before = self._usage_before.setdefault(told["teller"], {})
        for collective, algorithm, calls, sent_bytes in told.get("usage", ()):
            key = (collective, algorithm)
            was = before.get(key, (0, 0))
            # Less than before is of another communicator.
            was = was if was[0] <= calls else (0, 0)
            sums = self.usage.setdefault(key, [0, 0])
            sums[0] += calls - was[0]
            sums[1] += sent_bytes - was[1]
            before[key] = (calls, sent_bytes)


def _growth(name: str, last: Mapping[str, Any], told: Mapping[str, Any]) -> float:
    """What has been added since the last pulse; all, if that was of another communicator or there was none."""
    if name not in told:
        return 0.0
    now, before = float(told[name]), float(last.get(name, 0.0))
    return now - before if now >= before else now
