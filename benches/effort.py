"""How much is spent on a benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ripieno.bench.figures import Measurements

#: Pause before a turn: threads of a BLAS look for work, and a JVM compiles and collects, after theirs.
REST_S = 0.5

T = TypeVar("T")


@dataclass(frozen=True)
class Effort:
    """How much is spent.

    Parameters
    ----------
    quick
        Small and short: everything runs, nothing is measured.
    repetitions
        Alternating runs instead of the benchmark's own number.
    """

    quick: bool = False
    repetitions: int | None = None

    def runs(self, own: int) -> int:
        """Alternating runs of a benchmark that makes `own` if nobody says otherwise."""
        return 1 if self.quick else self.repetitions or own

    def turn(self, contestant: Callable[[], T]) -> T:
        """What a contestant gives at its second go: it pays neither for others nor for cold caches."""
        if not self.quick:
            time.sleep(REST_S)
            contestant()
        return contestant()


#: Adds what it measures to a report.
Measured = Callable[[Measurements, Effort], None]
