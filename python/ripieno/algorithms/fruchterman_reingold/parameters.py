"""Parameters of the layout of Fruchterman and Reingold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import ArrayLike

from ripieno._native import MAX_DIMENSIONS
from ripieno.algorithms.domains import COUNT, TOLERANCE, Domain, Integer, Number, OneOf
from ripieno.algorithms.methods import LAYOUT_APPROXIMATIONS, MAX_COORDINATE
from ripieno.algorithms.parameters import FitParameters, ObservedParameters, RandomParameters, declared, parameter


@declared
class LayoutParameters(RandomParameters, ObservedParameters, FitParameters):
    """Parameters of `FruchtermanReingold`."""

    _more_on_iteration = """\
    "iteration": "iteration" (from 1), "change" (compared with `tol`), "step" (maximum length of a move),
    "approximation", and rank 0's "compute_s" and "communication_s"."""

    n_components: int = parameter(
        Integer(1, MAX_DIMENSIONS),
        "Number of dimensions of the positions.",
        default=2,
        kw_only=False,
        options=("--components",),
        former=("dim",),
    )
    k: float | None = parameter(
        Number(minimum=1 / MAX_COORDINATE, maximum=MAX_COORDINATE, also=(None,)),
        "Distance at which the attraction of an edge of weight 1 equals the repulsion of its ends. Default: 1/√n.",
        default=None,
    )
    max_iter: int = parameter(COUNT, "Maximum number of iterations.", default=50, former=("iterations",))
    tol: float = parameter(
        TOLERANCE,
        """The fit ends when the square root of the sum of all squared moves, divided by the number of vertices, is
        below this.""",
        default=1e-4,
        former=("threshold",),
    )
    init: str | ArrayLike | Mapping[Any, ArrayLike] = parameter(
        OneOf("random", other="array of shape (n, n_components) or dict"),
        """Initial positions, in the order of `vertices_` or by vertex; missing vertices get random positions. Random
        positions equal networkx's for the same integer seed.""",
        default="random",
        has_option=False,
    )
    fixed: Sequence[Any] = parameter(
        Domain("sequence of vertices"), "Vertices that keep their initial positions.", default=()
    )
    approximation: str = parameter(
        OneOf(*LAYOUT_APPROXIMATIONS),
        """Computation of repulsion: between all pairs (exact), or from distant clusters as single points, in two or
        three dimensions (barnes-hut). "auto" uses "barnes-hut" for more than 50,000 vertices in two or three
        dimensions.

        `approximation_`, the report and each event name the method used.""",
        default="auto",
    )
    theta: float = parameter(
        Number(minimum=0),
        """For "barnes-hut": a cluster acts as one point if its box is narrower than `theta` times its distance. Smaller
        values are more exact and slower.""",
        default=0.7,
    )
