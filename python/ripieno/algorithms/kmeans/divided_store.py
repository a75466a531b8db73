"""The store of divided centroids: rows are compared block by block, and each rank moves its own centroids.

Labels and distances are bitwise equal to the results with whole centroids. Sums are equal if they are exact, as for
uint8, or if at most two ranks add them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.divided import DividedCentroids, GroupedCentroids
from ripieno.algorithms.kmeans.lloyd import NO_CENTROID, CentroidStore, Clustering, PassTotals, ReseedRows
from ripieno.algorithms.kmeans.near import NO_LOSS, AssignmentLoss, Probes
from ripieno.algorithms.kmeans.rows import WeightedRows

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Minimum seconds between two progress events of a pass.
EVENT_INTERVAL_S = 1.0


@dataclass
class Stages:
    """Seconds of this rank's last pass: regroup centroids, select groups for rows, compare, compare a sample, and
    move.
    """

    group_s: float = 0.0
    probe_s: float = 0.0
    compare_s: float = 0.0
    sample_s: float = 0.0
    move_s: float = 0.0


class PassProgress:
    """Emits the completed share of a pass and its estimated remaining time."""

    def __init__(self, comm: Communicator, run: int, emit: Callable[[dict[str, Any]], None]) -> None:
        self._reports_progress, self._run, self._emit = comm.rank == 0, run, emit
        self._iteration, self._begin, self._reported_s = 0, 0.0, 0.0

    def on_part(self, iteration: int, part: float) -> None:
        now = time.perf_counter()
        if iteration != self._iteration:
            # The duration of the first block is unknown; all later blocks take about the same time.
            self._iteration, self._begin, self._first, self._reported_s = iteration, now, part, now
        elif self._reports_progress and now - self._reported_s >= EVENT_INTERVAL_S:
            self._reported_s = now
            left_s = (1 - part) * (now - self._begin) / (part - self._first)
            self._emit(
                {"event": "pass", "run": self._run + 1, "iteration": iteration, "part": part, "seconds_left": left_s}
            )


class DividedStore(CentroidStore):
    """A share of the centroids on each worker.

    Parameters
    ----------
    comm, rows, clock
        As in `CentroidStore`.
    centroids
        Divided centroids of all workers.
    is_near
        Whether rows are compared with near centroids only.
    gaps
        The gaps of the iterations before, when a fit with near centroids resumes.
    on_part
        Callable that receives an iteration number and the completed share of its assignment.
    """

    def __init__(
        self,
        comm: Communicator,
        rows: WeightedRows,
        centroids: DividedCentroids,
        *,
        is_near: bool,
        gaps: Iterable[float],
        clock: IterationClock,
        on_part: Callable[[int, float], None],
    ) -> None:
        super().__init__(comm, rows, clock)
        self._on_part = on_part
        self._grouped = GroupedCentroids.of(centroids, rows.points.dtype, clock) if is_near else None
        self._centroids = self._grouped or centroids
        self.own, self.numbers = self._centroids.own, self._centroids.own_numbers
        self._probes = Probes(rows, centroids.count, gaps) if is_near else None
        self._seconds, self._moves_from = Stages(), 0.0

    def accumulate(
        self,
        labels: NDArray[np.int32],
        previous_labels: NDArray[np.int32],
        distances: NDArray[np.float64],
        iteration: int,
    ) -> PassTotals:
        rows, columns = self.rows, self.rows.points.shape[1]
        compared = 1.0 if self._probes is None else self._probes.compared
        loss = self._compare(previous_labels, labels, distances, iteration, partial(self._on_part, iteration))
        self._moves_from = time.perf_counter()
        with self.clock.computing():
            weight_sums = np.bincount(labels, rows.weights, self._centroids.count).astype(np.float64, copy=False)
            inertia = kernels.inertia_of(distances, rows.weights, columns)
            changed = float(not np.array_equal(labels, previous_labels))
        with self.clock.communicating():
            weight_sums, (inertia, changed) = self.comm.allreduce((weight_sums, (inertia, changed)))
        return PassTotals(weight_sums, inertia, bool(changed), compared, loss)

    def move(self, labels: NDArray[np.int32], weight_sums: NDArray[np.float64], moved: ReseedRows) -> float:
        shift = self._centroids.move(self.rows, labels, weight_sums, moved.correct, self.clock)
        with self.clock.communicating():
            squared_shift: float = self.comm.allreduce(shift)
        self._seconds.move_s = time.perf_counter() - self._moves_from
        self.stages = asdict(self._seconds)
        return squared_shift

    def assign(self, labels: NDArray[np.int32], distances: NDArray[np.float64], iteration: int) -> AssignmentLoss:
        return self._compare(labels.copy(), labels, distances, 0, partial(self._on_part, iteration))

    def saved(self, labels: NDArray[np.int32]) -> tuple[DividedCentroids, None, NDArray[np.int32]]:
        return self._centroids, None, labels

    def _compare(
        self,
        previous_labels: NDArray[np.int32],
        labels: NDArray[np.int32],
        distances: NDArray[np.float64],
        number: int,
        on_part: Callable[[float], None],
    ) -> AssignmentLoss:
        """Write each row's nearest (or a near) centroid and its squared distance.

        `number` selects the sample that measures the loss. `on_part` receives the completed share of the pass.
        """
        labels.fill(NO_CENTROID)
        distances.fill(np.inf)
        self._seconds = Stages()
        if self._grouped is None or self._probes is None:
            self._compare_all(labels, distances, on_part)
            return NO_LOSS
        return self._compare_near(self._grouped, self._probes, previous_labels, labels, distances, number, on_part)

    def _compare_all(
        self, labels: NDArray[np.int32], distances: NDArray[np.float64], on_part: Callable[[float], None]
    ) -> None:
        for done, block in enumerate(self._centroids.blocks(self.clock), 1):
            with self.clock.computing(), _StageTimer(self._seconds, "compare_s"):
                kernels.update_min_distances(
                    self.rows.points,
                    block.centroids,
                    distances,
                    labels,
                    first_index=int(block.numbers[0]) if len(block.numbers) else 0,
                    threads=self.comm.threads,
                )
            on_part(done / self._centroids.blocks_per_pass)

    def _compare_near(
        self,
        grouped: GroupedCentroids,
        probes: Probes,
        previous_labels: NDArray[np.int32],
        labels: NDArray[np.int32],
        distances: NDArray[np.float64],
        number: int,
        on_part: Callable[[float], None],
    ) -> AssignmentLoss:
        rows, stages, threads = self.rows, self._seconds, self.comm.threads
        with _StageTimer(stages, "group_s"):
            means = grouped.regroup(self.clock)
        with self.clock.computing(), _StageTimer(stages, "probe_s"):
            probing = kernels.Probing(rows.points, means, probes.count, threads)
        sample = probes.sample(number)
        sampled, exact = rows.points[sample], np.full(len(sample), np.inf)
        for done, block in enumerate(grouped.blocks(self.clock), 1):
            with self.clock.computing():
                with _StageTimer(stages, "compare_s"):
                    previous = kernels.PreviousCentroids(grouped.places, previous_labels, block.first)
                    kernels.compare_groups(
                        rows.points, probing, block.groups, previous, labels, distances, threads=threads
                    )
                with _StageTimer(stages, "sample_s"):
                    kernels.update_min_distances(sampled, block.centroids, exact, threads=threads)
            on_part(done / grouped.blocks_per_pass)
        with self.clock.communicating():
            return probes.measured(self.comm.allreduce(probes.sums(sample, distances[sample], exact)))


class _StageTimer:
    """Context manager that adds the elapsed seconds to a stage."""

    def __init__(self, stages: Stages, name: str) -> None:
        self._seconds, self._name = stages, name

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        seconds = time.perf_counter() - self._begin
        setattr(self._seconds, self._name, getattr(self._seconds, self._name) + seconds)


def whole_centroids(parts: Sequence[Clustering]) -> NDArray[Any]:
    """Return all centroids, (k, d), from the workers' results."""
    first = parts[0]
    if first.numbers is None:
        return first.centroids
    count = sum(len(part.centroids) for part in parts)
    whole = np.empty((count, first.centroids.shape[1]), first.centroids.dtype)
    for part in parts:
        whole[part.numbers] = part.centroids
    return whole
