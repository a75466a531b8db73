"""What commands share: options, what is checked of them, ranks of a launcher, and files of columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ripieno import log
from ripieno.dashboard import wanted
from ripieno.errors import InputError
from ripieno.files.results import ResultPath, check_results, new_file
from ripieno.files.sources import is_url, suffix
from ripieno.launch import init
from ripieno.launch.script.run import under_launcher
from ripieno.units import size_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Columns = Mapping[str, NDArray[Any] | pa.Array]


def _write_npz(columns: Columns, path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, **columns)  # type: ignore[arg-type]  # no column is called allow_pickle


def _write_csv(columns: Columns, path: Path) -> None:
    # Bytes that are no UTF-8 are written as they are, as those of text files.
    table = {
        name: column.view(pa.large_string())
        if isinstance(column, pa.Array) and pa.types.is_large_binary(column.type)
        else column
        for name, column in columns.items()
    }
    # Arrow takes no names of files that are no UTF-8.
    with open(path, "wb") as file:
        pa.csv.write_csv(pa.table(table), file)


def _write_parquet(columns: Columns, path: Path) -> None:
    with open(path, "wb") as file:
        pq.write_table(pa.table(dict(columns)), file)


_WRITERS: dict[str, Callable[[Columns, Path], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".npz": _write_npz,
}


class LocalPath(click.Path):
    """A path on this machine, which a URL is not."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path."""
        if is_url(value):
            self.fail(f"{value}: expected a path on this machine, not a URL", param, ctx)
        return super().convert(value, param, ctx)


class PathOrUrl(click.Path):
    """Where a result belongs: URLs stay what they are, paths become `Path`."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The URL or path."""
        return value if is_url(value) else super().convert(value, param, ctx)


workers_option = click.option(
    "-w",
    "--workers",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Worker processes on this machine; by default 1. Under a launcher its ranks do the work.",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Threads of each worker; by default all cores are used.",
)


def top_option(what: str) -> Callable[..., Any]:
    """How many `what` a command prints."""
    return click.option(
        "--top",
        type=click.IntRange(min=0),
        metavar="COUNT",
        default=10,
        show_default=True,
        help=f"How many {what} to print.",
    )


_trace_option = click.option(
    "--trace",
    type=LocalPath(),
    help="File to write: what every worker communicated and when, for ui.perfetto.dev.",
)


def _show(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    ctx.with_resource(wanted(is_wanted))


#: Of what runs ranks: what it starts is shown while the command runs, and no command has to know.
dashboard_option = click.option(
    "--dashboard",
    is_flag=True,
    expose_value=False,
    callback=_show,
    help="Serve a page that shows the workers while they run, and print its link.",
)


def trace_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a run is looked at: --trace and --dashboard."""
    return _trace_option(dashboard_option(command))


overwrite_option = click.option(
    "--overwrite", is_flag=True, help="Replace files and folders that have the results' names."
)


def _show_log(ctx: click.Context, _: click.Parameter, count: int) -> None:
    if count:
        log.show("INFO" if count == 1 else "DEBUG")


verbose_option = click.option(
    "-v",
    "--verbose",
    count=True,
    expose_value=False,
    callback=_show_log,
    help="Show what is logged; twice for more.",
)
_quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress.")


def quiet_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """How much is told: --quiet and --verbose."""
    return _quiet_option(verbose_option(command))


class Size(click.ParamType):  # type: ignore[type-arg]  # click is generic from 8.5 on only
    """Bytes, such as 500MB or 2GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        try:
            return size_of("size", value)
        except InputError:
            self.fail(f"{value!r}: expected a size, such as 500MB or 2GiB", param, ctx)


def read_numbers(path: Path, what: str) -> NDArray[Any]:
    """The array of a .npy file, or the numbers of text with one per line.

    Raises
    ------
    InputError
        It is not there, empty, or damaged; says of `what`.
    """
    try:
        if not path.stat().st_size:
            raise ValueError("it is empty")
        return np.load(path) if path.suffix.lower() == ".npy" else np.loadtxt(path, ndmin=1)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} does not hold {what}: {error}") from error


def check_files(
    inputs: Collection[str],
    out: ResultPath | None,
    trace: Path | None,
    report: Path | None = None,
    *,
    overwrite: bool,
) -> None:
    """Raise InputError, before any work is done, if a result cannot be written where it belongs."""
    if out is not None and suffix(out) not in _WRITERS:
        raise InputError(f"{out}: unknown kind of file, expected one of {', '.join(_WRITERS)}")
    check_results({"--out": out, "--report": report, "--trace": trace}, inputs, overwrite=overwrite)


def communicator(workers: int | None, threads: int | None, trace: Path | None) -> Communicator | None:
    """Of the ranks of the launcher that has started this command, if one has.

    Raises
    ------
    InputError
        If options tell what the launcher has to be told.
    """
    asks_for_workers = workers is not None or trace is not None
    if not under_launcher(asks_for_workers):
        return None
    if asks_for_workers:
        raise InputError("--workers and --trace are the launcher's, which has started this command as a rank")
    return init(threads=threads)


def write_columns(columns: Columns, out: ResultPath) -> None:
    """Write columns of equal lengths to a file of the kind that its name says, as a whole or not at all."""
    with new_file(out) as part:
        _WRITERS[suffix(out)](columns, part)
