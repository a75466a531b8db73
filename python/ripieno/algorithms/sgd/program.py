"""What every worker runs for a linear model by stochastic gradient descent.

Every feature has a home rank, which keeps its state. A step takes a part of the rows of every rank, reads the weights
of the features that occur in them and adds to the gradient of these. One sparse reduction ends a step and begins the
next: homes contribute the state of the features that either step needs, all ranks contribute gradients, and whoever
gets a row (homes, and the ranks whose next rows have the feature) makes the same new state of it.

Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, sections I.A.1, II.B and III.C;
Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", JMLR 12, 2011,
section 1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import ripieno.kernels as kernels
from ripieno.algorithms.class_scores import weight_count
from ripieno.algorithms.fit_checkpoint import FitMemory, of_ids
from ripieno.algorithms.journal import Emit
from ripieno.algorithms.sgd import rows as sgd_rows
from ripieno.algorithms.sgd.rows import SgdRows
from ripieno.input.matrix.libsvm import InMemoryRows, LibsvmFiles

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


NAME = "sgd"


@dataclass(frozen=True)
class SgdOptions:
    """What the workers are told.

    Parameters
    ----------
    n_features
        Columns are hashed to so many; None takes them as they are.
    fit_intercept
        Whether the last feature, which stands behind all columns, is 1 in every row, or in none.
    loss
        One of `kernels.LOSSES`.
    alpha
        Factor of the penalty, half the squared weights.
    eta0
        Length of the first step.
    batch_size
        Rows of a step, of all workers.
    max_iter
        Epochs at most.
    tol, patience
        The descent ends when none of so many epochs, one after the other, is better than the best loss before it by
        `tol`; never for None.
    seed
        Of the order of the rows.
    """

    n_features: int | None
    fit_intercept: bool
    loss: str
    alpha: float
    eta0: float
    batch_size: int
    max_iter: int
    tol: float | None
    patience: int
    seed: int


@dataclass(frozen=True)
class State:
    """What is known of features.

    Parameters
    ----------
    features : (m,) int64
        Ascending.
    weights, squares : (m, k) float64
        The model, and the sums of the squared gradients.
    """

    features: NDArray[np.int64]
    weights: NDArray[np.float64]
    squares: NDArray[np.float64]


@dataclass(frozen=True)
class SgdPart:
    """One worker's part of the result: the state of the features at home here, and what all workers know."""

    state: State
    feature_count: int
    columns: range
    classes: NDArray[Any]
    losses: list[float]
    resumed_from: int | None


@dataclass(frozen=True)
class Batch:
    """The rows of this worker in a step, whose columns are the places of the `features` that occur in them."""

    rows: kernels.Descent
    features: NDArray[np.int64]


def fit(
    comm: Communicator,
    source: InMemoryRows | LibsvmFiles,
    columns: range | None,
    classes: NDArray[Any] | None,
    start: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    options: SgdOptions,
    emit: Emit | None = None,
) -> SgdPart:
    """Descend for some epochs from `start`, the weights and squares of all features, or from zero.

    The `columns` and `classes` are found if not given; `emit`, by default the communicator's, gets rank 0's events.

    Raises
    ------
    InputError
        As of `ripieno.algorithms.sgd.rows.load`.
    """
    rows = sgd_rows.load(
        comm,
        source,
        columns=columns,
        classes=classes,
        n_features=options.n_features,
        fit_intercept=options.fit_intercept,
        alpha=options.alpha,
    )
    state = _homes(comm, rows.features, start, weight_count(len(rows.classes)))
    alone = _descent(rows.matrix, rows.labels, rows.penalties, options) if comm.world_size == 1 else None
    losses: list[float] = []
    memory = FitMemory(comm, NAME, shared=False)
    kept = memory.load()
    if kept:
        losses = kept[0][0]
        state.weights[:], state.squares[:] = of_ids(state.features, [part for _, part in kept])
    resumed_from = len(losses) or None
    for epoch in range(len(losses), options.max_iter):
        order = np.random.default_rng([options.seed, epoch, comm.rank]).permutation(len(rows.labels))
        step_count = -(-rows.total // options.batch_size)
        if alone is not None:
            losses.append(kernels.sgd_epoch(alone, order, step_count, state.weights, state.squares) / rows.total)
        else:
            losses.append(_descend(comm, rows, _cut(rows, order, step_count, options), state, options))
        if comm.rank == 0:
            (emit or comm.emit)({"event": "epoch", "epoch": len(losses), "loss": losses[-1]})
        if options.tol is not None and _epochs_in_vain(losses, options.tol) >= options.patience:
            break
        if epoch + 1 < options.max_iter:
            memory.save((losses, (state.features, state.weights, state.squares)))
    return SgdPart(state, rows.feature_count, rows.columns, rows.classes, losses, resumed_from)


def _epochs_in_vain(losses: Sequence[float], tol: float) -> int:
    """How many of the last epochs, one after the other, were not better by `tol` than the best before them."""
    best, count = np.inf, 0
    for loss in losses:
        count = 0 if loss <= best - tol else count + 1
        best = min(best, loss)
    return count


def _descend(comm: Communicator, rows: SgdRows, batches: Sequence[Batch], state: State, options: SgdOptions) -> float:
    """One epoch, which changes `state`; returns the mean loss of the rows, each before its step."""
    row_count = rows.total / len(batches)
    needed = _needed_at_home(comm, batches, state.features)
    k = state.weights.shape[1]
    nothing = np.empty(0, np.int64)
    nobody = Batch(_descent(csr_matrix((0, 0)), nothing, np.empty(0), options), nothing)
    loss, gradient = 0.0, np.empty((0, k))
    steps = zip([nobody, *batches], [*batches, nobody], [nothing, *needed], [*needed, nothing], strict=True)
    for before, after, old, new in steps:
        kept = np.union1d(old, new)
        given = np.zeros((len(kept) + len(gradient), 3, k))
        given[: len(kept), 0], given[: len(kept), 1] = state.weights[kept], state.squares[kept]
        given[len(kept) :, 2] = gradient
        found = comm.sparse_reduce(
            np.concatenate([state.features[kept], before.features]),
            given,
            np.concatenate([state.features[old], after.features]),
            size=rows.feature_count,
        )
        weights, squares, sums = (found[:, at].copy() for at in range(3))
        kernels.sgd_step(sums, options.eta0, weights, squares)
        state.weights[old], state.squares[old] = weights[: len(old)], squares[: len(old)]
        gradient = np.empty((len(after.features), k))
        loss += kernels.sgd_gradient(after.rows, weights[len(old) :], gradient)
        gradient /= row_count
    return float(comm.allreduce(loss)) / rows.total


def _descent(
    matrix: csr_matrix, labels: NDArray[np.int64], penalties: NDArray[np.float64], options: SgdOptions
) -> kernels.Descent:
    return kernels.Descent(
        starts=matrix.indptr.astype(np.int64),
        columns=matrix.indices.astype(np.int32),
        values=matrix.data,
        classes=labels.astype(np.int32),
        penalties=penalties,
        eta0=options.eta0,
        loss=options.loss,
    )


def _cut(rows: SgdRows, order: NDArray[np.int64], count: int, options: SgdOptions) -> list[Batch]:
    """The rows in this order, cut into `count` batches."""
    batches = []
    occurs, places = np.zeros(len(rows.features), bool), np.empty(len(rows.features), np.int32)
    for step in range(count):
        chosen = order[len(order) * step // count : len(order) * (step + 1) // count]
        matrix = rows.matrix[chosen]
        occurs[matrix.indices] = True
        columns = np.flatnonzero(occurs)
        occurs[columns], places[columns] = False, np.arange(len(columns))
        matrix = csr_matrix((matrix.data, places[matrix.indices], matrix.indptr), shape=(len(chosen), len(columns)))
        batches.append(
            Batch(_descent(matrix, rows.labels[chosen], rows.penalties[columns], options), rows.features[columns])
        )
    return batches


def _needed_at_home(
    comm: Communicator, batches: Sequence[Batch], features: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """For each step the places, among the `features` at home here, of those that any rank's rows have."""
    sent = []
    for rank in range(comm.world_size):
        parts = [batch.features[batch.features % comm.world_size == rank] for batch in batches]
        sent.append((np.concatenate(parts), np.cumsum([len(part) for part in parts])))
    came = [np.split(all_steps, ends[:-1]) for all_steps, ends in comm.alltoall(sent)]
    return [np.searchsorted(features, np.unique(np.concatenate(step))) for step in zip(*came, strict=True)]


def _homes(
    comm: Communicator,
    features: NDArray[np.int64],
    start: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    k: int,
) -> State:
    """The state of the features at home here, of those that any rank has: its remainders are this rank's number."""
    sent = [features[features % comm.world_size == rank] for rank in range(comm.world_size)]
    mine = np.unique(np.concatenate(comm.alltoall(sent)))
    if start is None:
        return State(mine, np.zeros((len(mine), k)), np.zeros((len(mine), k)))
    return State(mine, *(each[mine] for each in start))
