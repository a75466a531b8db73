"""Where a fit keeps its checkpoint: the state that it has come to, of which all that follows is made.

All ranks have the state. Rank 0 writes it into a folder that it sees, at the end, too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.fit_checkpoint import FitStates, Keeping

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "mds"
#: By so much of the stress the same dissimilarities may differ, on another processor.
SAME_ROWS = 1e-5


@dataclass(frozen=True)
class MdsFitState:
    """How far a fit has come.

    Parameters
    ----------
    at : (n, k)
        Positions.
    start, level
        The start, and the temperature, from 0; after the last of these come the rounds of leaps.
    iteration, in_level, told
        Iterations of this start, of this temperature, and of all starts.
    errors, squares
        What was measured at the positions.
    before
        The errors an iteration before, at the same temperature.
    left
        The errors before the last round of leaps, infinite before the first.
    converged
        Whether the start has ended before so many iterations as are allowed.
    best
        The end of the start with the least errors.
    """

    at: NDArray[np.float64]
    start: int = 0
    level: int = 0
    iteration: int = 0
    in_level: int = 0
    told: int = 0
    errors: float = 0.0
    squares: float = 0.0
    before: float | None = None
    left: float = np.inf
    converged: bool = False
    best: MdsFitState | None = None


class MdsCheckpointer:
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

    def load(self) -> MdsFitState | None:
        """How far an earlier fit had come, if one had.

        Raises
        ------
        CheckpointError
            What is there is torn, or of another fit.
        """
        found = self._states.load()
        return _state(found[0]) if found else None

    def check(self, kept: MdsFitState, errors: float) -> None:
        """Raise CheckpointError if the dissimilarities have another stress at the positions that were kept."""
        if not np.isclose(errors, kept.errors, rtol=SAME_ROWS, atol=0.0):
            self._states.refuse_other(f"its positions had the stress {kept.errors / 2!r}, and have {errors / 2!r} here")

    def save(self, state: MdsFitState, *, last: bool = False) -> None:
        """Keep the state after an iteration instead of the last one, if it has its turn or is the `last`."""
        self._states.save(state.told, _parts(state), last=last)

    def close(self) -> None:
        """Let other processes have the folder."""
        self._states.close()


def _parts(state: MdsFitState) -> dict[str, Any]:
    parts = {each.name: getattr(state, each.name) for each in fields(state)}
    return parts | {"best": None if state.best is None else _parts(state.best)}


def _state(parts: dict[str, Any]) -> MdsFitState:
    best = parts["best"]
    return MdsFitState(**(parts | {"best": None if best is None else _state(best)}))
