"""Provide the functions of networkx that Ripieno implements, and conversions of graphs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import chain
from numbers import Integral, Real
from operator import methodcaller
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ripieno.algorithms import BFS, ClusteringCoefficients, ConnectedComponents, PageRank, ShortestPaths
from ripieno.graph import Graph

#: Functions of triangles, for undirected graphs without parallel edges.
TRIANGLES = ("clustering", "average_clustering", "transitivity", "triangles")
#: With fewer edges networkx is faster, so calls without a named backend are declined.
MIN_EDGES = 10_000


class ConvertedGraph:
    """A graph of networkx as arrays. networkx caches it until the graph changes.

    Parameters
    ----------
    original
        The graph.
    """

    __networkx_backend__ = "ripieno"

    def __init__(self, original: nx.Graph) -> None:
        self.original = original
        self._weighted: dict[tuple[str | None, Callable[[Iterable[Any]], Any]], Graph] = {}
        self.nodes: list[Any] = list(original)
        self.number: dict[Any, int] = {node: number for number, node in enumerate(self.nodes)}
        # Rows of multigraph views have no length.
        rows = [list(neighbors) for neighbors in original._adj.values()]
        degrees = np.fromiter(map(len, rows), np.int64, len(rows))
        self.sources: NDArray[np.int64] = np.repeat(np.arange(len(rows)), degrees)
        ends = map(self.number.__getitem__, chain.from_iterable(rows))
        self.targets: NDArray[np.int64] = np.fromiter(ends, np.int64, len(self.sources))

    def is_directed(self) -> bool:
        """Return whether the graph is directed."""
        return bool(self.original.is_directed())

    def is_multigraph(self) -> bool:
        """Return whether the graph is a multigraph."""
        return bool(self.original.is_multigraph())

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, node: object) -> bool:
        try:
            return node in self.number
        except TypeError:
            return False

    @cached_property
    def plain(self) -> Graph:
        """The edges without weights."""
        return Graph((self.sources, self.targets), vertex_count=len(self.nodes))

    def weighted(self, weight: str | None, parallel: Callable[[Iterable[Any]], Any] = sum) -> Graph:
        """Return the edges with an attribute as weight, 1 by default; `parallel` combines weights of parallel edges."""
        if (weight, parallel) not in self._weighted:
            values = self._weights(weight, parallel)
            self._weighted[weight, parallel] = (
                self.plain
                if (values == 1).all()
                else Graph((self.sources, self.targets, values), vertex_count=len(self.nodes))
            )
        return self._weighted[weight, parallel]

    def _weights(self, weight: str | None, parallel: Callable[[Iterable[Any]], Any]) -> NDArray[np.float64]:
        value = _one if weight is None else methodcaller("get", weight, 1.0)
        neighbors = chain.from_iterable(row.values() for row in self.original._adj.values())
        if self.is_multigraph():
            found: Iterator[Any] = (parallel(map(value, edges.values())) for edges in neighbors)
        else:
            found = map(value, neighbors)
        return np.fromiter(found, np.float64, len(self.targets))


def _one(edge: Mapping[str, Any]) -> float:
    return 1.0


def convert_from_nx(graph: nx.Graph, **_: Any) -> ConvertedGraph:
    """Convert a graph of networkx with all its attributes."""
    return ConvertedGraph(graph)


def convert_to_nx(result: Any, **_: Any) -> Any:
    """Return the original graph of networkx; other results are returned unchanged."""
    return result.original if isinstance(result, ConvertedGraph) else result


def can_run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | str:
    """Return whether a call is supported, or the reason why not; networkx then computes the result or the error."""
    arguments = inspect.signature(globals()[name]).bind_partial(*args, **kwargs).arguments
    graph = arguments["G"]
    if not len(graph):
        return "the graph has no nodes"
    if name.startswith("single_source_"):
        if callable(arguments.get("weight")):
            return "weight is a function"
        return True if arguments["source"] in graph else "the source is not a node"
    if name in TRIANGLES:
        return _triangles_support(graph, arguments)
    return _pagerank_support(arguments) if name == "pagerank" else True


def _pagerank_support(arguments: Mapping[str, Any]) -> bool | str:
    if arguments.get("nstart") is not None:
        return "nstart is not supported: the iteration starts uniform"
    max_iter, alpha = arguments.get("max_iter", 100), arguments.get("alpha", 0.85)
    if not isinstance(max_iter, Integral) or max_iter < 1:
        return f"max_iter={max_iter!r}: expected a whole number >= 1"
    if not isinstance(alpha, Real) or not 0 <= float(alpha) <= 1:
        return f"alpha={alpha!r}: expected a number of 0 to 1"
    for name in ("personalization", "dangling"):
        if arguments.get(name) is not None and not sum(arguments[name].get(node, 0) for node in arguments["G"]):
            return f"{name} is 0 everywhere"
    return True


def _triangles_support(graph: Any, arguments: Mapping[str, Any]) -> bool | str:
    if graph.is_directed() or graph.is_multigraph():
        return "the graph is directed or has parallel edges"
    return "weight: triangles have no weights" if arguments.get("weight") is not None else True


def should_run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | str:
    """Return whether a call without a named backend should run here."""
    graph = args[0] if args else kwargs["G"]
    edges = len(graph.targets) if isinstance(graph, ConvertedGraph) else graph.number_of_edges()
    return edges >= MIN_EDGES or f"fewer than {MIN_EDGES:,} edges"


def pagerank(
    G: ConvertedGraph,
    alpha: float = 0.85,
    personalization: Mapping[Any, float] | None = None,
    max_iter: int = 100,
    tol: float = 1e-06,
    nstart: None = None,
    weight: str | None = "weight",
    dangling: Mapping[Any, float] | None = None,
    *,
    workers: int | None = None,
    threads: int | None = None,
) -> dict[Any, float]:
    """Compute `networkx.pagerank` with `PageRank`."""
    model = PageRank(
        alpha,
        tol=tol,
        max_iter=max_iter,
        personalization=_by_number(G, personalization),
        dangling=_by_number(G, dangling),
        **_worker_options(workers, threads),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            model.fit(G.weighted(weight))
        except ConvergenceWarning:
            raise nx.PowerIterationFailedConvergence(max_iter) from None
    return dict(zip(G.nodes, model.ranks_.tolist(), strict=True))


def connected_components(
    G: ConvertedGraph, *, workers: int | None = None, threads: int | None = None
) -> Iterator[set[Any]]:
    """Compute `networkx.connected_components` with `ConnectedComponents`, in the order of their first nodes."""
    labels = _components(G, workers, threads).labels_
    order = np.argsort(labels, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        yield {G.nodes[number] for number in part.tolist()}


def number_connected_components(G: ConvertedGraph, *, workers: int | None = None, threads: int | None = None) -> int:
    """Compute `networkx.number_connected_components` with `ConnectedComponents`."""
    return int(_components(G, workers, threads).n_components_)


def is_connected(G: ConvertedGraph, *, workers: int | None = None, threads: int | None = None) -> bool:
    """Compute `networkx.is_connected` with `ConnectedComponents`."""
    return number_connected_components(G, workers=workers, threads=threads) == 1


# `ConnectedComponents` ignores the direction of edges.
weakly_connected_components = connected_components
number_weakly_connected_components = number_connected_components
is_weakly_connected = is_connected


def single_source_shortest_path_length(
    G: ConvertedGraph,
    source: Any,
    cutoff: float | None = None,
    *,
    workers: int | None = None,
    threads: int | None = None,
) -> dict[Any, int]:
    """Compute `networkx.single_source_shortest_path_length` with `BFS`, nearest nodes first."""
    distances = BFS(G.number[source], **_worker_options(workers, threads)).fit(G.plain).distances_
    # networkx includes the last step that begins before the cutoff.
    steps = np.inf if cutoff is None else max(np.ceil(cutoff), 0)
    return _nearest_first(G, distances, (distances >= 0) & (distances <= steps))


def single_source_dijkstra_path_length(
    G: ConvertedGraph,
    source: Any,
    cutoff: float | None = None,
    weight: str | None = "weight",
    *,
    workers: int | None = None,
    threads: int | None = None,
) -> dict[Any, float]:
    """Compute `networkx.single_source_dijkstra_path_length` with `ShortestPaths`, nearest nodes first."""
    model = ShortestPaths(G.number[source], **_worker_options(workers, threads)).fit(G.weighted(weight, min))
    is_near = np.isfinite(model.distances_) & (model.distances_ <= (np.inf if cutoff is None else cutoff))
    # networkx includes the source in any case.
    is_near[G.number[source]] = True
    return _nearest_first(G, model.distances_, is_near)


def clustering(
    G: ConvertedGraph,
    nodes: Any = None,
    weight: None = None,
    *,
    workers: int | None = None,
    threads: int | None = None,
) -> Any:
    """Compute `networkx.clustering` with `ClusteringCoefficients`."""
    return _of_nodes(G, nodes, _triangles(G, workers, threads).coefficients_)


def average_clustering(
    G: ConvertedGraph,
    nodes: Any = None,
    weight: None = None,
    count_zeros: bool = True,
    *,
    workers: int | None = None,
    threads: int | None = None,
) -> float:
    """Compute `networkx.average_clustering` with `ClusteringCoefficients`."""
    found = clustering(G, nodes, workers=workers, threads=threads).values()
    counted = [value for value in found if count_zeros or value]
    return float(sum(counted) / len(counted))


def transitivity(G: ConvertedGraph, *, workers: int | None = None, threads: int | None = None) -> float:
    """Compute `networkx.transitivity` with `ClusteringCoefficients`."""
    model = _triangles(G, workers, threads)
    triangle_count = int(model.triangles_.sum())
    return 2 * triangle_count / int(model.degrees_ @ (model.degrees_ - 1)) if triangle_count else 0


def triangles(G: ConvertedGraph, nodes: Any = None, *, workers: int | None = None, threads: int | None = None) -> Any:
    """Compute `networkx.triangles` with `ClusteringCoefficients`."""
    return _of_nodes(G, nodes, _triangles(G, workers, threads).triangles_)


def _triangles(G: ConvertedGraph, workers: int | None, threads: int | None) -> ClusteringCoefficients:
    return ClusteringCoefficients(**_worker_options(workers, threads)).fit(G.plain)


def _of_nodes(G: ConvertedGraph, nodes: Any, values: NDArray[Any]) -> Any:
    """Return the value of a node, or a dict of some nodes, by default of all."""
    if nodes is None:
        return dict(zip(G.nodes, values.tolist(), strict=True))
    if nodes in G:
        return values[G.number[nodes]].item()
    return {node: values[G.number[node]].item() for node in G.original.nbunch_iter(nodes)}


def _nearest_first(G: ConvertedGraph, distances: NDArray[Any], where: NDArray[np.bool_]) -> dict[Any, Any]:
    """Return the distances of the nodes in `where`, ascending."""
    near = np.flatnonzero(where)
    near = near[np.argsort(distances[near], kind="stable")]
    return {G.nodes[number]: distance for number, distance in zip(near.tolist(), distances[near].tolist(), strict=True)}


def _components(G: ConvertedGraph, workers: int | None, threads: int | None) -> ConnectedComponents:
    return ConnectedComponents(**_worker_options(workers, threads)).fit(G.plain)


def _worker_options(workers: int | None, threads: int | None) -> dict[str, Any]:
    return {"workers": nx.config.backends.ripieno.workers if workers is None else workers, "threads": threads}


def _by_number(G: ConvertedGraph, values: Mapping[Any, float] | None) -> dict[int, float] | None:
    """Return values by node as values by node number; like networkx, ignore keys that are not nodes."""
    return None if values is None else {G.number[node]: value for node, value in values.items() if node in G.number}
