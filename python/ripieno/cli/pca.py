"""The command `ripieno pca`: the axes of largest variance of the vectors of files."""

from __future__ import annotations

import click

from ripieno.algorithms.pca.parameters import PCAParameters
from ripieno.cli.fits import FitRun, fit_command, opened

ARRAYS = ("components", "explained_variance", "mean")
PROJECTED = "projected"


@fit_command("pca", PCAParameters, title="Principal components", arrays=(*ARRAYS, PROJECTED), step="stage")
@click.option("--project", is_flag=True, help="Also write the projected vectors: projected.npy.")
def pca_command(run: FitRun, project: bool) -> None:
    """Find the principal components of the vectors of INPUTS and write them, with a report.

    INPUTS are files, globs, folders or URLs: .npy, .npz, .csv, .parquet, and .txt with lines of "picture row col f1 …
    fn". Every worker reads its own share. A partition file, partitions.json of `ripieno split`, may be the only input:
    every worker reads the partitions that are assigned to it. The output folder holds components.npy,
    explained_variance.npy, mean.npy, model.json and report.html. It appears as a whole or not at all.

    \b
    Example:
      ripieno pca vectors.npy --components 50 --workers 4 --out result/
    """
    from ripieno.algorithms import PCA

    rows, files = opened(run.tables)
    with run.fitting(PCA, ("stage",)) as model:
        model.fit(rows)
    arrays = {name: getattr(model, f"{name}_") for name in ARRAYS}
    if project:
        arrays[PROJECTED] = model.transform(rows)
    share = float(model.explained_variance_ratio_.sum())
    run.write(
        model,
        arrays,
        files,
        f"{model.n_components_} components with {share:.2%} of the variance",
        facts={"resumed_from": model.resumed_from_},
        page=lambda: ({"components": f"{model.n_components_:,}", "of the variance": f"{share:.2%}"}, []),
    )
