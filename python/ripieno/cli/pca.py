"""The command `ripieno pca`: the axes of largest variance of the vectors of files."""

from __future__ import annotations

import click

from ripieno.algorithms.pca.parameters import PCAParameters
from ripieno.cli.fits import FitRun, fit_command, opened

PROJECTED = "projected"


@fit_command("pca", PCAParameters, estimator="PCA", title="Principal components", arrays=(PROJECTED,), step="stage")
@click.option("--project", is_flag=True, help="Also write the projected vectors: projected.npy.")
def pca_command(run: FitRun, project: bool) -> None:
    """Find the principal components of the vectors of INPUTS and write them, with a report.

    INPUTS are files, globs, folders or URLs: .npy, .npz, .csv, .parquet, and .txt with lines of "picture row col f1 …
    fn". Every worker reads its own share. A partition file, partitions.json of `ripieno split`, may be the only input:
    every worker reads the partitions that are assigned to it. The output folder holds components.npy,
    mean.npy, explained_variance.npy, explained_variance_ratio.npy, singular_values.npy, model.json and report.html. It
    appears as a whole or not at all.

    \b
    Example:
      ripieno pca vectors.npy --components 50 --workers 4 --out result/
    """
    from ripieno.algorithms import PCA

    rows, files = opened(run.tables)
    with run.fitting(PCA, ("stage",)) as model:
        model.fit(rows)
    arrays = {PROJECTED: model.transform(rows)} if project else {}
    share = float(model.explained_variance_ratio_.sum())
    run.write(
        model,
        files,
        f"{model.n_components_} components with {share:.2%} of the variance",
        arrays=arrays,
        page=lambda: ({"components": f"{model.n_components_:,}", "of the variance": f"{share:.2%}"}, []),
    )
