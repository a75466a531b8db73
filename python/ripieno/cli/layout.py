"""The command `ripieno layout`: force-directed positions of the vertices of a graph in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ripieno.algorithms.fruchterman_reingold.parameters import LayoutParameters
from ripieno.algorithms.methods import EXACT
from ripieno.cli.fits import FitRun, fit_command
from ripieno.cli.graph_options import directed_option

if TYPE_CHECKING:
    from ripieno.algorithms import FruchtermanReingold
    from ripieno.graph import Graph
    from ripieno.report import PageChart


@fit_command("layout", LayoutParameters, estimator="FruchtermanReingold", title="Layout", data=("vertices", "edges"))
@directed_option
def layout_command(run: FitRun, directed: bool) -> None:
    """Find positions of the vertices of the graph with the edges in INPUTS, by Fruchterman's and Reingold's forces.

    INPUTS are files, globs or folders: text with a line "source target [weight]" per edge or
    "source<TAB>target,target,…", .csv (all of these also gzipped), .parquet, .npy, .npz. Every worker reads its own
    share. The output folder holds positions.npy, vertices.npy with the id of each, model.json and report.html, which
    draws the graph. It appears as a whole or not at all.

    \b
    Example:
      ripieno layout facebook.txt.gz --undirected --workers 4 --out result/
    """
    from ripieno.algorithms import FruchtermanReingold
    from ripieno.graph import Graph

    graph = Graph(run.tables, directed=directed)
    with run.fitting(FruchtermanReingold, ("change",)) as model:
        model.fit(graph)
    run.write(
        model,
        list(graph.names) or run.inputs,
        f"{model.n_iter_} iterations, {_repulsion(model)}",
        facts={"edge_count": getattr(model.report_, "column_count", None)},
        page=lambda: _page(model, graph),
        draws=True,
    )


def _repulsion(model: FruchtermanReingold) -> str:
    return "all pairs" if model.approximation_ == EXACT else f"Barnes-Hut with theta {model.theta:g}"


def _page(model: FruchtermanReingold, graph: Graph) -> tuple[dict[str, str], list[PageChart]]:
    from ripieno.report import PageChart, charts

    steps = [step.measures for step in model.report_.iterations]
    moves = PageChart(
        "Convergence",
        "The root of the sum of all squared moves, divided by the number of vertices, and the move of each vertex.",
        charts.line_chart("moves", {name: [float(each[name]) for each in steps] for name in ("change", "step")}),
    )
    return {"iterations": f"{model.n_iter_:,}", "repulsion": _repulsion(model)}, [_drawn(model, graph), moves]


def _drawn(model: FruchtermanReingold, graph: Graph) -> PageChart:
    from ripieno.graph.split_edges import SplitEdges
    from ripieno.report import PageChart, scatter

    positions = model.positions_
    if positions.shape[1] >= 3:
        text = (
            f"At most {scatter.POINT_LIMIT:,} vertices, in three dimensions. They turn, and stop "
            "under the mouse pointer."
        )
        return PageChart("The graph", text, scatter.turning_chart("vertices", positions))
    if isinstance(graph.source, SplitEdges):
        # Only the ranks read the edges of splits.
        text = f"At most {scatter.POINT_LIMIT:,} vertices, without edges."
        return PageChart("The graph", text, scatter.scatter_chart("vertices", positions))
    edges = graph.read_share(0, 1)
    ends = np.stack([edges.sources, edges.targets], axis=1)
    if graph.labels is None:
        ends = np.searchsorted(model.vertices_, ends)
    limit = scatter.EDGE_LIMIT
    text = "All edges are drawn." if len(ends) <= limit else f"At most {limit:,} of the {len(ends):,} edges are drawn."
    return PageChart("The graph", text, scatter.graph_chart("graph", positions, ends))
