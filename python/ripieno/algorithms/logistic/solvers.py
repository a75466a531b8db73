"""Ways down a smooth convex function of some weights: plain gradients, L-BFGS, Newton steps by conjugate gradients.

Each is given a function and told nothing of rows or ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

#: Steps that are tried along a direction.
MOST_TRIALS = 50
#: How much of the decrease that the slope promises is enough (Nocedal and Wright, "Numerical optimization", eq. 3.4).
ENOUGH = 1e-4
#: The most that is left of the gradient when a Newton step is taken, and the most products it takes.
NEWTON_LEFT, NEWTON_PRODUCTS = 0.3, 200
#: A function that decreases by less than so much of its value has ended.
LEAST_DECREASE = 64 * float(np.finfo(np.float64).eps)


class Function(Protocol):
    """What is minimised."""

    def value(self, at: Reals) -> tuple[float, Reals]:
        """Value and gradient."""

    def product(self, direction: Reals) -> Reals:
        """Second derivatives, where the value was last asked for, times a direction."""


@dataclass(frozen=True)
class Descent:
    """Where a way down ended; `converged` if the largest entry of the gradient is at most what was wanted."""

    at: Reals
    value: float
    iteration_count: int
    converged: bool


#: Is told of each iteration: value, and largest entry of the gradient.
OnIteration = Callable[[float, float], None]


def lbfgs(function: Function, start: Reals, tol: float, max_iter: int, on_iteration: OnIteration) -> Descent:
    """By SciPy's L-BFGS-B (Byrd, Lu, Nocedal and Zhu, SIAM J. Sci. Comput. 16(5), 1995), as scikit-learn does."""
    # Only rank 0 descends; the others start sooner without it.
    from scipy.optimize import minimize

    last: tuple[float, Reals] = (np.inf, start)

    def value(at: Reals) -> tuple[float, Reals]:
        nonlocal last
        last = function.value(at)
        return last

    def tell(_: Any) -> None:
        # The point that was tried last is the one that was taken.
        on_iteration(last[0], _largest(last[1]))

    options: Any = {"maxiter": max_iter, "maxls": MOST_TRIALS, "gtol": tol, "ftol": LEAST_DECREASE}
    # Its stubs want arrays of one axis by type, which those of NumPy do not tell.
    least: Any = minimize
    found = least(value, start, method="L-BFGS-B", jac=True, callback=tell, options=options)
    return Descent(found.x, float(found.fun), int(found.nit), bool(found.status == 0))


def newton_cg(function: Function, start: Reals, tol: float, max_iter: int, on_iteration: OnIteration) -> Descent:
    """By Newton steps that conjugate gradients solve for, the better the smaller the gradient is.

    Source: Dembo and Steihaug, "Truncated-Newton algorithms for large-scale unconstrained optimization", Math. Program.
    26, 1983; Nocedal and Wright, "Numerical optimization", algorithm 7.1.
    """
    at = start
    value, gradient = function.value(at)
    first = float(np.linalg.norm(gradient)) or 1.0
    for iteration in range(max_iter):
        if _largest(gradient) <= tol:
            return Descent(at, value, iteration, True)
        # The root of what is left of the first gradient makes the end superlinear.
        left = min(NEWTON_LEFT, np.sqrt(np.linalg.norm(gradient) / first))
        step = _newton_step(function, gradient, left)
        found = _searched(function, at, value, gradient, step, 1.0)
        if found is None:
            return Descent(at, value, iteration, False)
        at, new_value, gradient, _ = found
        on_iteration(new_value, _largest(gradient))
        decrease, value = value - new_value, new_value
        if decrease <= LEAST_DECREASE * abs(value):
            return Descent(at, value, iteration + 1, True)
    return Descent(at, value, max_iter, _largest(gradient) <= tol)


def gd(function: Function, start: Reals, tol: float, max_iter: int, on_iteration: OnIteration) -> Descent:
    """Against the gradient, as far as the value keeps decreasing enough; each first trial is twice the last step."""
    at, length = start, 1.0
    value, gradient = function.value(at)
    for iteration in range(max_iter):
        if _largest(gradient) <= tol:
            return Descent(at, value, iteration, True)
        found = _searched(function, at, value, gradient, -gradient, 2 * length)
        if found is None:
            return Descent(at, value, iteration, False)
        at, value, gradient, length = found
        on_iteration(value, _largest(gradient))
    return Descent(at, value, max_iter, _largest(gradient) <= tol)


def _newton_step(function: Function, gradient: Reals, left: float) -> Reals:
    """A direction whose product with the second derivatives is minus the gradient, but for a share that is left."""
    step, residual = np.zeros_like(gradient), -gradient
    direction, square = residual.copy(), float(residual @ residual)
    goal = square * left**2
    for _ in range(NEWTON_PRODUCTS):
        product = function.product(direction)
        curvature = float(direction @ product)
        if curvature <= 0:
            break
        length = square / curvature
        step += length * direction
        residual -= length * product
        before, square = square, float(residual @ residual)
        if square <= goal:
            break
        direction = residual + square / before * direction
    return step if step.any() else -gradient


def _searched(
    function: Function, at: Reals, value: float, gradient: Reals, direction: Reals, length: float
) -> tuple[Reals, float, Reals, float] | None:
    """The first point along a direction, from a length on that is halved, where the value has decreased enough."""
    slope = float(gradient @ direction)
    # Near the end differences of values are rounding.
    blur = LEAST_DECREASE * abs(value)
    for _ in range(MOST_TRIALS):
        tried = at + length * direction
        new_value, new_gradient = function.value(tried)
        if new_value <= value + ENOUGH * length * slope + blur:
            return tried, new_value, new_gradient, length
        length /= 2
    return None


def _largest(gradient: Reals) -> float:
    return float(np.abs(gradient).max(initial=0.0))


SOLVERS: dict[str, Callable[[Function, Reals, float, int, OnIteration], Descent]] = {
    "lbfgs": lbfgs,
    "newton-cg": newton_cg,
    "gd": gd,
}
