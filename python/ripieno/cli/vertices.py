"""`ripieno components`, `bfs` and `diameter`: what there is to know of each vertex of a graph in files, or of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ripieno import init
from ripieno.algorithms import BFS, ConnectedComponents, EffectiveDiameter
from ripieno.errors import InputError
from ripieno.flight.trace import traced
from ripieno.graph import Graph
from ripieno.launch.run import under_launcher
from ripieno.output import check_new_file, new_file

Columns = Mapping[str, NDArray[Any]]


def _write_npz(columns: Columns, path: Path) -> None:
    with open(path, "wb") as file:
        np.savez(file, **columns)


WRITERS: dict[str, Callable[[Columns, Path], None]] = {
    ".parquet": lambda columns, path: pq.write_table(pa.table(dict(columns)), path),
    ".csv": lambda columns, path: pa.csv.write_csv(pa.table(dict(columns)), path),
    ".npz": _write_npz,
}

_OPTIONS = (
    click.argument("inputs", nargs=-1, required=True),
    click.option("-o", "--out", type=click.Path(path_type=Path), help="File to write: .parquet, .csv or .npz."),
    click.option(
        "-w",
        "--workers",
        type=click.IntRange(min=1),
        metavar="COUNT",
        help="Worker processes on this machine; by default 1. Under a launcher its ranks do the work.",
    ),
    click.option(
        "--threads",
        type=click.IntRange(min=1),
        metavar="COUNT",
        help="Threads of each worker; by default all cores are used.",
    ),
    click.option(
        "--vertices",
        type=click.IntRange(min=1),
        metavar="COUNT",
        help="Vertices 0 … COUNT - 1 are there, edges or not.",
    ),
    click.option(
        "--trace",
        type=click.Path(path_type=Path),
        help="File to write: what every worker communicated and when, for ui.perfetto.dev.",
    ),
)


_INPUTS = """
    INPUTS are files, globs or folders: text with a line "source target" per edge or "source<TAB>target,target,…", .csv
    (all of these also gzipped), .parquet, .npy, .npz. Every worker reads its own share.
"""


def _graph_options(command: Callable[..., None]) -> Callable[..., None]:
    """The argument and options of every command here."""
    command.__doc__ = f"{command.__doc__}{_INPUTS}"
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_undirected_option = click.option("--undirected", is_flag=True, help="Every edge leads both ways.")


def _fit(
    model: Any,
    tell: Callable[[Any], str],
    columns: Callable[[Any], Columns],
    *,
    inputs: tuple[str, ...],
    out: Path | None,
    workers: int | None,
    threads: int | None,
    vertices: int | None,
    trace: Path | None,
    undirected: bool = False,
) -> None:
    """Fit `model` to the graph in files, print what `tell` says of it, and write `columns`."""
    if out is not None:
        if out.suffix.lower() not in WRITERS:
            raise InputError(f"{out}: unknown kind of file, expected one of {', '.join(WRITERS)}")
        check_new_file(out)
    launched = under_launcher()
    if launched and (workers is not None or trace is not None):
        raise InputError("--workers and --trace are the launcher's, which has started this command as a rank")
    # A third column means nothing here.
    graph = Graph(list(inputs), directed=not undirected, weighted=False, vertex_count=vertices)
    comm = init(threads=threads) if launched else None
    with traced(trace):
        model.set_params(workers=workers or 1, threads=threads).fit(graph, comm=comm)
    if comm is not None and comm.rank != 0:
        return
    if out is not None:
        with new_file(out) as part:
            WRITERS[out.suffix.lower()](columns(model), part)
    click.echo(tell(model))


@click.command("components", short_help="Find the connected components of a graph.")
@_graph_options
def components_command(**options: Any) -> None:
    """Find the connected components of the graph whose edges are in INPUTS, whatever their direction.

    The result has the columns "vertex" and "component", which is the smallest vertex of the component.

    \b
    Example:
      ripieno components soc-Slashdot0902.txt.gz --workers 4 --out components.csv
    """
    _fit(
        ConnectedComponents(),
        lambda model: (
            f"{len(model.vertices_):,} vertices, {model.n_components_:,} component{'s' * (model.n_components_ > 1)}; "
            f"the largest has {model.sizes_[0]:,} vertices"
        ),
        lambda model: {"vertex": model.vertices_, "component": model.labels_},
        **options,
    )


@click.command("bfs", short_help="Count the edges from a vertex to all others.")
@_undirected_option
@click.option("--source", type=click.IntRange(min=0), metavar="VERTEX", required=True, help="Where to begin.")
@_graph_options
def bfs_command(source: int, **options: Any) -> None:
    """Count the edges on shortest paths from one vertex to all others of the graph whose edges are in INPUTS.

    The result has the columns "vertex", "distance" and "parent", the vertex
    before it on such a path; distance and parent are -1 where there is none.

    \b
    Example:
      ripieno bfs soc-Slashdot0902.txt.gz --source 0 --workers 4 --out distances.csv
    """

    def columns(model: BFS) -> Columns:
        parents = np.where(model.parents_ < 0, -1, model.vertices_[model.parents_])
        return {"vertex": model.vertices_, "distance": model.distances_, "parent": parents}

    def tell(model: BFS) -> str:
        reached = np.count_nonzero(model.distances_ >= 0)
        return f"{reached:,} of {len(model.vertices_):,} vertices are reached, in {model.n_iter_} steps at most"

    _fit(BFS(source), tell, columns, **options)


@click.command("diameter", short_help="Estimate the effective diameter of a graph.")
@_undirected_option
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="NUMBER",
    default=0.9,
    show_default=True,
    help="Of the pairs of vertices with a path.",
)
@click.option(
    "--strings",
    type=click.IntRange(min=2),
    metavar="COUNT",
    default=64,
    show_default=True,
    help="Bit strings per vertex: four times as many halve the error.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the bit strings.")
@_graph_options
def diameter_command(share: float, strings: int, seed: int, **options: Any) -> None:
    """Estimate in how many steps most connected pairs of vertices of the graph in INPUTS reach each other (HADI).

    The result has the columns "steps" and "pairs", an estimate of how many pairs
    have a path of so many edges at most.

    \b
    Example:
      ripieno diameter soc-Slashdot0902.txt.gz --workers 4 --out pairs.csv
    """
    _fit(
        EffectiveDiameter(share=share, n_strings=strings, random_state=seed),
        lambda model: (
            f"effective diameter {model.effective_diameter_:.2f}, for {100 * share:g} % of {model.pairs_[-1]:.4g} "
            f"connected pairs; no path found is longer than {model.n_iter_}"
        ),
        lambda model: {"steps": np.arange(len(model.pairs_)), "pairs": model.pairs_},
        **options,
    )
