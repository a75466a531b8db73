"""How much is spent on a benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ripieno.bench.figures import Measurements


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


#: Adds what it measures to a report.
Measured = Callable[[Measurements, Effort], None]
