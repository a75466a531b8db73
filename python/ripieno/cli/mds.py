"""The command `ripieno mds`: positions of points from dissimilarities in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from ripieno._native import MOST_DIMENSIONS
from ripieno._types import OnFailure, ThreadModel
from ripieno.algorithms.methods import ANNEALED_STARTS, MDS_METHODS, PRECOMPUTED, ROW_METRICS, SEQUENCE_METRICS
from ripieno.cli.fits import (
    FitOutput,
    check_folder,
    checkpoint_options,
    fit_options,
    max_iter_option,
    method_option,
    opened,
    print_end,
    seed_option,
    tol_option,
    write_model,
)
from ripieno.cli.options import aliased_option
from ripieno.cli.table_options import as_files
from ripieno.files.results import ResultPath
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from ripieno.algorithms import MDS
    from ripieno.input import TableFiles
    from ripieno.report import Charted


EMBEDDING, INTERPOLATED = "embedding", "interpolated"


@click.command("mds")
@aliased_option(
    "--components",
    aliases=["--n-components"],
    type=click.IntRange(1, MOST_DIMENSIONS),
    metavar="COUNT",
    default=2,
    show_default=True,
    help="Dimensions of the positions.",
)
@method_option("--method", MDS_METHODS, "Optimization method")
@method_option(
    "--metric",
    (PRECOMPUTED, *ROW_METRICS, *SEQUENCE_METRICS),
    "Content of INPUTS: dissimilarities (precomputed), or rows or sequences with this metric",
)
@click.option("--weights", metavar="INPUT", help="Weight of each pair, as INPUTS; 0 for missing pairs.")
@aliased_option(
    "--n-init",
    aliases=["--starts"],
    type=click.IntRange(min=1),
    metavar="COUNT",
    help=f"Number of random starts; the best result is kept. Default: 1, with annealing {ANNEALED_STARTS}.",
)
@max_iter_option(300)
@tol_option(1e-6, "Stop when the stress falls by less than this share of the squared distances.", "--eps")
@click.option(
    "--interpolate",
    metavar="INPUT",
    help="Dissimilarities of additional points to the points of INPUTS; their positions are interpolated.",
)
@checkpoint_options
@seed_option
@method_option("--thread-model", get_args(ThreadModel), "Model of the threads of a worker")
@fit_options
def mds_command(
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    out: ResultPath,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    on_failure: OnFailure,
    components: int,
    method: str,
    metric: str,
    weights: str | None,
    n_init: int | None,
    max_iter: int,
    tol: float,
    interpolate: str | None,
    checkpoint: str | None,
    every: int | None,
    seed: int,
    thread_model: ThreadModel,
    trace: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Find positions of points with distances close to the dissimilarities in INPUTS; write them, with a report.

    INPUTS are files, globs, folders or URLs: .npy, .npz, .csv and .parquet. A point has one row: its dissimilarities to
    all points, or the vector to which the metric applies. Every worker reads its own share. For edit distances of
    sequences INPUTS are FASTA files (needs ripieno[sequences]). The output folder holds embedding.npy, model.json and
    report.html, which shows the positions. It appears as a whole or not at all.

    \b
    Examples:
      ripieno mds distances.npy --method da-smacof --workers 4 --out result/
      ripieno mds sequences.fasta --metric levenshtein --workers 4 --out result/
    """
    from rich.console import Console

    from ripieno.algorithms import MDS
    from ripieno.algorithms.mds.sequences import Sequences
    from ripieno.cli.progress import MeasureProgress

    console = Console(stderr=True)
    names = check_folder(out, (EMBEDDING, INTERPOLATED), inputs, trace, overwrite=overwrite)
    points: Any
    files: Sequence[str]
    if metric in SEQUENCE_METRICS:
        points = Sequences.open(inputs)
        files = points.names
    else:
        points, files = opened(tables)
    progress = MeasureProgress(console, ("normalized_stress",), quiet=quiet)
    model = MDS(
        components,
        method=method,
        metric=metric,
        weights=weights,
        n_init="auto" if n_init is None else n_init,
        max_iter=max_iter,
        eps=tol,
        random_state=seed,
        thread_model=thread_model,
        checkpoint=checkpoint,
        every=every,
        workers=workers,
        engine=engine,
        threads=threads,
        on_failure=on_failure,
        on_iteration=progress.on_event,
    )
    with progress, traced(trace):
        model.fit(points)
        arrays = {EMBEDDING: model.embedding_}
        if interpolate is not None:
            arrays[INTERPOLATED] = model.interpolate(as_files(interpolate, tables))
    printed = _fit_output(model)
    written = write_model(out, names, model, arrays, files, printed)
    found = f"stress {model.stress_:.8g}, normalized {model.normalized_stress_:.5g}, after {model.n_iter_} iterations"
    print_end(console, written, model.report_, printed, found)


def _fit_output(model: MDS) -> FitOutput:
    return FitOutput(
        algorithm="mds",
        title="Multidimensional scaling",
        what="iteration",
        facts={
            "stress": model.stress_,
            "normalized_stress": model.normalized_stress_,
            "iteration_count": model.n_iter_,
            "converged": model.converged_,
            "resumed_from": model.resumed_from_,
        },
        page=lambda: _page(model),
        words=("points", "columns"),
    )


def _page(model: MDS) -> tuple[dict[str, str], list[Charted]]:
    from ripieno.report import Charted, charts

    steps = [step.measures for step in model.report_.iterations]
    charted = {
        name: [float(each[name]) for each in steps] for name in ("normalized_stress", "temperature") if name in steps[0]
    }
    convergence = Charted(
        "Convergence",
        "The normalized stress (Kruskal's Stress-1) of the distances, and other measures of each iteration.",
        charts.line_chart("stress", charted),
    )
    tiles = {"normalized stress": f"{model.normalized_stress_:.5g}", "iterations": f"{model.n_iter_:,}"}
    return tiles, [convergence]
