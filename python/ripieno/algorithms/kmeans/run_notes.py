"""What a run of K-means notes of its iterations, whole centroids or divided ones."""

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
class RunNotes:
    """Times of a run's iterations and what they came to, of which rank 0 tells whoever listens.

    Parameters
    ----------
    comm
        The workers.
    number
        Of the run, from 0.
    row_count
        Rows of all workers.
    emit
        Gets an event for each iteration.
    history
        What iterations came to, to which those of here are added.
    clock
        What is computation and what is communication.
    laps
        Seconds of computing and communicating of each iteration made here.
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
        """Note an iteration that has just ended; `more` is told besides."""
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
