"""Parameters of PageRank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from ripieno.algorithms.domains import COUNT, TOLERANCE, Domain, Number
from ripieno.algorithms.parameters import FitParameters, VerboseParameters, declared, parameter

Probabilities = Mapping[Any, float] | tuple[ArrayLike, ArrayLike]
WEIGHTS = Domain("dict, (vertices, values) or None")


@declared
class PageRankParameters(VerboseParameters, FitParameters):
    """Parameters of `PageRank`."""

    _more_on_iteration = """\
    "iteration": "iteration" (from 1), "error", "goal", "edges_per_s", and rank 0's "compute_s" and
    "communication_s"."""

    damping: float = parameter(
        Number(minimum=0, maximum=1),
        "Probability that the walk follows an edge instead of jumping.",
        default=0.85,
        kw_only=False,
    )
    tol: float = parameter(
        TOLERANCE,
        "The fit ends when the total change of the ranks is below `tol` times the number of vertices, or zero.",
        default=1e-12,
        aliases=("--tolerance",),
        may_change=True,
    )
    max_iter: int = parameter(
        COUNT, "Maximum number of iterations.", default=1000, aliases=("--max-iterations",), may_change=True
    )
    personalization: Probabilities | None = parameter(
        WEIGHTS,
        "Distribution of jump targets: a weight >= 0 per vertex, 0 for missing vertices. None: uniform.",
        default=None,
    )
    dangling: Probabilities | None = parameter(
        WEIGHTS,
        "Distribution of the next vertex after a vertex without out-edges. None: as `personalization`.",
        default=None,
    )
