"""The command `ripieno als`: factors of the users and items of ratings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ripieno.algorithms.als.parameters import ALSParameters
from ripieno.cli.fits import FitRun, fit_command
from ripieno.cli.table_options import as_files

if TYPE_CHECKING:
    from ripieno.algorithms import ALS
    from ripieno.report import PageChart


@fit_command("als", ALSParameters, estimator="ALS", title="Alternating least squares", data=("users", "items"))
@click.option("--test", metavar="INPUT", help="Ratings, as INPUTS, to compare with their predictions.")
def als_command(run: FitRun, test: str | None) -> None:
    """Factorize the ratings in INPUTS into factors of users and items, and write them, with a report.

    INPUTS are tables of users, items and ratings: files, globs, folders or URLs, .parquet, .arrow, .feather, .csv and
    .tsv, or a partition file, partitions.json of `ripieno split`. Names such as userId, movieId and rating mark the
    columns; --columns names others, in this order. Users and items are whole numbers or strings. Every worker reads its
    own share. The output folder holds user_factors.npy, item_factors.npy, user_ids.npy and item_ids.npy, with one
    row each, rated.npy and rated_starts.npy with the items that each user rated, model.json and report.html. It appears
    as a whole or not at all.

    \b
    Example:
      ripieno als ratings.parquet --rank 32 --workers 4 --out result/
    """
    from ripieno.algorithms import ALS

    implicit = run.parameters["implicit"]
    with run.fitting(ALS, ("objective",) if implicit else ("objective", "rmse")) as model:
        model.fit(run.tables)
        error = None if test is None else -model.score(as_files(test, run.tables))
    of_test = "percentile_rank" if implicit else "rmse"
    run.write(
        model,
        run.inputs,
        _result(model, error),
        facts={
            "rating_count": getattr(model.report_, "rating_count", None),
            "exchanges": [str(exchange) for exchange in getattr(model.report_, "exchanges", ())],
            **({} if error is None else {f"test_{of_test}": error}),
        },
        page=lambda: _page(model, error),
    )


def _page(model: ALS, error: float | None) -> tuple[dict[str, str], list[PageChart]]:
    from ripieno.report import PageChart, charts

    steps = [step.measures for step in model.report_.iterations]
    tiles = {
        "ratings": f"{model.report_.rating_count:,}",
        **({} if model.implicit else {"RMSE of these ratings": f"{steps[-1]['rmse']:.5g}"}),
        **({} if error is None else {f"{'percentile rank' if model.implicit else 'RMSE'} of the test": f"{error:.5g}"}),
    }
    objective = [float(each["objective"]) for each in steps]
    chart = charts.line_chart("objective", {"objective": objective}, log=True)
    return tiles, [
        PageChart("Convergence", "The minimized objective: squared errors and penalty. " + _exchanges(model), chart)
    ]


def _exchanges(model: ALS) -> str:
    """Return a sentence on how factors are exchanged."""
    return f"Factors of {'; of '.join(map(str, model.report_.exchanges))}."


def _result(model: ALS, error: float | None) -> str:
    from ripieno.algorithms.als.estimator import ALSReport

    found = f"objective {model.objective_:.8g} after {model.n_iter_} iterations"
    if isinstance(model.report_, ALSReport):
        found = f"{model.report_.rating_count:,} ratings, {found}"
    if error is None:
        return found
    return f"{found}, {'percentile rank' if model.implicit else 'RMSE'} of the test {error:.5g}"
