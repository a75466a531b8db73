"""Parameters of stochastic gradient descent."""

from __future__ import annotations

from ripieno.algorithms.domains import COUNT, FLAG, Integer, Number, OneOf
from ripieno.algorithms.parameters import FitParameters, ObservedParameters, RandomParameters, declared, parameter
from ripieno.input.matrix.dataset import COLUMNS_MAX
from ripieno.kernels.sgd import LOSSES


@declared
class SGDParameters(RandomParameters, ObservedParameters, FitParameters):
    """Parameters of `SparseSGD`."""

    _more_on_iteration = """\
    "epoch", after each epoch: "epoch" (from 1) and "loss"."""
    _more_random_state = """\
    It draws the rows of each step and the order of steps. Results are bitwise equal for the same number of workers."""

    n_features: int | None = parameter(
        Integer(1, COLUMNS_MAX, also=(None,)),
        "Number of features to which columns are hashed, with signs; None disables hashing.",
        default=None,
        kw_only=False,
    )
    loss: str = parameter(
        OneOf(*LOSSES),
        """Loss of a row.

        "log_loss" is logistic regression. "hinge" is a linear support vector machine. "squared_error" fits scores to 1
        for a class and to -1 for the others. With more than two classes, the latter two train one model per class
        against the rest. Neither of them gives probabilities.""",
        default="log_loss",
    )
    alpha: float = parameter(
        Number(minimum=0), "Factor of the penalty, half the squared weights without the intercept.", default=1e-5
    )
    fit_intercept: bool = parameter(FLAG, "Whether scores have an intercept.", default=True)
    eta0: float = parameter(
        Number(above=0),
        """Length of a feature's first step. Later steps are divided by the square root of the sum of its squared
        gradients.""",
        default=0.1,
    )
    batch_size: int = parameter(COUNT, "Rows per step, over all workers.", default=64)
    max_iter: int = parameter(COUNT, "Maximum number of epochs.", default=20, may_change=True)
    tol: float | None = parameter(
        Number(minimum=0, also=(None,)),
        """The fit ends after `n_iter_no_change` consecutive epochs that do not lower the best earlier mean loss by this
        amount. With None, it ends after `max_iter` epochs.""",
        default=1e-4,
    )
    n_iter_no_change: int = parameter(COUNT, "Number of epochs without improvement, see `tol`.", default=5)
