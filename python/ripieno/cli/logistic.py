"""The command `ripieno logistic`: logistic regression on the rows of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ripieno._types import OnFailure
from ripieno.algorithms import LogisticRegression
from ripieno.algorithms.logistic.solvers import SOLVERS
from ripieno.cli.fits import (
    FitOutput,
    check_folder,
    checkpoint_options,
    fit_options,
    max_iter_option,
    method_option,
    say_end,
    target_of,
    target_option,
    write_model,
)
from ripieno.cli.progress import MeasureProgress
from ripieno.files.results import ResultPath
from ripieno.flight.trace import traced
from ripieno.input.partitions import splits_of
from ripieno.launch.engine.contract import Engine
from ripieno.report import Charted, charts

ARRAYS = ("coef", "intercept", "classes")


@click.command("logistic", short_help="Tell classes of the rows of files apart, linearly.")
@target_option(" Without, INPUTS are libsvm text, which has it.", required=False)
@click.option(
    "--c",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    default=1.0,
    show_default=True,
    help="Factor of the losses, beside half the squared weights.",
)
@method_option("--solver", SOLVERS, "How to descend")
@max_iter_option(100)
@click.option(
    "--tol",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    default=1e-4,
    show_default=True,
    help="Stop when no entry of the gradient of the mean loss is larger.",
)
@checkpoint_options
@fit_options
def logistic_command(
    inputs: tuple[str, ...],
    out: ResultPath,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    on_failure: OnFailure,
    target: str | None,
    c: float,
    solver: str,
    max_iter: int,
    tol: float,
    checkpoint: str | None,
    every: int | None,
    trace: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Fit the weights that predict the classes of the rows of INPUTS, and write them, with a report.

    INPUTS are libsvm text, lines of "label index:value …", or, with --target, files, globs, folders or URLs: .npy,
    .npz, .csv and .parquet. Every worker reads its own share. The output folder holds coef.npy, intercept.npy,
    classes.npy, model.json and report.html. It appears as a whole or not at all.

    \b
    Example:
      ripieno logistic a9a --solver newton-cg --workers 4 --out result/
    """
    console = Console(stderr=True)
    names = check_folder(out, ARRAYS, inputs, trace, overwrite=overwrite)
    source: Any = splits_of(inputs) or list(inputs)
    progress = MeasureProgress(console, ("objective", "gradient"), quiet=quiet)
    model = LogisticRegression(
        c,
        solver=solver,
        max_iter=max_iter,
        tol=tol,
        checkpoint=checkpoint,
        every=every,
        workers=workers,
        engine=engine,
        threads=threads,
        on_failure=on_failure,
        on_iteration=progress.on_event,
    )
    y = None if target is None else target_of(target)
    with progress, traced(trace):
        model.fit(source, y)
        share = model.score(source, y)
    told = FitOutput(
        algorithm="logistic",
        title="Logistic regression",
        what="iteration",
        facts={
            "target": target if isinstance(y, str) else None,
            "libsvm": y is None,
            "first_column": model.first_column_,
            "objective": model.objective_,
            "accuracy": share,
            "iteration_count": model.n_iter_,
        },
        page=lambda: _page(model, share),
    )
    arrays = {name: getattr(model, f"{name}_") for name in ARRAYS}
    written = write_model(out, names, model, arrays, inputs, told)
    result = f"{share:.2%} told right after {model.n_iter_} iterations, objective {model.objective_:.8g}"
    say_end(console, written, model.report_, told, result)


def _page(model: LogisticRegression, share: float) -> tuple[dict[str, str], list[Charted]]:
    measures = [step.measures for step in model.report_.iterations]
    convergence = Charted(
        "Convergence",
        "Half the squared weights plus C times the losses of all rows, and the largest entry of its gradient.",
        charts.line_chart(
            "objective",
            {name: [float(each[name]) for each in measures] for name in ("objective", "gradient")},
            log=True,
        ),
    )
    return {"of these rows told right": f"{share:.2%}", "objective": f"{model.objective_:.6g}"}, [convergence]
