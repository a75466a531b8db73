"""Provide DataFrames for ranks: one partition per rank, in batches that suit arrays; results outlive the ranks."""

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
from ripieno.launch.engines.spark.internals import partition_count, racks, with_rank_settings, with_user_settings

if TYPE_CHECKING:
    import pyarrow as pa


def rows_on_ranks(frame: DataFrame, workers: int, invitation: Invitation, output: StructType) -> DataFrame:
    """Return the result of ranks with the rows of `frame`. The evaluation of the result runs the ranks."""
    rows = with_rank_settings(frame)
    if partition_count(rows) != workers:
        rows = rows.repartition(workers)
    context = frame.sparkSession.sparkContext
    # The ranks restore the column names.
    schema = arrow_schema(frame.schema, frame.sparkSession)
    function = task.with_rows(invitation, shipped(context), racks(context), schema)
    return rows.toDF(*numbered(frame.columns)).mapInArrow(function, output, barrier=True)


def numbered(columns: Sequence[str]) -> list[str]:
    """Return generated column names: Spark's mapInArrow rejects names with dots and duplicate names."""
    return [f"c{number}" for number in range(len(columns))]


def checkpointed(frame: DataFrame, workers: int) -> DataFrame:
    """Run the ranks once, and keep their results on the executors: one partition per rank.

    Spark cannot run a barrier stage partially or reduce its partitions in the same stage, as `first` and `coalesce`
    do. A shuffle therefore separates the stage from the checkpointed result.
    """
    # No user column has this name.
    rank = f"rank {secrets.token_hex(8)}"
    by_rank = frame.withColumn(rank, F.spark_partition_id()).repartitionById(workers, rank).drop(rank)
    return with_user_settings(by_rank.localCheckpoint(eager=True))


def arrow_schema(schema: StructType, session: SparkSession) -> pa.Schema:
    """Return the Arrow schema that Spark uses for `schema`."""
    large = session.conf.get("spark.sql.execution.arrow.useLargeVarTypes") == "true"
    timezone = session.conf.get("spark.sql.session.timeZone")
    return to_arrow_schema(schema, timezone=timezone, prefers_large_types=large)


def check(frame: DataFrame) -> None:
    """Raise `InputError` if ranks cannot process the DataFrame."""
    if frame.isStreaming:
        raise InputError("a streaming DataFrame has no end: give ranks the batches of foreachBatch")
