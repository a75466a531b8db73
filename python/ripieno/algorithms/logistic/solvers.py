"""Solvers for convex functions: gradient descent, L-BFGS and Newton conjugate gradients.

The functions are smooth, except that L-BFGS also takes an L1 penalty.
Each solver is a function that returns the next iterate. It is independent of rows and ranks. An iterate contains the
complete solver state, so a resumed descent is bitwise equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.methods import LOGISTIC_SOLVERS

Reals = NDArray[np.float64]
#: Multiplies a vector by an approximate inverse Hessian.
Preconditioner = Callable[[Reals], Reals]

#: Maximum number of trial steps along a direction.
MAX_TRIAL_COUNT = 50
#: Sufficient share of the decrease that the slope predicts, and the largest accepted share of the initial slope
#: (Nocedal and Wright, "Numerical optimization", eq. 3.6).
SUFFICIENT_DECREASE, MAX_SLOPE_SHARE = 1e-4, 0.9
#: Largest relative residual of an accepted Newton step, and the maximum number of Hessian-vector products.
MAX_RESIDUAL_SHARE, MAX_PRODUCT_COUNT = 0.3, 200
#: Number of steps that L-BFGS stores.
LBFGS_PAIR_COUNT = 10
#: A relative decrease below this ends the descent.
MIN_RELATIVE_DECREASE = 64 * float(np.finfo(np.float64).eps)


class Objective(Protocol):
    """A function to minimize: a smooth function plus the absolute values of the weights times the factors `l1`."""

    l1: Reals

    def value(self, at: Reals) -> tuple[float, Reals]:
        """Return the value, and the gradient of the smooth function."""

    def product(self, direction: Reals) -> Reals:
        """Return the Hessian at the point of the last `value` call, times a direction."""

    def sample_hessian(self) -> Reals | None:
        """Return the Hessian on a sample of rows at the point of the last `value` call; None if no sample is used."""

    def preconditioner(self, found: Reals) -> Preconditioner:
        """Return a function that solves with the blocks of `sample_hessian`."""


@dataclass(frozen=True)
class Iterate:
    """A point of a descent and the solver's state there.

    Parameters
    ----------
    at, value, gradient
        Weights, the function's value there, and the gradient of its smooth part.
    iteration_count
        Number of iterations so far.
    scale
        Last step length for `gd`; norm of the first gradient for `newton_cg`.
    moves, changes : (m, size)
        Last steps of `lbfgs`, oldest first, and the changes of the gradient along them.
    sample_hessian
        Hessian data of `lbfgs` from its start.
    """

    at: Reals
    value: float
    gradient: Reals
    iteration_count: int
    scale: float
    moves: Reals
    changes: Reals
    sample_hessian: Reals | None = None


@dataclass(frozen=True)
class DescentResult:
    """The end of a descent; `converged` if it reached the tolerance or the limit of rounding."""

    iterate: Iterate
    converged: bool


#: One iteration; returns None if it finds no lower value.
Step = Callable[[Objective, Iterate], "Iterate | None"]


def first_iterate(function: Objective, at: Reals) -> Iterate:
    """Return the initial iterate of a descent."""
    value, gradient = function.value(at)
    no_pairs = np.empty((0, len(at)))
    return Iterate(at, value, gradient, 0, 0.0, no_pairs, no_pairs)


def descend(
    solver: str,
    function: Objective,
    iterate: Iterate,
    tol: float,
    max_iter: int,
    on_iteration: Callable[[Iterate], None],
) -> DescentResult:
    """Descend from the point of the last `value` call until no entry of the steepest slope is larger than `tol`."""
    step = SOLVERS[solver]
    while iterate.iteration_count < max_iter and largest_slope(function, iterate) > tol:
        found = step(function, iterate)
        if found is None:
            return DescentResult(iterate, False)
        previous, iterate = iterate, replace(found, iteration_count=iterate.iteration_count + 1)
        on_iteration(iterate)
        if previous.value - iterate.value <= MIN_RELATIVE_DECREASE * abs(iterate.value):
            return DescentResult(iterate, True)
    return DescentResult(iterate, largest_slope(function, iterate) <= tol)


def largest_slope(function: Objective, iterate: Iterate) -> float:
    """Return the largest absolute entry of the gradient, or of the pseudo-gradient if there is an L1 penalty."""
    return float(np.abs(_pseudo_gradient(function, iterate)).max(initial=0.0))


def _pseudo_gradient(function: Objective, iterate: Iterate) -> Reals:
    """Return the subgradient of smallest norm; it is the gradient if there is no L1 penalty.

    Source: Andrew and Gao, "Scalable training of L1-regularized log-linear models", ICML 2007, eq. 4.
    """
    at_zero = np.sign(iterate.gradient) * np.maximum(np.abs(iterate.gradient) - function.l1, 0.0)
    return np.where(iterate.at == 0, at_zero, iterate.gradient + function.l1 * np.sign(iterate.at))


def lbfgs(function: Objective, iterate: Iterate) -> Iterate | None:
    """Take a step against the approximate inverse Hessian times the gradient.

    Source: Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", Math. Program. 45, 1989;
    Nocedal and Wright, "Numerical optimization", algorithms 7.4 and 7.5; for an L1 penalty, Schmidt, "Graphical model
    structure learning with L1-regularization", thesis, UBC 2010, chapter 2 (projected scaled sub-gradient).
    """
    is_first = not iterate.iteration_count
    sample_hessian = function.sample_hessian() if is_first else iterate.sample_hessian
    has_l1 = function.l1.any()
    slopes = _pseudo_gradient(function, iterate) if has_l1 else iterate.gradient
    # Weights at 0 take steps along their slopes: products with the other weights could have the wrong sign.
    free = iterate.at != 0 if has_l1 and not is_first else np.ones(len(slopes), np.bool_)
    preconditioner = None if sample_hessian is None else function.preconditioner(sample_hessian)
    direction = _two_loops(iterate, slopes, free, preconditioner)
    length = 1.0
    if is_first and sample_hessian is None:
        # The minimum of the quadratic model along the gradient.
        length = float(direction @ direction) / float(direction @ function.product(direction))
    if has_l1:
        found = _orthant_search(function, iterate, slopes, direction, length)
    else:
        found = _line_search(function, iterate, direction, length, MAX_SLOPE_SHARE)
    if found is None:
        return None
    move, change = found.at - iterate.at, found.gradient - iterate.gradient
    recent = slice(-LBFGS_PAIR_COUNT, None) if float(move @ change) > 0 else slice(0, 0)
    moves, changes = np.vstack([iterate.moves, move])[recent], np.vstack([iterate.changes, change])[recent]
    return replace(found, moves=moves, changes=changes, sample_hessian=sample_hessian)


def newton_cg(function: Objective, iterate: Iterate) -> Iterate | None:
    """Take a Newton step by conjugate gradients; accuracy increases as the gradient shrinks.

    Source: Dembo and Steihaug, "Truncated-Newton algorithms for large-scale unconstrained optimization", Math. Program.
    26, 1983; Nocedal and Wright, "Numerical optimization", algorithm 7.1.
    """
    norm = float(np.linalg.norm(iterate.gradient))
    first = iterate.scale or norm
    # A tolerance that decreases with the square root of the gradient makes convergence superlinear.
    step = _newton_step(function, iterate.gradient, min(MAX_RESIDUAL_SHARE, np.sqrt(norm / first)))
    found = _line_search(function, iterate, step, 1.0)
    return None if found is None else replace(found, scale=first)


def gd(function: Objective, iterate: Iterate) -> Iterate | None:
    """Step against the gradient with a backtracking line search; the first trial is twice the last step."""
    return _line_search(function, iterate, -iterate.gradient, 2 * (iterate.scale or 1.0))


def _two_loops(
    iterate: Iterate, slopes: Reals, free: NDArray[np.bool_], preconditioner: Preconditioner | None
) -> Reals:
    """Return minus the approximate inverse Hessian of the `free` weights times the slopes; others are only scaled."""
    direction = -slopes
    both = zip(iterate.moves * free, iterate.changes * free, strict=True)
    pairs = [(move, change, float(move @ change)) for move, change in both]
    pairs = [pair for pair in pairs if pair[2] > 0]
    shares = []
    for move, change, product in reversed(pairs):
        shares.append(float(move @ direction) / product)
        direction -= shares[-1] * change
    if preconditioner is not None:
        direction = preconditioner(direction)
    if pairs:
        _, change, product = pairs[-1]
        direction *= product / float(change @ (change if preconditioner is None else preconditioner(change)))
    for (move, change, product), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(change @ direction) / product) * move
    return direction


def _newton_step(function: Objective, gradient: Reals, max_residual: float) -> Reals:
    """Return a direction: its product with the Hessian is minus the gradient, up to a relative residual."""
    found = function.sample_hessian()
    preconditioner: Preconditioner = np.copy if found is None else function.preconditioner(found)
    step, residual = np.zeros_like(gradient), -gradient
    direction = preconditioner(residual)
    square = float(residual @ direction)
    goal = square * max_residual**2
    for _ in range(MAX_PRODUCT_COUNT):
        product = function.product(direction)
        curvature = float(direction @ product)
        if curvature <= 0:
            break
        length = square / curvature
        step += length * direction
        residual -= length * product
        preconditioned = preconditioner(residual)
        previous_square, square = square, float(residual @ preconditioned)
        if square <= goal:
            break
        direction = preconditioned + square / previous_square * direction
    return step if step.any() else -gradient


def _line_search(
    function: Objective, iterate: Iterate, direction: Reals, length: float, max_slope_share: float = np.inf
) -> Iterate | None:
    """Return a point along a direction with sufficient decrease and at most `max_slope_share` of the initial slope.

    Source: Lewis and Overton, "Nonsmooth optimization via quasi-Newton methods", Math. Program. 141, 2013, algorithm
    2.6: the length is doubled, or set to the middle of the bracket.
    """
    slope = float(iterate.gradient @ direction)
    # Near the end, differences of values are rounding errors.
    rounding = MIN_RELATIVE_DECREASE * abs(iterate.value)
    low, high, found = 0.0, np.inf, None
    for _ in range(MAX_TRIAL_COUNT):
        at = iterate.at + length * direction
        value, gradient = function.value(at)
        if value > iterate.value + SUFFICIENT_DECREASE * length * slope + rounding:
            high = length
        else:
            found = replace(iterate, at=at, value=value, gradient=gradient, scale=length)
            if float(gradient @ direction) >= max_slope_share * slope:
                return found
            low = length
        length = 2 * length if high == np.inf else (low + high) / 2
    return found


def _orthant_search(
    function: Objective, iterate: Iterate, slopes: Reals, direction: Reals, length: float
) -> Iterate | None:
    """Return a point along a direction with sufficient decrease. Penalized weights stop at 0 and do not change sign.

    Source: Andrew and Gao, "Scalable training of L1-regularized log-linear models", ICML 2007, section 3.2.
    """
    signs = np.where(iterate.at == 0, -np.sign(slopes), np.sign(iterate.at))
    rounding = MIN_RELATIVE_DECREASE * abs(iterate.value)
    for _ in range(MAX_TRIAL_COUNT):
        at = iterate.at + length * direction
        at[(function.l1 > 0) & (at * signs <= 0)] = 0
        value, gradient = function.value(at)
        if value <= iterate.value + SUFFICIENT_DECREASE * float(slopes @ (at - iterate.at)) + rounding:
            return replace(iterate, at=at, value=value, gradient=gradient, scale=length)
        length /= 2
    return None


SOLVERS: dict[str, Step] = dict(zip(LOGISTIC_SOLVERS, (lbfgs, newton_cg, gd), strict=True))
