"""Parameters of logistic regression."""

from __future__ import annotations

from typing import Any, Literal

from ripieno.algorithms.domains import COUNT, FLAG, Number, OneOf
from ripieno.algorithms.methods import LOGISTIC_SOLVERS
from ripieno.algorithms.parameters import FitParameters, ObservedParameters, declared, parameter


class ClassWeight(OneOf):
    """Factors by class, "balanced" or None."""

    def __init__(self) -> None:
        super().__init__("balanced", other="dict")
        self.type, self.expected = 'dict, "balanced" or None', "a dict of numbers >= 0, 'balanced' or None"

    def _has(self, value: Any) -> bool:
        factors = value.values() if isinstance(value, dict) else ()
        return value is None or (isinstance(value, dict) and all(FACTOR.accepts(factor) for factor in factors))


#: Domain of the factor of a class.
FACTOR = Number(minimum=0)


@declared
class LogisticParameters(ObservedParameters, FitParameters):
    """Parameters of `LogisticRegression`."""

    _more_on_iteration = """\
    "iteration": "iteration" (from 1), "objective", "gradient" (its largest entry, scaled as for `tol`), and rank 0's
    "compute_s" and "communication_s"."""

    C: float = parameter(
        Number(minimum=1e-300, is_unbounded=True),
        "Factor of the losses; smaller values give smaller weights. ``inf`` means that there is no penalty.",
        default=1.0,
        kw_only=False,
        options=("--c",),
    )
    l1_ratio: float = parameter(
        Number(minimum=0, maximum=1),
        """Share of the absolute weights in the penalty: 0 for half the squared weights (L2), 1 for the absolute weights
        (L1), which makes weights zero. The penalty is the weighted mean of both. Requires ``solver="lbfgs"`` if not
        0.""",
        default=0.0,
    )
    fit_intercept: bool = parameter(FLAG, "Whether scores have an intercept, which is not penalized.", default=True)
    solver: str = parameter(
        OneOf(*LOGISTIC_SOLVERS),
        "Solver: L-BFGS; Newton steps by conjugate gradients, the most accurate; or gradient descent.",
        default="lbfgs",
    )
    class_weight: dict[Any, float] | Literal["balanced"] | None = parameter(
        ClassWeight(),
        """Factor of the row weights of each class; 1 for missing classes. "balanced" gives all
        classes the same total weight.""",
        default=None,
    )
    tol: float = parameter(
        Number(above=0),
        "The fit ends when no entry of the gradient of the penalized mean loss is larger than this.",
        default=1e-4,
        may_change=True,
    )
    max_iter: int = parameter(COUNT, "Maximum number of iterations.", default=100, may_change=True)
    warm_start: bool = parameter(
        FLAG, "Whether to start from the result of the last fit.", default=False, has_option=False, may_change=True
    )
