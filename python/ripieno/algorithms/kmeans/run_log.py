"""The iteration records of a K-means run, for whole and divided centroids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.near import AssignmentLoss
from ripieno.algorithms.kmeans.saved import History

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class RunLog:
    """The times and measures of a run's iterations. Rank 0 emits them as events.

    Parameters
    ----------
    comm
        The workers.
    number
        Number of the run, from 0.
    row_count
        Total number of rows of all workers.
    emit
        Callable that receives an event per iteration.
    history
        Measures of the earlier iterations. New iterations are appended.
    clock
        Clock that separates computation from communication.
    laps
        Seconds of computation and communication of each iteration of this process.
    """

    comm: Communicator
    number: int
    row_count: int
    emit: Callable[[dict[str, Any]], None]
    history: History
    clock: IterationClock = field(default_factory=IterationClock)
    laps: list[tuple[float, float]] = field(default_factory=list)

    def add(
        self, iteration: int, inertia: float, squared_shift: float, compared: float, loss: AssignmentLoss, **more: Any
    ) -> None:
        """Record an iteration that has just ended; the event also contains `more`."""
        compute_s, communication_s = lap = self.clock.lap()
        self.laps.append(lap)
        self.history.append((inertia, squared_shift, compared, loss.recall, loss.gap))
        if self.comm.rank == 0:
            self.emit(
                {
                    "event": "iteration",
                    "run": self.number + 1,
                    "iteration": iteration,
                    "inertia": inertia,
                    "squared_shift": squared_shift,
                    "compared": compared,
                    "recall": loss.recall,
                    "gap": loss.gap,
                    "rows_per_s": self.row_count / max(compute_s + communication_s, 1e-9),
                    "compute_s": compute_s,
                    "communication_s": communication_s,
                    **more,
                }
            )
