"""Shared parts of the commands that fit a model to files: options, and the output folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click
from numpy.typing import NDArray

from ripieno import log
from ripieno._version import __version__
from ripieno.algorithms.parameters import names_of
from ripieno.cli.command_line import command_line
from ripieno.cli.options import (
    PathOrUrl,
    counted_workers,
    engine_options,
    overwrite_option,
    quiet_option,
    read_numbers,
    threads_option,
    trace_option,
)
from ripieno.cli.parameter_options import parameter_options
from ripieno.cli.table_options import table_options
from ripieno.files.results import ResultPath, check_new_folder, check_results, new_file
from ripieno.flight.trace import traced

if TYPE_CHECKING:
    from rich.console import Console

    from ripieno.algorithms.iteration_log import FitReport, RunReport
    from ripieno.algorithms.reported import PlainReport
    from ripieno.cli.progress import IterationProgress
    from ripieno.input import TableFiles
    from ripieno.report import PageChart

    Page = tuple[Mapping[str, str], Sequence[PageChart]]

Model = TypeVar("Model")

fit_workers_option = counted_workers("Number of workers.", default=1, show_default=True)
_out_option = click.option(
    "-o", "--out", type=PathOrUrl(), default=Path("result"), show_default=True, help="Folder to write."
)
_inputs_argument = click.argument("inputs", nargs=-1, required=True)


def target_option(more: str = "", *, required: bool = True) -> Callable[..., Any]:
    """Return the option for the prediction target."""
    return click.option(
        "--target",
        metavar="NAME",
        required=required,
        help=f"Target (y) to predict: a column, a .npy file, or a .txt file with one value per line.{more}",
    )


@dataclass(frozen=True)
class FitRun:
    """One run of a command that fits a model: the command's arguments, and the steps that all such commands share.

    Parameters
    ----------
    algorithm
        The name of the command.
    estimator
        Class name of the estimator.
    title
        Title of the report.
    step
        Unit of work of the fit: "iteration" or "stage".
    data
        Names for rows and columns of the data.
    arrays
        Names of the arrays that the command may write next to the model.
    console
        The console for progress and outcome.
    inputs, tables
        Names of the inputs, and the inputs with the options of tables.
    out, trace, overwrite, quiet
        Values of the options of these names.
    parameters
        Parameters of the estimator.
    """

    algorithm: str
    estimator: str
    title: str
    step: str
    data: tuple[str, str]
    arrays: Collection[str]
    console: Console
    inputs: tuple[str, ...]
    tables: Any
    out: ResultPath
    trace: Path | None
    overwrite: bool
    quiet: bool
    parameters: Mapping[str, Any]

    def check(self) -> None:
        """Raise InputError, before any work, if a result is not writable."""
        check_new_folder(self.out, self._replaceable)
        check_results({"--trace": self.trace}, self.inputs, overwrite=self.overwrite)

    @property
    def _replaceable(self) -> tuple[str, ...]:
        return replaceable(self.estimator, self.arrays) if self.overwrite else ()

    @contextmanager
    def fitting(
        self, estimator: Callable[..., Model], shown: IterationProgress | Sequence[str], **parameters: Any
    ) -> Iterator[Model]:
        """Provide a context with a new model that prints progress; `shown` may be the names of measures."""
        from ripieno.cli.progress import IterationProgress, MeasureProgress

        progress = (
            shown
            if isinstance(shown, IterationProgress)
            else MeasureProgress(self.console, tuple(shown), quiet=self.quiet)
        )
        with progress, traced(self.trace):
            yield estimator(**{**self.parameters, **parameters}, on_iteration=progress.on_event)

    def write(
        self,
        model: Any,
        inputs: Sequence[str],
        result: str,
        *,
        arrays: Mapping[str, NDArray[Any]] = MappingProxyType({}),
        facts: Mapping[str, Any] = MappingProxyType({}),
        page: Callable[[], Page],
        draws: bool = False,
    ) -> None:
        """Write the folder of the result, and print its path and the outcome of the fit, `result`.

        The saved model is written as a whole or not at all, then report.html. `arrays` and `facts` are written next to
        the attributes of the model: arrays as files, numbers and strings into model.json. `page` returns the figures at
        the top of the report, by name, and its charts; it is called when the report is written.
        """
        from ripieno.algorithms.iteration_log import FitReport

        report, parameters = model.report_, listed_parameters(model)
        description = {
            "algorithm": self.algorithm,
            "ripieno_version": __version__,
            "parameters": parameters,
            "inputs": list(inputs),
            "column_names": list(getattr(model, "feature_names_in_", [])) or None,
            **of_report(report),
            **model._saved_entries(),
            **facts,
            **_times(report, self.step),
        }
        self.write_folder({**model._saved_arrays(), **arrays}, description)

        def write_page(part: Path) -> None:
            # Imported here: without the extra of reports, the result is written all the same.
            from ripieno.report import write_fit_report

            tiles, charted = page()
            write_fit_report(
                part,
                report,
                title=self.title,
                step_name=self.step,
                tiles=tiles,
                charted=charted,
                parameters=parameters,
                inputs=inputs,
                words=self.data,
                command=command_line(),
                draws=draws,
            )

        size = ""
        if isinstance(report, FitReport):
            sign = "and" if self.data[1] == "edges" else "×"
            size = f"{report.row_count:,} {self.data[0]} {sign} {report.column_count:,} {self.data[1]}: "
        self.end(write_page, f"{size}{result}, {report.total_s:.3g} s")

    def write_folder(self, arrays: Mapping[str, NDArray[Any]], description: Mapping[str, Any]) -> None:
        """Write arrays and model.json as a whole or not at all."""
        from ripieno.algorithms.result_folder import write_result

        write_result(self.out, arrays, description, replaceable=self._replaceable)

    def end(self, write_page: Callable[[Path], None], result: str) -> None:
        """Write report.html into the folder, and print its path, or after a failure a warning and the folder."""
        written, path = str(self.out), f"{self.out}/report.html"
        with log.warn_on_failure("ripieno.report", path):
            with new_file(path) as part:
                write_page(part)
            written = path
        self.console.print(result, highlight=False, soft_wrap=True)
        click.echo(written)


def fit_command(
    algorithm: str,
    declaring: type,
    *,
    estimator: str,
    title: str,
    arrays: Collection[str] = (),
    step: str = "iteration",
    data: tuple[str, str] = ("rows", "columns"),
    required: Collection[str] = (),
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command that fits an estimator: it has options for the parameters that `declaring` declares.

    The function receives a `FitRun`, and the values of its own options.
    """

    def decorate(command: Callable[..., Any]) -> click.Command:
        @wraps(command)
        def wrapped(
            inputs: tuple[str, ...],
            tables: Any,
            out: ResultPath,
            trace: Path | None,
            overwrite: bool,
            quiet: bool,
            workers: int,
            engine: Any,
            threads: int | None,
            parameters: dict[str, Any],
            **own: Any,
        ) -> None:
            from rich.console import Console

            console = Console(stderr=True)
            parameters |= {"workers": workers, "engine": engine, "threads": threads}
            run = FitRun(
                algorithm,
                estimator,
                title,
                step,
                data,
                arrays,
                console,
                inputs,
                tables,
                out,
                trace,
                overwrite,
                quiet,
                parameters,
            )
            run.check()
            command(run, **own)

        # Options of the command itself follow the parameters.
        own_options = wrapped.__dict__.pop("__click_params__", [])
        made: Callable[..., Any] = table_options(wrapped)
        running = (threads_option, engine_options, fit_workers_option)
        for add in (quiet_option, overwrite_option, trace_option, *running, _out_option):
            made = add(made)
        made.__dict__.setdefault("__click_params__", []).extend(own_options)
        made = parameter_options(declaring, "on_failure", required=required)(made)
        return click.command(algorithm)(_inputs_argument(made))

    return decorate


def target_of(name: str) -> NDArray[Any] | str:
    """Return the name of a column, or the array in the file with this name."""
    path = Path(name)
    return read_numbers(path, "a target") if path.suffix.lower() in (".npy", ".txt") else name


def replaceable(estimator: str, arrays: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the files in a folder of results: of the model, further arrays, and the report."""
    from ripieno import algorithms
    from ripieno.algorithms.result_folder import result_files

    return (*result_files(getattr(algorithms, estimator)), *(f"{name}.npy" for name in arrays), "report.html")


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


def listed_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of the fit, and the name of the engine."""
    parameters = {name: getattr(model, name) for name in names_of(type(model), "model", "saving", "running")}
    return parameters | {"engine": getattr(model.engine, "NAME", model.engine)}


def of_report(report: FitReport | PlainReport) -> dict[str, Any]:
    """Return the entries of model.json that a report gives; empty without a report."""
    from ripieno.algorithms.iteration_log import FitReport

    if not isinstance(report, FitReport):
        return {}
    return {"row_count": report.row_count, "column_count": report.column_count, "dtype": report.dtype}


def _times(report: RunReport | PlainReport, step_name: str) -> dict[str, Any]:
    from ripieno.algorithms.iteration_log import RunReport

    if not isinstance(report, RunReport):
        return {}
    return {
        "seconds": {"load": report.load_s, "iterate": report.iterate_s, "total": report.total_s},
        f"{step_name}s": [
            {**each.measures, "compute_s": each.compute_s, "communication_s": each.communication_s}
            for each in report.iterations
        ],
    }
