"""The commands that compute properties of the vertices of a graph in files, such as `ripieno components`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ripieno.algorithms.parameters import FitParameters
from ripieno.algorithms.vertices.parameters import (
    CommunityParameters,
    DiameterParameters,
    ShortestPathsParameters,
    SourceParameters,
    SpectralClusteringParameters,
)
from ripieno.cli.graph_options import directed_option, graph_options, print_resumed, weighted_option, write_report
from ripieno.cli.options import check_files, communicator
from ripieno.files.results import ResultPath
from ripieno.files.tables import Columns, write_table
from ripieno.flight.trace import traced
from ripieno.launch.engine.contract import Engine

if TYPE_CHECKING:
    from ripieno.algorithms import BFS, ShortestPaths
    from ripieno.input import TableFiles


def _fit(
    estimator: Callable[..., Any],
    summary: Callable[[Any], str],
    columns: Callable[[Any], Columns],
    *,
    inputs: tuple[str, ...],
    tables: list[str] | TableFiles,
    out: ResultPath | None,
    overwrite: bool,
    workers: int | None,
    engine: str | Engine,
    threads: int | None,
    vertex_count: int | None,
    format: str | None,
    report: ResultPath | None,
    trace: Path | None,
    quiet: bool,
    parameters: dict[str, Any],
    directed: bool = True,
    weighted: bool | None = False,
    source: str | None = None,
) -> None:
    """Fit an estimator to the graph in files, print the summary that `summary` returns, and write `columns`."""
    from ripieno.graph import Graph

    check_files(inputs, out, trace, report, overwrite=overwrite)
    graph = Graph(tables, directed=directed, weighted=weighted, vertex_count=vertex_count, format=format)
    if source is not None:
        parameters["source"] = int(source) if graph.labels is None and source.isdecimal() else source
    comm = communicator(workers, threads, trace, engine, parameters["on_failure"])
    model = estimator(**parameters, workers=workers or 1, engine=engine, threads=threads)
    with traced(trace):
        model.fit(graph, comm=comm)
    if comm is not None and comm.rank != 0:
        return
    if not quiet:
        print_resumed(model)
    if out is not None:
        write_table(columns(model), out)
    write_report(model.report_, report)
    click.echo(summary(model))


@click.command("components")
@graph_options(FitParameters)
def components_command(**options: Any) -> None:
    """Find the connected components of the graph with the edges in INPUTS, ignoring directions.

    The result has the columns "vertex" and "component", which is the smallest vertex of the component.

    \b
    Example:
      ripieno components soc-Slashdot0902.txt.gz --workers 4 --out components.csv
    """
    from ripieno.algorithms import ConnectedComponents

    _fit(
        ConnectedComponents,
        lambda model: (
            f"{len(model.vertices_):,} vertices, {model.n_components_:,} component{'s' * (model.n_components_ > 1)}; "
            f"the largest has {model.sizes_[0]:,} vertices"
        ),
        lambda model: {"vertex": model.vertices_, "component": model.labels_},
        **options,
    )


_source_option = click.option("--source", metavar="VERTEX", required=True, help="Start vertex.")


def _with_parents(model: BFS | ShortestPaths) -> Columns:
    """Return the distance and parent of each vertex."""
    # Vertex names have no value for a missing parent.
    parents = model.vertices_[model.parents_]
    parents[model.parents_ < 0] = None if parents.dtype == object else -1
    return {"vertex": model.vertices_, "distance": model.distances_, "parent": parents}


@click.command("bfs")
@directed_option
@_source_option
@graph_options(SourceParameters)
def bfs_command(**options: Any) -> None:
    """Count the edges on shortest paths from one vertex to all others of the graph with the edges in INPUTS.

    The result has the columns "vertex", "distance" and "parent", the previous vertex on such a path; distance and
    parent are -1 for unreachable vertices, and the parent is missing if vertices have names.

    \b
    Example:
      ripieno bfs soc-Slashdot0902.txt.gz --source 0 --workers 4 --out distances.csv
    """
    from ripieno.algorithms import BFS

    def summary(model: BFS) -> str:
        reached = np.count_nonzero(model.distances_ >= 0)
        return f"{reached:,} of {len(model.vertices_):,} vertices are reached, in at most {model.n_iter_} steps"

    _fit(BFS, summary, _with_parents, **options)


@click.command("shortest-paths")
@directed_option
@weighted_option
@_source_option
@graph_options(ShortestPathsParameters, weights=True)
def shortest_paths_command(**options: Any) -> None:
    """Find the least sum of weights on paths from one vertex to all others of the graph with the edges in INPUTS.

    The result has the columns "vertex", "distance" and "parent", the previous vertex on such a path. The distance of an
    unreachable vertex is infinite, and its parent is -1, or missing if vertices have names.

    \b
    Example:
      ripieno shortest-paths roads.csv --source 0 --undirected --workers 4 --out distances.csv
    """
    from ripieno.algorithms import ShortestPaths

    def summary(model: ShortestPaths) -> str:
        reached = model.distances_[np.isfinite(model.distances_)]
        return (
            f"{len(reached):,} of {len(model.vertices_):,} vertices are reached, at distances up to {reached.max():.6g}"
        )

    _fit(ShortestPaths, summary, _with_parents, **options)


@click.command("communities")
@directed_option
@graph_options(CommunityParameters)
def communities_command(**options: Any) -> None:
    """Find communities of the graph with the edges in INPUTS by label propagation.

    In each iteration every vertex takes the most frequent label of its neighbors, and the smallest of several. The
    result has the columns "vertex" and "community", the vertex that began with the label.

    \b
    Example:
      ripieno communities soc-Slashdot0902.txt.gz --workers 4 --out communities.csv
    """
    from ripieno.algorithms import CommunityDetection

    _fit(
        CommunityDetection,
        lambda model: (
            f"{len(model.vertices_):,} vertices, "
            f"{model.n_communities_:,} communit{'ies' if model.n_communities_ > 1 else 'y'} after {model.n_iter_} "
            f"iterations; the largest has {model.sizes_[0]:,} vertices"
        ),
        lambda model: {"vertex": model.vertices_, "community": model.labels_},
        **options,
    )


@click.command("clustering")
@directed_option
@graph_options(FitParameters)
def clustering_command(**options: Any) -> None:
    """Compute the local clustering coefficients of the graph with the edges in INPUTS, and count its triangles.

    The result has the columns "vertex", "coefficient", "triangles" and "degree", the number of neighbors.

    \b
    Example:
      ripieno clustering soc-Slashdot0902.txt.gz --undirected --workers 4 --out coefficients.csv
    """
    from ripieno.algorithms import ClusteringCoefficients

    _fit(
        ClusteringCoefficients,
        lambda model: (
            f"{len(model.vertices_):,} vertices, {model.triangles_.sum() // 3:,} "
            f"triangle{'' if model.triangles_.sum() == 3 else 's'}; the mean coefficient is "
            f"{model.coefficients_.mean():.4g}"
        ),
        lambda model: {
            "vertex": model.vertices_,
            "coefficient": model.coefficients_,
            "triangles": model.triangles_,
            "degree": model.degrees_,
        },
        **options,
    )


@click.command("diameter")
@directed_option
@graph_options(DiameterParameters)
def diameter_command(**options: Any) -> None:
    """Estimate the effective diameter of the graph in INPUTS: the steps between most connected vertices (HADI).

    The result has the columns "steps" and "pairs", an estimate of the number of pairs with a path of at most this many
    edges.

    \b
    Example:
      ripieno diameter soc-Slashdot0902.txt.gz --workers 4 --out pairs.csv
    """
    from ripieno.algorithms import EffectiveDiameter

    _fit(
        EffectiveDiameter,
        lambda model: (
            f"effective diameter {model.effective_diameter_:.2f}, for {100 * model.share:g} % of "
            f"{model.pairs_[-1]:.4g} connected pairs; no path found is longer than {model.n_iter_}"
        ),
        lambda model: {"steps": np.arange(len(model.pairs_)), "pairs": model.pairs_},
        **options,
    )


@click.command("spectral-clustering")
@weighted_option
@graph_options(SpectralClusteringParameters, weights=True, required=("n_clusters",))
def spectral_clustering_command(**options: Any) -> None:
    """Cluster the vertices of the graph with the edges in INPUTS by K-means of its spectral embedding.

    Edges count in both directions. The result has the columns "vertex" and "cluster".

    \b
    Example:
      ripieno spectral-clustering soc-Slashdot0902.txt.gz --clusters 8 --workers 4 --out clusters.csv
    """
    from ripieno.algorithms import SpectralClustering

    _fit(
        SpectralClustering,
        lambda model: (
            f"{len(model.vertices_):,} vertices in {model.n_clusters:,} cluster{'s' * (model.n_clusters > 1)}; "
            f"the largest has {np.bincount(model.labels_).max():,} vertices"
        ),
        lambda model: {"vertex": model.vertices_, "cluster": model.labels_},
        **options,
    )
