"""DataFrames for ranks: as many partitions as ranks, in batches that suit arrays; results that outlive the ranks."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ripieno.errors import InputError
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.engines.spark import task
from ripieno.launch.engines.spark.archive import shipped
from ripieno.launch.engines.spark.internals import partition_count, racks, tuned, untuned

if TYPE_CHECKING:
    import pyarrow as pa


def mapped(frame: DataFrame, workers: int, invitation: Invitation, output: StructType) -> DataFrame:
    """What the ranks return that have the rows of `frame`; whoever evaluates it runs them."""
    rows = tuned(frame)
    if partition_count(rows) != workers:
        rows = rows.repartition(workers)
    context = frame.sparkSession.sparkContext
    # The ranks put the names back.
    schema = arrow_schema(frame.schema, frame.sparkSession)
    function = task.with_rows(invitation, shipped(context), racks(context), schema)
    return rows.toDF(*numbered(frame.columns)).mapInArrow(function, output, barrier=True)


def numbered(columns: Sequence[str]) -> list[str]:
    """Names for so many columns that Spark's mapInArrow takes, which it does not if one has a dot or two are equal."""
    return [f"c{number}" for number in range(len(columns))]


def kept(mapped: DataFrame, workers: int) -> DataFrame:
    """Run the ranks, once, and keep what they return at the executors: the rows of each as a partition.

    A stage of ranks can neither be run in part nor be followed by less partitions, which `first` and `coalesce` would
    do, so a shuffle stands between it and what is kept.
    """
    # No column of the user's has this name.
    rank = f"rank {secrets.token_hex(8)}"
    by_rank = mapped.withColumn(rank, F.spark_partition_id()).repartitionById(workers, rank).drop(rank)
    return untuned(by_rank.localCheckpoint(eager=True))


def arrow_schema(schema: StructType, session: SparkSession) -> pa.Schema:
    """As Spark has it in Arrow."""
    large = session.conf.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
    timezone = session.conf.get("spark.sql.session.timeZone")
    return to_arrow_schema(schema, timezone=timezone, prefers_large_types=large)


def check(frame: DataFrame) -> None:
    """Raise `InputError` if ranks cannot have it."""
    if frame.isStreaming:
        raise InputError("a streaming DataFrame has no end: give ranks the batches of foreachBatch")
