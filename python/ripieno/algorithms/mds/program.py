"""What every worker runs for multidimensional scaling: starts, temperatures, iterations; and points out of sample.

Deterministic annealing minimises the mean of the stress over positions that scatter by a temperature T: it takes
√(2k)·T off every dissimilarity, down to zero. T falls until nothing is taken off. At each temperature positions are
moved a little at random: while few dissimilarities count, points gather on lines and planes, which majorization alone
does not leave.
Sources: Bae, Qiu and Fox, "Multidimensional scaling by deterministic annealing with iterative majorization algorithm",
e-Science 2010; Ruan and Fox, e-Science 2013, algorithm 1; Rose, "Deterministic annealing for clustering, compression,
classification, regression, and related optimization problems", Proc. IEEE 86(11), 1998 (small moves); Bae, Choi, Qiu
and Fox, "Dimension reduction and visualization of large high-dimensional data via interpolation", HPDC 2010, section
3.2.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

import ripieno.kernels.pairs as pairs
from ripieno.algorithms.journal import Emit, Journal, Record
from ripieno.algorithms.mds.dissimilarities import OwnRows, load_square, read_rows
from ripieno.algorithms.mds.majorization import Majorization, Reals, Step
from ripieno.algorithms.mds.saved import Keeper, Place
from ripieno.algorithms.mds.sequences import Sequences
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, InMemory

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

METHODS = ("smacof", "da-smacof")
#: The last temperature takes this share of the least dissimilarity off.
LEAST_SHIFT = 0.5
#: Of the largest dissimilarity: how far points are moved at each temperature.
MOVED = 1e-5
#: By so much of their size new points lie beside the middle of their neighbours at first: there no pair may coincide.
ASIDE = 1e-3


@dataclass(frozen=True)
class MDSOptions:
    """What the workers are told.

    Parameters
    ----------
    n_components, method, metric, max_iter, eps
        As for `MDS`.
    init : (n, k), or None
        Where to begin; None draws positions.
    n_init
        How many starts.
    cooling
        Each temperature's share of the one before.
    seed
        Of the positions that are drawn.
    checkpoint
        A folder, or None.
    """

    n_components: int
    method: str
    metric: str
    init: Reals | None
    n_init: int
    max_iter: int
    eps: float
    cooling: float
    seed: int
    checkpoint: str | None

    def facts(self, rows: OwnRows) -> dict[str, object]:
        """What a checkpoint is of."""
        facts: dict[str, object] = {
            "points": rows.total,
            "n_components": self.n_components,
            "method": self.method,
            "metric": self.metric,
            "weights": rows.weights is not None,
            "n_init": self.n_init,
            "seed": self.seed if self.init is None or self.method == METHODS[1] else None,
        }
        if self.method == METHODS[1] or self.n_init > 1:
            # What is behind was ended by it.
            facts |= {"max_iter": self.max_iter, "eps": self.eps, "cooling": self.cooling}
        return facts


@dataclass(frozen=True)
class MDSPart:
    """One worker's part of the result: what all know, and its own record."""

    embedding: Reals
    stress: float
    normalized_stress: float
    iteration_count: int
    converged: bool
    resumed_from: int | None
    point_count: int
    dtype: str
    record: Record


def fit(
    comm: Communicator,
    source: Dataset | InMemory | Sequences,
    weights: Dataset | InMemory | None,
    options: MDSOptions,
    emit: Emit | None = None,
) -> MDSPart:
    """Find positions whose distances are the dissimilarities, of all starts those of the least stress.

    Raises
    ------
    InputError
        On every rank: bad dissimilarities, weights or positions to begin with.
    CheckpointError
        The checkpoint is of another fit, in use, or cannot be written.
    """
    begin = time.perf_counter()
    rows = load_square(comm, source, weights, options.metric)
    journal = Journal(comm, emit)
    load_s = time.perf_counter() - begin
    descent = _Descent(comm, rows, options, journal)
    with closing(Keeper(comm, options.checkpoint, options.facts(rows))) as keeper:
        found = descent.run(keeper)
    best = found.best
    assert best is not None, "a start has ended"
    return MDSPart(
        embedding=best.at * rows.scale,
        stress=best.errors / 2 * rows.scale**2,
        normalized_stress=_normalized(best.errors, best.squares),
        iteration_count=best.iteration,
        converged=best.converged,
        resumed_from=descent.resumed_from,
        point_count=rows.total,
        dtype=str(rows.dissimilarities.dtype),
        record=journal.record(load_s),
    )


class _Descent:
    """Iterates from each start, through all temperatures."""

    def __init__(self, comm: Communicator, rows: OwnRows, options: MDSOptions, journal: Journal) -> None:
        self._rows = rows
        self._options = options
        self._journal = journal
        self._majorization = Majorization(comm, rows, options.n_components, journal.clock)
        self._shifts = list(_shifts(rows, options))
        self._size = 0.0
        self.resumed_from: int | None = None

    def run(self, keeper: Keeper) -> Place:
        """From the first start, or from a checkpoint, to the end of the last."""
        starts = self._starts()
        drawn = next(starts)
        place = self._last = Place(at=drawn)
        kept = keeper.load()
        if kept is not None:
            place = kept
            for _ in range(kept.start):
                drawn = next(starts)
            self._journal.iterations_before = self.resumed_from = kept.told
        step = self._majorization.step(place.at, self._shifts[place.level])
        if kept is not None:
            keeper.check(kept, step.errors)
        if self._options.method == METHODS[1]:
            # At positions that coincide the errors are the squares of the dissimilarities.
            self._size = self._majorization.step(np.zeros_like(place.at)).errors
        while True:
            place = self._descend(place, step, keeper)
            best = place.best
            if best is None or place.errors < best.errors:
                place = replace(place, best=replace(place, best=None))
            if place.start + 1 == self._options.n_init:
                # Of a fit that has ended, too, an iteration is left to who goes on from it, and its report.
                keeper.save(self._last, last=True)
                return place
            place = Place(at=next(starts), start=place.start + 1, told=place.told, best=place.best)
            step = self._majorization.step(place.at, self._shifts[0])

    def _descend(self, place: Place, step: Step, keeper: Keeper) -> Place:
        """From a start, or the middle of a descent, to the end of its last temperature."""
        while True:
            place = replace(place, errors=step.errors, squares=step.squares)
            ended = place.in_level >= self._options.max_iter or self._has_settled(place)
            if ended and place.level + 1 == len(self._shifts):
                return replace(place, converged=self._has_settled(place))
            if ended:
                level = place.level + 1
                place = replace(place, at=self._moved(place, level), level=level, in_level=0, before=None)
                # What the next temperature leaves of the dissimilarities leads elsewhere from the same positions.
                step = self._majorization.step(place.at, self._shifts[place.level])
                place = replace(place, errors=step.errors, squares=step.squares)
            self._last = place
            keeper.save(place)
            at = self._majorization.transform(step, place.at)
            step = self._majorization.step(at, self._shifts[place.level])
            place = replace(
                place,
                at=at,
                before=place.errors if place.in_level else None,
                errors=step.errors,
                squares=step.squares,
                iteration=place.iteration + 1,
                in_level=place.in_level + 1,
                told=place.told + 1,
            )
            self._tell(place)

    def _moved(self, place: Place, level: int) -> Reals:
        random = np.random.default_rng([self._options.seed, place.start, level])
        return place.at + MOVED * self._rows.largest * random.normal(size=place.at.shape)

    def _has_settled(self, place: Place) -> bool:
        if place.before is None:
            return False
        # scikit-learn's measure; where annealing has drawn all points together, theirs would be next to nothing.
        size = self._size or place.squares
        return place.before - place.errors < self._options.eps * size

    def _tell(self, place: Place) -> None:
        measures: dict[str, float] = {
            "stress": place.errors / 2 * self._rows.scale**2,
            "normalized_stress": _normalized(place.errors, place.squares),
        }
        if self._options.n_init > 1:
            measures["start"] = place.start + 1
        if self._options.method == METHODS[1]:
            width = self._shifts[place.level] * self._rows.scale
            measures["temperature"] = width / float(np.sqrt(2 * self._options.n_components))
        self._journal.tell(**measures)

    def _starts(self) -> Iterator[Reals]:
        """Positions to begin with, those that scikit-learn draws with the same seed."""
        options, total = self._options, self._rows.total
        if options.init is not None:
            if len(options.init) != total:
                raise InputError(f"init has {len(options.init)} rows for {total} points")
            yield options.init / self._rows.scale
            return
        random = np.random.RandomState(options.seed)
        while True:
            yield random.uniform(size=(total, options.n_components))


def _shifts(rows: OwnRows, options: MDSOptions) -> Iterator[float]:
    """What each temperature takes off, and nothing at the end."""
    shift = rows.largest * options.cooling
    while options.method == METHODS[1] and np.isfinite(rows.least) and shift > LEAST_SHIFT * rows.least:
        yield shift
        shift *= options.cooling
    yield 0.0


def _normalized(errors: float, squares: float) -> float:
    """Kruskal's stress, "Stress-1"."""
    return float(np.sqrt(errors / squares)) if squares > 0 else 0.0


def interpolate(
    comm: Communicator, source: Dataset | InMemory, embedding: Reals, neighbors: int, max_iter: int, eps: float
) -> Reals:
    """The positions of this worker's new points, (m, k), by their dissimilarities to the points that have positions.

    Of each new point the stress with its nearest points is minimised, the others do not count. It ends when no rank's
    points move by more than `eps` of the size of the embedding.

    Raises
    ------
    InputError
        On every rank: bad dissimilarities.
    """
    share = read_rows(comm, source, len(embedding), "X")
    counts = comm.allgather(len(share.points))
    first = sum(counts[: comm.rank])
    points = share.points if share.points.dtype == np.int16 else np.ascontiguousarray(share.points, np.float32)
    nearest = np.argsort(points, axis=1, kind="stable")[:, :neighbors]
    weights = np.zeros(points.shape, np.float32)
    np.put_along_axis(weights, nearest, 1.0, axis=1)
    count = nearest.shape[1]
    size = float(np.abs(embedding - embedding.mean(axis=0)).max(initial=0.0)) or 1.0
    middle: Reals = embedding[nearest].mean(axis=1)
    aside = np.random.default_rng(0).normal(size=(sum(counts), embedding.shape[1]))
    at: Reals = middle + ASIDE * size * aside[first : first + len(points)]
    fixed = embedding.astype(np.float32)
    out = np.empty((len(points), embedding.shape[1] + 2))
    for _ in range(max_iter):
        pairs.guttman(points, weights, at.astype(np.float32), fixed, out, threads=comm.threads)
        moved = middle + out[:, :-2] / count
        # All ranks go on as long as one does, so that a point's position does not depend on who has it.
        farthest = comm.allreduce(float(np.abs(moved - at).max(initial=0.0)), op="max")
        at = moved
        if farthest <= eps * size:
            break
    return at
