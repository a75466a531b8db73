"""PySpark baseline for `regroup.py`: sums of the same rows by key, as an RDD and as a DataFrame, both in memory.

regroup_spark.py FOLDER RUNS

FOLDER holds the rows as Parquet, a file per partition. The program writes the sums as Parquet and Spark's own files
there. It prints the seconds of each run as JSON. The first run of each, which starts Spark's processes and is checked,
does not count.
"""

from __future__ import annotations

import json
import operator
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession, functions

MEMORY = "8g"
#: Number of rows that are converted to Python objects at a time.
BATCH_ROW_COUNT = 1 << 16


def main() -> None:
    """Run Spark with one thread per partition."""
    folder, run_count = Path(sys.argv[1]), int(sys.argv[2])
    files = sorted(str(path) for path in folder.glob("rows-*.parquet"))
    spark = _start_spark(folder, len(files))
    seconds = {
        "RDD": _time_rdd(spark.sparkContext.parallelize(files, len(files)).flatMap(_pairs), folder, run_count),
        "DataFrame": _time_dataframe(spark.read.parquet(*files), folder, run_count),
    }
    spark.stop()
    print(json.dumps(seconds))


def _start_spark(folder: Path, thread_count: int) -> SparkSession:
    """Start Spark in local mode, on the loopback interface."""
    options = {
        "spark.driver.memory": MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": str(thread_count),
    }
    builder = SparkSession.builder.master(f"local[{thread_count}]")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _pairs(file: str) -> Iterator[tuple[int, float]]:
    for batch in parquet.ParquetFile(file).iter_batches(BATCH_ROW_COUNT):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _time_rdd(rows: RDD[tuple[int, float]], folder: Path, run_count: int) -> list[float]:
    rows = rows.persist()
    rows.count()
    partition_count = rows.getNumPartitions()
    keys, values = zip(*rows.reduceByKey(operator.add, partition_count).collect(), strict=True)
    parquet.write_table(pa.table({"key": keys, "value": values}), folder / "sums-RDD.parquet")
    seconds = [_seconds(lambda: rows.reduceByKey(operator.add, partition_count).count()) for _ in range(run_count)]
    rows.unpersist()
    return seconds


def _time_dataframe(rows: DataFrame, folder: Path, run_count: int) -> list[float]:
    rows = rows.persist()
    rows.count()
    sums = rows.groupBy("key").agg(functions.sum("value").alias("value"))
    parquet.write_table(sums.toArrow(), folder / "sums-DataFrame.parquet")
    # Compute all of it without storing the result.
    return [_seconds(lambda: sums.write.format("noop").mode("overwrite").save()) for _ in range(run_count)]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
