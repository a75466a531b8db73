"""The command `ripieno pagerank`: rank the vertices of a graph in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ripieno import log
from ripieno.algorithms.pagerank.parameters import PageRankParameters
from ripieno.cli.graph_options import directed_option, graph_options, print_resumed, weighted_option, write_report
from ripieno.cli.options import (
    check_files,
    communicator,
    top_option,
)
from ripieno.files.results import ResultPath
from ripieno.files.tables import write_table
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from rich.console import Console

    from ripieno.algorithms import PageRank
    from ripieno.graph import Graph
    from ripieno.input import TableFiles


@click.command("pagerank")
@graph_options(PageRankParameters, out=Path("ranks.parquet"), weights=True)
@directed_option
@weighted_option
@top_option("vertices with the highest ranks")
def pagerank_command(
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    out: ResultPath,
    overwrite: bool,
    workers: int | None,
    engine: str | Engine,
    threads: int | None,
    parameters: dict[str, Any],
    directed: bool,
    weighted: bool | None,
    vertex_count: int | None,
    format: str | None,
    top: int,
    report: ResultPath | None,
    trace: Path | None,
    quiet: bool,
) -> None:
    """Rank the vertices of the graph with the edges in INPUTS.

    The result has one row per vertex, and appears as a whole or not at all.

    \b
    Example:
      ripieno pagerank soc-Slashdot0902.txt.gz --workers 4 --out ranks.csv
      ripieno lab run -- ripieno pagerank /data/graph.txt --out /data/ranks.parquet
    """
    from rich.console import Console

    from ripieno.algorithms import PageRank
    from ripieno.cli.progress import PageRankProgress
    from ripieno.graph import Graph

    check_files(inputs, out, trace, report, overwrite=overwrite)
    graph = Graph(tables, directed=directed, weighted=weighted, vertex_count=vertex_count, format=format)
    comm = communicator(workers, threads, trace, engine, parameters["on_failure"])
    leading = comm is None or comm.rank == 0
    console = Console(stderr=True, quiet=not leading)
    progress = PageRankProgress(console, quiet=quiet)
    running: dict[str, Any] = {"workers": workers or 1, "engine": engine, "threads": threads}
    model = PageRank(**parameters, **running, on_iteration=progress.on_event)
    with progress, traced(trace):
        model.fit(graph, comm=comm)
    if leading:
        if not quiet:
            print_resumed(model)
        write_table({"vertex": model.vertices_, "rank": model.ranks_}, out)
        write_report(model.report_, report)
        with log.warn_on_failure("ripieno.report", "the summary"):
            _print(model, graph, console, top)
        click.echo(out)


def _print(model: PageRank, graph: Graph, console: Console, top: int) -> None:
    from rich.table import Table

    report = model.report_
    directions = "" if graph.directed else " (undirected edges in both directions)"
    iteration_ms = 1000 * sum(each.seconds for each in report.iterations) / model.n_iter_
    console.print(
        f"{report.vertex_count:,} vertices, {report.edge_count:,} edges{directions}; {model.n_iter_} iterations of "
        f"{iteration_ms:.3g} ms, the last one changed the ranks by {report.iterations[-1].error:.3g}; "
        f"{report.total_s:.3g} s in all",
        highlight=False,
        soft_wrap=True,
    )
    if top:
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
        for name in ("vertex", "rank"):
            table.add_column(name, justify="right")
        for vertex, rank in model.top(top):
            table.add_row(str(vertex), f"{rank:.6g}")
        console.print(table)
