"""The worker program of K-means with divided centroids, and the decision whether to divide them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno import host
from ripieno.algorithms.kmeans.divided import DividedCentroids
from ripieno.algorithms.kmeans.divided_lloyd import DividedFitState, Stages, divided_lloyd
from ripieno.algorithms.kmeans.divided_saved import DividedCheckpointer, DividedState
from ripieno.algorithms.kmeans.lloyd import Clustering
from ripieno.algorithms.kmeans.near import AssignmentLoss
from ripieno.algorithms.kmeans.rows import WeightedRows, take, values_at
from ripieno.algorithms.kmeans.run_log import RunLog
from ripieno.algorithms.kmeans.saved import History
from ripieno.algorithms.kmeans.seeding import seed_centroids, seed_rows
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Placement of the centroids.
#: With "auto", each worker holds all centroids if they need at most this share of its available memory.
MAX_MEMORY_SHARE = 0.5
#: Minimum seconds between two progress events of a pass.
EVENT_INTERVAL_S = 1.0
#: A checkpoint identifies its rows by a hash of this number of rows, drawn with this seed.
FINGERPRINT_ROWS, FINGERPRINT_SEED = 1024, 1 << 36


@dataclass(frozen=True)
class CentroidPlacement:
    """The placement of the centroids, the memory they need when whole, and the available memory."""

    divided: bool
    whole_bytes: int
    free_bytes: int


def choose_placement(
    comm: Communicator, rows: WeightedRows, n_clusters: int, *, centroids: str, is_near: bool, saves: bool
) -> CentroidPlacement:
    """Return the placement of the centroids, equal on all ranks."""
    columns, itemsize = rows.points.shape[1], kernels.centroid_dtype(rows.points.dtype).itemsize
    # The centroids, their copies for a checkpoint and in group order, this rank's sums, and the total sums.
    whole_bytes = n_clusters * columns * (itemsize * (1 + saves + 2 * is_near) + 16)
    free_bytes = host.available_bytes() // comm.nodes.count(comm.nodes[comm.rank])
    exceeds_memory = comm.allreduce(whole_bytes > MAX_MEMORY_SHARE * free_bytes, op="or")
    return CentroidPlacement(
        centroids == "divided" or (centroids == "auto" and bool(exceeds_memory)), whole_bytes, free_bytes
    )


@dataclass(frozen=True)
class DividedRun:
    """A run from one start: `KMeansRun` plus the numbers of this worker's centroids and seconds by stage."""

    clustering: Clustering
    numbers: NDArray[np.uint32]
    laps: list[tuple[float, float]]
    history: History
    seed_s: float
    stages: list[dict[str, float]]


def best_run(
    comm: Communicator,
    rows: WeightedRows,
    options: Any,
    facts: dict[str, Any],
    tol: float,
    emit: Callable[[dict[str, Any]], None],
    seeding: Callable[[int, int], None],
) -> tuple[DividedRun, int | None]:
    """Return the run of least inertia, and the iteration at which a run resumed from a checkpoint, if any.

    `seeding` receives the number of a run and the number of centroids chosen so far.
    """
    if options.checkpoint_options.folder is not None:
        if len(options.starts) > 1:
            raise InputError(f"n_init={len(options.starts)}: expected 1 for a checkpoint of divided centroids")
        facts = facts | {"some of the rows": _rows_fingerprint(comm, rows), "centroids": "divided"}
    with closing(DividedCheckpointer(comm, options.checkpoint_options, facts, rows)) as checkpointer:
        saved = checkpointer.load(options.max_iter)
        best = None
        for number, start in enumerate(options.starts):
            run = _run(comm, rows, options, tol, number, start, checkpointer, saved, emit, seeding)
            if best is None or run.clustering.inertia < best.clustering.inertia:
                best = run
    assert best is not None, "there is a run for each start"
    return best, None if saved is None else saved.iteration


def whole_centroids(parts: list[tuple[NDArray[Any], NDArray[np.uint32]]]) -> NDArray[Any]:
    """Assemble all centroids, (k, d), from the workers' centroids and their numbers."""
    count = sum(len(numbers) for _, numbers in parts)
    whole = np.empty((count, parts[0][0].shape[1]), parts[0][0].dtype)
    for centroids, numbers in parts:
        whole[numbers] = centroids
    return whole


def _rows_fingerprint(comm: Communicator, rows: WeightedRows) -> str:
    """Return a hash of a sample of the rows, equal on all ranks."""
    sampled = np.random.default_rng(FINGERPRINT_SEED).integers(rows.total, size=min(rows.total, FINGERPRINT_ROWS))
    (values,) = values_at(comm, rows, sampled, rows.points)
    return hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()


def _run(
    comm: Communicator,
    rows: WeightedRows,
    options: Any,
    tol: float,
    number: int,
    start: int | NDArray[Any],
    checkpointer: DividedCheckpointer,
    saved: DividedState | None,
    emit: Callable[[dict[str, Any]], None],
    seeding: Callable[[int, int], None],
) -> DividedRun:
    begin = time.perf_counter()
    if saved is None:
        centroids, history = _initial_centroids(comm, rows, options, start, lambda chosen: seeding(number, chosen)), []
    else:
        centroids, history = saved.centroids, list(saved.history)
    seed_s = time.perf_counter() - begin
    run_log, iteration_stages = RunLog(comm, number, rows.total, emit, history), []
    progress = _PassProgress(comm, number, emit)

    def on_iteration(
        iteration: int, inertia: float, squared_shift: float, compared: float, loss: AssignmentLoss, stages: Stages
    ) -> None:
        iteration_stages.append(asdict(stages))
        run_log.add(iteration, inertia, squared_shift, compared, loss, stages=iteration_stages[-1])

    def save(iteration: int, inertia: float, centroids: DividedCentroids, labels: NDArray[np.int32]) -> None:
        checkpointer.save(DividedState(iteration, history, centroids, labels))

    clustering, numbers = divided_lloyd(
        comm,
        rows,
        centroids,
        max_iter=options.max_iter,
        tol=tol,
        is_near=options.assign == "near",
        clock=run_log.clock,
        on_iteration=on_iteration,
        on_part=progress.on_part,
        resume_from=None if saved is None else DividedFitState(saved.iteration, saved.labels),
        save=save if checkpointer.used else None,
    )
    return DividedRun(clustering, numbers, run_log.laps, history, seed_s, iteration_stages)


def _initial_centroids(
    comm: Communicator,
    rows: WeightedRows,
    options: Any,
    start: int | NDArray[Any],
    on_progress: Callable[[int], None],
) -> DividedCentroids:
    """Return the initial centroids: passed by the caller, or chosen by seeding."""
    columns, dtype = rows.points.shape[1], kernels.centroid_dtype(rows.points.dtype)
    count = options.n_clusters
    if isinstance(start, np.ndarray):
        whole = start
    else:
        arguments = {"init": options.init, "n_clusters": count, "seed": start, "on_progress": on_progress}
        on_progress(0)
        numbers = seed_rows(comm, rows, **arguments)
        if numbers is not None:
            return DividedCentroids.by_number(
                comm, count, lambda first, end: take(comm, rows, numbers[first:end]), columns, dtype
            )
        whole = seed_centroids(comm, rows, **arguments)
    return DividedCentroids.by_number(comm, count, lambda first, end: whole[first:end], columns, dtype)


class _PassProgress:
    """Emits the completed share of a pass and its estimated remaining time."""

    def __init__(self, comm: Communicator, run: int, emit: Callable[[dict[str, Any]], None]) -> None:
        self._reports_progress, self._run, self._emit = comm.rank == 0, run, emit
        self._iteration, self._begin, self._reported_s = 0, 0.0, 0.0

    def on_part(self, iteration: int, part: float) -> None:
        now = time.perf_counter()
        if iteration != self._iteration:
            # The duration of the first block is unknown; later blocks take about equally long.
            self._iteration, self._begin, self._first, self._reported_s = iteration, now, part, now
        elif self._reports_progress and now - self._reported_s >= EVENT_INTERVAL_S:
            self._reported_s = now
            left_s = (1 - part) * (now - self._begin) / (part - self._first)
            self._emit(
                {"event": "pass", "run": self._run + 1, "iteration": iteration, "part": part, "seconds_left": left_s}
            )
