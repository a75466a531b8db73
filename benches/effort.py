"""The effort to spend on a benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ripieno.bench.figures import Measurements

#: Pause before a turn: after their turns, BLAS threads spin and a JVM compiles and collects.
REST_S = 0.5

T = TypeVar("T")


@dataclass(frozen=True)
class Effort:
    """The effort to spend.

    Parameters
    ----------
    quick
        Small and short: everything runs, but the times mean nothing.
    repetitions
        Number of alternating runs; by default the benchmark's own.
    """

    quick: bool = False
    repetitions: int | None = None

    def runs(self, own: int) -> int:
        """Return the number of alternating runs; `own` is the benchmark's default."""
        return 1 if self.quick else self.repetitions or own

    def turn(self, baseline: Callable[[], T]) -> T:
        """Run a baseline twice after a pause and return the second result, which excludes cold caches."""
        if not self.quick:
            time.sleep(REST_S)
            baseline()
        return baseline()


#: Adds its measurements to a report.
Measured = Callable[[Measurements, Effort], None]
