"""What every worker runs for logistic regression by all rows at once.

Rank 0 decides: it asks all ranks for the loss and its gradient at some weights, or for a product with the second
derivatives, by one broadcast, and gets the sums of what their rows add by one reduction. So no rank decides by bits of
its own.

Source: Zaharia et al., "Spark: cluster computing with working sets", HotCloud 2010, section 3.3 (gradient descent);
Lin, Weng and Keerthi, "Trust region Newton method for large-scale logistic regression", JMLR 9, 2008 (products only).
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix

from ripieno.algorithms.class_scores import weight_count
from ripieno.algorithms.fit_checkpoint import NOTHING_TOLD, FitStates, Keeping
from ripieno.algorithms.journal import Emit, IterationLog, WorkerReport
from ripieno.algorithms.kmeans.rows import load
from ripieno.algorithms.linear.regression_program import load_targets
from ripieno.algorithms.logistic.rows import Dense, DensitySample, LogisticRows, Reals, Sparse, sample_stride
from ripieno.algorithms.logistic.saved import NAME, LogisticCheckpointer, parts_of
from ripieno.algorithms.logistic.solvers import Iterate, Metric, begin, descend
from ripieno.algorithms.sgd.rows import checked_classes, columns_of, of_columns
from ripieno.comm.agreement import agreement
from ripieno.errors import CheckpointError, InputError
from ripieno.input.matrix import Dataset, LocalRows, RowsInMemory
from ripieno.input.matrix.libsvm import InMemoryRows, LibsvmFiles

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: What rank 0 asks for, in the first entry of what it broadcasts.
END, LOSS, CURVATURE, SAMPLE, KEEP = 0.0, 1.0, 2.0, 3.0, 4.0


@dataclass(frozen=True)
class LogisticOptions:
    """What the workers are told; `strength` is the factor of the losses, beside half the squared weights."""

    strength: float
    fit_intercept: bool
    solver: str
    tol: float
    max_iter: int
    keeping: Keeping


@dataclass(frozen=True)
class LogisticResult:
    """Where the descent has ended, and after how many iterations of an earlier fit it began, if there was one."""

    at: Reals
    value: float
    iteration_count: int
    converged: bool
    resumed_from: int | None


@dataclass(frozen=True)
class LogisticPart:
    """One worker's part of the result: what all know of the model, and its own record."""

    coef: Reals
    objective: float
    outcome: LogisticResult
    classes: NDArray[Any]
    columns: range
    row_count: int
    record: WorkerReport


def fit(
    comm: Communicator,
    source: InMemoryRows | LibsvmFiles | Dataset | RowsInMemory | LocalRows,
    labels: NDArray[Any] | int | None,
    classes: NDArray[Any] | None,
    weights: Reals | None,
    start: Reals | None,
    options: LogisticOptions,
    emit: Emit | None = None,
) -> LogisticPart:
    """Minimise the loss from `start`, (d + 1, k), or zero.

    The `labels` are numbers of classes, or the column that holds them, or None for sparse rows, which have their own.
    The `classes` are found if not given.

    Raises
    ------
    InputError
        On every rank: bad rows, or labels that are not two classes or more.
    CheckpointError
        On every rank: the checkpoint is of another fit, in use, or cannot be written.
    """
    begin = time.perf_counter()
    if isinstance(_inner(source), InMemoryRows | LibsvmFiles):
        rows, classes, columns, weight, total = _sparse(comm, source, classes, weights)
    else:
        assert labels is not None and not isinstance(source, InMemoryRows | LibsvmFiles)
        rows, classes, columns, weight, total = _dense(comm, source, labels, classes, weights)
    journal = IterationLog(comm, emit)
    load_s = time.perf_counter() - begin
    k = weight_count(len(classes))
    options.keeping.check(comm)
    in_memory_only = Keeping(every=options.keeping.every) if comm.begins_again else NOTHING_TOLD
    memory = FitStates(comm, NAME, shared=False, keeping=in_memory_only)
    in_memory = [state for state in memory.load() if state is not None]
    function = _Shared(comm, rows, k, weight, options, journal, memory)
    outcome = None
    if comm.rank == 0:
        facts = {"classes": classes.tolist(), "rows": total, "columns": len(columns)}
        outcome = _led(function, start, options, facts, in_memory[0] if in_memory else None)
    else:
        function.follow()
    found: LogisticResult | CheckpointError = comm.broadcast(outcome)
    if isinstance(found, CheckpointError):
        raise found
    return LogisticPart(
        coef=found.at.reshape(rows.column_count + 1, k),
        objective=found.value * options.strength * weight,
        outcome=found,
        classes=classes,
        columns=columns,
        row_count=total,
        record=journal.record(load_s),
    )


def scores(
    comm: Communicator,
    source: LibsvmFiles | Dataset | RowsInMemory,
    coef: Reals,
    columns: range,
    target: int | None,
) -> tuple[Reals, NDArray[Any] | None]:
    """Scores of this worker's rows, (n, k), and the labels that files have of them."""
    if isinstance(source, LibsvmFiles):
        with agreement(comm):
            share = source.read_share(comm.rank, comm.world_size)
        # What no row had when it was fitted has no weight.
        return np.asarray(share.matrix[:, columns.start : columns.stop] @ coef[:-1]) + coef[-1], share.labels
    if target is None:
        return load(comm, source).points @ coef[:-1] + coef[-1], None
    rows, labels = load_targets(comm, source, target, None)
    return rows.points @ coef[:-1] + coef[-1], labels[:, 0]


class _Shared:
    """The mean loss of all ranks' rows and its penalty, which rank 0 asks for and the others help with.

    Divided by the rows' weight, the gradient that `tol` is held against is scikit-learn's.
    """

    def __init__(
        self,
        comm: Communicator,
        rows: LogisticRows,
        k: int,
        weight: float,
        options: LogisticOptions,
        journal: IterationLog,
        memory: FitStates,
    ) -> None:
        self._comm = comm
        self._memory = memory
        self._rows = rows
        self._scale = 1 / weight
        self._penalty = 1 / (options.strength * weight)
        self._fit_intercept = options.fit_intercept
        self._journal = journal
        self._shape = (rows.column_count + 1, k)
        size = self._shape[0] * k
        # A question, whether an iteration has ended before it, value and gradient norm of that, and the weights.
        self._asked = np.zeros(4 + size)
        self._answer = np.zeros(1 + size)
        self.size = size
        total, entries = comm.allreduce(np.array([len(rows.chances), rows.entry_count]))
        stride = sample_stride(int(total), int(entries), *self._shape) if options.solver != "gd" else None
        self._sample: DensitySample | None = None
        if stride is not None:
            self._sample = rows.sample(stride, float(options.fit_intercept))
            self._sample_scale = float(total) / comm.allreduce(len(self._sample.points)) * self._scale

    def value(self, at: Reals) -> tuple[float, Reals]:
        """Mean loss with penalty, and its gradient."""
        self._ask(LOSS, at)
        answer = self._answered()
        value, gradient = float(answer[0]) * self._scale, answer[1:] * self._scale
        free = self._penalised(at)
        value += 0.5 * self._penalty * float(free @ free)
        return value, self._fixed(gradient + self._penalty * free)

    def product(self, direction: Reals) -> Reals:
        """Second derivatives times a direction."""
        self._ask(CURVATURE, direction)
        product = self._answered()[1:] * self._scale
        return self._fixed(product + self._penalty * self._penalised(direction))

    def metric(self) -> Reals | None:
        """Second derivatives of a sample of all ranks' rows, (k, d + 1, d + 1), of each class by itself."""
        if self._sample is None:
            return None
        self._ask(SAMPLE, np.zeros(self.size))
        found = self._sampled()
        assert found is not None, "rank 0 asks, and is the root"
        found *= self._sample_scale
        return found if np.isfinite(found).all() else None

    def metric_of(self, found: Reals) -> Metric:
        """Divides by second derivatives that `metric` has found, and the penalty."""
        eye = np.eye(found.shape[1])
        # The constant has the penalty too, though it is free: nothing is divided by nothing.
        factors = [cho_factor(each + self._penalty * eye, check_finite=False) for each in found]

        def divided(vector: Reals) -> Reals:
            columns = vector.reshape(self._shape).T
            pairs = zip(factors, columns, strict=True)
            solved = np.stack([cho_solve(factor, column, check_finite=False) for factor, column in pairs], axis=1)
            if len(factors) > 1:
                # Along what all classes have in common no chances change.
                solved -= solved.mean(axis=1, keepdims=True)
            return self._fixed(solved.ravel())

        return divided

    def go_on_after(self, iteration_count: int) -> None:
        """So many iterations were an earlier fit's."""
        self._journal.iterations_before = iteration_count

    def tell(self, iterate: Iterate) -> None:
        """An iteration is over; the others are told with the next question."""
        self._asked[1:4] = 1.0, iterate.value, iterate.slope
        self._journal.tell(objective=iterate.value / self._penalty, gradient=iterate.slope)

    def keep(self, iterate: Iterate) -> None:
        """Let the next rank have the iterate in its memory, too, if the program would begin again."""
        count = iterate.iteration_count
        if self._memory.is_kept_in_memory(count):
            self._ask(KEEP, np.full(self.size, count))
            self._memory.save(count, parts_of(iterate))

    def end(self) -> None:
        """No more questions."""
        self._asked[0] = END
        self._comm.broadcast(out=self._asked)

    def follow(self) -> None:
        """Answer what rank 0 asks for, until it has no more questions."""
        clock = self._journal.clock
        while True:
            with clock.communicating():
                self._comm.broadcast(out=self._asked)
            if self._asked[1]:
                self._journal.tell(objective=float(self._asked[2]) / self._penalty, gradient=float(self._asked[3]))
            if self._asked[0] == END:
                return
            if self._asked[0] == KEEP:
                self._memory.save(int(self._asked[4]), None)
                continue
            if self._asked[0] == SAMPLE:
                self._sampled()
                continue
            self._compute()
            with clock.communicating():
                self._comm.reduce(self._answer)

    def _ask(self, what: float, at: Reals) -> None:
        self._asked[0] = what
        self._asked[4:] = at
        with self._journal.clock.communicating():
            self._comm.broadcast(out=self._asked)
        self._asked[1] = 0.0

    def _answered(self) -> Reals:
        self._compute()
        with self._journal.clock.communicating():
            answer = self._comm.reduce(self._answer)
        assert answer is not None, "rank 0 asks, and is the root"
        return answer

    def _sampled(self) -> Reals | None:
        assert self._sample is not None, "all ranks have a sample if one has"
        with self._journal.clock.computing():
            found = self._sample.second_derivatives()
        with self._journal.clock.communicating():
            return self._comm.reduce(found)

    def _compute(self) -> None:
        with self._journal.clock.computing():
            at = self._asked[4:].reshape(self._shape)
            found = self._answer[1:].reshape(self._shape)
            if self._asked[0] == LOSS:
                self._answer[0] = self._rows.loss(at, found)
            else:
                self._rows.curvature(at, found)

    def _penalised(self, at: Reals) -> Reals:
        """Weights but those of the constant."""
        free = at.copy().reshape(self._shape)
        free[-1] = 0
        return free.ravel()

    def _fixed(self, slope: Reals) -> Reals:
        """Without a constant, no slope along it."""
        if not self._fit_intercept:
            slope.reshape(self._shape)[-1] = 0
        return slope


def _led(
    function: _Shared,
    start: Reals | None,
    options: LogisticOptions,
    facts: dict[str, Any],
    in_memory: dict[str, Any] | None,
) -> LogisticResult | CheckpointError:
    """What came of the descent, of which the other ranks know that it has ended."""
    facts |= {"solver": options.solver, "C": options.strength, "fit_intercept": options.fit_intercept}
    try:
        with closing(LogisticCheckpointer(options.keeping, facts)) as keeper:
            return _lead(function, start, options, keeper, None if in_memory is None else Iterate(**in_memory))
    except CheckpointError as error:
        return error
    finally:
        function.end()


def _lead(
    function: _Shared,
    start: Reals | None,
    options: LogisticOptions,
    keeper: LogisticCheckpointer,
    in_memory: Iterate | None,
) -> LogisticResult:
    kept = in_memory or keeper.load()
    first = begin(function, _start(function, start) if kept is None else kept.at)
    if kept is not None:
        if in_memory is None:
            # What was kept has the bits of the fit before, whose sums may have had another order.
            keeper.check(kept, first)
        function.go_on_after(kept.iteration_count)

    def on_iteration(iterate: Iterate) -> None:
        keeper.save(iterate)
        function.keep(iterate)
        function.tell(iterate)

    descent = descend(options.solver, function, kept or first, options.tol, options.max_iter, on_iteration)
    iterate = descent.iterate
    # Who goes on from it may allow more iterations, or a smaller slope.
    keeper.save(iterate, last=True)
    if iterate.iteration_count == (kept.iteration_count if kept else 0):
        # There is something to report, though nothing was left to do.
        function.go_on_after(max(iterate.iteration_count - 1, 0))
        function.tell(iterate)
    resumed_from = None if kept is None else kept.iteration_count
    return LogisticResult(iterate.at, iterate.value, iterate.iteration_count, descent.converged, resumed_from)


def _start(function: _Shared, start: Reals | None) -> Reals:
    return np.zeros(function.size) if start is None else start.ravel()


def _inner(source: Any) -> Any:
    """What rows are in, own ones or not."""
    return source.source if isinstance(source, LocalRows) else source


def _sparse(
    comm: Communicator, source: Any, classes: NDArray[Any] | None, weights: Reals | None
) -> tuple[LogisticRows, NDArray[Any], range, float, int]:
    with agreement(comm):
        share = source.read_share(comm.rank, comm.world_size)
    is_file = isinstance(_inner(source), LibsvmFiles)
    columns = columns_of(comm, share.matrix) if is_file else range(share.matrix.shape[1])
    matrix: csr_matrix = of_columns(share.matrix, columns, source.name) if is_file else share.matrix
    classes = checked_classes(comm, share.labels, classes, source.name)
    if isinstance(source, LocalRows):
        own = np.ones(len(share.labels)) if source.weights is None else source.weights
        weight, total = comm.allreduce((float(own.sum()), len(own)))
    else:
        own, weight, total = _weights(comm, weights, len(share.labels))
    numbers = np.searchsorted(classes, share.labels)
    return Sparse(matrix, numbers, own, weight_count(len(classes)), comm.threads), classes, columns, weight, total


def _dense(
    comm: Communicator,
    source: Dataset | RowsInMemory | LocalRows,
    labels: NDArray[Any] | int,
    classes: NDArray[Any] | None,
    weights: Reals | None,
) -> tuple[LogisticRows, NDArray[Any], range, float, int]:
    rows, targets = load_targets(comm, source, labels, weights)
    classes = checked_classes(comm, targets[:, 0], classes, "y")
    numbers = np.searchsorted(classes, targets[:, 0])
    weight = float(comm.allreduce(rows.row_weights.sum()))
    k = weight_count(len(classes))
    return Dense(rows.points, numbers, rows.row_weights, k), classes, range(rows.points.shape[1]), weight, rows.total


def _weights(comm: Communicator, weights: Reals | None, count: int) -> tuple[Reals, float, int]:
    """The weights of this worker's rows, and of all; how many these are."""
    counts = comm.allgather(count)
    offset, total = sum(counts[: comm.rank]), sum(counts)
    if weights is None:
        return np.ones(count), float(total), total
    if len(weights) != total:
        raise InputError(f"sample_weight has {len(weights)} entries for {total} rows")
    return weights[offset : offset + count], float(weights.sum()), total
