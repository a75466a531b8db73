"""The iteration records of a K-means run, for whole and divided centroids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.lloyd import PassTotals
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
    stages
        For divided centroids: seconds of each iteration of this process by stage.
    """

    comm: Communicator
    number: int
    row_count: int
    emit: Callable[[dict[str, Any]], None]
    history: History
    clock: IterationClock = field(default_factory=IterationClock)
    laps: list[tuple[float, float]] = field(default_factory=list)
    stages: list[dict[str, float]] = field(default_factory=list)

    def add(self, iteration: int, totals: PassTotals, squared_shift: float, stages: dict[str, float] | None) -> None:
        """Record an iteration that has just ended."""
        compute_s, communication_s = lap = self.clock.lap()
        self.laps.append(lap)
        loss = totals.loss
        self.history.append((totals.inertia, squared_shift, totals.compared, loss.recall, loss.gap))
        more = {} if stages is None else {"stages": stages}
        self.stages.extend(more.values())
        if self.comm.rank == 0:
            self.emit(
                {
                    "event": "iteration",
                    "run": self.number + 1,
                    "iteration": iteration,
                    "inertia": totals.inertia,
                    "squared_shift": squared_shift,
                    "compared": totals.compared,
                    "recall": loss.recall,
                    "gap": loss.gap,
                    "rows_per_s": self.row_count / max(compute_s + communication_s, 1e-9),
                    "compute_s": compute_s,
                    "communication_s": communication_s,
                    **more,
                }
            )
