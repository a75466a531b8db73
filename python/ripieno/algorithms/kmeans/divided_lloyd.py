"""Lloyd's iteration with divided centroids: rows are compared block by block, and each rank moves its own centroids.

Labels and distances are bitwise equal to the results with whole centroids. Sums are equal if they are exact, as for
uint8, or if at most two ranks add them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.divided import DividedCentroids, GroupedCentroids
from ripieno.algorithms.kmeans.lloyd import NO_CENTROID, Clustering, rows_for_empty_clusters
from ripieno.algorithms.kmeans.near import NO_LOSS, AssignmentLoss, Probes
from ripieno.algorithms.kmeans.rows import WeightedRows

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass
class Stages:
    """Seconds of this rank's last pass: grouping centroids, finding groups of rows, computing distances, and moving."""

    group_s: float = 0.0
    probe_s: float = 0.0
    meet_s: float = 0.0
    sample_s: float = 0.0
    move_s: float = 0.0


class DividedPasses:
    """Passes over this worker's rows with divided centroids.

    Parameters
    ----------
    comm
        The workers.
    rows
        This worker's rows.
    centroids
        Divided centroids of all workers.
    is_near
        Whether rows are compared with near centroids only.
    clock
        Clock that separates computation from communication.
    """

    def __init__(
        self,
        comm: Communicator,
        rows: WeightedRows,
        centroids: DividedCentroids,
        *,
        is_near: bool,
        clock: IterationClock,
    ) -> None:
        self._comm, self._rows, self._clock = comm, rows, clock
        self._grouped = GroupedCentroids.of(centroids, rows.points.dtype, clock) if is_near else None
        self.centroids = self._grouped or centroids
        self._probes = Probes(rows, centroids.count) if is_near else None
        self.stages = Stages()

    @property
    def compared(self) -> float:
        """Return the approximate share of all centroids that a row is compared with."""
        return 1.0 if self._probes is None else self._probes.compared

    def assign(
        self,
        previous_labels: NDArray[np.int32],
        labels: NDArray[np.int32],
        distances: NDArray[np.float64],
        number: int,
        on_part: Callable[[float], None],
    ) -> AssignmentLoss:
        """Write each row's nearest (or a near) centroid and its squared distance.

        `previous_labels` has the labels of the previous pass. `number` selects the sample that measures the loss.
        `on_part` receives the completed share of the pass.
        """
        labels.fill(NO_CENTROID)
        distances.fill(np.inf)
        self.stages = Stages()
        if self._grouped is None or self._probes is None:
            self._compare_all(labels, distances, on_part)
            return NO_LOSS
        return self._compare_near(self._grouped, self._probes, previous_labels, labels, distances, number, on_part)

    def _compare_all(
        self, labels: NDArray[np.int32], distances: NDArray[np.float64], on_part: Callable[[float], None]
    ) -> None:
        for done, block in enumerate(self.centroids.blocks(self._clock), 1):
            with self._clock.computing(), _StageTimer(self.stages, "meet_s"):
                kernels.update_min_distances(
                    self._rows.points,
                    block.centroids,
                    distances,
                    labels,
                    first_index=int(block.numbers[0]) if len(block.numbers) else 0,
                    threads=self._comm.threads,
                )
            on_part(done / self.centroids.blocks_per_pass)

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
        rows, stages, threads = self._rows, self.stages, self._comm.threads
        with _StageTimer(stages, "group_s"):
            means = grouped.regroup(self._clock)
        with self._clock.computing(), _StageTimer(stages, "probe_s"):
            probing = kernels.Probing(rows.points, means, probes.count, threads)
        sample = probes.sample(number)
        sampled, exact = rows.points[sample], np.full(len(sample), np.inf)
        for done, block in enumerate(grouped.blocks(self._clock), 1):
            with self._clock.computing():
                with _StageTimer(stages, "meet_s"):
                    previous = kernels.PreviousCentroids(grouped.places, previous_labels, block.first)
                    kernels.compare_groups(
                        rows.points, probing, block.groups, previous, labels, distances, threads=threads
                    )
                with _StageTimer(stages, "sample_s"):
                    kernels.update_min_distances(sampled, block.centroids, exact, threads=threads)
            on_part(done / grouped.blocks_per_pass)
        with self._clock.communicating():
            return probes.measured(self._comm.allreduce(probes.sums(sample, distances[sample], exact)))


@dataclass(frozen=True)
class DividedFitState:
    """The state of an earlier run: its iteration count, and the labels of this worker's rows in the last iteration."""

    iteration: int
    labels: NDArray[np.int32]


def divided_lloyd(
    comm: Communicator,
    rows: WeightedRows,
    centroids: DividedCentroids,
    *,
    max_iter: int,
    tol: float,
    is_near: bool,
    clock: IterationClock,
    on_iteration: Callable[[int, float, float, float, AssignmentLoss, Stages], None],
    on_part: Callable[[int, float], None],
    resume_from: DividedFitState | None = None,
    save: Callable[[int, float, DividedCentroids, NDArray[np.int32]], None] | None = None,
) -> tuple[Clustering, NDArray[np.uint32]]:
    """Run `ripieno.algorithms.kmeans.lloyd.lloyd` with divided centroids; return this worker's centroids and numbers.

    `on_part` receives an iteration number and the completed share of its assignment. `save` receives an iteration
    number, its inertia, the centroids after it, and the labels of this worker's rows.
    """
    passes = DividedPasses(comm, rows, centroids, is_near=is_near, clock=clock)
    labels = np.full(len(rows), NO_CENTROID, np.int32) if resume_from is None else resume_from.labels.copy()
    previous_labels, distances, columns = np.empty_like(labels), np.empty(len(rows)), rows.points.shape[1]
    iteration, changed, reseeded, loss, inertia = (
        0 if resume_from is None else resume_from.iteration,
        1.0,
        0,
        NO_LOSS,
        0.0,
    )
    while iteration < max_iter:
        iteration += 1
        labels, previous_labels = previous_labels, labels
        loss = passes.assign(previous_labels, labels, distances, iteration, partial(on_part, iteration))
        begin = time.perf_counter()
        with clock.computing():
            weight_sums = np.bincount(labels, rows.weights, centroids.count).astype(np.float64, copy=False)
            own = (
                kernels.inertia_of(distances, rows.weights, columns),
                float(not np.array_equal(labels, previous_labels)),
            )
        with clock.communicating():
            weight_sums, (inertia, changed) = comm.allreduce((weight_sums, own))
            moved = rows_for_empty_clusters(comm, rows, labels, distances, weight_sums)
            reseeded = len(moved.numbers)
        shift = passes.centroids.move(rows, labels, weight_sums, moved.correct, clock)
        with clock.communicating():
            squared_shift = comm.allreduce(shift)
        passes.stages.move_s = time.perf_counter() - begin
        on_iteration(iteration, inertia, squared_shift, passes.compared, loss, passes.stages)
        if not changed or squared_shift <= tol:
            break
        if save is not None and iteration < max_iter:
            save(iteration, inertia, passes.centroids, labels)
    if changed or reseeded:
        # The centroids have moved since the labels were computed.
        loss = passes.assign(labels.copy(), labels, distances, 0, partial(on_part, iteration + 1))
        inertia = comm.allreduce(float(np.sum(rows.row_weights * distances)))
    mine = passes.centroids
    return Clustering(mine.own, labels, distances, inertia, iteration, 0, loss), mine.own_numbers


class _StageTimer:
    """Context manager that adds the elapsed seconds to a stage."""

    def __init__(self, stages: Stages, name: str) -> None:
        self._stages, self._name = stages, name

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        seconds = time.perf_counter() - self._begin
        setattr(self._stages, self._name, getattr(self._stages, self._name) + seconds)
