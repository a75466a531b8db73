"""The board: the state of a job for its dashboard, updated by the launcher and read by the server."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ripieno.dashboard.history import MetricHistory
from ripieno.dashboard.iterations import Iterations

#: Maximum number of lines; older ones are dropped.
LINE_COUNT = 1000
#: Waits are recorded per pair of ranks up to this number of ranks; above it, only per rank that caused them.
PAIRED_COUNT = 256

COUNTERS = ("call_count", "bytes_sent", "bytes_received", "called_s", "waited_s", "busy_s", "cpu_s")


@dataclass(frozen=True)
class BoardEvent:
    """A log line, a note or a line of output.

    Attributes
    ----------
    at_s
        Time in seconds since the board began.
    kind
        "error", "warning", "info", "debug", "note" or "output".
    rank
        The rank, or None for the launching process.
    source
        Name of the logger.
    text
        The text.
    """

    at_s: float
    kind: str
    rank: int | None
    source: str
    text: str

    def as_json(self) -> list[Any]:
        """Return the event as JSON for the page."""
        return [round(self.at_s, 2), self.kind, self.rank, self.source, self.text]


@dataclass
class BoardRank:
    """The state of a rank.

    Attributes
    ----------
    sums
        Totals since the board began, across all worlds: see `COUNTERS`.
    """

    rank: int
    host: str = ""
    lost: str | None = None
    #: Time of the last message, on the board's clock.
    last_report_s: float | None = None
    state: str = "starting"
    collective: str | None = None
    waits_for: tuple[int, float] | None = None
    memory_bytes: int = 0
    cores: float = 0.0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0.0))
    broadcasts: list[tuple[int, str, int, int, int]] = field(default_factory=list)


class Board:
    """The state of a job. Thread-safe; its size is bounded."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.begun = time.time()
        self._start_s = time.monotonic()
        self.version = 0
        self.job: dict[str, Any] = {"name": "", "place": "", "workers": 0, "threads": 0, "state": "starting"}
        self.ranks: dict[int, BoardRank] = {}
        self.history = MetricHistory()
        self.iterations = Iterations()
        self.lines: deque[BoardEvent] = deque(maxlen=LINE_COUNT)
        self.line_count = 0
        #: By collective and algorithm: number of calls on all ranks, and bytes sent.
        self.usage: dict[tuple[str, str], list[float]] = {}
        self.waited_for_s: dict[int, float] = {}
        self.pairs_s: dict[tuple[int, int], float] = {}
        self.links_bytes: dict[tuple[int, int], float] = {}
        # The last report by its sender, because the rank of a sender may change.
        self._last: dict[str, dict[str, Any]] = {}
        self._usage_before: dict[str, dict[tuple[str, str], tuple[float, float]]] = {}

    def now_s(self) -> float:
        """Return the time in seconds since the board began."""
        return time.monotonic() - self._start_s

    def update_job(self, **facts: Any) -> None:
        """Record changed facts about the job."""
        with self.lock:
            self.job.update(facts)
            self.version += 1

    def set_ranks(self, hosts: list[str]) -> None:
        """Record the ranks that have joined. They may replace earlier ranks."""
        with self.lock:
            for rank, host in enumerate(hosts):
                known = self.ranks.setdefault(rank, BoardRank(rank))
                known.host, known.lost, known.state = host, None, "ready"
            for rank in [rank for rank in self.ranks if rank >= len(hosts)]:
                self.ranks[rank].state = "gone"
            self.update_job(workers=len(hosts))

    def record_loss(self, rank: int, cause: str) -> None:
        """Record the loss of a rank."""
        with self.lock:
            known = self.ranks.setdefault(rank, BoardRank(rank))
            known.lost, known.state, known.waits_for, known.collective = cause, "lost", None, None
            self.line("error", "ripieno.launch", f"rank {rank} is lost: {cause}", rank=rank)

    def record_state(self, rank: int, state: str) -> None:
        """Record the launcher's state of a rank that sends nothing."""
        with self.lock:
            known = self.ranks.setdefault(rank, BoardRank(rank))
            if known.lost is None:
                known.state, known.waits_for, known.collective, known.cores = state, None, None, 0.0
                self.version += 1

    def line(self, kind: str, source: str, text: str, *, rank: int | None = None, ago_s: float = 0.0) -> None:
        """Record a line."""
        with self.lock:
            self.lines.append(BoardEvent(max(self.now_s() - ago_s, 0.0), kind, rank, source, text))
            self.line_count += 1
            self.version += 1

    def event(self, event: Mapping[str, Any], *, ago_s: float = 0.0) -> None:
        """Record an event of a program. The event contains the rank."""
        with self.lock:
            self.iterations.take(event, self.now_s() - ago_s)
            self.version += 1

    def mark_idle(self, states: Mapping[int, str] = {}) -> None:
        """Record that no program runs, and the states of ranks that are not ready."""
        with self.lock:
            for rank, known in self.ranks.items():
                if known.state not in ("lost", "gone"):
                    known.state, known.cores = states.get(rank, "ready"), 0.0
                    known.waits_for = known.collective = None
            self.version += 1

    def record_telemetry(self, rank: int, report: Mapping[str, Any]) -> None:
        """Record a telemetry report of a rank."""
        now_s = self.now_s()
        with self.lock:
            known = self.ranks.setdefault(rank, BoardRank(rank))
            last = self._last.get(report["sender_id"], {})
            self._last[report["sender_id"]] = {**last, **report}
            growth = {name: _growth(name, last, report) for name in COUNTERS}
            for name, more in growth.items():
                known.sums[name] += more
            self._take_time(known, last, report, growth, now_s)
            self._take_traffic(rank, report)
            known.memory_bytes, known.broadcasts, known.last_report_s = (
                report["memory_bytes"],
                report["broadcasts"],
                now_s,
            )
            known.collective, known.waits_for = report.get("collective"), report.get("waits_for")
            known.state = "waiting" if known.waits_for else "communicating" if known.collective else "computing"
            for ago_s, kind, source, text in report["lines"]:
                self.line(kind, source, text, rank=rank, ago_s=ago_s)
            for ago_s, event in report["events"]:
                self.event({"rank": rank, **event}, ago_s=ago_s)
            self.version += 1

    def _take_time(
        self,
        known: BoardRank,
        last: Mapping[str, Any],
        report: Mapping[str, Any],
        growth: Mapping[str, float],
        now_s: float,
    ) -> None:
        busy_s = growth["busy_s"]
        if busy_s <= 0:
            return
        passed_s = report["at_s"] - last["at_s"] if last else busy_s
        called_s = min(growth["called_s"], busy_s)
        waited_s = min(growth["waited_s"], called_s)
        known.cores = growth["cpu_s"] / passed_s if passed_s > 0 else 0.0
        sums = {
            "computing": busy_s - called_s,
            "waiting": waited_s,
            "communicating": called_s - waited_s,
            "cpu": growth["cpu_s"],
        }
        # A rank that was idle for most of the interval was busy at its end.
        self.history.add(known.rank, max(now_s - min(passed_s, busy_s), 0.0), now_s, sums, report["memory_bytes"])

    def _take_traffic(self, rank: int, report: Mapping[str, Any]) -> None:
        for peer, more_s in report.get("waited_for_s", {}).items():
            self.waited_for_s[peer] = self.waited_for_s.get(peer, 0.0) + more_s
            if max(rank, peer) < PAIRED_COUNT:
                self.pairs_s[rank, peer] = self.pairs_s.get((rank, peer), 0.0) + more_s
        for peer, more in report.get("sent_to", {}).items():
            if max(rank, peer) < PAIRED_COUNT:
                self.links_bytes[rank, peer] = self.links_bytes.get((rank, peer), 0.0) + more
        before = self._usage_before.setdefault(report["sender_id"], {})
        for collective, algorithm, calls, sent_bytes in report.get("usage", ()):
            key = (collective, algorithm)
            was = before.get(key, (0, 0))
            # A decrease indicates another communicator.
            was = was if was[0] <= calls else (0, 0)
            sums = self.usage.setdefault(key, [0, 0])
            sums[0] += calls - was[0]
            sums[1] += sent_bytes - was[1]
            before[key] = (calls, sent_bytes)


def _growth(name: str, last: Mapping[str, Any], report: Mapping[str, Any]) -> float:
    """Return the increase since the last report; the whole value for another communicator or the first report."""
    if name not in report:
        return 0.0
    now, before = float(report[name]), float(last.get(name, 0.0))
    return now - before if now >= before else now
