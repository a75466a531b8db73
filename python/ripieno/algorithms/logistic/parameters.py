"""Parameters of logistic regression."""

from __future__ import annotations

from ripieno.algorithms.domains import COUNT, FLAG, Number, OneOf
from ripieno.algorithms.methods import LOGISTIC_SOLVERS
from ripieno.algorithms.parameters import FitParameters, ObservedParameters, declared, parameter


@declared
class LogisticParameters(ObservedParameters, FitParameters):
    """Parameters of `LogisticRegression`."""

    _more_on_iteration = """\
    "iteration": "iteration" (from 1), "objective", "gradient" (its largest entry, scaled as for `tol`), and rank 0's
    "compute_s" and "communication_s"."""

    C: float = parameter(
        Number(above=0),
        "Factor of the losses against half the squared weights; smaller values give smaller weights.",
        default=1.0,
        kw_only=False,
        options=("--c",),
    )
    fit_intercept: bool = parameter(FLAG, "Whether scores have an intercept, which is not penalized.", default=True)
    solver: str = parameter(
        OneOf(*LOGISTIC_SOLVERS),
        "Solver: L-BFGS; Newton steps by conjugate gradients, the most accurate; or gradient descent.",
        default="lbfgs",
    )
    tol: float = parameter(
        Number(above=0),
        "The fit ends when no entry of the gradient of the penalized mean loss is larger than this.",
        default=1e-4,
    )
    max_iter: int = parameter(COUNT, "Maximum number of iterations.", default=100)
    warm_start: bool = parameter(
        FLAG, "Whether to start from the result of the last fit.", default=False, has_option=False
    )
