"""The worker program of linear models by stochastic gradient descent.

Every feature has an owner rank, which stores and updates its state. A step processes a part of every rank's rows.
Owners send the weights of the features that occur in these rows. Each rank returns their gradients, which owners add in
rank order. Rows are assigned to steps at random once, and every epoch processes the steps in a different order. So
ranks exchange the feature numbers of each step only once. An epoch is one native call with two exchanges per step.

Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, sections I.A.1 and II.B;
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

import ripieno._native as _native
import ripieno.kernels.sgd as kernels
from ripieno.algorithms.class_scores import weight_count
from ripieno.algorithms.data_facts import data_facts
from ripieno.algorithms.iteration_log import Emit
from ripieno.algorithms.sgd import rows as sgd_rows
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.errors import InputError
from ripieno.input.matrix import InMemorySparse, LocalRows
from ripieno.input.matrix.sparse_files import LibsvmFiles
from ripieno.kernels.lookup import columns_of_ids

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


NAME = "sgd"

#: Random streams: the order of a rank's rows, and the order of an epoch's steps.
_ROW_ORDER, _STEP_ORDER = range(2)


@dataclass(frozen=True)
class SgdOptions:
    """Options of the workers.

    Parameters
    ----------
    n_features
        Number of columns after hashing; None disables hashing.
    fit_intercept
        Whether the last feature, which follows all columns, is 1 in every row, or 0.
    loss
        One of `kernels.LOSSES`.
    alpha
        Factor of the penalty, half the squared weights.
    eta0
        Length of the first step.
    batch_size
        Rows per step, over all workers.
    max_iter
        Maximum number of epochs.
    tol, no_improvement_epochs
        The descent ends after this number of consecutive epochs that do not improve the best earlier loss by `tol`.
        None disables this rule.
    seed
        Seed of the order of the rows.
    checkpoint_options
        Checkpoint settings.
    """

    n_features: int | None
    fit_intercept: bool
    loss: str
    alpha: float
    eta0: float
    batch_size: int
    max_iter: int
    tol: float | None
    no_improvement_epochs: int
    seed: int
    checkpoint_options: CheckpointOptions


@dataclass(frozen=True)
class FeatureState:
    """The state of some features.

    Parameters
    ----------
    features : (m,) int64
        Feature numbers, ascending.
    weights, squares : (m, k) float64
        Model weights, and the sums of the squared gradients.
    """

    features: NDArray[np.int64]
    weights: NDArray[np.float64]
    squares: NDArray[np.float64]


@dataclass(frozen=True)
class SgdPart:
    """One worker's part of the result: the state of the features it owns, and the data that all workers share."""

    state: FeatureState
    feature_count: int
    columns: range
    classes: NDArray[Any]
    losses: list[float]
    resumed_from: int | None


@dataclass(frozen=True)
class FeatureOwners:
    """The owners of the features of this worker's rows.

    Parameters
    ----------
    ranks : (m,) int32
        Owner rank of each feature.
    places : (m,) int32
        Number of each feature among its owner's features.
    """

    ranks: NDArray[np.int32]
    places: NDArray[np.int32]


def _facts(comm: Communicator, rows: sgd_rows.SgdRows) -> dict[str, Any]:
    """Return values that identify the rows of all ranks."""
    matrix = csr_matrix(
        (rows.matrix.data, rows.features[rows.matrix.indices], rows.matrix.indptr),
        shape=(rows.matrix.shape[0], rows.feature_count),
    )
    return {"classes": rows.classes.tolist()} | data_facts(comm, "rows", matrix, rows.labels)


def fit(
    comm: Communicator,
    source: InMemorySparse | LibsvmFiles | LocalRows,
    columns: range | None,
    classes: NDArray[Any] | None,
    start: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    options: SgdOptions,
    emit: Emit | None = None,
) -> SgdPart:
    """Descend for some epochs from `start`, the weights and squares of all features, or from zero.

    If `columns` or `classes` is None, the ranks determine them. `emit`, by default `comm.emit`, receives rank 0's
    events.

    Raises
    ------
    InputError
        As in `ripieno.algorithms.sgd.rows.load`, or the descent diverges.
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
    state, owners = _owners(comm, rows.features, start, weight_count(len(rows.classes)))
    step_count = -(-rows.total // options.batch_size)
    batches = _batches(comm, rows, owners, len(state.features), step_count, options.seed)
    descent = kernels.DescentOptions(loss=options.loss, eta0=options.eta0, rows_per_step=rows.total / step_count)
    losses: list[float] = []
    with IterationCheckpoint(
        comm, NAME, options.checkpoint_options, shared=False, data=lambda: _facts(comm, rows)
    ) as checkpoint:
        saved = checkpoint.load()
        if saved:
            losses = saved[0][0]
            checkpoint.check_iteration_limit(len(losses), options.max_iter, f"max_iter={options.max_iter}")
            state.weights[:], state.squares[:] = columns_of_ids(state.features, [part for _, part in saved])
        resumed_from = len(losses) or None
        for epoch in range(len(losses), options.max_iter):
            order = _random(options.seed, _STEP_ORDER, epoch).permutation(step_count)
            loss = _native.sgd_epoch(comm._native, batches, order, descent, state.weights, state.squares)
            # A sum needs no temporary array, and is finite only if all weights are.
            total = comm.allreduce(np.array([loss, state.weights.sum()]))
            if not np.isfinite(total).all():
                raise InputError(
                    f"the weights or the loss of epoch {epoch + 1} are not finite: scale the columns, or lower "
                    f"eta0={options.eta0:g}"
                )
            losses.append(float(total[0]) / rows.total)
            if comm.rank == 0:
                (emit or comm.emit)({"event": "epoch", "epoch": len(losses), "loss": losses[-1]})
            if (
                options.tol is not None
                and _epochs_without_improvement(losses, options.tol) >= options.no_improvement_epochs
            ):
                break
            if epoch + 1 < options.max_iter and checkpoint.is_due(len(losses)):
                checkpoint.save(len(losses), (losses, (state.features, state.weights, state.squares)))
    return SgdPart(state, rows.feature_count, rows.columns, rows.classes, losses, resumed_from)


def _epochs_without_improvement(losses: Sequence[float], tol: float) -> int:
    """Return the number of consecutive last epochs that did not improve the best earlier loss by `tol`."""
    best, count = np.inf, 0
    for loss in losses:
        count = 0 if loss <= best - tol else count + 1
        best = min(best, loss)
    return count


def _batches(
    comm: Communicator,
    rows: sgd_rows.SgdRows,
    owners: FeatureOwners,
    owned_feature_count: int,
    step_count: int,
    seed: int,
) -> kernels.StepRows:
    """Assign this worker's rows to steps. `owners` are the owners of the features of these rows."""
    order = _random(seed, _ROW_ORDER, comm.rank).permutation(len(rows.labels))
    matrix = rows.matrix[order]
    columns = kernels.OrderedColumns(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), step_count)
    occurrences = kernels.occurrences(columns, owners.ranks, comm.world_size)
    chunk_lens = _round_up_lengths(comm.allreduce(occurrences.counts.max(axis=0), op="max"))
    places, penalties = kernels.places(columns, occurrences, chunk_lens, rows.penalties)

    ends = np.cumsum(occurrences.counts.sum(axis=1))
    requests = np.split(owners.places[occurrences.numbers], ends[:-1])
    requested, counts = zip(*comm.alltoall(list(zip(requests, occurrences.counts, strict=True))), strict=True)
    all_requested = kernels.StepNumbers(np.concatenate(requested), np.stack(counts))
    needed, places_of_requested = kernels.needed_features(all_requested, owned_feature_count, step_count)
    return kernels.StepRows(
        starts=columns.starts,
        places=places,
        values=matrix.data,
        classes=rows.labels[order].astype(np.int32),
        counts=occurrences.counts,
        penalties=penalties,
        needed=needed,
        requested=places_of_requested,
        chunk_lens=chunk_lens,
    )


def _random(seed: int, stream: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, stream, number])


def _round_up_lengths(lens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round lengths up by at most an eighth. Fewer distinct lengths require fewer exchange plans."""
    units = 1 << np.maximum(np.frexp(lens)[1] - 4, 0).astype(np.int64)
    rounded: NDArray[np.int64] = -(-lens // units) * units
    return rounded


def _owners(
    comm: Communicator,
    features: NDArray[np.int64],
    start: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
    k: int,
) -> tuple[FeatureState, FeatureOwners]:
    """Return the state of the features that this rank owns, and the owners of the features of its rows.

    The owner of feature `i` is rank `i mod p`.
    """
    ranks = (features % comm.world_size).astype(np.int32)
    received = comm.alltoall([features[ranks == rank] for rank in range(comm.world_size)])
    owned = np.unique(np.concatenate(received))
    places = np.empty(len(features), np.int32)
    owner_places = comm.alltoall([np.searchsorted(owned, requested).astype(np.int32) for requested in received])
    for rank, numbers in enumerate(owner_places):
        places[ranks == rank] = numbers
    if start is None:
        return FeatureState(owned, np.zeros((len(owned), k)), np.zeros((len(owned), k))), FeatureOwners(ranks, places)
    return FeatureState(owned, *(each[owned] for each in start)), FeatureOwners(ranks, places)
