"""The worker program of full-batch logistic regression.

Rank 0 runs the solver. It broadcasts a request for the loss and gradient at given weights, or for a Hessian-vector
product. One reduction returns the sums of all ranks' contributions. Only rank 0 decides when to stop, so rounding
cannot make ranks disagree.

Source: Zaharia et al., "Spark: cluster computing with working sets", HotCloud 2010, section 3.3 (gradient descent);
Lin, Weng and Keerthi, "Trust region Newton method for large-scale logistic regression", JMLR 9, 2008 (products only).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix

from ripieno.algorithms.class_scores import weight_count
from ripieno.algorithms.data_facts import data_facts
from ripieno.algorithms.iteration_log import Emit, IterationLog, WorkerReport
from ripieno.algorithms.kmeans.rows import load
from ripieno.algorithms.linear.regression_program import load_targets
from ripieno.algorithms.logistic.rows import (
    DenseLogisticRows,
    HessianSample,
    LogisticRows,
    Reals,
    SparseLogisticRows,
    sample_stride,
)
from ripieno.algorithms.logistic.solvers import Iterate, Preconditioner, descend, first_iterate, largest_slope
from ripieno.algorithms.row_sample import sample_positions
from ripieno.algorithms.sgd.rows import checked_classes, columns_of, of_columns
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.comm.agreement import agreement, on_root
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, InMemorySparse, LocalRows, RowsInMemory
from ripieno.input.matrix.sparse_files import LibsvmFiles

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "logistic"
#: Smallest penalty of the preconditioner, relative to the largest second derivative.
MIN_RELATIVE_PENALTY = 1e-10
#: Request codes of rank 0, in the first entry of its broadcast.
END, LOSS, CURVATURE, SAMPLE, CHECKPOINT, LAST_CHECKPOINT = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0


@dataclass(frozen=True)
class LogisticOptions:
    """Options of the workers.

    `strength` is the factor of the losses. The penalty is `l1_ratio` times the absolute weights plus ``1 - l1_ratio``
    times half the squared weights. `class_weight` maps labels, or numbers of classes, to factors of row weights.
    """

    strength: float
    l1_ratio: float
    class_weight: dict[Any, float] | Literal["balanced"] | None
    fit_intercept: bool
    solver: str
    tol: float
    max_iter: int
    checkpoint_options: CheckpointOptions


@dataclass(frozen=True)
class LogisticResult:
    """The end point of the solver, and the iteration count of the earlier fit that it resumed, if any."""

    at: Reals
    value: float
    iteration_count: int
    converged: bool
    resumed_from: int | None


@dataclass(frozen=True)
class LogisticPart:
    """One worker's part of the result: the model, which all ranks share, and the worker's own record.

    `drawn` has class numbers and scores of some of its rows, (m,) and (m, k).
    """

    coef: Reals
    objective: float
    outcome: LogisticResult
    classes: NDArray[Any]
    columns: range
    row_count: int
    record: WorkerReport
    drawn: tuple[NDArray[np.int64], Reals]


def fit(
    comm: Communicator,
    source: InMemorySparse | LibsvmFiles | Dataset | RowsInMemory | LocalRows,
    labels: NDArray[Any] | int | None,
    classes: NDArray[Any] | None,
    weights: Reals | None,
    start: Reals | None,
    options: LogisticOptions,
    emit: Emit | None = None,
) -> LogisticPart:
    """Minimize the loss from `start`, (d + 1, k), or from zero.

    `labels` are class numbers, or the position of the label column, or None for sparse rows, which include their
    labels. If `classes` is None, the ranks determine the classes.

    Raises
    ------
    InputError
        On every rank: invalid rows, or labels with fewer than two classes.
    CheckpointError
        On every rank: the checkpoint belongs to another fit, is in use, or cannot be written.
    """
    begin = time.perf_counter()
    if isinstance(_unwrapped(source), InMemorySparse | LibsvmFiles):
        rows, classes, columns, weight, total = _load_sparse(comm, source, classes, weights, options)
    else:
        assert labels is not None and not isinstance(source, InMemorySparse | LibsvmFiles)
        rows, classes, columns, weight, total = _load_dense(comm, source, labels, classes, weights, options)
    iteration_log = IterationLog(comm, emit)
    load_s = time.perf_counter() - begin
    k = weight_count(len(classes))

    def data() -> dict[str, Any]:
        return {"classes": classes.tolist()} | data_facts(comm, "rows", rows.points, rows.classes, rows.sample_weight)

    with IterationCheckpoint(comm, NAME, options.checkpoint_options, shared=False, data=data) as checkpoint:
        # Only rank 0 has an iterate to save.
        saved = next((Iterate(**state) for state in checkpoint.load() if state is not None), None)
        function = DistributedObjective(comm, rows, k, weight, options, iteration_log, checkpoint)
        failure = function.serve_requests() if comm.rank > 0 else None
        found = on_root(comm, lambda: _minimize(function, start, options, saved))
        if failure is not None:
            raise failure
    coef = found.at.reshape(rows.column_count + 1, k)
    return LogisticPart(
        coef=coef,
        objective=found.value * function.objective_scale,
        outcome=found,
        classes=classes,
        columns=columns,
        row_count=total,
        record=iteration_log.record(load_s),
        drawn=rows.scored(sample_positions(len(rows.probabilities), comm.world_size), coef),
    )


def scores(
    comm: Communicator,
    source: LibsvmFiles | Dataset | RowsInMemory,
    coef: Reals,
    columns: range,
    target: int | None,
) -> tuple[Reals, NDArray[Any] | None]:
    """Return the scores of this worker's rows, (n, k), and their labels if the files have labels."""
    if isinstance(source, LibsvmFiles):
        with agreement(comm):
            share = source.read_share(comm.rank, comm.world_size)
        # Ignore columns that were absent from the fit.
        return np.asarray(share.points[:, columns.start : columns.stop] @ coef[:-1]) + coef[-1], share.labels
    if target is None:
        return load(comm, source).points @ coef[:-1] + coef[-1], None
    rows, labels = load_targets(comm, source, target, None)
    return rows.points @ coef[:-1] + coef[-1], labels[:, 0]


class DistributedObjective:
    """The penalized mean loss over all ranks' rows. Rank 0 sends requests; all ranks contribute.

    Values are divided by the total row weight, so `tol` applies to the same gradient as in scikit-learn.
    """

    def __init__(
        self,
        comm: Communicator,
        rows: LogisticRows,
        k: int,
        weight: float,
        options: LogisticOptions,
        iteration_log: IterationLog,
        checkpoint: IterationCheckpoint,
    ) -> None:
        self._comm = comm
        self._checkpoint = checkpoint
        self._rows = rows
        self._scale = 1 / weight
        # Without a penalty, the objective is the sum of the losses.
        self.objective_scale = weight * (1.0 if np.isinf(options.strength) else options.strength)
        penalty = 1 / (options.strength * weight)
        self._penalty = (1 - options.l1_ratio) * penalty
        self._fit_intercept = options.fit_intercept
        self._iteration_log = iteration_log
        self._shape = (rows.column_count + 1, k)
        size = self._shape[0] * k
        # Layout: request code, iteration-end flag, value and gradient norm of that iteration, weights.
        self._request = np.zeros(4 + size)
        self._result = np.zeros(1 + size)
        self.size = size
        # With an intercept, the solver sees centered columns, whose curvature does not depend on their means.
        self._center = np.zeros(rows.column_count)
        if options.fit_intercept:
            self._center = comm.allreduce(rows.column_sums()) / weight
        self.l1 = self._without_intercept(np.full(size, options.l1_ratio * penalty))
        total, entries = comm.allreduce(np.array([len(rows.probabilities), rows.entry_count]))
        # The classes have a common shift, which the preconditioner removes and an L1 penalty does not.
        has_metric = options.solver != "gd" and not options.l1_ratio
        stride = sample_stride(int(total), int(entries), *self._shape) if has_metric else None
        self._sample: HessianSample | None = None
        if stride is not None:
            self._sample = rows.sample(stride, self._center, float(options.fit_intercept))
            self._sample_scale = float(total) / comm.allreduce(len(self._sample.points)) * self._scale

    def value(self, at: Reals) -> tuple[float, Reals]:
        """Return the penalized mean loss, and its gradient without the L1 penalty."""
        self._send_request(LOSS, self.uncentered(at))
        result = self._evaluate()
        value, gradient = float(result[0]) * self._scale, self._centered_gradient(result[1:] * self._scale)
        penalized = self._without_intercept(at)
        value += 0.5 * self._penalty * float(penalized @ penalized) + float(self.l1 @ np.abs(at))
        return value, self._mask_intercept(gradient + self._penalty * penalized)

    def product(self, direction: Reals) -> Reals:
        """Return the Hessian times a direction."""
        self._send_request(CURVATURE, self.uncentered(direction))
        product = self._centered_gradient(self._evaluate()[1:] * self._scale)
        return self._mask_intercept(product + self._penalty * self._without_intercept(direction))

    def centered(self, at: Reals) -> Reals:
        """Return the weights of the centered columns that give the same scores as the weights of the columns."""
        return self._with_shifted_intercept(at, 1.0)

    def uncentered(self, at: Reals) -> Reals:
        """Return the weights of the columns that give the same scores as the weights of the centered columns."""
        return self._with_shifted_intercept(at, -1.0)

    def sample_hessian(self) -> Reals | None:
        """Return the Hessian on a sample of all ranks' rows, per class, (k, d + 1, d + 1)."""
        if self._sample is None:
            return None
        self._send_request(SAMPLE, np.zeros(self.size))
        found = self._reduce_sample_hessian()
        assert found is not None, "rank 0 is the root"
        found *= self._sample_scale
        return found if np.isfinite(found).all() else None

    def preconditioner(self, found: Reals) -> Preconditioner:
        """Return a function that solves with the penalized Hessian blocks that `sample_hessian` returned."""
        eye = np.eye(found.shape[1])
        # The block may be singular, so the penalty also includes the intercept here, unlike in the objective.
        least = MIN_RELATIVE_PENALTY * float(np.einsum("kii->ki", found).max())
        factors = [cho_factor(each + max(self._penalty, least) * eye, check_finite=False) for each in found]

        def solve(vector: Reals) -> Reals:
            columns = vector.reshape(self._shape).T
            pairs = zip(factors, columns, strict=True)
            solved = np.stack([cho_solve(factor, column, check_finite=False) for factor, column in pairs], axis=1)
            if len(factors) > 1:
                # A shift common to all classes does not change the probabilities.
                solved -= solved.mean(axis=1, keepdims=True)
            return self._mask_intercept(solved.ravel())

        return solve

    def resume_after(self, iteration_count: int) -> None:
        """Set the number of iterations that an earlier fit completed."""
        self._iteration_log.iterations_before = iteration_count

    def record_iteration(self, iterate: Iterate) -> None:
        """Record the end of an iteration. The next request notifies the other ranks."""
        slope = largest_slope(self, iterate)
        self._request[1:4] = 1.0, iterate.value, slope
        self._iteration_log.end_iteration(objective=iterate.value * self.objective_scale, gradient=slope)

    def checkpoint(self, iterate: Iterate, *, last: bool = False) -> None:
        """Save the iterate if it is due or if it is the `last`."""
        if self._checkpoint.used:
            count = iterate.iteration_count
            self._send_request(LAST_CHECKPOINT if last else CHECKPOINT, np.full(self.size, count))
            self._save(count, dict(vars(iterate)), last=last)

    def _save(self, count: int, state: dict[str, Any] | None, *, last: bool) -> None:
        if self._checkpoint.is_due(count, last=last):
            self._checkpoint.save(count, state)

    def end(self) -> None:
        """Notify the other ranks that no request follows."""
        self._request[0] = END
        self._comm.broadcast(out=self._request)

    def serve_requests(self) -> Exception | None:
        """Serve the requests of rank 0 until `END`; return an error of a checkpoint.

        If rank 0 cannot save, it sends `END`, and then all ranks raise its error.
        """
        clock, failure = self._iteration_log.clock, None
        while True:
            with clock.communicating():
                self._comm.broadcast(out=self._request)
            if self._request[1]:
                self._iteration_log.end_iteration(
                    objective=float(self._request[2]) * self.objective_scale, gradient=float(self._request[3])
                )
            if self._request[0] == END:
                return failure
            if self._request[0] in (CHECKPOINT, LAST_CHECKPOINT):
                try:
                    self._save(int(self._request[4]), None, last=self._request[0] == LAST_CHECKPOINT)
                except Exception as error:
                    failure = error
                continue
            if self._request[0] == SAMPLE:
                self._reduce_sample_hessian()
                continue
            self._compute()
            with clock.communicating():
                self._comm.reduce(self._result)

    def _send_request(self, code: float, at: Reals) -> None:
        self._request[0] = code
        self._request[4:] = at
        with self._iteration_log.clock.communicating():
            self._comm.broadcast(out=self._request)
        self._request[1] = 0.0

    def _evaluate(self) -> Reals:
        self._compute()
        with self._iteration_log.clock.communicating():
            result = self._comm.reduce(self._result)
        assert result is not None, "rank 0 is the root"
        return result

    def _reduce_sample_hessian(self) -> Reals | None:
        assert self._sample is not None, "all ranks have a sample if one has"
        with self._iteration_log.clock.computing():
            found = self._sample.second_derivatives()
        with self._iteration_log.clock.communicating():
            return self._comm.reduce(found)

    def _compute(self) -> None:
        with self._iteration_log.clock.computing():
            at = self._request[4:].reshape(self._shape)
            found = self._result[1:].reshape(self._shape)
            if self._request[0] == LOSS:
                self._result[0] = self._rows.loss(at, found)
            else:
                self._rows.curvature(at, found)

    def _with_shifted_intercept(self, at: Reals, sign: float) -> Reals:
        shifted = at.copy().reshape(self._shape)
        shifted[-1] += sign * (self._center @ shifted[:-1])
        return shifted.ravel()

    def _centered_gradient(self, gradient: Reals) -> Reals:
        """Return the gradient by the weights of the centered columns, given the gradient by those of the columns."""
        found = gradient.reshape(self._shape)
        found[:-1] -= np.outer(self._center, found[-1])
        return gradient

    def _without_intercept(self, at: Reals) -> Reals:
        """Return a copy of the weights with zero intercepts, which are not penalized."""
        penalized = at.copy().reshape(self._shape)
        penalized[-1] = 0
        return penalized.ravel()

    def _mask_intercept(self, gradient: Reals) -> Reals:
        """Set the gradient of the intercept to zero if the model has no intercept."""
        if not self._fit_intercept:
            gradient.reshape(self._shape)[-1] = 0
        return gradient


def _minimize(
    function: DistributedObjective, start: Reals | None, options: LogisticOptions, saved: Iterate | None
) -> LogisticResult:
    """Run the solver on rank 0, then notify the other ranks that no request follows."""
    try:
        first = first_iterate(function, _start_weights(function, start) if saved is None else saved.at)
        if saved is not None:
            function.resume_after(saved.iteration_count)

        def on_iteration(iterate: Iterate) -> None:
            function.checkpoint(iterate)
            function.record_iteration(iterate)

        descent = descend(options.solver, function, saved or first, options.tol, options.max_iter, on_iteration)
        iterate = descent.iterate
        # A later fit may resume with more iterations or a smaller tolerance.
        function.checkpoint(iterate, last=True)
        if iterate.iteration_count == (saved.iteration_count if saved else 0):
            # The report needs at least one iteration, even if the saved fit was complete.
            function.resume_after(max(iterate.iteration_count - 1, 0))
            function.record_iteration(iterate)
    finally:
        function.end()
    resumed_from = None if saved is None else saved.iteration_count
    at = function.uncentered(iterate.at)
    return LogisticResult(at, iterate.value, iterate.iteration_count, descent.converged, resumed_from)


def _start_weights(function: DistributedObjective, start: Reals | None) -> Reals:
    return np.zeros(function.size) if start is None else function.centered(start.ravel())


def _unwrapped(source: Any) -> Any:
    """Return the source of the rows without its `LocalRows` wrapper, if it has one."""
    return source.source if isinstance(source, LocalRows) else source


def _load_sparse(
    comm: Communicator,
    source: Any,
    classes: NDArray[Any] | None,
    weights: Reals | None,
    options: LogisticOptions,
) -> tuple[LogisticRows, NDArray[Any], range, float, int]:
    with agreement(comm):
        share = source.read_share(comm.rank, comm.world_size)
    is_file = isinstance(_unwrapped(source), LibsvmFiles)
    columns = columns_of(comm, share.points) if is_file else range(share.points.shape[1])
    matrix: csr_matrix = of_columns(share.points, columns, source.name) if is_file else share.points
    classes = checked_classes(comm, share.labels, classes, source.name)
    counts = comm.allgather(len(share.labels))
    if isinstance(source, LocalRows):
        own = np.ones(len(share.labels)) if source.weights is None else source.weights
    else:
        own = _own_weights(weights, sum(counts[: comm.rank]), counts[comm.rank], sum(counts))
    numbers = np.searchsorted(classes, share.labels)
    factors, weight = _class_factors(comm, own, numbers, classes, options)
    k = weight_count(len(classes))
    return SparseLogisticRows(matrix, numbers, own, factors, k, comm.threads), classes, columns, weight, sum(counts)


def _load_dense(
    comm: Communicator,
    source: Dataset | RowsInMemory | LocalRows,
    labels: NDArray[Any] | int,
    classes: NDArray[Any] | None,
    weights: Reals | None,
    options: LogisticOptions,
) -> tuple[LogisticRows, NDArray[Any], range, float, int]:
    rows, targets = load_targets(comm, source, labels, weights)
    classes = checked_classes(comm, targets[:, 0], classes, "y")
    numbers = np.searchsorted(classes, targets[:, 0])
    own = rows.row_weights
    factors, weight = _class_factors(comm, own, numbers, classes, options)
    points = DenseLogisticRows(rows.points, numbers, own, factors, weight_count(len(classes)))
    return points, classes, range(points.column_count), weight, rows.total


def _own_weights(weights: Reals | None, offset: int, count: int, total: int) -> Reals:
    """Return the weights of this worker's rows."""
    if weights is None:
        return np.ones(count)
    if len(weights) != total:
        raise InputError(f"sample_weight has {len(weights)} entries for {total} rows")
    return weights[offset : offset + count]


def _class_factors(
    comm: Communicator, own: Reals, numbers: NDArray[np.int64], classes: NDArray[Any], options: LogisticOptions
) -> tuple[Reals | None, float]:
    """Return the factor of the weights of each class, or None, and the total weight of the rows of all ranks."""
    # Without rows, bincount returns integers.
    totals: Reals = comm.allreduce(np.bincount(numbers, own, len(classes)).astype(np.float64))
    if options.class_weight is None:
        return None, float(totals.sum())
    if options.class_weight == "balanced":
        # A class without weight keeps the weight 0.
        factors = totals.sum() / (len(classes) * np.where(totals, totals, 1.0))
    else:
        factors = np.array([options.class_weight.get(label, 1.0) for label in classes.tolist()])
        unknown = sorted(options.class_weight.keys() - set(classes.tolist()), key=str)
        if unknown:
            raise InputError(f"class_weight: {unknown[0]!r} is not a class of the rows, {classes.tolist()}")
    total = float(totals @ factors)
    if not total:
        raise InputError("class_weight: all rows have weight 0: expected a factor > 0 for at least one class")
    return factors, total
