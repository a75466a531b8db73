"""The command `ripieno ridge`: linear regression on the columns of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ripieno._types import OnFailure
from ripieno.algorithms.methods import RIDGE_SOLVERS
from ripieno.cli.fits import (
    FitOutput,
    check_folder,
    fit_options,
    method_option,
    opened,
    print_end,
    target_of,
    target_option,
    write_model,
)
from ripieno.files.results import ResultPath
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from ripieno.input import TableFiles


ARRAYS = ("coef", "intercept")


@click.command("ridge")
@target_option()
@click.option(
    "--alpha",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    default=1.0,
    show_default=True,
    help="Regularization: the weight of the squared weights. 0 means ordinary least squares.",
)
@method_option("--solver", RIDGE_SOLVERS, "Method")
@fit_options
def ridge_command(
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    out: ResultPath,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    on_failure: OnFailure,
    target: str,
    alpha: float,
    solver: str,
    trace: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Fit the weights with which the columns of INPUTS predict a target, and write them, with a report.

    INPUTS are files, globs, folders or URLs: .npy, .npz, .csv and .parquet. Every worker reads its own share. The
    output folder holds coef.npy, intercept.npy, model.json and report.html. It appears as a whole or not at all.

    \b
    Example:
      ripieno ridge houses.csv --target price --workers 4 --out result/
    """
    from rich.console import Console

    from ripieno.algorithms import Ridge
    from ripieno.cli.progress import MeasureProgress

    console = Console(stderr=True)
    names = check_folder(out, ARRAYS, inputs, trace, overwrite=overwrite)
    rows, files = opened(tables)
    progress = MeasureProgress(console, ("stage",), quiet=quiet)
    model = Ridge(
        alpha,
        solver=solver,
        workers=workers,
        engine=engine,
        threads=threads,
        on_failure=on_failure,
        on_iteration=progress.on_event,
    )
    y = target_of(target)
    with progress, traced(trace):
        model.fit(rows, y)
        share = model.score(rows, y)
    text = FitOutput(
        algorithm="ridge",
        title="Linear regression",
        what="stage",
        facts={"r2": share},
        page=lambda: ({"R² on these rows": f"{share:.4f}"}, []),
    )
    written = write_model(out, names, model, model._saved_arrays(), files, text)
    print_end(console, written, model.report_, text, f"R² {share:.4f}")
