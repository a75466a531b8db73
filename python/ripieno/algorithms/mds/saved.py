"""Checkpoints of MDS fits: the state after an iteration, which determines all later iterations.

All ranks have the state. Rank 0 writes it to a folder, also at the end of the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "mds"
#: Largest relative difference in stress of the same dissimilarities on other processors.
STRESS_RTOL = 1e-5


@dataclass(frozen=True)
class MdsFitState:
    """The progress of a fit.

    Parameters
    ----------
    at : (n, k)
        Positions.
    start, level
        Number of the start, and of the temperature, from 0; rounds of relocations follow the last temperature.
    iteration, in_level, all_iterations
        Iterations of this start, of this temperature, and of all starts.
    errors, squares
        Sums measured at the positions.
    before
        Errors one iteration earlier, at the same temperature.
    left
        Errors before the last round of relocations; infinite before the first.
    converged
        Whether the start converged before the maximum number of iterations.
    best
        Final state of the start with the least errors.
    """

    at: NDArray[np.float64]
    start: int = 0
    level: int = 0
    iteration: int = 0
    in_level: int = 0
    all_iterations: int = 0
    errors: float = 0.0
    squares: float = 0.0
    before: float | None = None
    left: float = np.inf
    converged: bool = False
    best: MdsFitState | None = None


class MdsCheckpoint(IterationCheckpoint):
    """The checkpoint of a fit, which all ranks have.

    Parameters
    ----------
    comm, options, facts
        As in `IterationCheckpoint`.
    """

    def __init__(self, comm: Communicator, options: CheckpointOptions, facts: Callable[[], Mapping[str, Any]]) -> None:
        super().__init__(comm, NAME, options, shared=True, facts=facts)

    def progress(self) -> MdsFitState | None:
        """Return the progress of an earlier fit, or None; raise CheckpointError if it is damaged or of another fit."""
        found = self.load()
        return _state(found[0]) if found else None

    def check(self, saved: MdsFitState, errors: float) -> None:
        """Raise CheckpointError if the dissimilarities have another stress at the saved positions."""
        if not np.isclose(errors, saved.errors, rtol=STRESS_RTOL, atol=0.0):
            raise self.other_fit(f"its positions had the stress {saved.errors / 2!r}, and have {errors / 2!r} here")

    def save_progress(self, state: MdsFitState, *, last: bool = False) -> None:
        """Save the state after an iteration if it is due or if it is the `last`."""
        if self.is_due(state.all_iterations, last=last):
            self.save(state.all_iterations, _parts(state))


def _parts(state: MdsFitState) -> dict[str, Any]:
    return vars(state) | {"best": state.best and _parts(state.best)}


def _state(parts: dict[str, Any]) -> MdsFitState:
    return MdsFitState(**(parts | {"best": parts["best"] and _state(parts["best"])}))
