"""DataFrames for ranks: as many partitions as ranks, in batches that suit arrays; results that outlive the ranks."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ripieno.errors import InputError
from ripieno.launch.engines import spark_task
from ripieno.launch.engines.spark_archive import shipped
from ripieno.launch.hub import Invitation

if TYPE_CHECKING:
    import pyarrow as pa

# Bytes of a batch, by which alone its rows are bounded: an executor needs about thrice as many for every task. Larger
# ones are not read faster.
BATCH_BYTES = 64 << 20
# Rules of Spark that leave no partition, and so no rank, of rows that turn out to be none.
_NO_ROWS_NO_PARTITIONS = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation",
    "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
}


def mapped(frame: DataFrame, workers: int, invitation: Invitation, output: StructType) -> DataFrame:
    """What the ranks return that have the rows of `frame`; whoever evaluates it runs them."""
    rows = _in(_tuned(frame.sparkSession), frame)
    if partition_count(rows) != workers:
        rows = rows.repartition(workers)
    archive = shipped(frame.sparkSession.sparkContext)
    function = spark_task.with_rows(invitation, archive, arrow_schema(frame.schema, frame.sparkSession))
    return rows.mapInArrow(function, output, barrier=True)


def kept(mapped: DataFrame, workers: int) -> DataFrame:
    """Run the ranks, once, and keep what they return at the executors: the rows of each as a partition.

    A stage of ranks can neither be run in part nor be followed by less partitions, which `first` and `coalesce` would
    do, so a shuffle stands between it and what is kept.
    """
    # No column of the user's has this name.
    rank = f"rank {secrets.token_hex(8)}"
    by_rank = mapped.withColumn(rank, F.spark_partition_id()).repartitionById(workers, rank).drop(rank)
    return _in(mapped.sparkSession._jsparkSession, by_rank.localCheckpoint(eager=True))


def arrow_schema(schema: StructType, session: SparkSession) -> pa.Schema:
    """As Spark has it in Arrow."""
    return to_arrow_schema(schema, timezone=session.conf.get("spark.sql.session.timeZone"))


def partition_count(frame: DataFrame) -> int | None:
    """How many partitions it has, or None if Spark decides only while it runs, or runs no barrier stage on these."""
    execution = frame._jdf.queryExecution()
    plan = execution.executedPlan()
    if not plan.nodeName().startswith("AdaptiveSparkPlan"):
        return _common_count(execution.toRdd())
    node = plan.initialPlan()
    counts = {node.outputPartitioning().numPartitions()}
    while node.nodeName() != "Exchange" and node.children().size() == 1:
        node = node.children().head()
        counts.add(node.outputPartitioning().numPartitions())
    if node.nodeName().startswith("InMemoryTableScan"):
        # What is cached, now if not yet, is settled.
        return _common_count(execution.toRdd())
    # The number that a user has asked for stays as it is; others are changed to suit the amount of data.
    if node.nodeName() == "Exchange" and str(node.shuffleOrigin()) == "REPARTITION_BY_NUM" and len(counts) == 1:
        return counts.pop()
    return None


def _common_count(rdd: Any) -> int | None:
    """The partitions of `rdd`, if all that it is made from in the same stage has as many: else Spark refuses ranks."""
    count = rdd.getNumPartitions()
    seen, left = set(), [rdd]
    while left:
        each = left.pop()
        if each.id() in seen:
            continue
        seen.add(each.id())
        if each.getNumPartitions() != count:
            return None
        dependencies = each.dependencies()
        for number in range(dependencies.size()):
            dependency = dependencies.apply(number)
            if dependency.getClass().getSimpleName() != "ShuffleDependency":
                left.append(dependency.rdd())
    return count


def check(frame: DataFrame) -> None:
    """Raise `InputError` if ranks cannot have it."""
    if frame.isStreaming:
        raise InputError("a streaming DataFrame has no end: give ranks the batches of foreachBatch")


def _in(java_session: Any, frame: DataFrame) -> DataFrame:
    """The same query, to be run as `java_session` is configured."""
    session = frame.sparkSession
    datasets = session.sparkContext._jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(datasets.ofRows(java_session, frame._jdf.logicalPlan()), session)


def _tuned(session: SparkSession) -> Any:
    """A session of the same tables and settings, but with larger batches, and with partitions of no rows.

    In Java only: one of Python would be that of ``RDD.toDF`` from then on.
    """
    clone = session._jsparkSession.cloneSession()
    batch_bytes = min(BATCH_BYTES, clone.sessionState().conf().arrowMaxBytesPerBatch())
    clone.conf().set("spark.sql.execution.arrow.maxRecordsPerBatch", "0")
    clone.conf().set("spark.sql.execution.arrow.maxBytesPerBatch", f"{batch_bytes}b")
    for name, rule in _NO_ROWS_NO_PARTITIONS.items():
        excluded = clone.conf().get(name, "")
        clone.conf().set(name, f"{excluded},{rule}" if excluded else rule)
    return clone
