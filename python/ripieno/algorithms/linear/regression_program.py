"""The worker program of linear least squares, with or without an L2 penalty.

Normal equations take one pass and square the condition number of the columns. If that costs too many digits, a second
pass computes QR factors.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from ripieno.algorithms.iteration_log import Emit, IterationLog, WorkerReport
from ripieno.algorithms.kmeans.rows import WeightedRows, load
from ripieno.algorithms.linear import tsqr
from ripieno.algorithms.linear.moments import MomentColumns, means, scatter_matrix, weight_and_sums
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, InMemorySparse, LocalRows, RowsInMemory
from ripieno.kernels import SparsePoints

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Smallest ratio of smallest to largest eigenvalue for which normal equations keep ten digits.
MIN_EIGENVALUE_RATIO = 1e-5


@dataclass(frozen=True)
class RegressionOptions:
    """Options of the workers; `alpha` has the factor of the squared weights, or one for each target."""

    alpha: tuple[float, ...]
    fit_intercept: bool
    solver: str
    positive: bool


@dataclass(frozen=True)
class Solution:
    """Weights of the columns and intercepts per target, and the rank and singular values of the columns."""

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    rank: int
    singular: NDArray[np.float64]
    solver: str


@dataclass(frozen=True)
class RegressionPart:
    """One worker's part of the result: the solution, which all workers share, and its own record."""

    solution: Solution
    row_count: int
    record: WorkerReport


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
        On every rank: invalid rows, a number of targets that differs from the number of rows, or, for the solver
        "normal", linearly dependent columns.
    """
    begin = time.perf_counter()
    rows, own_targets = load_targets(comm, source, targets, weights)
    columns = MomentColumns(rows.points, own_targets, rows.weights, np.dtype(np.float64))
    iteration_log = IterationLog(comm, emit)
    load_s = time.perf_counter() - begin
    solution = _solve(comm, columns, rows.total, options, iteration_log)
    return RegressionPart(solution, rows.total, iteration_log.record(load_s))


def predict(
    comm: Communicator,
    source: Dataset | RowsInMemory | InMemorySparse,
    coef: NDArray[np.float64],
    intercept: NDArray[np.float64],
    target: int | None,
) -> NDArray[np.float64]:
    """Return the predictions for this worker's rows, (n, t), without the target column, if any."""
    points = load(comm, source).points
    if isinstance(points, SparsePoints):
        return points.products(coef) + intercept
    if target is not None:
        points = np.delete(points, target, axis=1)
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
    clock = iteration_log.clock
    center = np.zeros(columns.count)
    if options.fit_intercept:
        with clock.computing():
            weight, sums = weight_and_sums(columns)
        with clock.communicating():
            _, center = means(comm, weight, sums)
        iteration_log.end_iteration(stage="means")
    solution = None
    if options.solver != "tsqr" and not options.positive:
        solution = _by_normal_equations(comm, columns, center, options, iteration_log)
    if solution is None:
        solution = _by_factors(comm, columns, center, row_count, options, iteration_log)
    return solution


def _by_normal_equations(
    comm: Communicator,
    columns: MomentColumns,
    center: NDArray[np.float64],
    options: RegressionOptions,
    iteration_log: IterationLog,
) -> Solution | None:
    """Return the solution on every rank, or None on every rank if too many digits would be lost."""
    clock = iteration_log.clock
    with clock.computing():
        scatter = scatter_matrix(columns, center, threads=comm.threads)
    with clock.communicating():
        total = comm.reduce(scatter)
    iteration_log.end_iteration(stage="scatter matrix")
    solution = None
    if total is not None:
        with clock.computing():
            solution = _solve_normal_equations(total, center, columns.points.shape[1], options)
    with clock.communicating():
        found: Solution | None = comm.broadcast(solution)
    iteration_log.end_iteration(stage="normal equations")
    if found is None and options.solver == "normal":
        raise InputError("solver='normal': the columns are linearly dependent: expected solver='tsqr' or 'auto'")
    return found


def _solve_normal_equations(
    scatter: NDArray[np.float64], center: NDArray[np.float64], width: int, options: RegressionOptions
) -> Solution | None:
    matrix = scatter[:width, :width].copy()
    eigenvalues = np.maximum(linalg.eigvalsh(matrix)[::-1], 0.0)
    limit = MIN_EIGENVALUE_RATIO if options.solver == "auto" else width * np.finfo(np.float64).eps
    if not eigenvalues[-1] + min(options.alpha) > limit * (eigenvalues[0] + min(options.alpha)):
        return None
    products = scatter[:width, width:]
    coef = np.empty_like(products)
    for alpha, targets in _targets_by_alpha(options, products.shape[1]):
        penalized = matrix.copy()
        penalized.flat[:: width + 1] += alpha
        coef[:, targets] = linalg.solve(penalized, products[:, targets], assume_a="pos")
    return _solution(coef, center, width, np.sqrt(eigenvalues), "normal")


def _by_factors(
    comm: Communicator,
    columns: MomentColumns,
    center: NDArray[np.float64],
    row_count: int,
    options: RegressionOptions,
    iteration_log: IterationLog,
) -> Solution:
    clock, width = iteration_log.clock, columns.points.shape[1]
    with clock.computing():
        own = tsqr.factor(columns.centered_blocks(center, tsqr.block_rows(columns.count)), columns.count)
    factor = tsqr.combined_factor(comm, own, clock)
    iteration_log.end_iteration(stage="QR factors")
    solution = None
    if factor is not None:
        with clock.computing():
            cutoff = max(row_count, width) * np.finfo(np.float64).eps
            coef = np.empty((width, columns.count - width))
            for alpha, targets in _targets_by_alpha(options, coef.shape[1]):
                # Penalty rows: √alpha times the identity, with zero targets.
                penalty = np.sqrt(alpha) * np.eye(width if alpha else 0, columns.count)
                stacked = np.vstack([factor, penalty])
                points, own = stacked[:, :width], stacked[:, width:][:, targets]
                coef[:, targets], _, rank, singular = linalg.lstsq(points, own, cond=cutoff)
                if options.positive:
                    coef[:, targets] = np.column_stack([optimize.nnls(points, target)[0] for target in own.T])
            solution = _solution(coef, center, width, singular, "tsqr", rank)
    with clock.communicating():
        found: Solution = comm.broadcast(solution)
    iteration_log.end_iteration(stage="least squares")
    return found


def _targets_by_alpha(options: RegressionOptions, target_count: int) -> list[tuple[float, NDArray[np.bool_]]]:
    """Return each different factor of the squared weights, and which targets it has."""
    alphas = np.broadcast_to(options.alpha, target_count)
    return [(float(alpha), alphas == alpha) for alpha in np.unique(alphas)]


def _solution(
    coef: NDArray[np.float64],
    center: NDArray[np.float64],
    width: int,
    singular: NDArray[np.float64],
    solver: str,
    rank: int | None = None,
) -> Solution:
    intercept = center[width:] - center[:width] @ coef
    return Solution(coef, intercept, width if rank is None else int(rank), singular, solver)
