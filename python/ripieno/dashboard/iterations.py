"""The iterations of the current fit: their measures, and an estimate of the remaining time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Any

#: Maximum number of stored iterations; above it, every second one is dropped.
STORED_COUNT_MAX = 400
#: The time per iteration is the median over this many of the latest iterations.
LATEST_COUNT = 9
#: Names of objectives, in the order of their display.
OBJECTIVES = ("inertia", "objective", "loss", "stress", "rmse", "error", "residual", "energy")
#: Fields that describe the run rather than the fit.
_OF_THE_RUN = ("rank", "iteration", "run", "compute_s", "communication_s", "rows_per_s", "edges_per_s", "goal")


class Iterations:
    """The iterations, collected from the events that rank 0 of an estimator emits.

    Attributes
    ----------
    name
        Name of the estimator, if known.
    max_iter
        Maximum number of iterations, if known.
    """

    def __init__(self) -> None:
        self.name = ""
        self.max_iter: int | None = None
        self._number = 0
        self._goal: float | None = None
        self._taken: list[tuple[int, float, dict[str, float]]] = []
        self._every = 1
        self._ends_s: deque[float] = deque(maxlen=LATEST_COUNT)

    def begin(self, name: str, max_iter: int | None) -> None:
        """Begin a fit and drop the data of the previous one."""
        self.__init__()  # type: ignore[misc]  # resets all fields
        self.name, self.max_iter = name, max_iter

    def take(self, event: Mapping[str, Any], at_s: float) -> None:
        """Record an event if it describes an iteration."""
        number = event.get("iteration")
        if event.get("event") != "iteration" or not isinstance(number, int):
            return
        if number <= self._number:
            # Another run, or a fit that has restarted.
            self._taken.clear()
            self._ends_s.clear()
            self._every = 1
        self._number = number
        self._ends_s.append(at_s)
        goal = event.get("goal")
        self._goal = float(goal) if isinstance(goal, int | float) and goal > 0 else None
        if number % self._every == 0 or not self._taken:
            self._taken.append((number, at_s, _measures(event)))
        if len(self._taken) > STORED_COUNT_MAX:
            self._every *= 2
            self._taken = [each for each in self._taken if each[0] % self._every == 0]

    @property
    def number(self) -> int:
        """Number of the latest iteration."""
        return self._number

    @property
    def latest(self) -> dict[str, float]:
        """Measures of the latest stored iteration."""
        return self._taken[-1][2] if self._taken else {}

    @property
    def objective(self) -> str | None:
        """Name of the measure that shows the progress of the fit."""
        names = self.latest
        return next((name for name in OBJECTIVES if name in names), next(iter(names), None))

    @property
    def seconds(self) -> float | None:
        """Median time of an iteration in seconds."""
        steps = [later - earlier for earlier, later in pairwise(self._ends_s)]
        return median(steps) if steps else None

    def eta_s(self, at_s: float) -> float | None:
        """Estimate the remaining time: to the goal if the error decreases towards one, else to the last iteration."""
        each_s = self.seconds
        if each_s is None:
            return None
        left = [] if self.max_iter is None else [self.max_iter - self._number]
        to_goal = self._left_to_goal()
        left += [] if to_goal is None else [to_goal]
        return max(min(left) * each_s - (at_s - self._ends_s[-1]), 0.0) if left else None

    def _left_to_goal(self) -> int | None:
        errors = [(number, measures["error"]) for number, _, measures in self._taken if "error" in measures]
        if self._goal is None or len(errors) < 3:
            return None
        (first, before), (last, now) = errors[-min(len(errors), LATEST_COUNT)], errors[-1]
        if not 0 < now < before:
            return None
        rate = math.log(now / before) / (last - first)
        return max(0, math.ceil(math.log(self._goal / now) / rate)) if now > self._goal else 0

    def as_json(self, at_s: float) -> dict[str, Any]:
        """Return the iterations as JSON for the page."""
        names = list(self.latest)
        return {
            "name": self.name,
            "number": self._number,
            "max_iter": self.max_iter,
            "seconds": self.seconds,
            "eta_s": self.eta_s(at_s),
            "objective": self.objective,
            "names": names,
            "numbers": [number for number, _, _ in self._taken],
            "values": {name: [_finite(each.get(name)) for _, _, each in self._taken] for name in names},
        }


def _measures(event: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in event.items()
        if name not in _OF_THE_RUN and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _finite(value: float | None) -> float | None:
    """Return None for a number that JSON cannot represent."""
    return value if value is not None and math.isfinite(value) else None
