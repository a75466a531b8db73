"""The command `ripieno logistic`: logistic regression on the rows of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ripieno._types import OnFailure
from ripieno.algorithms.methods import LOGISTIC_SOLVERS
from ripieno.cli.fits import (
    FitOutput,
    check_folder,
    checkpoint_options,
    fit_options,
    max_iter_option,
    method_option,
    print_end,
    target_of,
    target_option,
    tol_option,
    write_model,
)
from ripieno.cli.options import aliased_option
from ripieno.files.results import ResultPath
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from ripieno.algorithms import LogisticRegression
    from ripieno.input import TableFiles
    from ripieno.report import Charted


ARRAYS = ("coef", "intercept", "classes")


@click.command("logistic")
@target_option(" Without it INPUTS are libsvm text, which contains classes.", required=False)
@aliased_option(
    "--c",
    aliases=["--C"],
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    default=1.0,
    show_default=True,
    help="Inverse regularization: the weight of the losses against the penalty; inf for no penalty.",
)
@click.option(
    "--l1-ratio",
    type=click.FloatRange(min=0, max=1),
    metavar="SHARE",
    default=0.0,
    show_default=True,
    help="Share of the absolute weights in the penalty; the rest is half the squared weights. Requires --solver lbfgs.",
)
@click.option(
    "--class-weight",
    type=click.Choice(["balanced"]),
    help="Weights of rows: balanced gives all classes the same total.",
)
@method_option("--solver", LOGISTIC_SOLVERS, "Optimization method")
@max_iter_option(100)
@tol_option(1e-4, "Stop when no entry of the gradient of the mean loss is larger.", min_open=True)
@checkpoint_options
@fit_options
def logistic_command(
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    out: ResultPath,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    on_failure: OnFailure,
    target: str | None,
    c: float,
    l1_ratio: float,
    class_weight: Literal["balanced"] | None,
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
    from rich.console import Console

    from ripieno.algorithms import LogisticRegression
    from ripieno.cli.progress import MeasureProgress

    console = Console(stderr=True)
    names = check_folder(out, ARRAYS, inputs, trace, overwrite=overwrite)
    progress = MeasureProgress(console, ("objective", "gradient"), quiet=quiet)
    model = LogisticRegression(
        c,
        l1_ratio=l1_ratio,
        class_weight=class_weight,
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
        model.fit(tables, y)
        share = model.score(tables, y)
    described = FitOutput(
        algorithm="logistic",
        title="Logistic regression",
        what="iteration",
        facts={"accuracy": share},
        page=lambda: _page(model, share),
    )
    written = write_model(out, names, model, model._saved_arrays(), inputs, described)
    result = f"{share:.2%} correct after {model.n_iter_} iterations, objective {model.objective_:.8g}"
    print_end(console, written, model.report_, described, result)


def _page(model: LogisticRegression, share: float) -> tuple[dict[str, str], list[Charted]]:
    from ripieno.report import Charted, charts

    measures = [step.measures for step in model.report_.iterations]
    convergence = Charted(
        "Convergence",
        "The penalty of the weights plus C times the losses of all rows, and the largest entry of its gradient.",
        charts.line_chart(
            "objective",
            {name: [float(each[name]) for each in measures] for name in ("objective", "gradient")},
            log=True,
        ),
    )
    return {"of these rows correct": f"{share:.2%}", "objective": f"{model.objective_:.6g}"}, [convergence]
