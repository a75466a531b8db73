"""The command `ripieno mds`: positions of points from dissimilarities in files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ripieno.algorithms.mds.parameters import MDSParameters
from ripieno.algorithms.methods import SEQUENCE_METRICS
from ripieno.cli.fits import FitRun, fit_command, opened
from ripieno.cli.table_options import as_files

if TYPE_CHECKING:
    from ripieno.algorithms import MDS
    from ripieno.report import PageChart


INTERPOLATED = "interpolated"


@fit_command(
    "mds",
    MDSParameters,
    estimator="MDS",
    title="Multidimensional scaling",
    arrays=(INTERPOLATED,),
    data=("points", "columns"),
)
@click.option("--weights", metavar="INPUT", help="Weight of each pair, as INPUTS; 0 for missing pairs.")
@click.option(
    "--interpolate",
    metavar="INPUT",
    help="Dissimilarities of additional points to the points of INPUTS; their positions are interpolated.",
)
def mds_command(run: FitRun, weights: str | None, interpolate: str | None) -> None:
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
    from ripieno.algorithms import MDS
    from ripieno.algorithms.mds.sequences import Sequences

    points: Any
    files: Sequence[str]
    if run.parameters["metric"] in SEQUENCE_METRICS:
        points = Sequences.open(run.inputs)
        files = points.names
    else:
        points, files = opened(run.tables)
    with run.fitting(MDS, ("normalized_stress",), weights=weights) as model:
        model.fit(points)
        others = None if interpolate is None else model.interpolate(as_files(interpolate, run.tables))
    run.write(
        model,
        files,
        f"stress {model.stress_:.8g}, normalized {model.normalized_stress_:.5g}, after {model.n_iter_} iterations",
        arrays={} if others is None else {INTERPOLATED: others},
        page=lambda: _page(model),
    )


def _page(model: MDS) -> tuple[dict[str, str], list[PageChart]]:
    from ripieno.report import PageChart, charts

    steps = [step.measures for step in model.report_.iterations]
    charted = {
        name.replace("_", " "): [float(each[name]) for each in steps]
        for name in ("normalized_stress", "temperature")
        if name in steps[0]
    }
    convergence = PageChart(
        "Convergence",
        "The normalized stress (Kruskal's Stress-1) of the distances, and other measures of each iteration.",
        charts.line_chart("stress", charted),
    )
    tiles = {"normalized stress": f"{model.normalized_stress_:.5g}", "iterations": f"{model.n_iter_:,}"}
    return tiles, [convergence]
