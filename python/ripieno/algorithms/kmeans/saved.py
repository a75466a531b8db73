"""Where a fit keeps its checkpoint: the centroids before and after an iteration, of which all that follows is made.

All ranks have them. Rank 0 writes them into a folder that it sees.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.fit_checkpoint import FitStates, Keeping

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "kmeans"
#: By so much the inertia of the same rows may differ, on another processor or number of workers.
SAME_ROWS = 1e-5
#: The same where a near assignment, which begins anew, makes it.
SAME_ROWS_NEAR = 0.05

#: Of each iteration inertia, squared shift, part compared, recall and gap.
History = list[tuple[float, float, float, float, float]]


@dataclass(frozen=True)
class BestRun:
    """The best run that has ended: its number, from 0, centroids and inertia, and what is told of its iterations."""

    run: int
    centroids: NDArray[Any]
    inertia: float
    history: History


@dataclass(frozen=True)
class KMeansFitState:
    """How far a fit has come.

    Parameters
    ----------
    run, iteration
        The run at hand, from 0, and how many of its iterations are done.
    before, centroids : (k, d)
        Before the last of them, and after it.
    inertia
        At `before`.
    history
        What is told of each.
    best
        Of the runs before.
    """

    run: int
    iteration: int
    before: NDArray[Any]
    centroids: NDArray[Any]
    inertia: float
    history: History
    best: BestRun | None = None


class KMeansCheckpointer:
    """Keeps the state of a fit in a folder, and in memory if it would begin again; does nothing without either.

    Parameters
    ----------
    comm
        The ranks, all of which make each call.
    keeping
        Where, and how often.
    facts
        What the fit is of, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, comm: Communicator, keeping: Keeping, facts: dict[str, Any]) -> None:
        self._states = FitStates(comm, NAME, shared=True, keeping=keeping, facts=facts)
        self.used = self._states.used
        # Of all runs, but for the last of each, behind which there is nothing to keep.
        self._iterations = 0

    def load(self, max_iter: int) -> KMeansFitState | None:
        """How far an earlier fit had come, if one had.

        Raises
        ------
        CheckpointError
            What is there is torn, of another fit, or has come further than this one is to go.
        """
        for found in self._states.load():
            best = found["best"]
            state = KMeansFitState(**(found | {"best": None if best is None else BestRun(**best)}))
            self._states.refuse_beyond(state.iteration, max_iter - 1, f"max_iter={max_iter}")
            self._iterations = self._states.done
            return state
        return None

    def check(self, kept: KMeansFitState, inertia: float, *, is_near: bool) -> None:
        """Raise CheckpointError if the rows have another inertia at the centroids that were kept."""
        tolerance = SAME_ROWS_NEAR if is_near else SAME_ROWS
        if not np.isclose(inertia, kept.inertia, rtol=tolerance, atol=0.0):
            self._states.refuse_other(f"its rows had the inertia {kept.inertia!r}, and these have {inertia!r}")

    def save(self, state: KMeansFitState) -> None:
        """Keep the state after an iteration instead of the last one, if it has its turn."""
        self._iterations += 1
        self._states.save(self._iterations, _parts(state) | {"best": state.best and _parts(state.best)})

    def close(self) -> None:
        """Let other processes have the folder."""
        self._states.close()


def _parts(state: KMeansFitState | BestRun) -> dict[str, Any]:
    return {each.name: getattr(state, each.name) for each in fields(state)}
