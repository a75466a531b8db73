"""The command `ripieno als`: factors of the users and items of ratings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ripieno._types import OnFailure
from ripieno.algorithms.methods import ALS_SOLVERS
from ripieno.cli.fits import (
    FitOutput,
    check_folder,
    checkpoint_options,
    fit_options,
    max_iter_option,
    print_end,
    seed_option,
    write_model,
)
from ripieno.cli.table_options import as_files
from ripieno.files.results import ResultPath
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from ripieno.algorithms import ALS
    from ripieno.input import TableFiles
    from ripieno.report import Charted


ARRAYS = ("user_factors", "item_factors", "user_ids", "item_ids")


@click.command("als")
@click.option(
    "--rank",
    type=click.IntRange(min=1),
    metavar="COUNT",
    default=32,
    show_default=True,
    help="Factors of each user and item.",
)
@click.option("--implicit", is_flag=True, help="Treat ratings as counts of actions, not as scores.")
@click.option(
    "--reg",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    default=0.05,
    show_default=True,
    help="Regularization: the weight of the squared factors.",
)
@click.option(
    "--alpha",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    default=1.0,
    show_default=True,
    help="Weight that an implicit rating adds to its pair.",
)
@max_iter_option(10)
@click.option(
    "--solver",
    type=click.Choice(ALS_SOLVERS),
    default="auto",
    show_default=True,
    help="Solve the equations of each row exactly, or by three steps of conjugate gradients (cg). "
    "auto uses cg for implicit ratings and a rank of 16 or more.",
)
@click.option("--test", metavar="INPUT", help="Ratings, as INPUTS, to compare with their predictions.")
@checkpoint_options
@seed_option
@fit_options
def als_command(
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    out: ResultPath,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    on_failure: OnFailure,
    rank: int,
    implicit: bool,
    reg: float,
    alpha: float,
    max_iter: int,
    solver: str,
    test: str | None,
    checkpoint: str | None,
    every: int | None,
    seed: int,
    trace: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Factorize the ratings in INPUTS into factors of users and items, and write them, with a report.

    INPUTS are tables of users, items and ratings: files, globs, folders or URLs, .parquet, .arrow, .feather, .csv and
    .tsv, or a partition file, partitions.json of `ripieno split`. Names such as userId, movieId and rating mark the
    columns; --columns names others, in this order. Users and items are whole numbers or strings. Every worker reads its
    own share. The output folder holds user_factors.npy, item_factors.npy, user_ids.npy and item_ids.npy, with one
    row each, model.json and report.html. It appears as a whole or not at all.

    \b
    Example:
      ripieno als ratings.parquet --rank 32 --workers 4 --out result/
    """
    from rich.console import Console

    from ripieno.algorithms import ALS
    from ripieno.cli.progress import MeasureProgress

    console = Console(stderr=True)
    names = check_folder(out, ARRAYS, inputs, trace, overwrite=overwrite)
    measures = ("objective",) if implicit else ("objective", "rmse")
    progress = MeasureProgress(console, measures, quiet=quiet)
    model = ALS(
        rank,
        implicit=implicit,
        reg=reg,
        alpha=alpha,
        max_iter=max_iter,
        solver=solver,
        checkpoint=checkpoint,
        every=every,
        random_state=seed,
        workers=workers,
        engine=engine,
        threads=threads,
        on_failure=on_failure,
        on_iteration=progress.on_event,
    )
    with progress, traced(trace):
        model.fit(tables)
        error = None if test is None else -model.score(as_files(test, tables))
    printed = _fit_output(model, error)
    written = write_model(out, names, model, {name: getattr(model, f"{name}_") for name in ARRAYS}, inputs, printed)
    print_end(console, written, model.report_, printed, _result(model, error))


def _fit_output(model: ALS, error: float | None) -> FitOutput:
    of_test = "percentile_rank" if model.implicit else "rmse"
    return FitOutput(
        algorithm="als",
        title="Alternating least squares",
        what="iteration",
        facts={
            "objective": model.objective_,
            "solver": model.solver_,
            "rating_count": getattr(model.report_, "rating_count", None),
            "iteration_count": model.n_iter_,
            "resumed_from": model.resumed_from_,
            "exchanges": [str(way) for way in getattr(model.report_, "ways", ())],
            **({} if error is None else {f"test_{of_test}": error}),
        },
        page=lambda: _page(model, error),
        words=("users", "items"),
    )


def _page(model: ALS, error: float | None) -> tuple[dict[str, str], list[Charted]]:
    from ripieno.report import Charted, charts

    steps = [step.measures for step in model.report_.iterations]
    tiles = {
        "ratings": f"{model.report_.rating_count:,}",
        **({} if model.implicit else {"RMSE of these ratings": f"{steps[-1]['rmse']:.5g}"}),
        **({} if error is None else {f"{'percentile rank' if model.implicit else 'RMSE'} of the test": f"{error:.5g}"}),
    }
    objective = [float(each["objective"]) for each in steps]
    chart = charts.line_chart("objective", {"objective": objective}, log=True)
    return tiles, [
        Charted("Convergence", "The minimized objective: squared errors and penalty. " + _exchanges(model), chart)
    ]


def _exchanges(model: ALS) -> str:
    """Return a sentence on how factors are exchanged."""
    return f"Factors of {'; of '.join(map(str, model.report_.ways))}."


def _result(model: ALS, error: float | None) -> str:
    from ripieno.algorithms.als.estimator import ALSReport

    found = f"objective {model.objective_:.8g} after {model.n_iter_} iterations"
    if isinstance(model.report_, ALSReport):
        found = f"{model.report_.rating_count:,} ratings, {found}"
    if error is None:
        return found
    return f"{found}, {'percentile rank' if model.implicit else 'RMSE'} of the test {error:.5g}"
