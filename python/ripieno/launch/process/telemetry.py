"""Provide telemetry: statistics that a rank sends to the launcher while a program runs and a dashboard is open.

Events and log lines are collected and sent with the next report, so a program cannot increase the number of messages.
Cost: one message of a few hundred bytes and 0.2 ms of processor time per report.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ripieno import log
from ripieno.comm.broadcast_variables import transfers_in_progress
from ripieno.errors import CommunicatorClosed
from ripieno.launch.process.channel import ConnectionClosed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Limits of one report: the newest events, the newest log lines, and the length of a line.
EVENT_COUNT = 200
LINE_COUNT = 100
LINE_CHARACTERS = 500
#: Number of peers in a report: the peers with the largest changes.
PEER_COUNT = 8

#: Environment variable with the interval between reports, for scripts under a launcher with a dashboard.
TELEMETRY_VARIABLE = "RIPIENO_TELEMETRY_S"

TELEMETRY_THREAD = "ripieno-telemetry"

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

T = TypeVar("T")
Send = Callable[[str, Any], None]


class Telemetry:
    """Collects and sends the telemetry of a rank, from the first watched program on.

    Parameters
    ----------
    send
        Sends a message of a kind to the launcher. Callable from any thread.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._comm: Communicator | None = None
        self._interval_s = 1.0
        # Identifies the sender: its rank may change, and another process may get that rank.
        self._sender_id = secrets.token_hex(8)
        self._begun_s = self._last_report_s = 0.0
        self._cpu_s = time.process_time()
        # Time inside programs that have ended.
        self._busy_s = 0.0
        self._thread: threading.Thread | None = None
        self._events: deque[tuple[float, dict[str, Any]]] = deque(maxlen=EVENT_COUNT)
        self._lines = LogLines()
        # Sums per peer as of the last report.
        self._last_sums: dict[str, dict[int, float]] = {"waited_for_s": {}, "sent_to": {}}

    def begin(self, comm: Communicator, interval_s: float) -> None:
        """Start reports for a program that communicates over `comm`."""
        with self._changed:
            self._comm, self._interval_s, self._begun_s = comm, interval_s, time.monotonic()
            self._lines.begin()
            log.listeners.append(self.note)
            # The first reading enables the call counters.
            self._reading(self._begun_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=TELEMETRY_THREAD, daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self) -> None:
        """End the reports of the program. Nothing is sent until another program begins."""
        with self._changed:
            now = time.monotonic()
            # Reports skip some of many short programs, but cover a long program completely.
            is_long = now - self._begun_s >= self._interval_s
            if self._comm is not None and (is_long or now - self._last_report_s >= self._interval_s / 2):
                self._send_report(now)
            self._busy_s += now - self._begun_s
            self._comm = None
            self._lines.end()
            log.listeners.remove(self.note)
            self._changed.notify()

    def event(self, event: dict[str, Any]) -> None:
        """Add an event that the program emits to the next report."""
        self._events.append((time.monotonic(), event))

    def note(self, name: str, text: str, rank: int | None) -> None:
        """Add a note to the next report, unless it belongs to another rank of this process."""
        if rank is None or self._comm is None or rank == self._comm.rank:
            self._lines.add("note", name, text)

    def _run(self) -> None:
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._comm is not None)
                left_s = max(self._last_report_s, self._begun_s) + self._interval_s - time.monotonic()
                if not self._changed.wait_for(lambda: self._comm is None, max(left_s, 0.0)):
                    self._send_report(time.monotonic())

    def _send_report(self, now: float) -> None:
        self._last_report_s = now
        events = [(now - at, event) for at, event in _emptied(self._events)]
        report = {
            "sender_id": self._sender_id,
            "at_s": now,
            "busy_s": self._busy_s + now - self._begun_s,
            "cpu_s": time.process_time() - self._cpu_s,
            "memory_bytes": _memory_bytes(),
            "events": events,
            "lines": self._lines.taken(now),
            "broadcasts": transfers_in_progress(),
            **self._reading(now),
        }
        # If the launcher has ended, this process ends as well.
        with suppress(ConnectionClosed):
            self._send("telemetry", report)

    def _reading(self, now: float) -> dict[str, Any]:
        comm = None if self._comm is None else self._comm._latest
        native = None if comm is None else comm._native_or_none
        if native is None:
            return {}
        try:
            reading = native.traffic(now)
        except CommunicatorClosed:
            return {}
        for name, last_sums in self._last_sums.items():
            reading[name] = _most_grown(last_sums, reading[name])
        return reading


class LogLines:
    """Log lines of this process, recorded as they are created. Logging handlers remain unchanged."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str, str, str]] = deque(maxlen=LINE_COUNT)
        self._factory = logging.getLogRecordFactory()

    def begin(self) -> None:
        """Start recording."""
        before = logging.getLogRecordFactory()
        if before != self._record:
            self._factory = before
            logging.setLogRecordFactory(self._record)

    def end(self) -> None:
        """Stop recording, unless another recorder was installed later."""
        if logging.getLogRecordFactory() == self._record:
            logging.setLogRecordFactory(self._factory)

    def add(self, level: str, name: str, text: str) -> None:
        """Record a line."""
        self._lines.append((time.monotonic(), level, name, text[:LINE_CHARACTERS]))

    def taken(self, now: float) -> list[tuple[float, str, str, str]]:
        """Return and remove the recorded lines: age in seconds, level, logger name, text."""
        return [(now - at, level, name, text) for at, level, name, text in _emptied(self._lines)]

    def _record(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._factory(*args, **kwargs)
        # A message that does not fit its arguments is an error of the program. Its handlers report it.
        with suppress(Exception):
            self.add(record.levelname.lower(), record.name, record.getMessage())
        return record


def _emptied(notes: deque[T]) -> list[T]:
    """Return and remove the current contents of `notes`. Other threads may append meanwhile."""
    return [notes.popleft() for _ in range(len(notes))]


def _most_grown(last_sums: dict[int, float], sums: list[float]) -> dict[int, float]:
    """Return the increases since the last report of the peers with the largest increases, and update `last_sums`."""
    if any(sums[place] < before for place, before in last_sums.items() if place < len(sums)):
        # The sums belong to another communicator.
        last_sums.clear()
    grown = sorted(((now - last_sums.get(place, 0), place) for place, now in enumerate(sums)), reverse=True)
    largest = {place: growth for growth, place in grown[:PEER_COUNT] if growth > 0}
    last_sums.update({place: sums[place] for place in largest})
    return largest


def _memory_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if the system does not provide it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
