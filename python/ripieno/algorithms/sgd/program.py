"""What every worker runs for logistic regression by stochastic gradient descent.

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

from ripieno.algorithms.class_scores import log_probabilities, weight_count
from ripieno.algorithms.journal import Emit
from ripieno.algorithms.sgd import rows as sgd_rows
from ripieno.algorithms.sgd.rows import SgdRows
from ripieno.input.matrix.libsvm import InMemoryRows, LibsvmFiles

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

# Keeps the first step finite where a gradient is zero.
EPSILON = 1e-10


@dataclass(frozen=True)
class SgdOptions:
    """What the workers are told.

    Parameters
    ----------
    n_features
        Columns are hashed to so many; None takes them as they are.
    fit_intercept
        Whether the last feature, which stands behind all columns, is 1 in every row, or in none.
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


@dataclass(frozen=True)
class Batch:
    """The rows of this worker in a step, as `SgdRows`."""

    matrix: csr_matrix
    features: NDArray[np.int64]
    penalties: NDArray[np.float64]
    labels: NDArray[np.int64]


_NOWHERE = np.empty(0, np.int64)
_NO_BATCH = Batch(csr_matrix((0, 0)), _NOWHERE, np.empty(0), _NOWHERE)


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
    losses: list[float] = []
    for epoch in range(options.max_iter):
        order = np.random.default_rng([options.seed, epoch, comm.rank]).permutation(len(rows.labels))
        batches = _cut(rows, order, -(-rows.total // options.batch_size))
        losses.append(_descend(comm, rows, batches, state, options.eta0))
        if comm.rank == 0:
            (emit or comm.emit)({"event": "epoch", "epoch": len(losses), "loss": losses[-1]})
        if options.tol is not None and _epochs_in_vain(losses, options.tol) >= options.patience:
            break
    return SgdPart(state, rows.feature_count, rows.columns, rows.classes, losses)


def _epochs_in_vain(losses: Sequence[float], tol: float) -> int:
    """How many of the last epochs, one after the other, were not better by `tol` than the best before them."""
    best, count = np.inf, 0
    for loss in losses:
        count = 0 if loss <= best - tol else count + 1
        best = min(best, loss)
    return count


def _descend(comm: Communicator, rows: SgdRows, batches: Sequence[Batch], state: State, eta0: float) -> float:
    """One epoch, which changes `state`; returns the mean loss of the rows, each before its step."""
    row_count = rows.total / len(batches)
    needed = _needed_at_home(comm, batches, state.features)
    loss, gradient = 0.0, np.empty((0, state.weights.shape[1]))
    steps = zip([_NO_BATCH, *batches], [*batches, _NO_BATCH], [_NOWHERE, *needed], [*needed, _NOWHERE], strict=True)
    for before, after, old, new in steps:
        kept = np.union1d(old, new)
        mine = np.stack([state.weights[kept], state.squares[kept], np.zeros((len(kept), gradient.shape[1]))], axis=1)
        added = np.stack([np.zeros_like(gradient), np.zeros_like(gradient), gradient], axis=1)
        found = comm.sparse_reduce(
            np.concatenate([state.features[kept], before.features]),
            np.concatenate([mine, added]),
            np.concatenate([state.features[old], after.features]),
            size=rows.feature_count,
        )
        weights, squares = _step(found, eta0)
        state.weights[old], state.squares[old] = weights[: len(old)], squares[: len(old)]
        gradient, batch_loss = _gradient(after, weights[len(old) :], row_count)
        loss += batch_loss
    return float(comm.allreduce(loss)) / rows.total


def _step(found: NDArray[np.float64], eta0: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """New weights and squares, of (m, 3, k) weights, squares and gradients."""
    weights, squares, gradient = found[:, 0], found[:, 1], found[:, 2]
    squares = squares + gradient**2
    return weights - eta0 * gradient / np.sqrt(squares + EPSILON), squares


def _gradient(batch: Batch, weights: NDArray[np.float64], row_count: float) -> tuple[NDArray[np.float64], float]:
    """What these rows add to the gradient of their features, (m, k), and their losses' sum."""
    logarithms = log_probabilities(batch.matrix @ weights)
    true = np.arange(len(batch.labels)), batch.labels
    errors = np.exp(logarithms)
    errors[true] -= 1
    gradient = batch.matrix.T @ errors[:, -weights.shape[1] :] + batch.penalties[:, None] * weights
    return gradient / row_count, -float(logarithms[true].sum())


def _cut(rows: SgdRows, order: NDArray[np.int64], count: int) -> list[Batch]:
    """The rows in this order, cut into `count` batches."""
    batches = []
    for step in range(count):
        chosen = order[len(order) * step // count : len(order) * (step + 1) // count]
        matrix = rows.matrix[chosen]
        columns, places, counts = np.unique(matrix.indices, return_inverse=True, return_counts=True)
        matrix = csr_matrix((matrix.data, places, matrix.indptr), shape=(len(chosen), len(columns)))
        batches.append(Batch(matrix, rows.features[columns], rows.penalties[columns] * counts, rows.labels[chosen]))
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
