"""Ways down a smooth convex function of some weights: plain gradients, L-BFGS, Newton steps by conjugate gradients.

Each is a step from one iterate to the next, is given a function, and told nothing of rows or ranks. An iterate has all
that the steps after it depend on, so a descent that goes on from one that was kept ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
#: Multiplies a vector by something near the inverse of the second derivatives.
Metric = Callable[[Reals], Reals]

#: Steps that are tried along a direction.
MOST_TRIALS = 50
#: How much of the decrease that the slope promises is enough, and how much of the slope may be left (Nocedal and
#: Wright, "Numerical optimization", eq. 3.6).
ENOUGH, SLOPE_LEFT = 1e-4, 0.9
#: The most that is left of the gradient when a Newton step is taken, and the most products it takes.
NEWTON_LEFT, NEWTON_PRODUCTS = 0.3, 200
#: Steps that L-BFGS remembers.
MEMORY = 10
#: A function that decreases by less than so much of its value has ended.
LEAST_DECREASE = 64 * float(np.finfo(np.float64).eps)


class Objective(Protocol):
    """What is minimised."""

    def value(self, at: Reals) -> tuple[float, Reals]:
        """Value and gradient."""

    def product(self, direction: Reals) -> Reals:
        """Second derivatives, where the value was last asked for, times a direction."""

    def metric(self) -> Reals | None:
        """What `metric_of` makes a metric of, where the value was last asked for; None if it is not worth it."""

    def metric_of(self, found: Reals) -> Metric:
        """The metric of what `metric` has found."""


@dataclass(frozen=True)
class Iterate:
    """Where a descent is, and what it knows.

    Parameters
    ----------
    at, value, gradient
        The weights, and the function there.
    iteration_count
        Iterations so far.
    scale
        The last length of a step of `gd`; the first gradient's norm for `newton_cg`.
    moves, changes : (m, size)
        The last steps of `lbfgs`, oldest first, and the changes of the gradient along them.
    metric
        What `lbfgs` has found out about second derivatives at its start.
    """

    at: Reals
    value: float
    gradient: Reals
    iteration_count: int
    scale: float
    moves: Reals
    changes: Reals
    metric: Reals | None = None

    @property
    def slope(self) -> float:
        """The largest entry of the gradient."""
        return float(np.abs(self.gradient).max(initial=0.0))


@dataclass(frozen=True)
class DescentResult:
    """Where a way down ended; `converged` if it is as near the minimum as was wanted, or as numbers can be."""

    iterate: Iterate
    converged: bool


#: One iteration; None if nothing lower is found.
Step = Callable[[Objective, Iterate], "Iterate | None"]


def begin(function: Objective, at: Reals) -> Iterate:
    """The iterate from which a descent starts."""
    value, gradient = function.value(at)
    none = np.empty((0, len(at)))
    return Iterate(at, value, gradient, 0, 0.0, none, none)


def descend(
    solver: str,
    function: Objective,
    iterate: Iterate,
    tol: float,
    max_iter: int,
    on_iteration: Callable[[Iterate], None],
) -> DescentResult:
    """Go on from where the value was last asked for, until no entry of the gradient is larger than `tol`."""
    step = SOLVERS[solver]
    while iterate.iteration_count < max_iter and iterate.slope > tol:
        found = step(function, iterate)
        if found is None:
            return DescentResult(iterate, False)
        before, iterate = iterate, replace(found, iteration_count=iterate.iteration_count + 1)
        on_iteration(iterate)
        if before.value - iterate.value <= LEAST_DECREASE * abs(iterate.value):
            return DescentResult(iterate, True)
    return DescentResult(iterate, iterate.slope <= tol)


def lbfgs(function: Objective, iterate: Iterate) -> Iterate | None:
    """A step by the inverse of second derivatives that the last steps make likely.

    Source: Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", Math. Program. 45, 1989;
    Nocedal and Wright, "Numerical optimization", algorithms 7.4 and 7.5.
    """
    is_first = not iterate.iteration_count
    metric = function.metric() if is_first else iterate.metric
    direction = _two_loops(iterate, None if metric is None else function.metric_of(metric))
    length = 1.0
    if is_first and metric is None:
        # As far as the second derivatives along the gradient let expect the least value.
        length = float(direction @ direction) / float(direction @ function.product(direction))
    found = _searched(function, iterate, direction, length, SLOPE_LEFT)
    if found is None:
        return None
    move, change = found.at - iterate.at, found.gradient - iterate.gradient
    kept = slice(-MEMORY, None) if float(move @ change) > 0 else slice(0, 0)
    moves, changes = np.vstack([iterate.moves, move])[kept], np.vstack([iterate.changes, change])[kept]
    return replace(found, moves=moves, changes=changes, metric=metric)


def newton_cg(function: Objective, iterate: Iterate) -> Iterate | None:
    """A Newton step that conjugate gradients solve for, the better the smaller the gradient is.

    Source: Dembo and Steihaug, "Truncated-Newton algorithms for large-scale unconstrained optimization", Math. Program.
    26, 1983; Nocedal and Wright, "Numerical optimization", algorithm 7.1.
    """
    norm = float(np.linalg.norm(iterate.gradient))
    first = iterate.scale or norm
    # The root of what is left of the first gradient makes the end superlinear.
    step = _newton_step(function, iterate.gradient, min(NEWTON_LEFT, np.sqrt(norm / first)))
    found = _searched(function, iterate, step, 1.0)
    return None if found is None else replace(found, scale=first)


def gd(function: Objective, iterate: Iterate) -> Iterate | None:
    """Against the gradient, as far as the value keeps decreasing enough; the first trial is twice the last step."""
    return _searched(function, iterate, -iterate.gradient, 2 * (iterate.scale or 1.0))


def _two_loops(iterate: Iterate, metric: Metric | None) -> Reals:
    """Minus the gradient times the inverse of second derivatives."""
    direction = -iterate.gradient
    pairs = [(move, change, float(move @ change)) for move, change in zip(iterate.moves, iterate.changes, strict=True)]
    shares = []
    for move, change, product in reversed(pairs):
        shares.append(float(move @ direction) / product)
        direction -= shares[-1] * change
    if metric is not None:
        direction = metric(direction)
    if pairs:
        _, change, product = pairs[-1]
        direction *= product / float(change @ (change if metric is None else metric(change)))
    for (move, change, product), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(change @ direction) / product) * move
    return direction


def _newton_step(function: Objective, gradient: Reals, left: float) -> Reals:
    """A direction whose product with the second derivatives is minus the gradient, but for a share that is left."""
    found = function.metric()
    metric: Metric = np.copy if found is None else function.metric_of(found)
    step, residual = np.zeros_like(gradient), -gradient
    direction = metric(residual)
    square = float(residual @ direction)
    goal = square * left**2
    for _ in range(NEWTON_PRODUCTS):
        product = function.product(direction)
        curvature = float(direction @ product)
        if curvature <= 0:
            break
        length = square / curvature
        step += length * direction
        residual -= length * product
        towards = metric(residual)
        before, square = square, float(residual @ towards)
        if square <= goal:
            break
        direction = towards + square / before * direction
    return step if step.any() else -gradient


def _searched(
    function: Objective, iterate: Iterate, direction: Reals, length: float, slope_left: float = np.inf
) -> Iterate | None:
    """A point along a direction where the value has decreased enough, and, if wanted, the slope as well.

    Source: Lewis and Overton, "Nonsmooth optimization via quasi-Newton methods", Math. Program. 141, 2013, algorithm
    2.6: the length is halved, or doubled, or in the middle of what is too short and what is too long.
    """
    slope = float(iterate.gradient @ direction)
    # Near the end differences of values are rounding.
    blur = LEAST_DECREASE * abs(iterate.value)
    least, most, found = 0.0, np.inf, None
    for _ in range(MOST_TRIALS):
        at = iterate.at + length * direction
        value, gradient = function.value(at)
        if value > iterate.value + ENOUGH * length * slope + blur:
            most = length
        else:
            found = replace(iterate, at=at, value=value, gradient=gradient, scale=length)
            if float(gradient @ direction) >= slope_left * slope:
                return found
            least = length
        length = 2 * length if most == np.inf else (least + most) / 2
    return found


SOLVERS: dict[str, Step] = {"lbfgs": lbfgs, "newton-cg": newton_cg, "gd": gd}
