"""Parameters of alternating least squares."""

from __future__ import annotations

from typing import Any

from ripieno.algorithms.domains import COUNT, FLAG, Domain, Integer, Number, OneOf
from ripieno.algorithms.parameters import FitParameters, ObservedParameters, RandomParameters, declared, parameter

#: Maximum number of factors: each rank holds a square matrix of this size, 800 MB.
RANK_MAX = 10_000


class ColumnNames(Domain):
    """The names of three columns, or None."""

    def __init__(self) -> None:
        super().__init__("tuple of three str", "the names of three columns", also=(None,))

    def _has(self, value: Any) -> bool:
        return isinstance(value, tuple | list) and len(value) == 3 and all(isinstance(name, str) for name in value)


@declared
class ALSParameters(RandomParameters, ObservedParameters, FitParameters):
    """Parameters of `ALS`."""

    _more_on_iteration = """\
    "iteration": "iteration" (from 1), "objective", "rmse" (for explicit ratings), and rank 0's "compute_s" and
    "communication_s"."""
    _more_random_state = """\
    It draws the initial factors. Equal input gives bitwise equal factors on any number of workers."""

    rank: int = parameter(Integer(1, RANK_MAX), "Number of factors of each user and item.", default=32, kw_only=False)
    implicit: bool = parameter(
        FLAG, "Whether ratings are counts of observed actions instead of explicit scores.", default=False
    )
    reg: float = parameter(Number(above=0), "Weight of the penalty on the squares of all factors.", default=0.05)
    alpha: float = parameter(Number(above=0), "Weight per unit of an implicit rating.", default=1.0)
    max_iter: int = parameter(
        COUNT,
        """Number of iterations. Each solves for the factors of all users, then for the factors of all items.""",
        default=10,
        may_change=True,
    )
    solver: str = parameter(
        OneOf("auto", "cholesky", "cg"),
        """Method of a half step: solve the normal equations of each row exactly (cholesky), or by three steps of
        conjugate gradients (cg). "auto" uses "cg" for implicit ratings with a rank of at least 16.

        The steps of "cg" begin at the row's current factors. The larger the rank, the more operations it saves.""",
        default="auto",
    )
    columns: tuple[str, str, str] | None = parameter(
        ColumnNames(),
        """Columns of tables that hold users, items and ratings. None: detect them by names such as userId, movieId and
        rating, or, with exactly three columns, use their order.""",
        default=None,
    )
    exchange: str = parameter(
        OneOf("auto", "allgather", "needed"),
        """Exchange of factors: all factors to all workers (allgather), only needed factors (needed), or the cheaper
        method (auto).""",
        default="auto",
        may_change=True,
    )
