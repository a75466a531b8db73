"""The command `ripieno layout`: force-directed positions of the vertices of a graph in files."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from rich.console import Console

from ripieno._types import OnFailure
from ripieno.algorithms import FruchtermanReingold
from ripieno.algorithms.springs.estimator import APPROXIMATIONS
from ripieno.algorithms.springs.program import EXACT, EXACT_LIMIT
from ripieno.cli.fits import FitOutput, check_folder, checkpoint_options, fit_options, say_end, seed_option, write_model
from ripieno.cli.graph_options import undirected_option
from ripieno.cli.progress import MeasureProgress
from ripieno.files.results import ResultPath
from ripieno.flight.trace import traced
from ripieno.graph import Graph
from ripieno.graph.split_edges import SplitEdges
from ripieno.kernels.pairs import MOST_DIMENSIONS
from ripieno.launch.engine.contract import Engine
from ripieno.report import Charted, charts, scatter

ARRAYS = ("positions", "vertices")


@click.command("layout", short_help="Find positions of the vertices of a graph, by forces.")
@undirected_option
@click.option(
    "--dim",
    type=click.IntRange(1, MOST_DIMENSIONS),
    metavar="COUNT",
    default=2,
    show_default=True,
    help="Dimensions of the positions.",
)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    metavar="COUNT",
    default=50,
    show_default=True,
    help="Iterations at most.",
)
@click.option(
    "--approximation",
    type=click.Choice(APPROXIMATIONS),
    default="auto",
    show_default=True,
    help=f"How vertices push each other: all pairs, or clusters that are far away as one. auto takes the latter for "
    f"more than {EXACT_LIMIT:,} vertices in 2 or 3 dimensions; the last line says which it was.",
)
@click.option(
    "--theta",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    default=0.7,
    show_default=True,
    help="Of barnes-hut: clusters narrower than this part of their distance push as one. Smaller is more exact.",
)
@checkpoint_options
@seed_option
@fit_options
def layout_command(
    inputs: tuple[str, ...],
    out: ResultPath,
    workers: int,
    engine: str | Engine,
    threads: int | None,
    on_failure: OnFailure,
    undirected: bool,
    dim: int,
    iterations: int,
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
    console = Console(stderr=True)
    names = check_folder(out, ARRAYS, inputs, trace, overwrite=overwrite)
    graph = Graph(list(inputs), directed=not undirected)
    progress = MeasureProgress(console, ("change",), quiet=quiet)
    model = FruchtermanReingold(
        dim,
        iterations=iterations,
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
    told = _told(model, graph)
    written = write_model(
        out, names, model, {name: getattr(model, f"{name}_") for name in ARRAYS}, list(graph.names) or inputs, told
    )
    say_end(console, written, model.report_, told, f"{model.n_iter_} iterations, {_pushes(model)}")


def _pushes(model: FruchtermanReingold) -> str:
    return "all pairs" if model.approximation_ == EXACT else f"Barnes-Hut with theta {model.theta:g}"


def _told(model: FruchtermanReingold, graph: Graph) -> FitOutput:
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
    )


def _page(model: FruchtermanReingold, graph: Graph) -> tuple[dict[str, str], list[Charted]]:
    steps = [step.measures for step in model.report_.iterations]
    moves = Charted(
        "Convergence",
        "The root of the sum of all squared moves, divided by the number of vertices; and how far each went.",
        charts.line_chart("moves", {name: [float(each[name]) for each in steps] for name in ("change", "step")}),
    )
    return {"iterations": f"{model.n_iter_:,}", "pushes": _pushes(model)}, [_drawn(model, graph), moves]


def _drawn(model: FruchtermanReingold, graph: Graph) -> Charted:
    positions = model.positions_
    if positions.shape[1] >= 3:
        told = f"At most {scatter.POINT_LIMIT:,} vertices, by three dimensions. They turn, and stop under the pointer."
        return Charted("The graph", told, scatter.turning_chart("vertices", positions))
    if isinstance(graph.source, SplitEdges):
        # Only the ranks read the edges of splits.
        told = f"At most {scatter.POINT_LIMIT:,} vertices, without edges."
        return Charted("The graph", told, scatter.scatter_chart("vertices", positions))
    edges = graph.read_share(0, 1)
    ends = np.searchsorted(model.vertices_, np.stack([edges.sources, edges.targets], axis=1))
    told = f"Vertices and, of the edges, at most {scatter.EDGE_LIMIT:,}."
    return Charted("The graph", told, scatter.graph_chart("graph", positions, ends))
