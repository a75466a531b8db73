"""Parameters of linear regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ripieno.algorithms.domains import FLAG, Number, OneOf
from ripieno.algorithms.parameters import ObservedParameters, WorkerParameters, declared, parameter


class Penalties(Number):
    """One factor of the penalty, or one for each target."""

    def __init__(self) -> None:
        super().__init__(minimum=0)
        self.type = "float or array-like of shape (n_targets,)"
        self.expected = "a number >= 0, or one for each target"

    def _has(self, value: Any) -> bool:
        if isinstance(value, Sequence | np.ndarray) and np.ndim(value) == 1:
            return all(super(Penalties, self)._has(each) for each in value)
        return super()._has(value)

    def _plain(self, value: Any) -> Any:
        return tuple(map(float, np.atleast_1d(value)))


@declared
class LinearParameters(ObservedParameters, WorkerParameters):
    """Parameters of `LinearRegression`."""

    _more_on_iteration = """\
    "iteration", after each stage: "iteration" (from 1), "stage", and rank 0's "compute_s" and "communication_s"."""

    fit_intercept: bool = parameter(FLAG, "Whether predictions have an intercept.", default=True)
    positive: bool = parameter(FLAG, """Whether weights are at least 0. It implies the solver "tsqr".""", default=False)
    solver: str = parameter(
        OneOf("auto", "normal", "tsqr"),
        """Method of the fit.

        "normal" sums a scatter matrix in one pass. "tsqr" combines QR factors by a tree and accepts linearly dependent
        columns. "auto" uses "normal", and then "tsqr" if too many digits would be lost.""",
        default="auto",
    )


@declared
class RidgeParameters(LinearParameters):
    """Parameters of `Ridge`."""

    alpha: float | ArrayLike = parameter(
        Penalties(),
        """Factor of the squared weights in the objective; 0 means ordinary least squares.

        An array has one factor for each target. The intercept is not penalized.""",
        default=1.0,
        kw_only=False,
    )
