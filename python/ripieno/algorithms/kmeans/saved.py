"""Checkpoints of K-means fits: the centroids before and after an iteration, which determine all later iterations.

All ranks have these centroids. Rank 0 writes them to a folder.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.fit_checkpoint import CheckpointOptions, FitStates

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "kmeans"
#: Largest relative difference in inertia of the same rows on other processors or worker counts.
INERTIA_RTOL = 1e-5
#: The same limit for near assignment, which restarts its groups.
NEAR_INERTIA_RTOL = 0.05

#: Per iteration: inertia, squared shift, part compared, recall and gap.
History = list[tuple[float, float, float, float, float]]


@dataclass(frozen=True)
class BestRun:
    """The best completed run: its number, from 0, its centroids and inertia, and the history of its iterations."""

    run: int
    centroids: NDArray[Any]
    inertia: float
    history: History


@dataclass(frozen=True)
class KMeansFitState:
    """The progress of a fit.

    Parameters
    ----------
    run, iteration
        Number of the current run, from 0, and its number of completed iterations.
    before, centroids : (k, d)
        Centroids before and after the last iteration.
    inertia
        Inertia at `before`.
    history
        Measures of each iteration.
    best
        Best of the earlier runs.
    """

    run: int
    iteration: int
    before: NDArray[Any]
    centroids: NDArray[Any]
    inertia: float
    history: History
    best: BestRun | None = None


class KMeansCheckpointer:
    """Saves the state of a fit to a folder, and to memory if the program restarts after failures.

    Without a folder and without restarts, it does nothing.

    Parameters
    ----------
    comm
        The ranks. All of them make each call.
    checkpoint_options
        Checkpoint settings.
    facts
        Facts that identify the fit, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, comm: Communicator, checkpoint_options: CheckpointOptions, facts: dict[str, Any]) -> None:
        self._states = FitStates(comm, NAME, shared=True, checkpoint_options=checkpoint_options, facts=facts)
        self.used = self._states.used
        # Saved iterations of all runs. The last iteration of a run is not saved.
        self._iterations = 0

    def load(self, max_iter: int) -> KMeansFitState | None:
        """Return the progress of an earlier fit, or None.

        Raises
        ------
        CheckpointError
            The saved state is damaged, belongs to another fit, or is beyond `max_iter`.
        """
        for found in self._states.load():
            best = found["best"]
            state = KMeansFitState(**(found | {"best": None if best is None else BestRun(**best)}))
            self._states.check_iteration_limit(state.iteration, max_iter - 1, f"max_iter={max_iter}")
            self._iterations = self._states.done
            return state
        return None

    def check(self, saved: KMeansFitState, inertia: float, *, is_near: bool) -> None:
        """Raise CheckpointError if the rows have another inertia at the saved centroids."""
        tolerance = NEAR_INERTIA_RTOL if is_near else INERTIA_RTOL
        if not np.isclose(inertia, saved.inertia, rtol=tolerance, atol=0.0):
            self._states.raise_other_fit(f"its rows had the inertia {saved.inertia!r}, and these have {inertia!r}")

    def save(self, state: KMeansFitState) -> None:
        """Save the state after an iteration if the schedule requires it, replacing the earlier state."""
        self._iterations += 1
        self._states.save(self._iterations, _parts(state) | {"best": state.best and _parts(state.best)})

    def close(self) -> None:
        """Release the folder for other processes."""
        self._states.close()


def _parts(state: KMeansFitState | BestRun) -> dict[str, Any]:
    return {each.name: getattr(state, each.name) for each in fields(state)}
