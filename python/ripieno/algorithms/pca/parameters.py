"""Parameters of principal component analysis."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal

from ripieno.algorithms.domains import COUNT, FLAG, Integer, Number, OneOf
from ripieno.algorithms.parameters import FitParameters, ObservedParameters, RandomParameters, declared, parameter


class ComponentCount(Number):
    """A count of components, a share of the variance, "mle" or None."""

    def __init__(self) -> None:
        super().__init__(above=0, below=1, also=("mle", None))
        self.type = 'int, float, "mle" or None'
        self.expected = "a whole number >= 1, a share between 0 and 1, 'mle' or None"

    def _has(self, value: Any) -> bool:
        return COUNT.accepts(value) or (not isinstance(value, Integral) and super()._has(value))

    def _plain(self, value: Any) -> Any:
        return int(value) if isinstance(value, Integral) else float(value)


@declared
class PCAParameters(RandomParameters, ObservedParameters, FitParameters):
    """Parameters of `PCA`."""

    _more_on_iteration = """\
    "iteration", after each stage: "iteration" (from 1), "stage", and rank 0's "compute_s" and "communication_s"."""

    n_components: int | float | Literal["mle"] | None = parameter(
        ComponentCount(),
        """Number of axes. A number between 0 and 1 selects the fewest axes with this share of the variance. "mle"
        selects the most likely number (Minka); it requires at least as many rows as columns. Default: all.""",
        default=None,
        kw_only=False,
        options=("--components",),
    )
    whiten: bool = parameter(
        FLAG, "Whether transformed rows are scaled to variance 1 along each axis.", default=False, may_change=True
    )
    svd_solver: str = parameter(
        OneOf("auto", "covariance", "tsqr", "randomized", "arpack", "covariance_eigh", "full"),
        """Method of the fit.

        "covariance" sums a scatter matrix in one pass. "tsqr" combines QR factors by a tree and computes small
        variances to full precision. "randomized" refines a random subspace; it suits many columns. "arpack" takes
        Lanczos steps until the axes are exact; it suits few axes of sparse rows, and finds fewer than the smaller
        dimension. The latter two take a whole number of axes, or None. "auto" uses "covariance" for up to 1,000 columns
        and at least ten times as many rows. For larger data, it uses "randomized", or "arpack" for sparse rows, for
        fewer than 80 % of all components, else "tsqr". scikit-learn's names "covariance_eigh" and "full" mean
        "covariance" and "tsqr".""",
        default="auto",
        options=("--solver",),
    )
    n_oversamples: int = parameter(COUNT, "Number of extra vectors of the random subspace.", default=10)
    iterated_power: int | str = parameter(
        Integer(1, also=("auto",)),
        """Number of refinements of the random subspace; "auto" means 7 for fewer than a tenth of all components, else
        4.""",
        default="auto",
        may_change=True,
    )
