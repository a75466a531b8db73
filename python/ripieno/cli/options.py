"""Shared parts of the commands: options, their checks, ranks of a launcher, and files of columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from ripieno import log
from ripieno._checks import THREADS_MAX
from ripieno._types import OnFailure
from ripieno.cli.number_types import Count
from ripieno.dashboard import shared_dashboard
from ripieno.errors import InputError
from ripieno.files.npy import read_array
from ripieno.files.results import ResultPath, check_results
from ripieno.files.sources import is_url
from ripieno.files.tables import check_format
from ripieno.launch import init
from ripieno.launch.engine.contract import Engine
from ripieno.launch.engines import ENGINES, engine_of
from ripieno.launch.script.run import under_launcher
from ripieno.units import size_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: File name suffixes of pages.
PAGES = (".html", ".htm")


class CommandWithParts(click.Command):
    """A command with `parts`: its first argument may name one of these commands."""

    parts: Mapping[str, click.Command] = MappingProxyType({})

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] and args[0] in self.parts:
            part: click.Context = self.parts[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
            return part
        return super().make_context(info_name, args, parent, **extra)


class LocalPath(click.Path):
    """A local path; URLs are rejected. With given formats, the name must end in one of them."""

    def __init__(self, *formats: str, **options: Any) -> None:
        super().__init__(path_type=Path, **options)
        self._formats = formats

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if is_url(value):
            self.fail(f"{value}: expected a path on this machine, not a URL", param, ctx)
        _check_ending(value, self._formats)
        return super().convert(value, param, ctx)


class PathOrUrl(click.Path):
    """The path of a result: URLs stay strings, paths become `Path`. Formats are as in `LocalPath`."""

    def __init__(self, *formats: str) -> None:
        super().__init__(path_type=Path)
        self._formats = formats

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the URL or path."""
        _check_ending(value, self._formats)
        return value if is_url(value) else super().convert(value, param, ctx)


def _check_ending(path: Any, formats: Collection[str]) -> None:
    if formats:
        check_format(path, formats)


class AliasedOption(click.Option):
    """An option with more names that work and are not shown: former names, and names of the parameter."""

    def __init__(self, *words: Any, aliases: Collection[str] = (), **options: Any) -> None:
        super().__init__(*words, **options)
        self._aliases = aliases

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Add the option with all names to the parser of a command."""
        shown, self.opts = self.opts, [*self.opts, *self._aliases]
        super().add_to_parser(parser, ctx)
        self.opts = shown


def aliased_option(*words: str, aliases: Collection[str], **options: Any) -> Callable[..., Any]:
    """Return an option of a command with hidden aliases."""
    return click.option(*words, cls=AliasedOption, aliases=aliases, **options)


def counted_workers(
    help: str, *, minimum: int = 1, aliases: Collection[str] = (), **options: Any
) -> Callable[..., Any]:
    """Return the option for the number of worker processes."""
    number = Count(minimum)
    return aliased_option(
        "-n", "--workers", aliases=["-w", *aliases], type=number, metavar="COUNT", help=help, **options
    )


_WORKERS_HELP = "Number of workers. Default: 1. Under a launcher its ranks are the workers."
workers_option = counted_workers(_WORKERS_HELP)
#: The option without its short name, for commands with another -n.
long_workers_option = aliased_option("--workers", aliases=["-w"], type=Count(), metavar="COUNT", help=_WORKERS_HELP)
threads_option = click.option(
    "--threads",
    type=click.IntRange(1, THREADS_MAX),
    metavar="COUNT",
    help="Threads of each worker. Default: all cores, divided among the workers.",
)
#: Engines that are addressed in a command.
WITH_ADDRESS = ("dask", "ray")
_engine_option = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="local",
    show_default=True,
    help="Where the workers run: as processes of this machine, or as tasks of an engine, which reads the inputs.",
)
_address_option = click.option("--address", help="With --engine: address of Dask's scheduler, or of Ray.")


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --engine and --address, which the command receives as `engine`."""

    @wraps(command)
    def wrapped(*, engine: str, address: str | None, **options: Any) -> Any:
        if address is None:
            return command(engine=engine, **options)
        if engine not in WITH_ADDRESS:
            raise click.UsageError(f"--address requires --engine {' or '.join(WITH_ADDRESS)}")
        return command(engine=engine_of(engine, {"address": address})[0], **options)

    return _engine_option(_address_option(wrapped))


def top_option(noun: str) -> Callable[..., Any]:
    """Return the option for the number of `noun` that a command prints."""
    return click.option(
        "--top",
        type=Count(0),
        metavar="COUNT",
        default=10,
        show_default=True,
        help=f"Number of {noun} to print.",
    )


_trace_option = click.option(
    "--trace",
    type=LocalPath(".json"),
    help="File for a trace of the communication of every worker, for ui.perfetto.dev.",
)


def _show(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    ctx.with_resource(shared_dashboard(is_wanted))


#: Option of the commands that run ranks. The dashboard shows the ranks while the command runs; commands need no code
#: for it.
dashboard_option = click.option(
    "--dashboard",
    is_flag=True,
    expose_value=False,
    callback=_show,
    help="Serve a page that shows the workers while they run, and print its link.",
)


def trace_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --trace and --dashboard, which show a run."""
    return _trace_option(dashboard_option(command))


overwrite_option = click.option("--overwrite", is_flag=True, help="Replace existing results.")


def _show_log(ctx: click.Context, _: click.Parameter, count: int) -> None:
    if count:
        log.show("INFO" if count == 1 else "DEBUG")


verbose_option = click.option(
    "-v",
    "--verbose",
    count=True,
    expose_value=False,
    callback=_show_log,
    help="Print log messages; twice for more.",
)
_quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print no progress.")


def quiet_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --quiet and --verbose, which control the amount of output."""
    return _quiet_option(verbose_option(command))


class Size(click.ParamType):  # type: ignore[type-arg]  # click is generic from 8.5 on only
    """A number of bytes, such as 500MB or 2GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        try:
            return size_of("size", value)
        except InputError:
            self.fail(f"{value!r}: expected a size, such as 500MB or 2GiB", param, ctx)


def read_numbers(path: Path, content: str) -> NDArray[Any]:
    """Read the array of a .npy file, or the numbers of a text file with one per line.

    Raises
    ------
    InputError
        If it does not exist, is empty or damaged; the message names `content`.
    """
    try:
        if not path.stat().st_size:
            raise ValueError("it is empty")
        if path.suffix.lower() != ".npy":
            return np.loadtxt(path, ndmin=1)
        with open(path, "rb") as file:
            return read_array(file)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} does not hold {content}: {error}") from error


def check_files(
    inputs: Collection[str],
    out: ResultPath | None,
    trace: Path | None,
    report: ResultPath | None = None,
    *,
    overwrite: bool,
) -> None:
    """Raise InputError, before any work is done, if a result cannot be written to its path."""
    check_results({"--out": out, "--report": report, "--trace": trace}, inputs, overwrite=overwrite)


def communicator(
    workers: int | None,
    threads: int | None,
    trace: Path | None,
    engine: str | Engine = "local",
    on_failure: OnFailure = "raise",
) -> Communicator | None:
    """Return the communicator of the ranks of the launcher that started this command, or None without a launcher.

    Raises
    ------
    InputError
        If the command got options that belong to the launcher.
    """
    asks_for_workers = workers is not None or trace is not None or engine != "local" or on_failure != "raise"
    if not under_launcher(asks_for_workers):
        return None
    if asks_for_workers:
        raise InputError(
            "--workers, --engine, --on-failure and --trace are options of the launcher that started this command as a "
            "rank"
        )
    return init(threads=threads)
