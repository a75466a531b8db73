"""The worker program of multidimensional scaling.

Deterministic annealing minimizes the expected stress over positions that scatter with temperature T. This subtracts
√(2k)·T from every dissimilarity, but not below zero. T decreases to zero. At each temperature, positions get a small
random shift: while most dissimilarities are zero, points gather on lines and planes, which majorization alone cannot
leave. After the last temperature, rounds of relocations move single points to positions of less stress. `interpolate`
embeds out-of-sample points. Sources: Bae, Qiu and Fox, "Multidimensional scaling by deterministic annealing with
iterative majorization algorithm", e-Science 2010; Ruan and Fox, e-Science 2013, algorithm 1; Rose, "Deterministic
annealing for clustering, compression, classification, regression, and related optimization problems", Proc. IEEE
86(11), 1998 (small moves); Bae, Choi, Qiu and Fox, "Dimension reduction and visualization of large high-dimensional
data via interpolation", HPDC 2010, section 3.2.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels.pairs as pairs
from ripieno.algorithms.data_facts import data_facts
from ripieno.algorithms.iteration_log import Emit, IterationLog, WorkerReport
from ripieno.algorithms.mds.dissimilarities import RowBlock, Source, divisor, load_square, read_rows
from ripieno.algorithms.mds.majorization import Majorization, MajorizationStep, Reals
from ripieno.algorithms.mds.saved import MdsFitState
from ripieno.algorithms.mds.sequences import Sequences
from ripieno.algorithms.methods import DA_SMACOF
from ripieno.algorithms.thread_model import in_thread_model
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, RowsInMemory

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "mds"
#: Minimum shift above zero, and scale of the random moves at each temperature, relative to the largest dissimilarity.
MIN_SHIFT, MOVE_SCALE = 0.02, 3e-3
#: At temperatures above zero, step lengths are doubled, except in the first and then every tenth iteration.
PLAIN_STEP_INTERVAL = 10
#: Every second start begins at this share of the highest temperature.
COLD_START_SHARE = 0.4
#: Relocations end when a round lowers the squared errors by less than this share, or after the maximum round count.
MIN_GAIN, MAX_ROUND_COUNT = 1e-4, 10
#: Relative initial offset of new points from the mean of their neighbors, because points must not coincide.
OFFSET = 1e-3


@dataclass(frozen=True)
class MDSOptions:
    """Options of the workers.

    Parameters
    ----------
    n_components, method, metric, max_iter, tol
        As in `MDS`.
    init : (n, k), or None
        Initial positions. None: draw them at random.
    n_init
        Number of starts.
    cooling
        Ratio of consecutive temperatures.
    seed
        Seed of the random positions.
    checkpoint_options
        Checkpoint settings.
    order : (n,), or None
        Numbers of the points in the order of the ranks, if their splits are in another order.
    thread_model
        As in `MDS`.
    """

    n_components: int
    method: str
    metric: str
    init: Reals | None
    n_init: int
    max_iter: int
    tol: float
    cooling: float
    seed: int
    checkpoint_options: CheckpointOptions
    order: NDArray[np.int64] | None = None
    thread_model: str = "fork-join"


@dataclass(frozen=True)
class MDSPart:
    """One worker's part of the result: the shared result and the worker's own record."""

    embedding: Reals
    stress: float
    normalized_stress: float
    iteration_count: int
    converged: bool
    resumed_from: int | None
    point_count: int
    dtype: str
    record: WorkerReport
    own_points: slice


@in_thread_model
def fit(
    comm: Communicator,
    source: Source | Sequences,
    weights: Source | None,
    options: MDSOptions,
    emit: Emit | None = None,
) -> MDSPart:
    """Find positions with distances close to the dissimilarities; keep the start with the least stress.

    Raises
    ------
    InputError
        On every rank: invalid dissimilarities, weights or initial positions.
    CheckpointError
        The checkpoint belongs to another fit, is in use, or cannot be written.
    """
    begin = time.perf_counter()
    rows = load_square(comm, source, weights, options.metric)
    iteration_log = IterationLog(comm, emit)
    load_s = time.perf_counter() - begin
    descent = _Descent(comm, rows, options, iteration_log)
    with IterationCheckpoint(
        comm, NAME, options.checkpoint_options, shared=True, data=lambda: _facts(comm, rows, options)
    ) as checkpoint:
        found = descent.run(checkpoint)
    best = found.best
    assert best is not None, "a start has ended"
    return MDSPart(
        embedding=best.at * rows.scale,
        stress=best.errors / 2 * rows.stress_scale,
        normalized_stress=_normalized(best.errors, best.squares),
        iteration_count=best.iteration,
        converged=best.converged,
        resumed_from=descent.resumed_from,
        point_count=rows.total,
        dtype=str(rows.dissimilarities.dtype),
        record=iteration_log.record(load_s),
        own_points=slice(rows.first, rows.first + len(rows)),
    )


def _facts(comm: Communicator, rows: RowBlock, options: MDSOptions) -> dict[str, Any]:
    """Return values that identify the points, and the options that determine completed starts and temperatures."""
    facts = data_facts(comm, "points", rows.source, rows.first + np.arange(len(rows)), rows.weights)
    if options.method == DA_SMACOF or options.n_init > 1:
        facts |= {"max_iter": options.max_iter, "tol": options.tol}
    return facts


class _Descent:
    """Runs every start through all temperatures and relocations."""

    def __init__(self, comm: Communicator, rows: RowBlock, options: MDSOptions, iteration_log: IterationLog) -> None:
        self._rows = rows
        self._options = options
        self._iteration_log = iteration_log
        self._majorization = Majorization(comm, rows, options.n_components, iteration_log.clock)
        # If all dissimilarities are zero, there is no shift to anneal.
        self._is_annealed = options.method == DA_SMACOF and rows.largest > 0
        self._shifts = list(_shifts(rows.largest, options.cooling)) if self._is_annealed else [0.0]
        self._size = 0.0
        self.resumed_from: int | None = None

    def run(self, checkpoint: IterationCheckpoint) -> MdsFitState:
        """Run from the first start, or from a checkpoint, to the end of the last start."""
        starts = self._starts()
        drawn = next(starts)
        state = self._last = MdsFitState(at=drawn)
        saved = next(map(MdsFitState.of, checkpoint.load()), None)
        if saved is not None:
            state = self._last = saved
            for _ in range(saved.start):
                drawn = next(starts)
            self._iteration_log.iterations_before = self.resumed_from = saved.all_iterations
        step = self._majorization.step(state.at, self._shift(state.level))
        if self._options.method == DA_SMACOF:
            # At coinciding positions, the errors equal the squared dissimilarities.
            self._size = self._majorization.step(np.zeros_like(state.at)).errors
        while True:
            state = self._descend(state, step, checkpoint)
            best = state.best
            if best is None or state.errors < best.errors:
                state = replace(state, best=replace(state, best=None))
            if state.start + 1 == self._options.n_init:
                # This state precedes the last iteration, so a resumed fit runs at least one iteration, which its report
                # needs.
                if checkpoint.is_due(self._last.all_iterations, last=True):
                    checkpoint.save(self._last.all_iterations, self._last.parts())
                return state
            start = state.start + 1
            state = MdsFitState(
                at=next(starts),
                start=start,
                level=self._first_level(start),
                all_iterations=state.all_iterations,
                best=state.best,
            )
            step = self._majorization.step(state.at, self._shift(state.level))

    def _descend(self, state: MdsFitState, step: MajorizationStep, checkpoint: IterationCheckpoint) -> MdsFitState:
        """Run from a start, or from the center of a descent, to the end of its last temperature or relocations."""
        while True:
            state = replace(state, errors=step.errors, squares=step.squares)
            if state.in_level >= self._options.max_iter or self._is_stable(state):
                next_level = self._next_level(state)
                if next_level is None:
                    return replace(state, converged=self._is_stable(state))
                state, step = next_level
            self._last = state
            if checkpoint.is_due(state.all_iterations):
                checkpoint.save(state.all_iterations, state.parts())
            is_doubled = self._shift(state.level) > 0 and state.in_level % PLAIN_STEP_INTERVAL != 0
            at = self._majorization.transform(step, state.at, doubled=is_doubled)
            step = self._majorization.step(at, self._shift(state.level))
            state = replace(
                state,
                at=at,
                before=state.errors if state.in_level else None,
                errors=step.errors,
                squares=step.squares,
                iteration=state.iteration + 1,
                in_level=state.in_level + 1,
                all_iterations=state.all_iterations + 1,
            )
            self._report(state)

    def _next_level(self, state: MdsFitState) -> tuple[MdsFitState, MajorizationStep] | None:
        """Return the first state and step of the next temperature or round of relocations; None after the last."""
        level = state.level + 1
        random = np.random.default_rng([self._options.seed, state.start, level])
        state = replace(state, level=level, in_level=0, before=None)
        if level < len(self._shifts):
            moves = random.normal(size=state.at.shape)
            moves = moves if self._options.order is None else moves[self._options.order]
            at = state.at + MOVE_SCALE * self._rows.largest * moves
            # The next temperature changes the shifted dissimilarities, so the same positions give a new step.
            step = self._majorization.step(at, self._shift(level))
        else:
            is_over = level >= len(self._shifts) + MAX_ROUND_COUNT or state.errors >= (1 - MIN_GAIN) * state.left
            if is_over or not self._is_annealed:
                return None
            at = self._majorization.relocate(state.at, random)
            step = self._majorization.step(at)
            # Simultaneous relocations of several points can collide.
            if step.errors >= state.errors:
                return None
            state = replace(state, left=state.errors)
        return replace(state, at=at, errors=step.errors, squares=step.squares), step

    def _first_level(self, start: int) -> int:
        """Return the first level of a start. Every second start begins colder, because hot starts reach few minima."""
        share = COLD_START_SHARE if start % 2 else 1.0
        return next(level for level, shift in enumerate(self._shifts) if shift <= share * self._shifts[0])

    def _shift(self, level: int) -> float:
        """Return the shift subtracted from each dissimilarity; zero in rounds of relocations."""
        return self._shifts[level] if level < len(self._shifts) else 0.0

    def _is_stable(self, state: MdsFitState) -> bool:
        if state.before is None:
            return False
        # scikit-learn's criterion. With annealing, the size is fixed, because `squares` is almost zero at high
        # temperatures.
        size = self._size or state.squares
        return state.before - state.errors < self._options.tol * size

    def _report(self, state: MdsFitState) -> None:
        measures: dict[str, float] = {
            "stress": state.errors / 2 * self._rows.stress_scale,
            "normalized_stress": _normalized(state.errors, state.squares),
        }
        if self._options.n_init > 1:
            measures["start"] = state.start + 1
        if self._options.method == DA_SMACOF:
            width = self._shift(state.level) * self._rows.scale
            measures["temperature"] = width / float(np.sqrt(2 * self._options.n_components))
        self._iteration_log.end_iteration(**measures)

    def _starts(self) -> Iterator[Reals]:
        """Yield initial positions; they equal scikit-learn's for the same seed."""
        options, total = self._options, self._rows.total
        if options.init is not None:
            if len(options.init) != total:
                raise InputError(f"init has {len(options.init)} rows for {total} points")
            # The first step depends neither on the center nor on the size of the positions.
            spread = (options.init - options.init.mean(axis=0)) / self._rows.scale
            yield spread / divisor(float(np.abs(spread).max(initial=0.0)))
            return
        random = np.random.RandomState(options.seed)
        while True:
            drawn = random.uniform(size=(total, options.n_components))
            yield drawn if options.order is None else drawn[options.order]


def _shifts(largest: float, cooling: float) -> Iterator[float]:
    """Yield the shift of the dissimilarities at each temperature, ending with zero."""
    share = cooling
    while share > MIN_SHIFT:
        yield share * largest
        share *= cooling
    yield 0.0


def _normalized(errors: float, squares: float) -> float:
    """Return Kruskal's stress, "Stress-1"."""
    return float(np.sqrt(errors / squares)) if squares > 0 else 0.0


def interpolate(
    comm: Communicator, source: Dataset | RowsInMemory, embedding: Reals, neighbors: int, max_iter: int, tol: float
) -> Reals:
    """Return positions of this worker's new points, (m, k), from their dissimilarities to the embedded points.

    Each new point minimizes its stress with its nearest embedded points only. The iteration ends when no rank's points
    move by more than `tol` times the size of the embedding.

    Raises
    ------
    InputError
        On every rank: invalid dissimilarities.
    """
    share = read_rows(comm, source, len(embedding), "X")
    counts = comm.allgather(len(share.points))
    first = sum(counts[: comm.rank])
    own_largest = max(float(share.points.max(initial=0)), float(np.abs(embedding).max(initial=0.0)))
    scale = divisor(comm.allreduce(own_largest, op="max"))
    embedding = embedding / scale
    points = share.points if scale == 1 else share.points / scale
    points = points if points.dtype == np.int16 else np.ascontiguousarray(points, np.float32)
    nearest = np.argsort(points, axis=1, kind="stable")[:, :neighbors]
    weights = np.zeros(points.shape, np.float32)
    np.put_along_axis(weights, nearest, 1.0, axis=1)
    count = nearest.shape[1]
    size = float(np.abs(embedding - embedding.mean(axis=0)).max(initial=0.0)) or 1.0
    center: Reals = embedding[nearest].mean(axis=1)
    offset = np.random.default_rng(0).normal(size=(sum(counts), embedding.shape[1]))
    at: Reals = center + OFFSET * size * offset[first : first + len(points)]
    fixed = embedding.astype(np.float32)
    out = np.empty((len(points), embedding.shape[1] + 2))
    for _ in range(max_iter):
        pairs.guttman(points, weights, at.astype(np.float32), fixed, out, threads=comm.threads)
        new = center + out[:, :-2] / count
        # All ranks stop together, so a point's position does not depend on its rank.
        largest_move = comm.allreduce(float(np.abs(new - at).max(initial=0.0)), op="max")
        at = new
        if largest_move <= tol * size:
            break
    return at * scale
