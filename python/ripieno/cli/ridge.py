"""The command `ripieno ridge`: linear regression on the columns of files."""

from __future__ import annotations

from ripieno.algorithms.linear.parameters import RidgeParameters
from ripieno.cli.fits import FitRun, fit_command, opened, target_of, target_option


@fit_command("ridge", RidgeParameters, estimator="Ridge", title="Linear regression", step="stage")
@target_option()
def ridge_command(run: FitRun, target: str) -> None:
    """Fit weights of the columns of INPUTS that predict a target, and write them, with a report.

    INPUTS are files, globs, folders or URLs: .npy, .npz, .csv and .parquet. Every worker reads its own share. The
    output folder holds coef.npy, intercept.npy, model.json and report.html. It appears as a whole or not at all.

    \b
    Example:
      ripieno ridge houses.csv --target price --workers 4 --out result/
    """
    from ripieno.algorithms import Ridge

    rows, files = opened(run.tables)
    y = target_of(target)
    with run.fitting(Ridge, ("stage",)) as model:
        model.fit(rows, y)
        share = model.score(rows, y)
    run.write(
        model,
        files,
        f"R² {share:.4f}",
        facts={"r2": share},
        page=lambda: ({"R² on these rows": f"{share:.4f}"}, []),
    )
