"""The command `ripieno aggregate`: aggregate the rows of tables by key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ripieno.cli.number_types import Count
from ripieno.cli.options import (
    PathOrUrl,
    check_files,
    communicator,
    engine_options,
    overwrite_option,
    quiet_option,
    threads_option,
    trace_option,
    workers_option,
)
from ripieno.cli.table_options import TEXT_OPTION_NAMES, names_option, text_options
from ripieno.errors import MissingColumn
from ripieno.files.results import ResultPath
from ripieno.files.tables import TABLE_FORMATS, write_table
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    import pyarrow as pa

    from ripieno.comm.communicator import Communicator

FORMATS = tuple(end for end in TABLE_FORMATS if end != ".npz")
#: Rows of a result that are printed if no file is written.
SHOWN_ROWS = 20
#: The aggregations in the order of their columns in the result.
_OPERATIONS = ("sum", "mean", "min", "max", "count", "distinct")


@click.command("aggregate")
@click.argument("inputs", nargs=-1, required=True)
@names_option("--by", required=True, help="Columns that together form the key.")
@names_option("--sum", default="", help="Columns to sum: column NAME_sum. Sums of integers are exact.")
@names_option("--mean", default="", help="Columns to average: column NAME_mean.")
@names_option("--min", default="", help="Columns to take the minimum of: column NAME_min.")
@names_option("--max", default="", help="Columns to take the maximum of: column NAME_max.")
@names_option("--distinct", default="", help="Columns to count distinct values of: column NAME_distinct.")
@click.option("--count", is_flag=True, help="Count the rows: column count. The default without another aggregation.")
@click.option(
    "--top",
    type=Count(),
    metavar="COUNT",
    help="Return only the COUNT keys with the largest values in the first column after the key, largest first.",
)
@click.option("-o", "--out", type=PathOrUrl(*FORMATS), help=f"File or URL to write: {', '.join(FORMATS)}.")
@overwrite_option
@text_options
@workers_option
@engine_options
@threads_option
@trace_option
@quiet_option
def aggregate_command(
    inputs: tuple[str, ...],
    by: tuple[str, ...],
    count: bool,
    top: int | None,
    out: ResultPath | None,
    overwrite: bool,
    workers: int | None,
    engine: str | Engine,
    threads: int | None,
    trace: Path | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Aggregate the rows of INPUTS by key, and print or write one row for each key.

    INPUTS are Parquet, .csv, .tsv, Arrow or Feather files, globs, folders or URLs; text may be compressed. Subfolders
    with names such as year=2024 become columns. The result is ordered by key.

    Nulls are treated as in SQL: null is a key; sums, means, minima, maxima and counts of distinct values ignore null,
    and the sum, mean, minimum and maximum of no values are null. An empty field of .csv is null for numbers, and an
    empty string for strings. A sum of integers beyond 64 bits is an error. Floats are added in 64 bits.

    \b
    Example:
      ripieno aggregate sales/ --by region --sum amount,qty --mean price --out regions.parquet
      ripieno aggregate logs/*.csv.gz --by user,day --distinct page --count --top 20 --workers 2
    """
    from rich.console import Console

    from ripieno.launch import launch

    check_files(inputs, out, trace, overwrite=overwrite)
    aggregations = _aggregations(count, options)
    reading = {name: options[name] for name in TEXT_OPTION_NAMES}
    comm = communicator(workers, threads, trace, engine)
    arguments = (list(inputs), list(by), aggregations, reading, top)
    with _naming_options(by, options):
        if comm is not None:
            tables = comm.gather(_aggregate(comm, *arguments))
        else:
            with traced(trace), launch(workers or 1, engine, threads) as job:
                tables = job.run(_aggregate, *arguments)
    if tables is None:
        return
    table = _joined(tables, by, next(iter(aggregations)), top)
    console = Console(stderr=True, quiet=quiet)
    if out is None:
        click.echo(_lines(table.slice(0, top or SHOWN_ROWS)))
        if top is None and len(table) > SHOWN_ROWS:
            console.print(f"the first {SHOWN_ROWS} of {len(table):,} keys: --out FILE writes all", highlight=False)
    else:
        write_table({name: table[name].combine_chunks() for name in table.column_names}, out)
        console.print(f"{len(table):,} keys: {out}", highlight=False, soft_wrap=True)


@contextmanager
def _naming_options(by: tuple[str, ...], options: dict[str, Any]) -> Iterator[None]:
    """Context that replaces the argument by the option of the command in errors about a column."""
    try:
        yield
    except MissingColumn as error:
        columns = {"by": by, **{op: options.get(op) or () for op in _OPERATIONS}}
        option = next((name for name, each in columns.items() if error.column in each), None)
        if option is None:
            raise
        raise MissingColumn(option, error.column, error.table, error.columns) from None


def _aggregations(count: bool, options: dict[str, Any]) -> dict[str, str | tuple[str, str]]:
    """Return the columns of the result."""
    columns: dict[str, str | tuple[str, str]] = {
        f"{name}_{op}": (name, op) for op in _OPERATIONS for name in options.get(op) or ()
    }
    if count or not columns:
        columns["count"] = "count"
    return columns


def _aggregate(
    comm: Communicator,
    inputs: list[str],
    by: list[str],
    aggregations: dict[str, str | tuple[str, str]],
    reading: dict[str, Any],
    top: int | None,
) -> pa.Table:
    from ripieno.input import aggregate

    table = aggregate(inputs, by, aggregations, comm, **reading).to_arrow()
    return table if top is None else _top(table, by, next(iter(aggregations)), top)


def _joined(tables: list[pa.Table], by: tuple[str, ...], first: str, top: int | None) -> pa.Table:
    """Return the keys of all ranks, in order."""
    import pyarrow as pa

    from ripieno.keyed.aggregation import sorted_by

    table = pa.concat_tables(tables)
    return sorted_by(table, list(by)) if top is None else _top(table, list(by), first, top)


def _top(table: pa.Table, by: list[str], first: str, count: int) -> pa.Table:
    from ripieno.keyed.aggregation import sorted_by

    return sorted_by(table, [first, *by], descending=(first,)).slice(0, count)


def _lines(table: pa.Table) -> str:
    """Return the rows as aligned lines: numbers at the right, other values at the left."""
    import pyarrow as pa

    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        texts = [name, *("" if value is None else str(value) for value in column.to_pylist())]
        width = max(map(len, texts))
        is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        columns.append([text.rjust(width) if is_number else text.ljust(width) for text in texts])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))
