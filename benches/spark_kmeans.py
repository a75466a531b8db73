"""Benchmark of K-means inside one Spark session: MLlib's two solvers and `rp.spark.KMeans`, from equal centers.

Both read the same cached DataFrame and run the same number of iterations. They start from the centers of an MLlib fit
without iterations. A figure counts only if both end at centers of the same inertia, to 1e-5. MLlib reports no iteration
times: the difference between a fit and a fit without iterations is divided by their number. Computing is the mean of
all slots. For MLlib it is the executorRunTime of its tasks in Spark's status store, minus the same without iterations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import gemm
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from effort import Effort
from numpy.typing import NDArray
from ripieno import kernels
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples
from ripieno.host import usable_cores
from spark_session import task_seconds

if TYPE_CHECKING:
    from pyspark.ml import Estimator
    from pyspark.sql import DataFrame, SparkSession

SEED = 1
SOLVERS = ("row", "block")
INERTIA_TOLERANCE = 1e-5
#: Upper limit relative to the faster of MLlib's solvers.
TARGETS = {"peer": 1 / 5}

Points = NDArray[np.float64]


@dataclass(frozen=True)
class SparkProblem:
    """A clustering problem, with its numbers of iterations and runs.

    Parameters
    ----------
    n, d, k
        Rows, values per row, clusters.
    iteration_count, run_count
        Iterations of each fit, and number of fits of each kind.
    solvers
        Participating solvers of MLlib.
    """

    n: int
    d: int
    k: int
    iteration_count: int
    run_count: int
    solvers: tuple[str, ...] = SOLVERS

    def points(self) -> Points:
        """Return overlapping blobs."""
        random = np.random.default_rng(0)
        centers = random.random((max(2, self.k // 10), self.d))
        noise = random.standard_normal((self.n, self.d))
        return centers[random.integers(len(centers), size=self.n)] + 0.1 * noise

    def __str__(self) -> str:
        return "K-means, " + f"{self.n:,} × {self.d} into {self.k:,}".replace(",", " ")


WARM_UP = SparkProblem(4_000, 2, 20, 2, 1)
#: Problems by the name of a measurement. For 10 000 clusters the block solver needs more memory than executors of 3
#: GiB have.
PROBLEMS = {
    "kmeans": (SparkProblem(50_000, 512, 100, 3, 3), SparkProblem(50_000, 512, 1_000, 1, 1)),
    "kmeans-1M-1000": (SparkProblem(1_000_000, 2, 1_000, 2, 3),),
    "kmeans-1M-10000": (SparkProblem(1_000_000, 2, 10_000, 1, 1, ("row",)),),
}
#: The other problems have no small variant.
QUICK_PROBLEMS = {"kmeans": (WARM_UP,)}
#: Spark reports whole milliseconds, so the difference between two short fits may be zero.
RESOLUTION_S = 1e-3


@dataclass
class Fits:
    """Seconds of whole fits, of their iterations, and of the computing in them, as the mean of all slots."""

    whole_s: list[float] = field(default_factory=list)
    iteration_s: list[float] = field(default_factory=list)
    computing_s: list[float] = field(default_factory=list)
    centers: Points | None = None


def measured(name: str, spark: SparkSession, slots: int, folder: Path, report: Measurements, effort: Effort) -> None:
    """Add three figures for each problem of that name: an iteration, the computation in it, a whole fit."""
    # The first fits of a session compile, import and start components for the later ones.
    for problem in QUICK_PROBLEMS.get(name, ()) if effort.quick else (WARM_UP, *PROBLEMS[name]):
        points = problem.points()
        rows = _cached(spark, points, slots, folder)
        target = Measurements("warm-up") if problem is WARM_UP and not effort.quick else report
        try:
            _compare(problem, points, rows, slots, target, effort)
        finally:
            rows.unpersist()


def _cached(spark: SparkSession, points: Points, slots: int, folder: Path) -> DataFrame:
    """Return a frame with a partition of vectors for each slot, in the executors' memory."""
    from pyspark.ml.functions import array_to_vector

    values = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])
    parquet.write_table(pa.table({"point": values.cast(pa.list_(pa.float64()))}), folder / "points.parquet")
    read = spark.read.parquet(f"file://{folder}/points.parquet").select(array_to_vector("point").alias("vector"))
    rows = read.repartition(slots).cache()
    rows.count()
    return rows


def _compare(
    problem: SparkProblem, points: Points, rows: DataFrame, slots: int, report: Measurements, effort: Effort
) -> None:
    start = np.array(_mllib(problem, problem.solvers[0], 0).fit(rows).clusterCenters())
    ours, theirs = Fits(), {solver: Fits() for solver in problem.solvers}
    operation_count, square_s = 2.0 * problem.n * problem.d * problem.k, []
    for _ in range(effort.runs(problem.run_count)):
        square_s.append(gemm.square_s(np.float32, quick=effort.quick))
        _fit_ours(problem, start, rows, slots, ours)
        for solver, fits in theirs.items():
            _fit_mllib(problem, solver, rows, slots, fits)
    _check(problem, points, {"Ripieno": ours, **theirs}, report)
    for row, of in (
        ("an iteration", "iteration_s"),
        ("computation per iteration", "computing_s"),
        ("the whole fit", "whole_s"),
    ):
        report.figures.append(
            Figure(
                case=str(problem),
                row=row,
                ours=Samples(tuple(getattr(ours, of))),
                peers={f"MLlib, {solver}": Samples(tuple(getattr(fits, of))) for solver, fits in theirs.items()},
                limit_s=float(np.median(square_s)) * operation_count if of != "whole_s" else None,
                limit="sgemm of NumPy, all cores, at 2·n·k·d operations a pass",
                work=operation_count / 1e9 if of != "whole_s" else 0.0,
                rate_unit="GFLOP/s",
                targets=TARGETS if of == "iteration_s" else {},
            )
        )


def _fit_ours(problem: SparkProblem, start: Points, rows: DataFrame, slots: int, fits: Fits) -> None:
    from ripieno.spark import KMeans

    estimator = KMeans(
        k=problem.k, initial_centers=start, max_iter=problem.iteration_count, tol=0.0, features_col="vector",
        workers=slots,
    )  # fmt: skip
    begin = time.perf_counter()
    model = estimator.fit(rows)
    fits.whole_s.append(time.perf_counter() - begin)
    iterations = model.summary.iterations
    if len(iterations) != problem.iteration_count:
        raise RuntimeError(f"{problem}: ended after {len(iterations)} iterations")
    fits.iteration_s.append(float(np.mean([each.seconds for each in iterations])))
    fits.computing_s.append(float(np.mean([each.compute_s for each in iterations])))
    fits.centers = model.centers


def _mllib(problem: SparkProblem, solver: str, iteration_count: int) -> Estimator:
    from pyspark.ml.clustering import KMeans

    return KMeans(
        k=problem.k, initMode="random", seed=SEED, maxIter=iteration_count, tol=0.0, solver=solver,
        featuresCol="vector",
    )  # fmt: skip


def _fit_mllib(problem: SparkProblem, solver: str, rows: DataFrame, slots: int, fits: Fits) -> None:
    spark, seconds, work, model = rows.sparkSession, [], [], None
    for iteration_count in (0, problem.iteration_count):
        before, begin = task_seconds(spark), time.perf_counter()
        model = _mllib(problem, solver, iteration_count).fit(rows)
        seconds.append(time.perf_counter() - begin)
        work.append(task_seconds(spark) - before)
    if model.summary.numIter != problem.iteration_count:
        raise RuntimeError(f"{problem}: MLlib ended after {model.summary.numIter} iterations")
    fits.whole_s.append(seconds[1])
    fits.iteration_s.append(max(seconds[1] - seconds[0], RESOLUTION_S) / problem.iteration_count)
    fits.computing_s.append(max(work[1] - work[0], RESOLUTION_S) / slots / problem.iteration_count)
    fits.centers = np.array(model.clusterCenters())


def _check(problem: SparkProblem, points: Points, found: dict[str, Fits], report: Measurements) -> None:
    """Check that all results are equally good by one measure."""
    inertias = {name: _inertia(points, fits.centers) for name, fits in found.items()}
    lowest, highest = min(inertias.values()), max(inertias.values())
    report.counts.append(
        FigureCount(str(problem), "inertias differ relatively by", (highest - lowest) / lowest, "", INERTIA_TOLERANCE)
    )
    if highest - lowest > INERTIA_TOLERANCE * lowest:
        raise RuntimeError(f"{problem}: inertias differ, so there is no figure: {inertias}")
    ours, others = found["Ripieno"].centers, [fits.centers for name, fits in found.items() if name != "Ripieno"]
    farthest = max(float(np.abs(ours - each).max()) for each in others)
    report.remark(f"{problem}: no coordinate of a center differs by more than {farthest:.1g} from MLlib's")


def _inertia(points: Points, centers: Points) -> float:
    labels, squared_distances = np.empty(len(points), np.int32), np.empty(len(points))
    kernels.assign(points, np.ascontiguousarray(centers), labels, squared_distances, threads=usable_cores())
    return float(squared_distances.sum())
