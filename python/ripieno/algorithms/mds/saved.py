"""The state of an MDS fit after an iteration, which determines all later iterations. All ranks have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


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

    @classmethod
    def of(cls, parts: dict[str, Any]) -> MdsFitState:
        """Return the state with the given `parts`."""
        return cls(**(parts | {"best": parts["best"] and cls.of(parts["best"])}))

    def parts(self) -> dict[str, Any]:
        """Return the fields by name, as a checkpoint stores them."""
        return vars(self) | {"best": self.best and self.best.parts()}
