"""Provide the predicted time of a K-means iteration on a modeled cluster, by stage.

The time of assignment follows from a rate of operations, and the time of communication from simulated plans. Every rank
assigns its share of the points, and one allreduce combines the sums and weights of all clusters. A fit broadcasts its
initial centroids once. With divided centroids, an allgather distributes the centroids, and a reduce-scatter combines
the sums. Bounds and near assignment skip pairs, so the caller gives the fraction of pairs that an iteration compares.

The stages match `ripieno.KMeans`. An iteration that compares all pairs has 2·n·k·d operations.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import ripieno.kernels as kernels
from ripieno._checks import check_count
from ripieno.errors import InputError
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import simulate
from ripieno.units import bytes_text, duration_text

FLOAT32_BYTES, FLOAT64_BYTES = 4, 8
#: Limits of the measurement: clusters and operations of a pass, and number of passes.
MEASURED_CLUSTERS, MEASURED_OPERATIONS, MEASURED_PASSES = 1000, 4e8, 3


@dataclass(frozen=True)
class SimulatedStage:
    """A stage of the iteration: name, seconds and description."""

    name: str
    seconds: float
    description: str


@dataclass(frozen=True)
class SimulatedIteration:
    """The stages of an iteration on a modeled cluster, with their seconds.

    Attributes
    ----------
    cluster
        The modeled cluster.
    stages
        Stages of every iteration.
    once
        Stages that run once per fit.
    """

    cluster: Cluster
    stages: list[SimulatedStage]
    once: list[SimulatedStage]

    @property
    def seconds(self) -> float:
        """Return the seconds of an iteration."""
        return sum(stage.seconds for stage in self.stages)

    def as_json(self) -> dict[str, Any]:
        """Return all fields but the cluster as JSON values."""
        stages, once = ([asdict(stage) for stage in each] for each in (self.stages, self.once))
        return {"ranks": self.cluster.ranks, "seconds": self.seconds, "stages": stages, "once": once}

    def __str__(self) -> str:
        lines = [f"an iteration of K-means, {self.cluster}"]
        width = max(10, *(len(stage.name) for stage in (*self.stages, *self.once)))
        lines += [
            f"{stage.name:{width}} {duration_text(stage.seconds):>8}  {stage.seconds / self.seconds:4.0%}  "
            f"{stage.description}"
            for stage in self.stages
        ]
        lines.append(f"{'in all':{width}} {duration_text(self.seconds):>8}")
        lines += [
            f"{stage.name:{width}} {duration_text(stage.seconds):>8}  once  {stage.description}" for stage in self.once
        ]
        return "\n".join(lines)


def kmeans_iteration(
    cluster: Cluster,
    *,
    points: int,
    dim: int,
    clusters: int,
    cores: int,
    operations_per_s: float | None = None,
    compared: float = 1.0,
    divided: bool = False,
) -> SimulatedIteration:
    """Simulate an iteration of K-means on a modeled cluster.

    Parameters
    ----------
    cluster
        The modeled cluster, with one rank per node.
    points, dim, clusters
        Number of rows, float32 values per row, and number of clusters.
    cores
        Cores of each rank.
    operations_per_s
        Rate of a core that assigns rows, counting 2·dim per pair of row and cluster; by default as measured on this
        machine.
    compared
        Fraction of all pairs that is compared.
    divided
        Whether every rank owns only a share of the centroids.

    Raises
    ------
    InputError
        If a number is not positive.
    """
    for name, count in (("points", points), ("dim", dim), ("clusters", clusters), ("cores", cores)):
        check_count(name, count)
    where = "as given"
    if operations_per_s is None:
        operations_per_s, where = measured_operations_per_s(dim, clusters), "measured on this machine"
    if not 0 < operations_per_s < math.inf:
        raise InputError(f"operations_per_s={operations_per_s!r}: expected more than 0")
    if not 0 < compared <= 1:
        raise InputError(f"compared={compared!r}: expected a part, more than 0 and at most 1")
    rows = -(-points // cluster.ranks)
    assign_s = 2.0 * rows * clusters * dim * compared / (cores * operations_per_s)
    rate = f"{operations_per_s / 1e9:.3g} GFLOP/s a core, {where}"
    part = "" if compared == 1 else f", {compared:.3g} of the pairs"
    assign = SimulatedStage("assign", assign_s, f"{rows:,} points a rank{part}, {rate}, cores: {cores}")
    centroids_bytes = clusters * dim * FLOAT32_BYTES
    if not divided:
        sums_bytes = clusters * (dim + 1) * FLOAT64_BYTES
        once = [_simulated_stage("broadcast", cluster, centroids_bytes)]
        return SimulatedIteration(cluster, [assign, _simulated_stage("allreduce", cluster, sums_bytes)], once)
    share = -(-clusters // cluster.ranks)
    stages = [
        _simulated_stage("allgather", cluster, share * dim * FLOAT32_BYTES),
        assign,
        _simulated_stage("reduce_scatter", cluster, clusters * dim * FLOAT64_BYTES),
        _simulated_stage("allreduce", cluster, clusters * FLOAT64_BYTES),
    ]
    return SimulatedIteration(cluster, stages, [])


def measured_operations_per_s(dim: int, clusters: int) -> float:
    """Return the operations per second of assignment on one core of this machine: the median of some passes."""
    used = min(clusters, MEASURED_CLUSTERS)
    rows = max(1, min(1 << 20, int(MEASURED_OPERATIONS / (2 * used * dim))))
    random = np.random.default_rng(0)
    points, centroids = (random.standard_normal((count, dim), np.float32) for count in (rows, used))
    labels, distances = np.empty(rows, np.int32), np.empty(rows, np.float64)
    seconds = []
    for _ in range(MEASURED_PASSES):
        begin_s = time.perf_counter()
        kernels.assign(points, centroids, labels, distances, threads=1)
        seconds.append(time.perf_counter() - begin_s)
    return 2.0 * rows * used * dim / statistics.median(seconds)


def _simulated_stage(collective: str, cluster: Cluster, nbytes: int) -> SimulatedStage:
    found = simulate(collective, cluster, nbytes=nbytes)
    if found.seconds is None:
        raise InputError("dead nodes: expected none, because an iteration needs all ranks")
    return SimulatedStage(collective, found.seconds, f"{bytes_text(nbytes)} by {found.algorithm}")
