"""The command `ripieno logistic`: logistic regression on the rows of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ripieno.algorithms.logistic.parameters import LogisticParameters
from ripieno.cli.fits import FitRun, fit_command, target_of, target_option

if TYPE_CHECKING:
    from ripieno.algorithms import LogisticRegression
    from ripieno.report import PageChart


@fit_command("logistic", LogisticParameters, estimator="LogisticRegression", title="Logistic regression")
@target_option(" Without it INPUTS are libsvm text, which contains classes.", required=False)
def logistic_command(run: FitRun, target: str | None) -> None:
    """Fit the weights that predict the classes of the rows of INPUTS, and write them, with a report.

    INPUTS are libsvm text, lines of "label index:value …", or, with --target, files, globs, folders or URLs: .npy,
    .npz, .csv and .parquet. Every worker reads its own share. The output folder holds coef.npy, intercept.npy,
    classes.npy, model.json and report.html. It appears as a whole or not at all.

    \b
    Example:
      ripieno logistic a9a --solver newton-cg --workers 4 --out result/
    """
    from ripieno.algorithms import LogisticRegression

    y = None if target is None else target_of(target)
    with run.fitting(LogisticRegression, ("objective", "gradient")) as model:
        model.fit(run.tables, y)
        share = model.score(run.tables, y)
    run.write(
        model,
        run.inputs,
        f"{share:.2%} correct after {model.n_iter_} iterations, objective {model.objective_:.8g}",
        facts={"accuracy": share},
        page=lambda: _page(model, share),
    )


def _page(model: LogisticRegression, share: float) -> tuple[dict[str, str], list[PageChart]]:
    from ripieno.report import PageChart, charts

    measures = [step.measures for step in model.report_.iterations]
    convergence = PageChart(
        "Convergence",
        "The penalty of the weights plus C times the losses of all rows, and the largest entry of its gradient.",
        charts.line_chart(
            "objective",
            {name: [float(each[name]) for each in measures] for name in ("objective", "gradient")},
            log=True,
        ),
    )
    return {"of these rows correct": f"{share:.2%}", "objective": f"{model.objective_:.6g}"}, [convergence]
