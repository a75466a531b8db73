"""The command `ripieno pca`: the axes of largest variance of the vectors of files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ripieno._types import OnFailure
from ripieno.algorithms.methods import PCA_SOLVERS
from ripieno.cli.fits import (
    FitOutput,
    check_folder,
    checkpoint_options,
    fit_options,
    method_option,
    opened,
    print_end,
    seed_option,
    write_model,
)
from ripieno.cli.options import aliased_option
from ripieno.files.results import ResultPath
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from ripieno.input import TableFiles


ARRAYS = ("components", "explained_variance", "mean")
PROJECTED = "projected"


@click.command("pca")
@aliased_option(
    "--components",
    aliases=["--n-components"],
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="Number of components. Default: all.",
)
@method_option("--solver", PCA_SOLVERS, "Method")
@seed_option
@click.option("--project", is_flag=True, help="Also write the projected vectors: projected.npy.")
@checkpoint_options
@fit_options
def pca_command(
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    out: ResultPath,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    on_failure: OnFailure,
    components: int | None,
    solver: str,
    seed: int,
    project: bool,
    checkpoint: str | None,
    every: int | None,
    trace: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Find the principal components of the vectors of INPUTS and write them, with a report.

    INPUTS are files, globs, folders or URLs: .npy, .npz, .csv, .parquet, and .txt with lines of "picture row col f1 …
    fn". Every worker reads its own share. A partition file, partitions.json of `ripieno split`, may be the only input:
    every worker reads the partitions that are assigned to it. The output folder holds components.npy,
    explained_variance.npy, mean.npy, model.json and report.html. It appears as a whole or not at all.

    \b
    Example:
      ripieno pca vectors.npy --components 50 --workers 4 --out result/
    """
    from rich.console import Console

    from ripieno.algorithms import PCA
    from ripieno.cli.progress import MeasureProgress

    console = Console(stderr=True)
    names = check_folder(out, (*ARRAYS, PROJECTED), inputs, trace, overwrite=overwrite)
    rows, files = opened(tables)
    progress = MeasureProgress(console, ("stage",), quiet=quiet)
    model = PCA(
        components,
        svd_solver=solver,
        random_state=seed,
        workers=workers,
        engine=engine,
        threads=threads,
        on_failure=on_failure,
        checkpoint=checkpoint,
        every=every,
        on_iteration=progress.on_event,
    )
    with progress, traced(trace):
        model.fit(rows)
    arrays = {name: getattr(model, f"{name}_") for name in ARRAYS}
    if project:
        arrays[PROJECTED] = model.transform(rows)
    share = float(model.explained_variance_ratio_.sum())
    described = FitOutput(
        algorithm="pca",
        title="Principal components",
        what="stage",
        facts={"resumed_from": model.resumed_from_},
        page=lambda: ({"components": f"{model.n_components_:,}", "of the variance": f"{share:.2%}"}, []),
    )
    written = write_model(out, names, model, arrays, files, described)
    print_end(
        console, written, model.report_, described, f"{model.n_components_} components with {share:.2%} of the variance"
    )
