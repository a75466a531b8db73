"""The worker program of mini-batch K-means.

Batches are drawn from all rows by global row number, so they do not depend on the number of workers. Each worker
assigns its rows of the batch. After one allreduce, every rank updates its copy of the centroids: each centroid becomes
the mean of all rows assigned to it in any batch so far.
Cost: b·k·d per batch of b rows shared by the workers, and an allreduce of k·(d+1) float64.
Source: Sculley, "Web-scale k-means clustering", WWW 2010, algorithm 1; the stopping rules are scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.data_facts import data_facts
from ripieno.algorithms.kmeans.program import check_cluster_count, labeled_rows, to_kernel_types
from ripieno.algorithms.kmeans.rows import WeightedRows, check_distances, load, mean_variance
from ripieno.algorithms.kmeans.seeding import seed_centroids
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, LocalRows, RowsInMemory

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "mini-batch-kmeans"
#: Random stream of batches, apart from the streams of seeding and samples.
BATCH_STREAM = 1 << 34
#: Random stream of the rows that initial centroids are drawn from.
SAMPLE_STREAM = 1 << 35


@dataclass(frozen=True)
class MiniBatchState:
    """The state after some batches.

    Parameters
    ----------
    means : (k, d) float64
        Mean of the rows of each centroid. In float32, the steps of later batches would be too small to count.
    weight_sums : (k,) float64
        Accumulated weight of these rows.
    centroids : (k, d)
        The means in the type of the kernels.
    """

    means: NDArray[np.float64]
    weight_sums: NDArray[np.float64]
    centroids: NDArray[Any]


@dataclass(frozen=True)
class MiniBatchOptions:
    """Options of the workers.

    `starts` has seeds or (k, d) initial centroids, or it is the state to continue from. The best start is used. Starts
    are drawn from and compared on `init_size` rows, all by default.
    """

    n_clusters: int
    init: str
    starts: list[int | NDArray[Any]] | MiniBatchState
    init_size: int | None
    seed: int
    batch_size: int
    max_iter: int
    tol: float
    max_no_improvement: int | None
    checkpoint_options: CheckpointOptions


@dataclass(frozen=True)
class MiniBatchPart:
    """One worker's part of the result; the labels are the labels of its rows; `drawn` is as in `KMeansPart`."""

    state: MiniBatchState
    labels: NDArray[np.int32]
    inertia: float
    step_count: int
    row_count: int
    resumed_from: int | None = None
    drawn: tuple[NDArray[Any], NDArray[np.int32]] | None = None


def fit(
    comm: Communicator,
    source: Dataset | RowsInMemory | LocalRows,
    weights: NDArray[np.float64] | None,
    options: MiniBatchOptions,
    emit: Callable[[dict[str, Any]], None] | None = None,
) -> MiniBatchPart:
    """Fit batches until a stopping rule applies; `emit`, by default `comm.emit`, receives an event per batch.

    Raises
    ------
    InputError
        On every rank: invalid rows (see `ripieno.algorithms.kmeans.rows.load`), fewer rows than clusters, initial rows
        of weight 0, or values so large or small that squared distances overflow or vanish.
    """
    rows, state = _load_or_seed(comm, source, weights, options)
    batch_size = min(options.batch_size, rows.total)
    step_count = options.max_iter * rows.total // batch_size
    tol = options.tol and options.tol * mean_variance(comm, rows)
    trend = _InertiaTrend(batch_size, rows.total, options.max_no_improvement)
    with IterationCheckpoint(
        comm,
        NAME,
        options.checkpoint_options,
        shared=True,
        data=lambda: data_facts(comm, "rows", rows.points, rows.weights),
    ) as checkpoint:
        saved, done = checkpoint.load(), checkpoint.done
        if saved:
            means, weight_sums, trend.state = saved[0]
            checkpoint.check_iteration_limit(done, step_count - 1, f"max_iter={options.max_iter}")
            state = MiniBatchState(means, weight_sums, means.astype(state.centroids.dtype))
        for step in range(done + 1, step_count + 1):
            drawn = np.random.default_rng([BATCH_STREAM, options.seed, step]).integers(rows.total, size=batch_size)
            own = np.sort(rows.places(drawn)[1])
            batch = replace(rows, points=rows.points[own], weights=None if rows.weights is None else rows.weights[own])
            inertia, squared_shift = _update(comm, batch, state)
            if comm.rank == 0:
                event = {"event": "step", "step": step, "step_count": step_count, "batch_inertia": inertia}
                (emit or comm.emit)(event | {"squared_shift": squared_shift})
            # As in scikit-learn, the stopping rules ignore the first batch, which reflects only the start.
            if step > 1 and ((tol and squared_shift <= tol) or trend.is_over(inertia)):
                break
            if step < step_count and checkpoint.is_due(step):
                checkpoint.save(step, (state.means, state.weight_sums, trend.state))
    return replace(_finish(comm, rows, state, step), resumed_from=done or None)


def fit_batch(
    comm: Communicator,
    source: Dataset | RowsInMemory | LocalRows,
    weights: NDArray[np.float64] | None,
    options: MiniBatchOptions,
    emit: Callable[[dict[str, Any]], None] | None = None,
) -> MiniBatchPart:
    """Fit all rows as one batch; emits no events.

    Raises
    ------
    InputError
        As in `fit`.
    """
    rows, state = _load_or_seed(comm, source, weights, options)
    _update(comm, rows, state)
    return _finish(comm, rows, state, 1)


def _load_or_seed(
    comm: Communicator,
    source: Dataset | RowsInMemory | LocalRows,
    weights: NDArray[np.float64] | None,
    options: MiniBatchOptions,
) -> tuple[WeightedRows, MiniBatchState]:
    """Return the rows and the initial state, as arrays that may be changed in place."""
    rows, starts = load(comm, source, weights), options.starts
    if isinstance(starts, MiniBatchState):
        points, centroids = to_kernel_types(rows.points, starts.centroids)
        state = MiniBatchState(starts.means.copy(), starts.weight_sums.copy(), starts.means.astype(centroids.dtype))
        return replace(rows, points=points), state
    check_cluster_count(options.n_clusters, rows.total)
    sample = rows
    if options.init_size is not None:
        sample = _sample(rows, options.init_size, options.seed)
        if not comm.allreduce(float(sample.row_weights.sum())):
            raise InputError(
                f"init_size={options.init_size}: all rows drawn for the initial centroids have weight 0: increase it"
            )
    candidates = [_start(comm, sample, start, options) for start in starts]
    best = 0
    if len(candidates) > 1:
        best = int(np.argmin([_inertia(comm, sample, centroids) for centroids in candidates]))
    centroids = candidates[best]
    return rows, MiniBatchState(centroids.astype(np.float64), np.zeros(options.n_clusters), centroids)


def _start(
    comm: Communicator, rows: WeightedRows, start: int | NDArray[Any], options: MiniBatchOptions
) -> NDArray[Any]:
    """Return initial centroids, from a seed or as they are."""
    if isinstance(start, np.ndarray):
        return np.array(start, kernels.centroid_dtype(rows.points.dtype), order="C")
    return seed_centroids(
        comm, rows, init=options.init, n_clusters=options.n_clusters, seed=start, on_progress=lambda chosen: None
    )


def _sample(rows: WeightedRows, size: int, seed: int) -> WeightedRows:
    """Return this worker's part of `size` rows, which are drawn without replacement by global row number."""
    if size >= rows.total:
        return rows
    drawn = np.sort(np.random.default_rng([SAMPLE_STREAM, seed]).choice(rows.total, size, replace=False))
    spans = [np.searchsorted(drawn, [first, first + count]).tolist() for first, count in rows.spans]
    own = rows.places(drawn)[1]
    return replace(
        rows,
        points=rows.points[own],
        weights=None if rows.weights is None else rows.weights[own],
        offset=int(np.searchsorted(drawn, rows.offset)),
        total=size,
        runs=None if rows.runs is None else tuple((begin, end - begin) for begin, end in spans),
    )


def _inertia(comm: Communicator, rows: WeightedRows, centroids: NDArray[Any]) -> float:
    labels = np.empty(len(rows), np.int32)
    _, _, inertia = kernels.assign_accumulate(rows.points, centroids, rows.weights, labels, None, threads=comm.threads)
    return float(comm.allreduce(inertia))


def _update(comm: Communicator, batch: WeightedRows, state: MiniBatchState) -> tuple[float, float]:
    """Update the centroids in place; return the batch's inertia per weight before the update, and the squared shift."""
    labels = np.empty(len(batch), np.int32)
    sums, weight_sums, inertia = comm.allreduce(
        kernels.assign_accumulate(batch.points, state.centroids, batch.weights, labels, None, threads=comm.threads)
    )
    changed = np.flatnonzero(weight_sums > 0)
    before = state.means[changed]
    weighted = before * state.weight_sums[changed, None] + sums[changed]
    state.weight_sums[changed] += weight_sums[changed]
    state.means[changed] = weighted / state.weight_sums[changed, None]
    state.centroids[changed] = state.means[changed]
    shift = state.means[changed] - before
    return inertia / max(float(weight_sums.sum()), np.finfo(float).tiny), float(np.sum(shift * shift))


class _InertiaTrend:
    """Detects when the smoothed inertia of batches stops improving."""

    def __init__(self, batch_size: int, row_count: int, no_improvement_limit: int | None) -> None:
        self._weight = min(1.0, 2.0 * batch_size / (row_count + 1))
        self._no_improvement_limit = no_improvement_limit
        #: Reference for the next batch: the smoothed inertia, its minimum so far, and the batches since the minimum.
        self.state: tuple[float | None, float, int] = (None, np.inf, 0)

    def is_over(self, inertia: float) -> bool:
        smoothed, least, steps_without_gain = self.state
        smoothed = (inertia if smoothed is None else smoothed) * (1 - self._weight) + inertia * self._weight
        steps_without_gain = 0 if smoothed < least else steps_without_gain + 1
        self.state = (smoothed, min(least, smoothed), steps_without_gain)
        return self._no_improvement_limit is not None and steps_without_gain >= self._no_improvement_limit


def _finish(comm: Communicator, rows: WeightedRows, state: MiniBatchState, step_count: int) -> MiniBatchPart:
    labels, distances = np.empty(len(rows), np.int32), np.empty(len(rows))
    kernels.assign(rows.points, state.centroids, labels, distances, threads=comm.threads)
    inertia = comm.allreduce(float(np.sum(rows.row_weights * distances)))
    check_distances(comm, rows, labels, inertia, state.centroids.dtype)
    return MiniBatchPart(state, labels, inertia, step_count, rows.total, drawn=labeled_rows(comm, rows, labels))
