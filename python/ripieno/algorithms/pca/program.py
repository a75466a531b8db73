"""The worker program of principal components, by a scatter matrix, QR factors, a random subspace, or Lanczos steps.

The subspace is refined by multiplication with the scatter matrix, so ranks communicate columns × components
values. A Lanczos step multiplies one vector.
Source: Halko, Martinsson and Tropp, "Finding structure with randomness", SIAM Review 53(2), 2011, algorithms 4.4, 5.1;
Minka, "Automatic choice of dimensionality for PCA", NIPS 2000, eq. 30 and 31 (number of components).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from scipy.special import gammaln

from ripieno import log
from ripieno.algorithms.data_facts import data_facts
from ripieno.algorithms.iteration_log import Emit, IterationLog, WorkerReport
from ripieno.algorithms.kmeans.rows import load
from ripieno.algorithms.linear import tsqr
from ripieno.algorithms.linear.moments import MomentColumns, means, single_threaded_blas
from ripieno.algorithms.row_sample import drawn_positions
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.comm.agreement import outcome_on_root, shared_outcome
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, InMemorySparse, LocalRows, RowsInMemory
from ripieno.kernels import SparsePoints

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Components = int | float | Literal["mle"] | None
Source = Dataset | RowsInMemory | InMemorySparse | LocalRows

NAME = "pca"
#: Number of likelihoods computed at once.
LIKELIHOOD_ROWS = 4096
#: Up to this many columns, with at least this many rows per column, the scatter matrix is fastest.
MAX_SCATTER_COLUMNS, MIN_ROWS_PER_COLUMN = 1000, 10
#: Up to this share of all components, a random subspace is faster.
MAX_RANDOMIZED_SHARE = 0.8
#: Up to this number of rows and columns, "auto" does not select the random subspace.
MAX_SMALL_DIMENSION = 500
#: Up to this share of all eigenvectors, a partial eigensolver is faster.
MAX_PARTIAL_SHARE = 0.25
#: Number of refinements of the subspace, which is larger below this share of all components.
FEW_COMPONENTS_SHARE, ITERATIONS, ITERATIONS_FOR_FEW = 0.1, 4, 7


@dataclass(frozen=True)
class PCAOptions:
    """Options of the workers.

    Parameters
    ----------
    n_components
        Number of components, their minimum share of the variance, "mle", or None for all.
    solver
        "auto", "covariance", "tsqr", "randomized" or "arpack".
    oversamples, max_iter
        Parameters of the random subspace; if `max_iter` is None, the number of components determines it.
    seed
        Seed of the random subspace, or of the first Lanczos vector.
    checkpoint_options
        Checkpoint settings of the refinements.
    """

    n_components: Components
    solver: str
    oversamples: int
    max_iter: int | None
    seed: int
    checkpoint_options: CheckpointOptions


@dataclass(frozen=True)
class Axes:
    """Principal axes, (k, d), by variance; `total` is the total variance, `noise` the mean variance of omitted axes."""

    components: NDArray[np.float64]
    variances: NDArray[np.float64]
    total: float
    noise: float


@dataclass(frozen=True)
class PCAPart:
    """One worker's part of the result: the shared result, and its own record.

    `drawn` has the projections of some of its rows onto the first two axes, (m, 2), unless the rows are sparse.
    """

    axes: Axes
    mean: NDArray[np.float64]
    solver: str
    dtype: str
    row_count: int
    resumed_from: int | None
    record: WorkerReport
    drawn: NDArray[np.float64] | None


def fit(comm: Communicator, source: Source, options: PCAOptions, emit: Emit | None = None) -> PCAPart:
    """Compute the principal components.

    Raises
    ------
    InputError
        On every rank: invalid rows, fewer than two rows, or fewer rows or columns than components.
    """
    begin = time.perf_counter()
    rows = load(comm, source)
    columns = MomentColumns(rows.points, None, None)
    if rows.total < 2:
        raise InputError(f"n_samples={rows.total}: expected at least 2 rows")
    check_component_count(options.n_components, rows.total, columns.count)
    iteration_log = IterationLog(comm, emit)
    load_s = time.perf_counter() - begin

    columns, mean, _ = means(comm, columns, iteration_log)
    is_sparse = isinstance(columns.points, SparsePoints)
    solver = chosen_solver(options, rows.total, columns.count, is_sparse=is_sparse)
    if options.checkpoint_options.folder is not None and solver != "randomized" and comm.rank == 0:
        log.note(
            "ripieno.algorithms",
            f"saves nothing in {options.checkpoint_options.folder}: the solver {solver} does not iterate",
        )
    axes = SOLVERS[solver](comm, columns, mean, rows.total, options, iteration_log)
    resumed_from = iteration_log.iterations_before or None
    record = iteration_log.record(load_s)
    drawn = None
    if not isinstance(rows.points, SparsePoints):
        drawn = (rows.points[drawn_positions(rows.points, comm.world_size)] - mean) @ axes.components[:2].T
    return PCAPart(axes, mean, solver, str(columns.dtype), rows.total, resumed_from, record, drawn)


def transform(comm: Communicator, source: Source, mean: NDArray[Any], components: NDArray[Any]) -> NDArray[Any]:
    """Return the projections of this worker's centered rows onto the components: (n, k)."""
    return _projected(load(comm, source).points, mean, components.T)


def log_likelihoods(
    comm: Communicator, source: Source, mean: NDArray[Any], precision: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the logarithm of the normal density at each of this worker's rows, (n,)."""
    points = load(comm, source).points
    _, log_determinant = np.linalg.slogdet(precision)
    constant = 0.5 * (log_determinant - len(mean) * np.log(2 * np.pi))
    found = np.empty(len(points))
    for begin in range(0, len(points), LIKELIHOOD_ROWS):
        chunk = slice(begin, begin + LIKELIHOOD_ROWS)
        centered = points[chunk] - mean
        found[chunk] = constant - 0.5 * np.einsum("ij,ij->i", centered @ precision, centered)
    return found


def _projected(points: Any, mean: NDArray[Any], vectors: NDArray[Any]) -> NDArray[Any]:
    """Return the product of the centered rows with vectors, (n, k)."""
    if isinstance(points, SparsePoints):
        return np.asarray(points.products(vectors) - mean @ vectors)
    return np.asarray((points - mean) @ vectors)


def check_component_count(n_components: Components, row_count: int, column_count: int) -> None:
    """Raise InputError if the data has fewer than `n_components` components."""
    component_limit = min(row_count, column_count)
    if n_components == "mle" and row_count < column_count:
        raise InputError(
            f"n_components='mle': expected at least as many rows as columns: n_samples={row_count} < "
            f"n_features={column_count}"
        )
    if isinstance(n_components, int) and n_components > component_limit:
        raise InputError(
            f"n_components={n_components}: expected at most min(n_samples, n_features), {component_limit}: there are "
            f"n_samples={row_count} rows of n_features={column_count}"
        )


def chosen_solver(options: PCAOptions, row_count: int, column_count: int, *, is_sparse: bool) -> str:
    """Return the solver; "auto" follows scikit-learn's rules."""
    if options.solver != "auto":
        return options.solver
    if column_count <= MAX_SCATTER_COLUMNS and row_count >= MIN_ROWS_PER_COLUMN * column_count:
        return "covariance"
    component_limit = min(row_count, column_count)
    is_large = max(row_count, column_count) > MAX_SMALL_DIMENSION
    if (
        is_large
        and isinstance(options.n_components, int)
        and options.n_components < MAX_RANDOMIZED_SHARE * component_limit
    ):
        return "arpack" if is_sparse else "randomized"
    return "tsqr"


def _by_scatter_matrix(
    comm: Communicator,
    columns: MomentColumns,
    mean: NDArray[np.float64],
    row_count: int,
    options: PCAOptions,
    iteration_log: IterationLog,
) -> Axes:
    clock = iteration_log.clock
    with clock.computing():
        scatter = columns.scatter_matrix(mean, comm.threads)
    with clock.communicating():
        total = comm.reduce(scatter)
    iteration_log.end_iteration(stage="scatter matrix")

    def axes() -> Axes:
        assert total is not None, "rank 0 is the root"
        with single_threaded_blas():
            return _axes_of_scatter(total / (row_count - 1), row_count, options.n_components)

    return _shared_axes(comm, axes, iteration_log, stage="eigenvectors")


def _shared_axes(comm: Communicator, compute: Callable[[], Axes], iteration_log: IterationLog, stage: str) -> Axes:
    """Return the axes computed by rank 0 on all ranks."""

    def checked() -> Axes:
        try:
            axes = compute()
            if not np.isfinite(axes.total):
                raise ValueError("their variance is not finite")
        except (ValueError, linalg.LinAlgError) as error:
            raise InputError(f"the rows have no principal axes: {error}: scale the rows if they are large") from error
        return axes

    axes = iteration_log.clock.on_root(comm, checked)
    iteration_log.end_iteration(stage=stage)
    return axes


def _axes_of_scatter(covariance: NDArray[np.float64], row_count: int, requested: Components) -> Axes:
    width = len(covariance)
    total = float(np.trace(covariance))
    is_few = isinstance(requested, int) and requested <= MAX_PARTIAL_SHARE * width
    which = [width - int(requested), width - 1] if is_few and requested is not None else None
    values, vectors = linalg.eigh(covariance, subset_by_index=which, driver="evr" if which else "evd")
    variances, components = np.maximum(values[::-1], 0.0), vectors.T[::-1]
    return _select_axes(components, variances, total, row_count, requested)


def _by_factors(
    comm: Communicator,
    columns: MomentColumns,
    mean: NDArray[np.float64],
    row_count: int,
    options: PCAOptions,
    iteration_log: IterationLog,
) -> Axes:
    clock = iteration_log.clock
    with clock.computing():
        own = tsqr.factor(columns.centered_blocks(mean, tsqr.block_rows(columns.count)), columns.count)
    # None on ranks other than 0.
    factor: Any = tsqr.combined_factor(comm, own, clock)
    iteration_log.end_iteration(stage="QR factors")

    def axes() -> Axes:
        _, values, components = linalg.svd(factor, full_matrices=False)
        variances = values**2 / (row_count - 1)
        return _select_axes(components, variances, float(variances.sum()), row_count, options.n_components)

    return _shared_axes(comm, axes, iteration_log, stage="singular values")


def _by_subspace(
    comm: Communicator,
    columns: MomentColumns,
    mean: NDArray[np.float64],
    row_count: int,
    options: PCAOptions,
    iteration_log: IterationLog,
) -> Axes:
    clock = iteration_log.clock
    component_limit = min(row_count, columns.count)
    requested = component_limit if options.n_components is None else options.n_components
    assert isinstance(requested, int)
    iterations = options.max_iter
    if iterations is None:
        iterations = ITERATIONS_FOR_FEW if requested < FEW_COMPONENTS_SHARE * component_limit else ITERATIONS
    size = min(requested + options.oversamples, component_limit)
    subspace = np.random.default_rng(options.seed).normal(size=(columns.count, size))
    with IterationCheckpoint(
        comm, NAME, options.checkpoint_options, shared=True, data=lambda: data_facts(comm, "rows", columns.points)
    ) as checkpoint:
        for saved in checkpoint.load():
            subspace = saved
        done = checkpoint.done
        checkpoint.check_iteration_limit(done, iterations, f"iterated_power={iterations}")
        # The first event of this fit follows the last saved refinement.
        iteration_log.iterations_before = done
        for iteration in range(done, iterations + 1):
            with clock.computing():
                product = _scatter_product(columns, mean, subspace)
            with clock.communicating():
                total = comm.reduce(product)
            subspace = clock.on_root(comm, partial(_orthonormal, total))
            iteration_log.end_iteration(stage=f"subspace {iteration}")
            if iteration < iterations and checkpoint.is_due(iteration + 1):
                checkpoint.save(iteration + 1, subspace)
    with clock.computing():
        own = tsqr.factor(_projected_blocks(columns, mean, subspace), size)
        squares = _squares(columns, mean)
    # None on ranks other than 0.
    factor: Any = tsqr.combined_factor(comm, own, clock)
    with clock.communicating():
        squares = comm.allreduce(squares)

    def axes() -> Axes:
        _, values, rotation = linalg.svd(factor, full_matrices=False)
        variances = (values**2 / (row_count - 1))[:requested]
        components = (rotation @ subspace.T)[:requested]
        return _select_axes(components, variances, squares / (row_count - 1), row_count, requested)

    return _shared_axes(comm, axes, iteration_log, stage="singular values")


def _orthonormal(total: NDArray[np.float64] | None) -> NDArray[np.float64]:
    assert total is not None, "rank 0 is the root"
    return np.linalg.qr(total)[0]


def _by_lanczos(
    comm: Communicator,
    columns: MomentColumns,
    mean: NDArray[np.float64],
    row_count: int,
    options: PCAOptions,
    iteration_log: IterationLog,
) -> Axes:
    clock = iteration_log.clock
    component_limit = min(row_count, columns.count)
    requested = component_limit - 1 if options.n_components is None else options.n_components
    assert isinstance(requested, int)
    if not 1 <= requested < component_limit:
        raise InputError(
            f"n_components={requested}: expected less than min(n_samples, n_features), {component_limit}, for "
            "svd_solver='arpack'"
        )
    # Layout: 1, or 0 after the last product; then a vector.
    request = np.zeros(1 + columns.count)

    def product(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        request[0], request[1:] = 1.0, vector.ravel()
        with clock.communicating():
            comm.broadcast(out=request)
        found = reduced_product()
        assert found is not None, "rank 0 is the root"
        return found

    def reduced_product() -> NDArray[np.float64] | None:
        with clock.computing():
            own = _scatter_product(columns, mean, request[1:, None])
        with clock.communicating():
            return comm.reduce(own[:, 0])

    with clock.computing():
        squares = _squares(columns, mean)
    with clock.communicating():
        total = comm.allreduce(squares) / (row_count - 1)

    def axes() -> Axes:
        start = np.random.default_rng(options.seed).uniform(-1, 1, columns.count)
        operator = LinearOperator((columns.count, columns.count), product, dtype=np.float64)
        try:
            values, vectors = eigsh(operator, requested, v0=start)
        except ArpackError as error:
            reason = str(error).rstrip(".")
            raise InputError(f"svd_solver='arpack': {reason}: expected svd_solver='tsqr' for these rows") from error
        finally:
            request[0] = 0.0
            comm.broadcast(out=request)
        order = values.argsort()[::-1]
        variances = np.maximum(values[order], 0.0) / (row_count - 1)
        return _select_axes(vectors.T[order], variances, total, row_count, requested)

    outcome = outcome_on_root(comm, axes)
    while comm.rank > 0 and comm.broadcast(out=request)[0]:
        reduced_product()
    with clock.communicating():
        found = shared_outcome(comm, outcome)
    iteration_log.end_iteration(stage="Lanczos steps")
    return found


SOLVERS = {
    "covariance": _by_scatter_matrix,
    "tsqr": _by_factors,
    "randomized": _by_subspace,
    "arpack": _by_lanczos,
}


def _scatter_product(
    columns: MomentColumns, mean: NDArray[np.float64], subspace: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the product of this worker's scatter matrix with some vectors."""
    if isinstance(columns.points, SparsePoints):
        projected = _projected(columns.points, mean, subspace)
        return np.asarray(columns.points.combinations(projected) - np.outer(mean, projected.sum(axis=0)))
    product = np.zeros(subspace.shape)
    vectors = subspace.astype(columns.dtype)
    for block in columns.centered_blocks(mean):
        product += block.T @ (block @ vectors)
    return product


def _squares(columns: MomentColumns, mean: NDArray[np.float64]) -> float:
    """Return the sum of the squared entries of this worker's centered rows."""
    if isinstance(columns.points, SparsePoints):
        return float(columns.points.squared_deviations(mean).sum())
    return float(sum(np.vdot(block, block) for block in columns.centered_blocks(mean)))


def _projected_blocks(
    columns: MomentColumns, mean: NDArray[np.float64], vectors: NDArray[np.float64]
) -> Iterator[NDArray[Any]]:
    """Yield the products of blocks of centered rows with vectors."""
    if isinstance(columns.points, SparsePoints):
        yield _projected(columns.points, mean, vectors)
        return
    for block in columns.centered_blocks(mean, tsqr.block_rows(vectors.shape[1])):
        yield block @ vectors


def _select_axes(
    components: NDArray[np.float64],
    variances: NDArray[np.float64],
    total: float,
    row_count: int,
    requested: Components,
) -> Axes:
    """Return the requested axes, each with its largest entry positive."""
    component_limit = min(row_count, components.shape[1])
    if requested is None:
        count = component_limit
    elif isinstance(requested, int):
        count = requested
    elif requested == "mle":
        count = most_likely_count(variances, row_count)
    else:
        count = int(np.searchsorted(np.cumsum(variances) / total, requested, side="right")) + 1
    count = min(count, component_limit)
    selected, omitted, omitted_count = variances[:count], variances[count:component_limit], component_limit - count
    # If the omitted variances are known, their sum has more digits than the difference.
    rest = float(omitted.sum() if len(omitted) == omitted_count else total - selected.sum())
    noise = max(rest, 0.0) / omitted_count if omitted_count else 0.0
    axes = components[:count]
    signs = np.sign(axes[np.arange(count), np.abs(axes).argmax(axis=1)])
    return Axes(np.ascontiguousarray(axes * signs[:, None]), selected.copy(), total, noise)


def most_likely_count(variances: NDArray[np.float64], row_count: int) -> int:
    """Return the number of components with the largest evidence, from the variances along all axes, descending.

    Source: Minka, "Automatic choice of dimensionality for PCA", NIPS 2000, eq. 30, and eq. 31 for the volume.
    """
    width = len(variances)
    eps = np.finfo(np.float64).eps
    counts = np.arange(1, width)
    used = np.maximum(variances, eps)
    # Mean variance of the omitted axes, by the number of components.
    noise = np.maximum((variances.sum() - np.cumsum(variances))[:-1] / (width - counts), eps)
    remaining = (width - counts + 1) / 2
    evidence = np.cumsum(gammaln(remaining) - np.log(np.pi) * remaining - np.log(2.0))
    evidence -= row_count / 2 * (np.cumsum(np.log(used))[:-1] + np.log(noise) * (width - counts))
    pair_counts = width * counts - counts * (counts + 1) / 2
    evidence += np.log(2 * np.pi) * (pair_counts + counts) / 2
    # The logarithm of the Hessian's determinant: pairs of components, then pairs of a component and an omitted axis.
    gaps = np.log(np.maximum(used[:, None] - used, eps * used[0]))
    inverse = 1 / used
    within = np.triu(gaps + np.log(np.maximum(inverse - inverse[:, None], eps * inverse[0])), 1)
    for index, count in enumerate(counts):
        across = gaps[:count, count:].sum()
        across += (width - count) * np.log(np.maximum(1 / noise[index] - inverse[:count], eps * inverse[0])).sum()
        volume = within[:count, :count].sum() + across + pair_counts[index] * np.log(row_count)
        evidence[index] -= volume / 2 + count * np.log(row_count) / 2
    evidence[variances[: width - 1] < eps] = -np.inf
    return int(evidence.argmax()) + 1 if width > 1 else 1
