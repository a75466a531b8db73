"""Provide `run`: it runs a program once on the rows of a DataFrame, in ranks that end with the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from ripieno._checks import check_count
from ripieno.errors import InputError
from ripieno.launch.engines.spark import frames, task
from ripieno.launch.engines.spark.engine import SparkEngine
from ripieno.launch.job.job import EventListener
from ripieno.launch.job.stand_ins import RankValue

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.launch.engine.batches import Batches


def run(
    df: DataFrame,
    program: Callable[..., Any],
    *args: Any,
    workers: int | None = None,
    schema: StructType | str | None = None,
    threads: int | None = None,
    on_event: EventListener | None = None,
    **options: Any,
) -> Any:
    """Call ``program(comm, batches, *args)`` on every rank, with its own rows of `df`.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        If it has one partition per worker, these are the ranks' rows; otherwise it is repartitioned.
    program : callable
        Takes a `Communicator`, `Batches`, and `args`.
    workers : int, optional
        Number of ranks; by default one per slot.
    schema : pyspark.sql.types.StructType or str, optional
        Schema of the rows that the program returns, as a `pyarrow.RecordBatch`, a `pyarrow.Table`, an iterable of
        these, or None for no rows. A str has the form ``"id long, vector array<double>"``. Timestamps without a time
        zone are in the session's zone, ``spark.sql.session.timeZone``.
    threads : int, optional
        Threads of each rank; by default ``spark.task.cpus``.
    on_event : callable, optional
        Called with the events of ranks, see `ripieno.launch`.
    **options
        ``slots_timeout_s`` and other options of `ripieno.launch`.

    Returns
    -------
    pyspark.sql.DataFrame or list
        With `schema`, a DataFrame of the returned rows, with one partition per rank. The rows stay on the executors, as
        after `DataFrame.localCheckpoint`: later uses do not run the program again, and rows do not pass through the
        driver. Otherwise the return value of each rank, in order of rank.

    Raises
    ------
    InputError
        If an option is invalid, or the program returns rows that do not match `schema`.
    EngineError
        If too few slots are free.
    Exception
        Raised by the program, see `Job.run`.
    """
    frames.check(df)
    names = SparkEngine.OPTIONS & options.keys()
    engine = SparkEngine(spark=df.sparkSession, **{name: options.pop(name) for name in names})
    if workers is not None:
        check_count("workers", workers)
    output = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    job = engine.job(
        workers or engine.slots(),
        frame=df,
        output=output,
        threads=threads or engine.threads,
        on_event=on_event,
        trace=None,
        **options,
    )
    with job:
        if output is None:
            return job.run(program, df, *args)
        arrow = frames.arrow_schema(output, df.sparkSession)
        # On a rank, `RankValue` is replaced by the rank's output list.
        output_there: Any = RankValue(task.OUTPUT)
        job.run(_returning, output_there, arrow, program, df, *args)
        return job.returned()


def _returning(
    comm: Communicator,
    output: list[pa.RecordBatch],
    schema: pa.Schema,
    program: Callable[..., Any],
    batches: Batches,
    *args: Any,
) -> None:
    """Append the rows that the program returns to the output for Spark."""
    output += _as_batches(program(comm, batches, *args), schema)


def _as_batches(rows: Any, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the result of a program, a batch, a table or an iterable of these, as batches."""
    found = rows if isinstance(rows, Iterable) and not isinstance(rows, (pa.RecordBatch, pa.Table)) else [rows]
    batches: list[pa.RecordBatch] = []
    for each in found:
        if isinstance(each, (pa.RecordBatch, pa.Table)):
            batches += _conforming(each, schema)
        elif each is not None:
            of = f" of {type(each).__name__}" if found is rows else ""
            raise InputError(
                f"the program has returned a {type(rows).__name__}{of}: expected Arrow batches, tables "
                "(pyarrow.Table.from_pandas and from_pylist make some), or None"
            )
    return batches


def _conforming(rows: pa.RecordBatch | pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    if sorted(table.column_names) != sorted(schema.names):
        raise InputError(
            f"the program has returned the columns {', '.join(table.column_names)}: "
            f"schema= has {', '.join(schema.names)}"
        )
    try:
        columns = [_zoned(field.name, table[field.name], field.type) for field in schema]
        batches: list[pa.RecordBatch] = pa.table(columns, names=schema.names).cast(schema).to_batches()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise InputError(f"the program has returned rows that are not of schema=: {error}") from error
    return batches


def _zoned(name: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Interpret timestamps without a zone in the session's zone, the zone of `kind`. A cast would assume UTC."""
    if not _lacks_zone(column.type, kind):
        return column
    if not pa.types.is_timestamp(kind):
        raise InputError(
            f"the program has returned timestamps without a time zone inside of column {name!r}: make them with one "
            "(pyarrow.timestamp('us', 'UTC')), or name their type timestamp_ntz in schema="
        )
    # Like PySpark, take the second of two possible times when clocks are set back.
    return pc.assume_timezone(column, kind.tz, ambiguous="latest")


def _lacks_zone(kind: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(expected):
        return kind.tz is None and expected.tz is not None
    if kind.num_fields != expected.num_fields:
        return False
    places = range(kind.num_fields)
    return any(_lacks_zone(kind.field(place).type, expected.field(place).type) for place in places)
