"""What is used of Spark that Spark promises nobody: classes of its JVM and attributes of PySpark, all of them here.

A version of Spark that no longer has one of them ends in an `EngineError` that says so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, UserDefinedType

from ripieno._version import __version__
from ripieno.errors import EngineError

# The first version that has all of it.
OLDEST = (4, 1)
# Bytes of a batch: an executor needs about thrice as many for every task. Larger ones are not read faster.
BATCH_BYTES = 64 << 20
# Spark asks for the size of a batch with every row. Arrow's lists then pass over all rows since the last that is not
# null: in a batch of many rows that would take minutes. The indices of Spark ML's vectors are such a list, null in
# all of them that are dense; other lists may be.
MOST_VECTORS, MOST_LISTS = 1 << 10, 1 << 16
# Rules of Spark that leave no partition, and so no rank, of rows that turn out to be none.
_NO_ROWS_NO_PARTITIONS = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation",
    "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
}
# What Hadoop says of a host of which it was told nothing.
_NO_RACK = "/default-rack"
# Spark starts a stage so often (spark.stage.maxConsecutiveAttempts), if it may at all.
_STAGE_ATTEMPTS = 4


def check_version(version: str) -> None:
    """Raise `EngineError` if Spark of this version is too old."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise EngineError(f"Spark {'.'.join(map(str, OLDEST))} or later is needed, this is {version}")


@contextmanager
def _known(spark: SparkContext | SparkSession) -> Iterator[None]:
    """Say of which version of Spark it is that something is missing."""
    try:
        yield
    except (Py4JError, AttributeError, TypeError) as error:
        # Kinds of Py4JError are for what Java raises, and for a connection that has ended.
        if isinstance(error, Py4JError) and type(error) is not Py4JError:
            raise
        text = str(error)
        lacking = next((line for line in text.splitlines() if "does not exist" in line), text.partition("\n")[0])
        raise EngineError(
            f"Spark {spark.version} lacks what ripieno {__version__} uses of it ({lacking.strip()}): take another "
            "version of one of them"
        ) from error


def is_stopped(context: SparkContext) -> bool:
    """Whether it was stopped, here or in the JVM."""
    with _known(context):
        return context._jsc is None or context._jsc.sc().isStopped()


def has_pinned_threads(context: SparkContext) -> bool:
    """Whether each thread has one of its own in the JVM, and with it job groups of its own."""
    with _known(context):
        return isinstance(context._gateway, ClientServer)


def folder(context: SparkContext) -> str:
    """A folder of this machine that ends with the session."""
    with _known(context):
        temporary: str = context._temp_dir
    return temporary


def slots(context: SparkContext) -> tuple[int, int]:
    """How many tasks could start now, and how many can run in all, on the executors that there are."""
    with _known(context):
        scala = context._jsc.sc()
        total = scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
        running = scala.taskScheduler().runningTasksByExecutors().values().mkString(",")
        return max(0, total - sum(int(count) for count in running.split(",") if count)), total


def racks(context: SparkContext) -> dict[str, str]:
    """The racks that Spark knows, by executors' hosts as tasks name them: on YARN those of Hadoop's topology."""
    with _known(context):
        scala = context._jsc.sc()
        executors = scala.getExecutorMemoryStatus().keys().mkString(" ").split()
        hosts = {executor.rpartition(":")[0] for executor in executors}
        found = {host: scala.taskScheduler().getRackForHost(host) for host in hosts}
        known = {host: str(rack.get()) for host, rack in found.items() if rack.isDefined()}
    return {host: rack for host, rack in known.items() if rack != _NO_RACK}


def running_tasks(context: SparkContext, stages: Iterable[int]) -> list[tuple[bool, int]]:
    """Of each of these stages whose tasks run or wait, whether it is a barrier stage, and how many tasks run.

    The scheduler knows; the status that Spark shows comes late.
    """
    with _known(context):
        scheduler = context._jsc.sc().taskScheduler()
        attempts = itertools.product(stages, range(_STAGE_ATTEMPTS))
        found = itertools.starmap(scheduler.taskSetManagerForAttempt, attempts)
        managers = [each.get() for each in found if each.isDefined()]
        return [(each.isBarrier(), each.runningTasks()) for each in managers if not each.isZombie()]


def tuned(frame: DataFrame) -> DataFrame:
    """The same query, in a session of the same tables and settings but with larger batches, and partitions of no rows.

    That session is one of Java only: one of Python would be that of ``RDD.toDF`` from then on.
    """
    session = frame.sparkSession
    with _known(session):
        clone = session._jsparkSession.cloneSession()
        batch_bytes = min(BATCH_BYTES, clone.sessionState().conf().arrowMaxBytesPerBatch())
        clone.conf().set("spark.sql.execution.arrow.maxRecordsPerBatch", f"{most_rows(frame.schema)}")
        clone.conf().set("spark.sql.execution.arrow.maxBytesPerBatch", f"{batch_bytes}b")
        for name, rule in _NO_ROWS_NO_PARTITIONS.items():
            excluded = clone.conf().get(name, "")
            clone.conf().set(name, f"{excluded},{rule}" if excluded else rule)
        return _in(clone, frame)


def most_rows(kind: DataType, *, nullable: bool = False) -> int:
    """How many rows of this type a batch may have, or 0 for any number."""
    if isinstance(kind, UserDefinedType):
        return MOST_VECTORS if most_rows(kind.sqlType(), nullable=nullable) else 0
    if isinstance(kind, StructType):
        found = (most_rows(field.dataType, nullable=nullable or field.nullable) for field in kind.fields)
        return min(filter(None, found), default=0)
    if isinstance(kind, ArrayType) and not nullable:
        return most_rows(kind.elementType, nullable=kind.containsNull)
    return MOST_LISTS if isinstance(kind, ArrayType | MapType) else 0


def untuned(frame: DataFrame) -> DataFrame:
    """The same query, in the session of the user again."""
    with _known(frame.sparkSession):
        return _in(frame.sparkSession._jsparkSession, frame)


def _in(java_session: Any, frame: DataFrame) -> DataFrame:
    session = frame.sparkSession
    datasets = session.sparkContext._jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(datasets.ofRows(java_session, frame._jdf.logicalPlan()), session)


def partition_count(frame: DataFrame) -> int | None:
    """How many partitions it has, or None if Spark decides only while it runs, or runs no barrier stage on these."""
    with _known(frame.sparkSession):
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
            (count,) = counts
            return int(count)
        return None


def _common_count(rdd: Any) -> int | None:
    """The partitions of `rdd`, if all that it is made from in the same stage has as many: else Spark refuses ranks."""
    count: int = rdd.getNumPartitions()
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
