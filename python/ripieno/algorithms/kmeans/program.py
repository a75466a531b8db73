"""The worker program of K-means: fits, and predictions over files."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.clock import IterationClock, by_rank
from ripieno.algorithms.data_facts import data_facts
from ripieno.algorithms.kmeans import lloyd
from ripieno.algorithms.kmeans.divided import DividedCentroids
from ripieno.algorithms.kmeans.divided_store import DividedStore, PassProgress
from ripieno.algorithms.kmeans.fit_report import KMeansIteration, KMeansReport
from ripieno.algorithms.kmeans.placement import choose_placement
from ripieno.algorithms.kmeans.rows import WeightedRows, check_distances, load, mean_variance, take
from ripieno.algorithms.kmeans.run_log import RunLog
from ripieno.algorithms.kmeans.saved import BestRun, DividedCheckpoint, History, KMeansCheckpoint, KMeansFitState
from ripieno.algorithms.kmeans.seeding import seed_centroids, seed_rows
from ripieno.algorithms.kmeans.whole import WholeCentroids, passes_of
from ripieno.algorithms.row_sample import drawn_positions
from ripieno.algorithms.thread_model import in_thread_model
from ripieno.checkpoints.iterations import NO_CHECKPOINTS, CheckpointOptions
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, InMemorySparse, LocalRows, RowsInMemory

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "kmeans"
EXEMPLAR_CLUSTER_COUNT = 24
EXEMPLARS_PER_CLUSTER = 12
#: Approximate maximum number of seeding events per run.
MAX_SEEDING_EVENTS = 20


@dataclass(frozen=True)
class KMeansOptions:
    """Options of the workers. `starts` has one entry per run: a seed or the (k, d) initial centroids."""

    n_clusters: int
    init: str
    starts: Sequence[int | NDArray[Any]]
    max_iter: int
    tol: float
    thread_model: str = "fork-join"
    bounds: str = "auto"
    assign: str = "exact"
    checkpoint_options: CheckpointOptions = NO_CHECKPOINTS
    centroids: str = "whole"


@dataclass(frozen=True)
class KMeansRun:
    """The run from one start. `laps` and `stages` cover the iterations of this process only."""

    clustering: lloyd.Clustering
    laps: list[tuple[float, float]]
    history: History
    seed_s: float
    stages: list[dict[str, float]]


@dataclass(frozen=True)
class KMeansPart(KMeansRun):
    """One worker's part of the result: its best run; `clustering.labels` are the labels of its rows.

    `drawn` has some of these rows, (m, d), and their labels, (m,), unless the rows are sparse.
    """

    row_count: int
    dtype: str
    host: str
    threads: int
    load_s: float
    resumed_from: int | None
    cluster_sizes: NDArray[np.int64]
    exemplar_clusters: NDArray[np.int64]
    exemplar_rows: NDArray[np.int64]
    drawn: tuple[NDArray[Any], NDArray[np.int32]] | None


@in_thread_model
def fit(
    comm: Communicator,
    source: Dataset | RowsInMemory | InMemorySparse | LocalRows,
    weights: NDArray[np.float64] | None,
    options: KMeansOptions,
    emit: Callable[[dict[str, Any]], None] | None = None,
) -> KMeansPart:
    """Run K-means from every start and keep the run of least inertia; `emit` (default: `comm.emit`) receives events.

    Raises
    ------
    InputError
        On every rank: invalid rows (see `ripieno.algorithms.kmeans.rows.load`), fewer rows than clusters, or values so
        large or small that squared distances overflow or vanish.
    CheckpointError
        The checkpoint belongs to another fit, is in use, or cannot be written.
    """
    begin = time.perf_counter()
    rows = load(comm, source, weights)
    check_cluster_count(options.n_clusters, rows.total)
    load_s = time.perf_counter() - begin
    tol = options.tol and options.tol * mean_variance(comm, rows)
    emit = emit or comm.emit
    saves, is_near = options.checkpoint_options.folder is not None or comm.restarts_on_failure, options.assign == "near"
    placement = choose_placement(
        comm, rows, options.n_clusters, centroids=options.centroids, is_near=is_near, saves=saves
    )
    if comm.rank == 0:
        emit({"event": "centroids"} | asdict(placement))
    with _checkpoint(comm, rows, options, divided=placement.divided) as checkpoint:
        best, resumed_from = _best_run(comm, rows, options, tol, checkpoint, placement.divided, emit)
    clustering = best.clustering
    check_distances(comm, rows, clustering.labels, clustering.inertia, clustering.centroids.dtype)
    sizes = comm.allreduce(np.bincount(clustering.labels, minlength=options.n_clusters))
    largest = np.argsort(-sizes, kind="stable")[:EXEMPLAR_CLUSTER_COUNT]
    exemplars = lloyd.nearest_rows(comm, rows, clustering, largest, EXEMPLARS_PER_CLUSTER)
    return KMeansPart(
        **vars(best),
        row_count=rows.total,
        dtype=str(rows.points.dtype),
        host=comm.hosts[comm.rank],
        threads=comm.threads,
        load_s=load_s,
        resumed_from=resumed_from,
        cluster_sizes=sizes,
        exemplar_clusters=largest,
        exemplar_rows=exemplars,
        drawn=labeled_rows(comm, rows, clustering.labels),
    )


def labeled_rows(
    comm: Communicator, rows: WeightedRows, labels: NDArray[np.int32]
) -> tuple[NDArray[Any], NDArray[np.int32]] | None:
    """Return some of this worker's rows and their labels for the report, or None for sparse rows."""
    if isinstance(rows.points, kernels.SparsePoints):
        return None
    positions = drawn_positions(rows.points, comm.world_size)
    return rows.points[positions], labels[positions]


def predict(
    comm: Communicator, source: Dataset | RowsInMemory | InMemorySparse, centroids: NDArray[Any]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the nearest centroid of each of this worker's rows, (n,), and the squared distances, (n,)."""
    points, centroids = to_kernel_types(load(comm, source).points, centroids)
    labels, distances = np.empty(len(points), np.int32), np.empty(len(points))
    kernels.assign(points, centroids, labels, distances, threads=comm.threads)
    return labels, distances


def transform(
    comm: Communicator, source: Dataset | RowsInMemory | InMemorySparse, centroids: NDArray[Any]
) -> NDArray[Any]:
    """Return the distances of this worker's rows to all centroids, (n, k)."""
    points, centroids = to_kernel_types(load(comm, source).points, centroids)
    return kernels.distances(points, centroids, threads=comm.threads)


def to_kernel_types(points: Any, centroids: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
    """Convert points and centroids without loss to a pair of types that the kernels accept."""
    if not isinstance(points, kernels.SparsePoints) and centroids.dtype == np.float64 != points.dtype:
        points = points.astype(np.float64)
    return points, np.ascontiguousarray(centroids, kernels.centroid_dtype(points.dtype))


def check_cluster_count(n_clusters: int, row_count: int) -> None:
    """Raise InputError if there are fewer rows than clusters."""
    if row_count < n_clusters:
        raise InputError(f"n_samples={row_count} should be >= n_clusters={n_clusters}")


def report(parts: list[KMeansPart], column_count: int, total_s: float = 0.0) -> KMeansReport:
    """Combine the workers' parts into a report."""
    best = parts[0]
    laps = zip(*(part.laps for part in parts), strict=True)
    iterations = [
        KMeansIteration(*by_rank(lap), *entry)
        for entry, lap in zip(best.history[len(best.history) - len(best.laps) :], laps, strict=True)
    ]
    return KMeansReport(
        iterations=tuple(iterations),
        row_count=best.row_count,
        column_count=column_count,
        dtype=best.dtype,
        hosts=tuple(part.host for part in parts),
        threads=tuple(part.threads for part in parts),
        load_s=max(part.load_s for part in parts),
        seed_s=max(part.seed_s for part in parts),
        total_s=total_s,
        history=tuple((inertia, squared_shift) for inertia, squared_shift, *_ in best.history),
        cluster_sizes=best.cluster_sizes,
        exemplar_clusters=best.exemplar_clusters,
        exemplar_rows=best.exemplar_rows,
        bounds_bytes=tuple(part.clustering.bounds_bytes for part in parts),
        stages=tuple(best.stages),
    )


def _checkpoint(comm: Communicator, rows: WeightedRows, options: KMeansOptions, *, divided: bool) -> KMeansCheckpoint:
    """Return the checkpoint of the fit."""
    settings = options.checkpoint_options

    def data() -> dict[str, Any]:
        # The labels of divided centroids are saved by row number.
        numbers = rows.numbers(np.arange(len(rows))) if divided else None
        facts = data_facts(comm, "rows", rows.points, rows.weights, numbers)
        return {"centroids": "divided" if divided else "whole"} | facts

    if not divided:
        return KMeansCheckpoint(comm, NAME, settings, shared=True, data=data)
    if settings.folder is not None and len(options.starts) > 1:
        raise InputError(f"n_init={len(options.starts)}: expected 1 for a checkpoint of divided centroids")
    if settings.every is not None and settings.folder is None:
        raise InputError(f"every={settings.every}: divided centroids are saved only in a folder: expected checkpoint=")
    return DividedCheckpoint(comm, NAME, settings, shared=True, data=data, rows=rows)


def _best_run(
    comm: Communicator,
    rows: WeightedRows,
    options: KMeansOptions,
    tol: float,
    checkpoint: KMeansCheckpoint,
    divided: bool,
    emit: Callable[[dict[str, Any]], None],
) -> tuple[KMeansRun, int | None]:
    """Return the run of least inertia, and the number of iterations in a resumed checkpoint, if any."""
    saved = checkpoint.progress(options.max_iter)
    best, best_saved = None, None

    if saved is not None and saved.best is not None:
        best_saved = saved.best
        centroids = best_saved.centroids
        passes = passes_of(rows, len(centroids), comm.threads, assign=options.assign, bounds="none")
        store = WholeCentroids(comm, rows, centroids, passes, IterationClock())
        clustering = lloyd.clustering_at(store, len(best_saved.history))
        best = KMeansRun(clustering, [], best_saved.history, 0.0, [])
    for number in range(0 if saved is None else saved.run, len(options.starts)):
        saved_run = saved if saved is not None and saved.run == number else None
        run = _run(comm, rows, number, options, tol, checkpoint, divided, saved_run, best_saved, emit)
        if best is None or run.clustering.inertia < best.clustering.inertia:
            best = run
            best_saved = BestRun(number, run.clustering.centroids, run.clustering.inertia, run.history)
    assert best is not None, "there is a run for each start"
    return best, None if saved is None else saved.iteration


def _seeding_progress(
    comm: Communicator, rows: WeightedRows, options: KMeansOptions, run: int, emit: Callable[[dict[str, Any]], None]
) -> Callable[[int], None]:
    """Return a callback that emits seeding events by the number of centroids chosen."""
    last_chosen = 0

    def report(chosen: int) -> None:
        nonlocal last_chosen
        is_due = chosen in (0, options.n_clusters) or (chosen - last_chosen) * MAX_SEEDING_EVENTS >= options.n_clusters
        if comm.rank == 0 and is_due and (chosen == 0 or chosen > last_chosen):
            last_chosen = chosen
            emit(
                {
                    "event": "seeding",
                    "run": run + 1,
                    "init": options.init,
                    "row_count": rows.total,
                    "chosen": chosen,
                    "n_clusters": options.n_clusters,
                }
            )

    return report


def _run(
    comm: Communicator,
    rows: WeightedRows,
    number: int,
    options: KMeansOptions,
    tol: float,
    checkpoint: KMeansCheckpoint,
    divided: bool,
    saved: KMeansFitState | None,
    best: BestRun | None,
    emit: Callable[[dict[str, Any]], None],
) -> KMeansRun:
    begin = time.perf_counter()
    if saved is None:
        on_progress = _seeding_progress(comm, rows, options, number, emit)
        centroids = _initial_centroids(comm, rows, options, options.starts[number], on_progress, divided=divided)
    else:
        centroids = saved.centroids
    seed_s = time.perf_counter() - begin
    run_log = RunLog(comm, number, rows.total, emit, [] if saved is None else list(saved.history))
    labels = None if saved is None else saved.labels
    gaps = [gap for *_, gap in run_log.history]
    store: lloyd.CentroidStore
    if isinstance(centroids, DividedCentroids):
        on_part, is_near = PassProgress(comm, number, emit).on_part, options.assign == "near"
        store = DividedStore(comm, rows, centroids, is_near=is_near, gaps=gaps, clock=run_log.clock, on_part=on_part)
    else:
        passes = passes_of(rows, len(centroids), comm.threads, assign=options.assign, bounds=options.bounds, gaps=gaps)
        whole = WholeCentroids(comm, rows, centroids, passes, run_log.clock, keeps_before=checkpoint.used)
        if saved is not None and saved.before is not None:
            labels = whole.labels_at(saved.before)
        store = whole

    def save(iteration: int, labels: NDArray[np.int32]) -> None:
        centroids, before, last_labels = store.saved(labels)
        history = run_log.history
        saved = KMeansFitState(number, iteration, centroids, before, last_labels, history, best)
        checkpoint.save_progress(saved)

    clustering = lloyd.lloyd(
        store,
        max_iter=options.max_iter,
        tol=tol,
        on_iteration=lambda iteration, totals, shift: run_log.add(iteration, totals, shift, store.stages),
        done=0 if saved is None else saved.iteration,
        labels=labels,
        save=save if checkpoint.used else None,
    )
    return KMeansRun(clustering, run_log.laps, run_log.history, seed_s, run_log.stages)


def _initial_centroids(
    comm: Communicator,
    rows: WeightedRows,
    options: KMeansOptions,
    start: int | NDArray[Any],
    on_progress: Callable[[int], None],
    *,
    divided: bool,
) -> NDArray[Any] | DividedCentroids:
    """Return the initial centroids: passed by the caller, or chosen by seeding."""
    dtype, count = kernels.centroid_dtype(rows.points.dtype), options.n_clusters

    def share(part: Callable[[int, int], NDArray[Any]]) -> DividedCentroids:
        return DividedCentroids.by_number(comm, count, part, rows.points.shape[1], dtype)

    if isinstance(start, np.ndarray):
        whole = start if divided else np.array(start, dtype, order="C")
    else:
        arguments: Any = {"init": options.init, "n_clusters": count, "seed": start, "on_progress": on_progress}
        on_progress(0)
        numbers = seed_rows(comm, rows, **arguments) if divided else None
        if numbers is not None:
            return share(lambda first, end: take(comm, rows, numbers[first:end]))
        whole = seed_centroids(comm, rows, **arguments)
    return share(lambda first, end: whole[first:end]) if divided else whole
