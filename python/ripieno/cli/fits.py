"""Shared parts of the commands that fit a model to files: options, and the output folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from numpy.typing import NDArray

from ripieno import log
from ripieno._types import OnFailure
from ripieno._version import __version__
from ripieno.cli.command_line import command_line
from ripieno.cli.options import (
    LocalPath,
    PathOrUrl,
    aliased_option,
    counted_workers,
    engine_options,
    overwrite_option,
    quiet_option,
    read_numbers,
    threads_option,
    trace_option,
)
from ripieno.cli.table_options import table_options
from ripieno.files import disk
from ripieno.files.results import ResultPath, check_new_folder, check_results, new_file, new_folder, save_array

if TYPE_CHECKING:
    from rich.console import Console
    from sklearn.base import BaseEstimator

    from ripieno.algorithms.iteration_log import FitReport, RunReport
    from ripieno.algorithms.reported import PlainReport
    from ripieno.input import TableFiles
    from ripieno.report import Charted

#: Parameters of a model that do not affect the result.
_UNLISTED = ("on_iteration",)

fit_workers_option = counted_workers("Number of workers.", default=1, show_default=True)
on_failure_option = click.option(
    "--on-failure",
    type=click.Choice(get_args(OnFailure)),
    default="raise",
    show_default=True,
    help="If a worker dies: fail (raise), restart on the survivors (shrink), or replace it (respawn).",
)
_out_option = click.option(
    "-o", "--out", type=PathOrUrl(), default=Path("result"), show_default=True, help="Folder to write."
)
_inputs_argument = click.argument("inputs", nargs=-1, required=True)

clusters_option = aliased_option(
    "-k",
    "--clusters",
    aliases=["--n-clusters"],
    type=click.IntRange(min=1),
    metavar="COUNT",
    required=True,
    help="How many clusters.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    metavar="NUMBER",
    default=0,
    show_default=True,
    help="Seed of the random numbers; the same seed gives the same result.",
)


_checkpoint_option = click.option(
    "--checkpoint",
    type=LocalPath(file_okay=False),
    callback=lambda ctx, param, value: None if value is None else str(value),
    metavar="FOLDER",
    help="Local folder for checkpoints of the fit. A later run with this folder resumes from the last checkpoint.",
)
_every_option = click.option(
    "--every",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Iterations between checkpoints. Default: in the folder at most one per second; in memory, "
    "for fits that survive failures, after each iteration.",
)


def checkpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the path and interval of checkpoints."""
    return _checkpoint_option(_every_option(command))


def method_option(name: str, methods: Collection[str], what: str) -> Callable[..., Any]:
    """Return an option that selects a method; the default is the first one."""
    return click.option(
        name,
        type=click.Choice(list(methods)),
        default=next(iter(methods)),
        show_default=True,
        metavar="METHOD",
        help=f"{what}: {', '.join(methods)}.",
    )


def max_iter_option(default: int, *aliases: str) -> Callable[..., Any]:
    """Return the option for the maximum number of iterations."""
    return aliased_option(
        "--max-iter",
        aliases=aliases,
        type=click.IntRange(min=1),
        metavar="COUNT",
        default=default,
        show_default=True,
        help="Maximum number of iterations.",
    )


def tol_option(default: float, help: str, *aliases: str, min_open: bool = False) -> Callable[..., Any]:
    """Return the option for the tolerance of the stopping criterion."""
    return aliased_option(
        "--tol",
        aliases=aliases,
        type=click.FloatRange(min=0, min_open=min_open),
        metavar="NUMBER",
        default=default,
        show_default=True,
        help=help,
    )


def target_option(more: str = "", *, required: bool = True) -> Callable[..., Any]:
    """Return the option for the prediction target."""
    return click.option(
        "--target",
        metavar="NAME",
        required=required,
        help=f"Target (y) to predict: a column, a .npy file, or a .txt file with one value per line.{more}",
    )


def fit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add inputs, options of tables, output folder, workers, engine, threads, failures, trace, overwrite and quiet."""
    command = table_options(command)
    ways: list[Callable[..., Any]] = [on_failure_option, threads_option, engine_options, fit_workers_option]
    options: list[Callable[..., Any]] = [quiet_option, overwrite_option, trace_option, *ways, _out_option]
    for each in [*options, _inputs_argument]:
        command = each(command)
    return command


@dataclass(frozen=True)
class FitOutput:
    """The output of a fit, in the folder and on the terminal.

    Parameters
    ----------
    algorithm
        The name of the command.
    title
        Title of the report.
    what
        Unit of work of the fit: "iteration" or "stage".
    facts
        Results that are numbers or strings, for model.json.
    page
        Function that returns the figures at the top of the report, by name, and its charts; called when the result is
        written.
    words
        Names for rows and columns of the data.
    draws
        Whether the charts draw the positions.
    """

    algorithm: str
    title: str
    what: str
    facts: Mapping[str, Any]
    page: Callable[[], tuple[Mapping[str, str], Sequence[Charted]]]
    words: tuple[str, str] = ("rows", "columns")
    draws: bool = False


def target_of(name: str) -> NDArray[Any] | str:
    """Return the name of a column, or the array in the file of that name."""
    path = Path(name)
    return read_numbers(path, "a target") if path.suffix.lower() in (".npy", ".txt") else name


def replaceable(arrays: Collection[str]) -> tuple[str, ...]:
    """Return the names of the files in a folder of results."""
    return (*(f"{name}.npy" for name in arrays), "model.json", "report.html")


def check_folder(
    out: ResultPath, arrays: Collection[str], inputs: Collection[str], trace: Path | None, *, overwrite: bool
) -> tuple[str, ...]:
    """Return the files that may be replaced in the folder. Raise InputError, before any work, if it is not writable."""
    names = replaceable(arrays) if overwrite else ()
    check_new_folder(out, names)
    check_results({"--trace": trace}, inputs, overwrite=overwrite)
    return names


def opened(tables: list[str] | TableFiles) -> tuple[Any, Sequence[str]]:
    """Return the rows of files, or the splits of a partition file, and the names to list as inputs."""
    from ripieno.input.matrix import open_source
    from ripieno.input.partitions import splits_of

    splits = splits_of(tables)
    if splits is not None:
        assert isinstance(tables, list), "options of tables do not apply to splits"
        return splits, tables
    source = open_source(tables)
    return source, source.names


def listed_parameters(model: BaseEstimator) -> dict[str, Any]:
    """Return the parameters that affect the result, and the name of the engine."""
    parameters = {name: value for name, value in model.get_params().items() if name not in _UNLISTED}
    return parameters | {"engine": getattr(model.engine, "NAME", model.engine)}


def write_model(
    out: ResultPath,
    names: Collection[str],
    model: BaseEstimator,
    arrays: Mapping[str, NDArray[Any]],
    inputs: Sequence[str],
    output: FitOutput,
) -> str:
    """Write arrays and model.json as a whole or not at all, then report.html; return the path to print."""
    from ripieno.algorithms.result_folder import FromResult
    from ripieno.report import write_fit_report

    report = model.report_
    parameters = listed_parameters(model)
    facts = {**(model._saved_facts() if isinstance(model, FromResult) else {}), **output.facts}
    with new_folder(out, names) as folder:
        for name, array in arrays.items():
            save_array(folder / f"{name}.npy", array)
        description = _description(output, facts, report, parameters, inputs, model)
        disk.write_text(folder / "model.json", json.dumps(description, indent=2) + "\n")

    def write(part: Path) -> None:
        tiles, charted = output.page()
        write_fit_report(
            part,
            report,
            title=output.title,
            what=output.what,
            tiles=tiles,
            charted=charted,
            parameters=parameters,
            inputs=inputs,
            words=output.words,
            command=command_line(),
            draws=output.draws,
        )

    return add_report(out, write)


def add_report(out: ResultPath, write: Callable[[Path], None]) -> str:
    """Write report.html into a result folder. Return its path; after a failure warn and return the folder."""
    path = f"{out}/report.html"
    with log.warn_on_failure("ripieno.report", path):
        with new_file(path) as part:
            write(part)
        return path
    return str(out)


def print_end(console: Console, written: str, report: FitReport | PlainReport, output: FitOutput, result: str) -> None:
    """Print the outcome of the fit, and the path of its result."""
    from ripieno.algorithms.iteration_log import FitReport

    size = ""
    if isinstance(report, FitReport):
        size = f"{report.row_count:,} {output.words[0]} × {report.column_count:,} {output.words[1]}: "
    console.print(f"{size}{result}, {report.total_s:.3g} s", highlight=False, soft_wrap=True)
    click.echo(written)


def of_report(report: FitReport | PlainReport) -> dict[str, Any]:
    """Return the entries of model.json that a report gives; empty without a report."""
    from ripieno.algorithms.iteration_log import FitReport

    if not isinstance(report, FitReport):
        return {}
    return {"row_count": report.row_count, "column_count": report.column_count, "dtype": report.dtype}


def _description(
    output: FitOutput,
    facts: Mapping[str, Any],
    report: RunReport | PlainReport,
    parameters: Mapping[str, Any],
    inputs: Sequence[str],
    model: BaseEstimator,
) -> dict[str, Any]:
    return {
        "algorithm": output.algorithm,
        "ripieno_version": __version__,
        "parameters": parameters,
        "inputs": list(inputs),
        "column_names": list(getattr(model, "feature_names_in_", [])) or None,
        **of_report(report),
        **facts,
        **_times(report, output.what),
    }


def _times(report: RunReport | PlainReport, what: str) -> dict[str, Any]:
    from ripieno.algorithms.iteration_log import RunReport

    if not isinstance(report, RunReport):
        return {}
    return {
        "seconds": {"load": report.load_s, "iterate": report.iterate_s, "total": report.total_s},
        f"{what}s": [
            {**each.measures, "compute_s": each.compute_s, "communication_s": each.communication_s}
            for each in report.iterations
        ],
    }
