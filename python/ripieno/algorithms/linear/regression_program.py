"""The worker program of linear least squares, with or without an L2 penalty.

Normal equations square the condition number of the columns. If that costs too many digits, another pass computes QR
factors. Products in float32 take half of the time. Their solution is refined: each step computes the residuals in
float64 and solves for a correction with the same factor.
Source: Higham, "Accuracy and stability of numerical algorithms", 2nd edition, 2002, section 12.1 (refinement).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize
from scipy.linalg import lapack

from ripieno.algorithms.iteration_log import Emit, IterationLog, WorkerReport
from ripieno.algorithms.kmeans.rows import WeightedRows, load
from ripieno.algorithms.linear import tsqr
from ripieno.algorithms.linear.moments import MomentColumns, means, single_threaded_blas
from ripieno.algorithms.row_sample import sample_positions
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, InMemorySparse, LocalRows, RowsInMemory
from ripieno.kernels import SparsePoints

if TYPE_CHECKING:
    from ripieno.algorithms.clock import IterationClock
    from ripieno.comm.communicator import Communicator

R = TypeVar("R")

#: Smallest reciprocal condition number with ten digits left by normal equations.
MIN_RECIPROCAL_CONDITION = 1e-5
#: Relative error of scatter matrices of float32 products, and of their refined solutions.
FLOAT32_ERROR, REFINED_ERROR = 1e-7, 1e-8
#: Rounding errors of a column and its mean, relative to the norm of the column, in units of the precision.
ROUNDING_ERRORS = 16
#: More steps would take longer than products in float64.
MAX_REFINEMENT_COUNT = 5


@dataclass(frozen=True)
class RegressionOptions:
    """Options of the workers.

    `alpha` has one factor of the squared weights, or one for each target. Singular values require products in float64.
    """

    alpha: tuple[float, ...]
    fit_intercept: bool
    solver: str
    has_singular: bool
    positive: bool


@dataclass(frozen=True)
class Solution:
    """Weights of the columns and intercepts per target, and, if requested, rank and singular values of the columns."""

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    rank: int
    singular: NDArray[np.float64] | None
    solver: str


@dataclass(frozen=True)
class RegressionPart:
    """One worker's part of the result: the solution, which all workers share, and its own record.

    `drawn` has targets and predictions of some of its rows, (m, t) each.
    """

    solution: Solution
    row_count: int
    record: WorkerReport
    drawn: tuple[NDArray[np.float64], NDArray[np.float64]]


def fit(
    comm: Communicator,
    source: Dataset | RowsInMemory | InMemorySparse | LocalRows,
    targets: NDArray[np.float64] | int,
    weights: NDArray[np.float64] | None,
    options: RegressionOptions,
    emit: Emit | None = None,
) -> RegressionPart:
    """Solve least squares; `targets` are all rows' targets, (n, t), or the position of the target column.

    Raises
    ------
    InputError
        On every rank: invalid rows, a number of targets that differs from the number of rows, for the solver "normal"
        linearly dependent columns, or least squares that do not converge.
    """
    begin = time.perf_counter()
    rows, own_targets = load_targets(comm, source, targets, weights)
    columns = MomentColumns(rows.points, own_targets, rows.weights)
    iteration_log = IterationLog(comm, emit)
    load_s = time.perf_counter() - begin
    solution = _solve(comm, columns, rows.total, options, iteration_log)
    positions = sample_positions(len(rows), comm.world_size)
    if isinstance(rows.points, SparsePoints):
        predicted = _predicted(rows.points, solution.coef, solution.intercept)[positions]
    else:
        predicted = _predicted(rows.points[positions], solution.coef, solution.intercept)
    return RegressionPart(solution, rows.total, iteration_log.record(load_s), (own_targets[positions], predicted))


def predict(
    comm: Communicator,
    source: Dataset | RowsInMemory | InMemorySparse,
    coef: NDArray[np.float64],
    intercept: NDArray[np.float64],
    target: int | None,
) -> NDArray[np.float64]:
    """Return the predictions for this worker's rows, (n, t), without the target column, if any."""
    points = load(comm, source).points
    if target is not None:
        points = np.delete(points, target, axis=1)
    return _predicted(points, coef, intercept)


def _predicted(points: Any, coef: NDArray[np.float64], intercept: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return the predictions for rows, (n, t)."""
    if isinstance(points, SparsePoints):
        return points.products(coef) + intercept
    return np.asarray(points @ coef + intercept)


def column(comm: Communicator, source: Dataset, index: int) -> NDArray[Any]:
    """Return one column of this worker's rows."""
    values: NDArray[Any] = load(comm, source).points[:, index].copy()
    return values


def load_targets(
    comm: Communicator,
    source: Dataset | RowsInMemory | InMemorySparse | LocalRows,
    targets: NDArray[Any] | int,
    weights: NDArray[np.float64] | None,
) -> tuple[WeightedRows, NDArray[np.float64]]:
    """Return this worker's rows and their targets, (n, t) float64; with `LocalRows`, `targets` are this worker's own.

    Raises
    ------
    InputError
        On every rank: invalid rows, or a number of targets that differs from the number of rows.
    """
    rows = load(comm, source, weights)
    if isinstance(targets, int):
        own = rows.points[:, [targets]].astype(np.float64)
        return replace(rows, points=np.delete(rows.points, targets, axis=1)), own
    if isinstance(source, LocalRows):
        with agreement(comm):
            if len(targets) != len(rows):
                raise InputError(f"{source.name}: y has {len(targets)} entries for {len(rows)} rows")
        return rows, np.asarray(targets, np.float64)
    if len(targets) != rows.total:
        raise InputError(f"y has {len(targets)} entries for {rows.total} rows")
    return rows, np.asarray(targets[rows.offset : rows.offset + len(rows)], np.float64)


def _solve(
    comm: Communicator, columns: MomentColumns, row_count: int, options: RegressionOptions, iteration_log: IterationLog
) -> Solution:
    with_type, center, weight = means(comm, columns, iteration_log)
    if not options.fit_intercept:
        center = np.zeros(columns.count)
    solution = None
    if options.solver != "tsqr" and not options.positive:
        is_refined = with_type.dtype == np.float32 and not options.has_singular and len(set(options.alpha)) == 1
        if is_refined:
            solution = _by_normal_equations(comm, with_type, center, options, iteration_log)
        if solution is None:
            solution = _by_normal_equations(comm, columns, center, options, iteration_log)
        if solution is None and options.solver == "normal":
            raise InputError("solver='normal': the columns are linearly dependent: expected solver='tsqr' or 'auto'")
    if solution is None:
        solution = _by_factors(comm, columns, center, weight, row_count, options, iteration_log)
    return solution


@dataclass(frozen=True)
class _NormalEquations:
    """Cholesky factor of the scatter matrix with the penalty, (d, d).

    Parameters
    ----------
    factor : (d, d)
    alpha
        Factor of the squared weights.
    condition
        Estimated condition number, in the 1-norm.
    """

    factor: NDArray[np.float64]
    alpha: float
    condition: float

    @classmethod
    def of(cls, scatter: NDArray[np.float64], alpha: float) -> _NormalEquations | None:
        """Factor the equations; None if the matrix is not positive definite."""
        matrix = scatter.copy()
        matrix.flat[:: len(matrix) + 1] += alpha
        norm = float(np.abs(matrix).sum(axis=0).max(initial=0.0))
        # The transpose of the symmetric matrix is in LAPACK's order.
        factor, failed = lapack.dpotrf(matrix.T)
        if failed:
            return None
        reciprocal, _ = lapack.dpocon(factor, norm)
        return cls(factor, alpha, 1 / reciprocal if reciprocal else np.inf)

    def solve(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the solution for right-hand sides, (d, t)."""
        return np.asarray(linalg.cho_solve((self.factor, False), right))

    def refine(self, coef: NDArray[np.float64], gradients: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
        """Return corrected weights, given the gradients of the squared errors, and whether they are precise."""
        step = self.solve(gradients - self.alpha * coef)
        refined = coef + step
        sizes = np.linalg.norm(refined, axis=0)
        change = float((np.linalg.norm(step, axis=0) / np.where(sizes > 0, sizes, 1.0)).max(initial=0.0))
        # Each step multiplies the error at least by this factor.
        return refined, FLOAT32_ERROR * self.condition * change <= REFINED_ERROR


def _by_normal_equations(
    comm: Communicator,
    columns: MomentColumns,
    center: NDArray[np.float64],
    options: RegressionOptions,
    iteration_log: IterationLog,
) -> Solution | None:
    """Return the solution on every rank, or None on every rank if too many digits would be lost."""
    clock, width = iteration_log.clock, columns.points.shape[1]
    with clock.computing():
        scatter = columns.scatter_matrix(center, comm.threads)
    with clock.communicating():
        total = comm.reduce(scatter)
    iteration_log.end_iteration(stage="scatter matrix")
    equations: _NormalEquations | None = None

    def solve() -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        nonlocal equations
        assert total is not None, "rank 0 is the root"
        with single_threaded_blas():
            equations, coef = _solved(total, width, options)
            if coef is None or not options.has_singular:
                return coef, None
            return coef, np.sqrt(np.maximum(linalg.eigvalsh(total[:width, :width])[::-1], 0.0))

    def refine(coef: NDArray[np.float64], gradients: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
        assert equations is not None, "rank 0 has found weights"
        with single_threaded_blas():
            return equations.refine(coef, gradients)

    coef, singular = _checked(comm, clock, width, solve)
    if coef is not None and columns.dtype == np.float32:
        coef = _refined(comm, columns, center, coef, refine, iteration_log)
    with clock.communicating():
        solution = None if coef is None else _solution(coef, center, width, singular, "normal")
        found: Solution | None = comm.broadcast(solution)
    iteration_log.end_iteration(stage="normal equations")
    return found


def _checked(comm: Communicator, clock: IterationClock, width: int, compute: Callable[[], R]) -> R:
    """Return the result of rank 0 on all ranks; raise InputError on all ranks if its matrices are unusable."""

    def checked() -> R:
        try:
            return compute()
        except (RuntimeError, ValueError, linalg.LinAlgError) as error:
            raise InputError(f"least squares of {width} columns: {error}") from error

    return clock.on_root(comm, checked)


def _solved(
    scatter: NDArray[np.float64], width: int, options: RegressionOptions
) -> tuple[_NormalEquations | None, NDArray[np.float64] | None]:
    """Return the equations of the last penalty, and the weights, or None if too many digits would be lost."""
    limit = MIN_RECIPROCAL_CONDITION if options.solver == "auto" else width * np.finfo(np.float64).eps
    products = scatter[:width, width:]
    coef = np.empty_like(products)
    equations = None
    for alpha, targets in _targets_by_alpha(options, products.shape[1]):
        equations = _NormalEquations.of(scatter[:width, :width], alpha)
        if equations is None or not 1 / equations.condition > limit:
            return equations, None
        coef[:, targets] = equations.solve(products[:, targets])
    return equations, coef


def _refined(
    comm: Communicator,
    columns: MomentColumns,
    center: NDArray[np.float64],
    coef: NDArray[np.float64],
    refine: Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[NDArray[np.float64], bool]],
    iteration_log: IterationLog,
) -> NDArray[np.float64] | None:
    """Refine the weights on rank 0. Return None on every rank if they remain imprecise."""
    clock = iteration_log.clock
    for _ in range(MAX_REFINEMENT_COUNT):
        with clock.computing():
            gradients = columns.gradients(center, coef, comm.threads)
        with clock.communicating():
            total: Any = comm.reduce(gradients)
        coef, is_precise = _checked(comm, clock, len(coef), partial(refine, coef, total))
        if is_precise:
            return coef
    return None


def _by_factors(
    comm: Communicator,
    columns: MomentColumns,
    center: NDArray[np.float64],
    weight: float,
    row_count: int,
    options: RegressionOptions,
    iteration_log: IterationLog,
) -> Solution:
    clock, width = iteration_log.clock, columns.points.shape[1]
    with clock.computing():
        own = tsqr.factor(columns.centered_blocks(center, tsqr.block_rows(columns.count)), columns.count)
    # None on ranks other than 0.
    factor: Any = tsqr.combined_factor(comm, own, clock)
    iteration_log.end_iteration(stage="QR factors")
    solution = _checked(comm, clock, width, lambda: _of_factor(factor, center, weight, width, row_count, options))
    iteration_log.end_iteration(stage="least squares")
    return solution


def _of_factor(
    factor: NDArray[np.float64],
    center: NDArray[np.float64],
    weight: float,
    width: int,
    row_count: int,
    options: RegressionOptions,
) -> Solution:
    """Return the shortest solution for the R factor of the centered columns of points and targets.

    The singular values of dependent columns are zero, plus the rounding errors of the columns before centering.
    """
    points, targets = factor[:, :width], factor[:, width:]
    vectors, singular, axes = linalg.svd(points, full_matrices=False)
    precision = np.finfo(np.float64).eps
    # `hypot` does not overflow.
    sizes = np.hypot(np.hypot.reduce(points, axis=0), np.sqrt(weight) * np.abs(center[:width]))
    noise = ROUNDING_ERRORS * precision * np.hypot.reduce(axes * sizes, axis=1)
    is_kept = singular > np.maximum(noise, max(row_count, width) * precision * singular[0])
    coef = np.empty((width, targets.shape[1]))
    for alpha, where in _targets_by_alpha(options, targets.shape[1]):
        if options.positive:
            # Penalty rows: √alpha times the identity, with zero targets.
            stacked = np.vstack([factor, np.sqrt(alpha) * np.eye(width if alpha else 0, factor.shape[1])])
            solutions = [optimize.nnls(stacked[:, :width], target)[0] for target in stacked[:, width:][:, where].T]
            coef[:, where] = np.column_stack(solutions)
        else:
            values = singular[is_kept]
            products = vectors[:, is_kept].T @ targets[:, where]
            coef[:, where] = axes[is_kept].T @ (products / (values + alpha / values)[:, None])
    return _solution(coef, center, width, singular, "tsqr", int(is_kept.sum()))


def _targets_by_alpha(options: RegressionOptions, target_count: int) -> list[tuple[float, NDArray[np.bool_]]]:
    """Return each distinct factor of the squared weights, with its targets."""
    alphas = np.broadcast_to(options.alpha, target_count)
    return [(float(alpha), alphas == alpha) for alpha in np.unique(alphas)]


def _solution(
    coef: NDArray[np.float64],
    center: NDArray[np.float64],
    width: int,
    singular: NDArray[np.float64] | None,
    solver: str,
    rank: int | None = None,
) -> Solution:
    intercept = center[width:] - center[:width] @ coef
    return Solution(coef, intercept, width if rank is None else int(rank), singular, solver)
