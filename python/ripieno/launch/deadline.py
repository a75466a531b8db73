"""Provide `Deadline`, the end of a wait; `pauses`, a polling loop with growing pauses; and `is_ready`, one wait."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from typing import Any

from ripieno.launch.limits import PAUSE_S_MAX, PAUSE_S_MIN


class Deadline:
    """The time `timeout_s` seconds after now."""

    def __init__(self, timeout_s: float) -> None:
        self._at = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """Return the seconds until the deadline; 0.0 afterwards."""
        return max(0.0, self._at - time.monotonic())


def pauses(timeout_s: float) -> Iterator[None]:
    """Yield immediately, then after pauses of growing length, and for the last time after `timeout_s`."""
    deadline, pause_s = Deadline(timeout_s), PAUSE_S_MIN
    yield
    while (left_s := deadline.left_s) > 0.0:
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, PAUSE_S_MAX)
        yield


def is_ready(source: Any, timeout_s: float | None, events: int = select.POLLIN) -> bool:
    """Wait until a descriptor, or an object with one, is ready; return False after `timeout_s`. None has no limit."""
    watch = select.poll()
    watch.register(source, events)
    return bool(watch.poll(None if timeout_s is None else timeout_s * 1000))
