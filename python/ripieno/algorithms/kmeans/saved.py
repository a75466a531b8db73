"""Where a fit keeps its checkpoint: the centroids before and after an iteration, of which all that follows is made.

All ranks have them. Rank 0 writes them into a folder that it sees, once in a while.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.fit_checkpoint import SharedCheckpoint

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
class Ended:
    """The best run that has ended: its number, from 0, centroids and inertia, and what is told of its iterations."""

    run: int
    centroids: NDArray[Any]
    inertia: float
    history: History


@dataclass(frozen=True)
class FitState:
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
    best: Ended | None = None


class Keeper:
    """Keeps the state of a fit in a folder, and in memory if it would begin again; does nothing without either.

    Parameters
    ----------
    comm
        The ranks, all of which make each call.
    folder
        Where rank 0 keeps it.
    facts
        What the fit is of, by name.

    Raises
    ------
    CheckpointError
        The folder cannot be used, or another process uses it.
    """

    def __init__(self, comm: Communicator, folder: str | None, facts: dict[str, Any]) -> None:
        self._comm = comm
        self._checkpoint = SharedCheckpoint(comm, folder, NAME, facts)
        self.used = self._checkpoint.used

    def load(self, max_iter: int) -> FitState | None:
        """How far an earlier fit had come, if one had.

        Raises
        ------
        CheckpointError
            What is there is torn, of another fit, or has come further than this one is to go.
        """
        found = self._checkpoint.load()
        if found is None:
            return None
        best = found.result["best"]
        state = FitState(**(found.result | {"best": None if best is None else Ended(**best)}))
        if state.iteration >= max_iter and self._comm.rank == 0:
            raise self._checkpoint.unusable(
                f"is a checkpoint after {state.iteration} iterations, and max_iter={max_iter} ends before", "allow more"
            )
        return state

    def check(self, kept: FitState, inertia: float, *, is_near: bool) -> None:
        """Raise CheckpointError if the rows have another inertia at the centroids that were kept."""
        tolerance = SAME_ROWS_NEAR if is_near else SAME_ROWS
        if self._comm.rank == 0 and not np.isclose(inertia, kept.inertia, rtol=tolerance, atol=0.0):
            raise self._checkpoint.other_fit(f"its rows had the inertia {kept.inertia!r}, and these have {inertia!r}")

    def save(self, state: FitState) -> None:
        """Keep a state instead of the last one; in the folder unless that was kept a moment ago."""
        self._checkpoint.save(state.iteration, _parts(state) | {"best": state.best and _parts(state.best)})

    def close(self) -> None:
        """Let other processes have the folder."""
        self._checkpoint.close()


def _parts(state: FitState | Ended) -> dict[str, Any]:
    return {each.name: getattr(state, each.name) for each in fields(state)}
