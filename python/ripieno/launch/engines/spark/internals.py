"""Provide access to Spark internals without a stability guarantee: JVM classes and private attributes of PySpark.

If a version of Spark lacks an internal, an `EngineError` names it.
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

# The first supported version.
OLDEST = (4, 1)
# Bytes per batch. An executor needs about three times as much for every task. Larger batches are not read faster.
BATCH_BYTES = 64 << 20
# Spark asks for the size of a batch after every row. Arrow then scans each list column back to its last non-null row,
# which takes minutes in a batch of many rows. The indices of Spark ML vectors are such a list, and null in all dense
# vectors; other list columns may be null as well.
VECTOR_ROWS_MAX, LIST_ROWS_MAX = 1 << 10, 1 << 16
# Optimizer rules that remove the partitions, and thus the ranks, of an empty input.
_NO_ROWS_NO_PARTITIONS = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PropagateEmptyRelation",
    "spark.sql.adaptive.optimizer.excludedRules": "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation",
}
# Hadoop's name for the rack of a host without topology data.
_NO_RACK = "/default-rack"
# Maximum number of attempts of a stage in Spark (spark.stage.maxConsecutiveAttempts), if restarts are allowed.
_STAGE_ATTEMPTS = 4


def check_version(version: str) -> None:
    """Raise `EngineError` if this version of Spark is too old."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise EngineError(f"Spark {'.'.join(map(str, OLDEST))} or later is needed, this is {version}")


@contextmanager
def _naming_version(spark: SparkContext | SparkSession) -> Iterator[None]:
    """Convert errors about missing internals to an `EngineError` with the version of Spark."""
    try:
        yield
    except (Py4JError, AttributeError, TypeError) as error:
        # Subclasses of Py4JError report exceptions of Java and lost connections.
        if isinstance(error, Py4JError) and type(error) is not Py4JError:
            raise
        text = str(error)
        missing = next((line for line in text.splitlines() if "does not exist" in line), text.partition("\n")[0])
        raise EngineError(
            f"Spark {spark.version} lacks internals that ripieno {__version__} uses ({missing.strip()}): use another "
            "version of one of them"
        ) from error


def is_stopped(context: SparkContext) -> bool:
    """Return whether the context was stopped, here or in the JVM."""
    with _naming_version(context):
        return context._jsc is None or context._jsc.sc().isStopped()


def has_pinned_threads(context: SparkContext) -> bool:
    """Return whether each Python thread has its own thread in the JVM, and thus its own job groups."""
    with _naming_version(context):
        return isinstance(context._gateway, ClientServer)


def folder(context: SparkContext) -> str:
    """Return a local folder that is removed with the session."""
    with _naming_version(context):
        temporary: str = context._temp_dir
    return temporary


def slots(context: SparkContext) -> tuple[int, int]:
    """Return the number of free slots, and the total number of slots, on the current executors."""
    with _naming_version(context):
        scala = context._jsc.sc()
        total = scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())
        running = scala.taskScheduler().runningTasksByExecutors().values().mkString(",")
        return max(0, total - sum(int(count) for count in running.split(",") if count)), total


def racks(context: SparkContext) -> dict[str, str]:
    """Return the racks by executor host, as tasks name the hosts: on YARN the racks of Hadoop's topology."""
    with _naming_version(context):
        scala = context._jsc.sc()
        executors = scala.getExecutorMemoryStatus().keys().mkString(" ").split()
        hosts = {executor.rpartition(":")[0] for executor in executors}
        found = {host: scala.taskScheduler().getRackForHost(host) for host in hosts}
        known = {host: str(rack.get()) for host, rack in found.items() if rack.isDefined()}
    return {host: rack for host, rack in known.items() if rack != _NO_RACK}


def running_tasks(context: SparkContext, stages: Iterable[int]) -> list[tuple[bool, int]]:
    """Return, per stage with running or waiting tasks, whether it is a barrier stage, and its number of running tasks.

    The scheduler provides current data; Spark's status tracker lags behind.
    """
    with _naming_version(context):
        scheduler = context._jsc.sc().taskScheduler()
        attempts = itertools.product(stages, range(_STAGE_ATTEMPTS))
        found = itertools.starmap(scheduler.taskSetManagerForAttempt, attempts)
        managers = [each.get() for each in found if each.isDefined()]
        return [(each.isBarrier(), each.runningTasks()) for each in managers if not each.isZombie()]


def with_rank_settings(frame: DataFrame) -> DataFrame:
    """Return the same query in a session with the same tables and settings, but larger batches and empty partitions.

    This session exists in Java only: a new Python session would become the session of ``RDD.toDF``.
    """
    session = frame.sparkSession
    with _naming_version(session):
        clone = session._jsparkSession.cloneSession()
        batch_bytes = min(BATCH_BYTES, clone.sessionState().conf().arrowMaxBytesPerBatch())
        clone.conf().set("spark.sql.execution.arrow.maxRecordsPerBatch", f"{rows_max(frame.schema)}")
        clone.conf().set("spark.sql.execution.arrow.maxBytesPerBatch", f"{batch_bytes}b")
        for name, rule in _NO_ROWS_NO_PARTITIONS.items():
            excluded = clone.conf().get(name, "")
            clone.conf().set(name, f"{excluded},{rule}" if excluded else rule)
        return _in_session(clone, frame)


def rows_max(kind: DataType, *, nullable: bool = False) -> int:
    """Return the maximum number of rows of this type in a batch, or 0 without a limit."""
    if isinstance(kind, UserDefinedType):
        return VECTOR_ROWS_MAX if rows_max(kind.sqlType(), nullable=nullable) else 0
    if isinstance(kind, StructType):
        found = (rows_max(field.dataType, nullable=nullable or field.nullable) for field in kind.fields)
        return min(filter(None, found), default=0)
    if isinstance(kind, ArrayType) and not nullable:
        return rows_max(kind.elementType, nullable=kind.containsNull)
    return LIST_ROWS_MAX if isinstance(kind, ArrayType | MapType) else 0


def with_user_settings(frame: DataFrame) -> DataFrame:
    """Return the same query in the user's session."""
    with _naming_version(frame.sparkSession):
        return _in_session(frame.sparkSession._jsparkSession, frame)


def _in_session(java_session: Any, frame: DataFrame) -> DataFrame:
    session = frame.sparkSession
    datasets = session.sparkContext._jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(datasets.ofRows(java_session, frame._jdf.logicalPlan()), session)


def partition_count(frame: DataFrame) -> int | None:
    """Return the number of partitions; None if Spark decides it at run time, or refuses a barrier stage on them."""
    with _naming_version(frame.sparkSession):
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
            # The partitions of cached data are fixed, even if the cache is filled later.
            return _common_count(execution.toRdd())
        # Spark keeps a partition count that the user has set. Adaptive execution changes other counts.
        if node.nodeName() == "Exchange" and str(node.shuffleOrigin()) == "REPARTITION_BY_NUM" and len(counts) == 1:
            (count,) = counts
            return int(count)
        return None


def _common_count(rdd: Any) -> int | None:
    """Return the partition count of `rdd` if all its parents in the stage have the same; else Spark refuses ranks."""
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
