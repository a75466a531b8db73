"""The command `ripieno layout`: force-directed positions of the vertices of a graph in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from ripieno._native import MOST_DIMENSIONS
from ripieno._types import OnFailure
from ripieno.algorithms.methods import EXACT, LAYOUT_APPROXIMATIONS, MAX_EXACT_VERTEX_COUNT
from ripieno.cli.fits import (
    FitOutput,
    check_folder,
    checkpoint_options,
    fit_options,
    max_iter_option,
    print_end,
    seed_option,
    write_model,
)
from ripieno.cli.graph_options import directed_option
from ripieno.cli.options import aliased_option
from ripieno.files.results import ResultPath
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from ripieno.algorithms import FruchtermanReingold
    from ripieno.graph import Graph
    from ripieno.input import TableFiles
    from ripieno.report import Charted


ARRAYS = ("positions", "vertices")


@click.command("layout")
@directed_option
@aliased_option(
    "--components",
    aliases=["--dim"],
    type=click.IntRange(1, MOST_DIMENSIONS),
    metavar="COUNT",
    default=2,
    show_default=True,
    help="Dimensions of the positions.",
)
@max_iter_option(50, "--iterations")
@click.option(
    "--approximation",
    type=click.Choice(LAYOUT_APPROXIMATIONS),
    default="auto",
    show_default=True,
    help="Repulsion between all pairs of vertices (exact), or from distant clusters as one point "
    f"(barnes-hut). auto uses barnes-hut for more than {MAX_EXACT_VERTEX_COUNT:,} vertices in 2 or 3 "
    "dimensions; the last line of output names the method.",
)
@click.option(
    "--theta",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    default=0.7,
    show_default=True,
    help="For barnes-hut: the largest ratio of a cluster's width to its distance. Smaller is more exact.",
)
@checkpoint_options
@seed_option
@fit_options
def layout_command(
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    out: ResultPath,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    on_failure: OnFailure,
    directed: bool,
    components: int,
    max_iter: int,
    approximation: str,
    theta: float,
    checkpoint: str | None,
    every: int | None,
    seed: int,
    trace: Path | None,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Find positions of the vertices of the graph with the edges in INPUTS, by Fruchterman's and Reingold's forces.

    INPUTS are files, globs or folders: text with a line "source target [weight]" per edge or
    "source<TAB>target,target,…", .csv (all of these also gzipped), .parquet, .npy, .npz. Every worker reads its own
    share. The output folder holds positions.npy, vertices.npy with the id of each, model.json and report.html, which
    draws the graph. It appears as a whole or not at all.

    \b
    Example:
      ripieno layout facebook.txt.gz --undirected --workers 4 --out result/
    """
    from rich.console import Console

    from ripieno.algorithms import FruchtermanReingold
    from ripieno.cli.progress import MeasureProgress
    from ripieno.graph import Graph

    console = Console(stderr=True)
    names = check_folder(out, ARRAYS, inputs, trace, overwrite=overwrite)
    graph = Graph(tables, directed=directed)
    progress = MeasureProgress(console, ("change",), quiet=quiet)
    model = FruchtermanReingold(
        components,
        iterations=max_iter,
        approximation=approximation,
        theta=theta,
        checkpoint=checkpoint,
        every=every,
        random_state=seed,
        workers=workers,
        engine=engine,
        threads=threads,
        on_failure=on_failure,
        on_iteration=progress.on_event,
    )
    with progress, traced(trace):
        model.fit(graph)
    printed = _fit_output(model, graph)
    written = write_model(
        out, names, model, {name: getattr(model, f"{name}_") for name in ARRAYS}, list(graph.names) or inputs, printed
    )
    print_end(console, written, model.report_, printed, f"{model.n_iter_} iterations, {_pushes(model)}")


def _pushes(model: FruchtermanReingold) -> str:
    return "all pairs" if model.approximation_ == EXACT else f"Barnes-Hut with theta {model.theta:g}"


def _fit_output(model: FruchtermanReingold, graph: Graph) -> FitOutput:
    return FitOutput(
        algorithm="layout",
        title="Layout",
        what="iteration",
        facts={
            "iteration_count": model.n_iter_,
            "edge_count": getattr(model.report_, "column_count", None),
            "approximation": model.approximation_,
            "resumed_from": model.resumed_from_,
        },
        page=lambda: _page(model, graph),
        words=("vertices", "edges"),
        draws=True,
    )


def _page(model: FruchtermanReingold, graph: Graph) -> tuple[dict[str, str], list[Charted]]:
    from ripieno.report import Charted, charts

    steps = [step.measures for step in model.report_.iterations]
    moves = Charted(
        "Convergence",
        "Root of the sum of all squared moves, divided by the number of vertices, and the move of each vertex.",
        charts.line_chart("moves", {name: [float(each[name]) for each in steps] for name in ("change", "step")}),
    )
    return {"iterations": f"{model.n_iter_:,}", "pushes": _pushes(model)}, [_drawn(model, graph), moves]


def _drawn(model: FruchtermanReingold, graph: Graph) -> Charted:
    from ripieno.graph.split_edges import SplitEdges
    from ripieno.report import Charted, scatter

    positions = model.positions_
    if positions.shape[1] >= 3:
        text = (
            f"At most {scatter.POINT_LIMIT:,} vertices, by three dimensions. They turn, and stop "
            "under the mouse pointer."
        )
        return Charted("The graph", text, scatter.turning_chart("vertices", positions))
    if isinstance(graph.source, SplitEdges):
        # Only the ranks read the edges of splits.
        text = f"At most {scatter.POINT_LIMIT:,} vertices, without edges."
        return Charted("The graph", text, scatter.scatter_chart("vertices", positions))
    edges = graph.read_share(0, 1)
    ends = np.searchsorted(model.vertices_, np.stack([edges.sources, edges.targets], axis=1))
    text = f"Vertices and, of the edges, at most {scatter.EDGE_LIMIT:,}."
    return Charted("The graph", text, scatter.graph_chart("graph", positions, ends))
