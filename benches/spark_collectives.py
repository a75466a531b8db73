"""Benchmark inside one Spark session: a broadcast and a sum, by Spark and between ranks in its executors.

Ranks occupy the slots during their job, so jobs start and end between Spark's own jobs. Job starts are not counted.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from effort import Effort
from ripieno.bench import toolchain
from ripieno.bench.cases import BenchCase
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.limits import MachineLimit
from ripieno.units import size_text
from spark_programs import added, broadcast_by_rank_0, checksum, fresh_bytes, part, received, summed

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from ripieno import Job

SIZES_MB, QUICK_SIZES_MB = (64, 128, 256), (1,)
LENGTH, QUICK_LENGTH = 10_000_000, 100_000
RUN_COUNT = 5
MEMORY_BUDGET_S = 0.05
#: Upper limits relative to Spark's time.
BROADCAST_TARGETS, SUM_TARGETS = {256: {"peer": 1 / 3}}, {"peer": 1 / 10}


def broadcasts(spark: SparkSession, slots: int, report: Measurements, effort: Effort) -> None:
    """Measure a broadcast from the launching process to every slot and, for comparison, from rank 0 to all ranks."""
    for size_mb in QUICK_SIZES_MB if effort.quick else SIZES_MB:
        by_job, by_rank, by_spark = [], [], []
        # The launching process has the value, too, in addition to the ranks.
        to_tasks, to_ranks = MachineLimit(slots + 1), MachineLimit(slots)
        limited = BenchCase("broadcast", size_mb * 10**6)
        for _ in range(effort.runs(RUN_COUNT)):
            for limit in (to_tasks, to_ranks):
                limit.measure([limited], MEMORY_BUDGET_S)
            with _ranks(slots) as job:
                by_job.append(_job_broadcast(job, slots, size_mb * 10**6))
                by_rank.append(_rank_broadcast(job, size_mb * 10**6))
            by_spark.append(_spark_broadcast(spark.sparkContext, slots, size_mb * 10**6))
        for case, seconds, targets, limit in (
            ("broadcast from the driver to all tasks", by_job, BROADCAST_TARGETS.get(size_mb, {}), to_tasks),
            ("broadcast from rank 0 to all ranks", by_rank, {}, to_ranks),
        ):
            row, peers = size_text(limited.size_bytes), {"sc.broadcast": by_spark}
            report.figures.append(_figure(case, row, seconds, peers, targets, limit, limited))


def java_archive() -> Path:
    """Return the jar that `sums` needs in spark.jars for the JVM's own treeAggregate. Raise Skipped without javac."""
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    return toolchain.java_archive(Path(__file__).with_name("VectorSum.java"), home / "jars")


def sums(spark: SparkSession, slots: int, report: Measurements, effort: Effort) -> None:
    """Measure sums of one vector per slot: `comm.allreduce` to every rank, and `treeAggregate` to the driver."""
    length = QUICK_LENGTH if effort.quick else LENGTH
    candidates = {"treeAggregate, NumPy": _tree_aggregate}
    if spark.conf.get("spark.jars", ""):
        candidates["treeAggregate, Java"] = _java_tree_aggregate
    ours, theirs = [], {name: [] for name in candidates}
    limit, limited = MachineLimit(slots), BenchCase("allreduce", length * 8)
    for _ in range(effort.runs(RUN_COUNT)):
        limit.measure([limited], MEMORY_BUDGET_S)
        with _ranks(slots) as job:
            job.run(summed, length)
            found = job.run(summed, length)
        _expect("allreduce", {total for _, total in found}, {float(slots * (slots + 1) / 2)})
        ours.append(max(seconds for seconds, _ in found))
        for name, aggregated in candidates.items():
            # The first call of each is a warm-up.
            aggregated(spark.sparkContext, slots, length)
            theirs[name].append(aggregated(spark.sparkContext, slots, length))
    row = f"{length:,} float64".replace(",", " ")
    report.figures.append(_figure(f"sum of {slots} vectors", row, ours, theirs, SUM_TARGETS, limit, limited))


def _ranks(slots: int) -> Job:
    from ripieno import launch

    return launch(slots, "spark", 1)


def _job_broadcast(job: Job, slots: int, size_bytes: int) -> float:
    data = fresh_bytes(size_bytes, secrets.randbits(64))
    begin = time.perf_counter()
    with job.broadcast(data) as shared:
        found = job.run(received, shared)
        seconds = time.perf_counter() - begin
    _expect("job.broadcast", set(found), {checksum(data)})
    return seconds


def _rank_broadcast(job: Job, size_bytes: int) -> float:
    found = job.run(broadcast_by_rank_0, size_bytes, secrets.randbits(64))
    _expect("comm.broadcast", {sum_ for _, sum_ in found}, {found[0][1]})
    return max(seconds for seconds, _ in found)


def _spark_broadcast(context: SparkContext, slots: int, size_bytes: int) -> float:
    """Return the seconds until every slot has read the value."""
    data = fresh_bytes(size_bytes, secrets.randbits(64))
    tasks = context.parallelize(range(slots), slots)
    tasks.count()
    begin = time.perf_counter()
    shared = context.broadcast(data)
    found = tasks.map(lambda _: checksum(shared.value)).collect()
    seconds = time.perf_counter() - begin
    shared.destroy()
    _expect("sc.broadcast", set(found), {checksum(data)})
    return seconds


def _tree_aggregate(context: SparkContext, slots: int, length: int) -> float:
    """Return the seconds of treeAggregate on an RDD of NumPy vectors. The zero is None, so tasks carry no zero vector.

    A task fills its vector within the measurement: a Python RDD is cached as pickles, which would take longer to read.
    """
    vectors = context.parallelize(range(slots), slots).map(lambda number: part(number, length))
    begin = time.perf_counter()
    total = vectors.treeAggregate(None, added, added)
    seconds = time.perf_counter() - begin
    _expect("treeAggregate", {float(total[-1])}, {float(slots * (slots + 1) / 2)})
    return seconds


def _java_tree_aggregate(context: SparkContext, slots: int, length: int) -> float:
    """Return the same for Java arrays, without Python."""
    java = context._jvm.VectorSum
    numbers = context._jvm.java.util.ArrayList()
    for number in range(slots):
        numbers.add(number)
    vectors = context._jsc.parallelize(numbers, slots).map(java.Part(length)).cache()
    vectors.count()
    begin = time.perf_counter()
    total = vectors.treeAggregate(None, java.Add(), java.Add())
    seconds = time.perf_counter() - begin
    vectors.unpersist()
    _expect("treeAggregate in Java", {total[length - 1]}, {float(slots * (slots + 1) / 2)})
    return seconds


def _expect(call: str, found: set[Any], expected: set[Any]) -> None:
    if found != expected:
        raise RuntimeError(f"{call} returned {found}, expected {expected}")


def _figure(
    case: str,
    row: str,
    ours: list[float],
    peers: dict[str, list[float]],
    targets: dict[str, float],
    limit: MachineLimit,
    limited: BenchCase,
) -> Figure:
    peer_samples = {name: Samples(tuple(seconds)) for name, seconds in peers.items()}
    return Figure(
        case, row, Samples(tuple(ours)), peer_samples, limit.seconds(limited), limit.text, limited.size_bytes / 1e9,
        "GB/s", targets,
    )  # fmt: skip
