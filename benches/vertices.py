"""Benchmark of the vertex algorithms of LDBC Graphalytics other than PageRank, compared with networkx and igraph.

The graph is RMAT, with random weights for shortest paths. Ripieno begins with arrays of edges, which each fit sorts and
distributes. The graphs of igraph and networkx are built before; "igraph from arrays" also begins with the arrays.
The results are compared. igraph is used if installed. networkx and igraph have no synchronous label propagation; a
Counter per vertex is its peer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import graphs
import networkx as nx
import numpy as np
import ripieno as rp
from effort import Effort
from numpy.typing import NDArray
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples

SCALE, QUICK_SCALE = 16, 8
RUN_COUNT, ITERATION_COUNT = 5, 10
#: Workers and threads of each run.
SHAPES = ((1, 1), (1, 2), (2, 1))

Result = NDArray[Any]


@dataclass(frozen=True)
class VertexCase:
    """An algorithm: the estimator, its graph, the attribute with its result, and the functions of the peers."""

    name: str
    model: Callable[..., Any]
    graph: Any
    result: str
    peers: dict[str, Callable[[], Result]]


def measured(report: Measurements, effort: Effort) -> None:
    """Add the figures of each algorithm, and the number of vertices whose result differs from each peer's."""
    graph = graphs.rmat(QUICK_SCALE if effort.quick else SCALE)
    for case in _cases(report, graph):
        ours: dict[str, list[float]] = {}
        peers: dict[str, list[float]] = {}
        results: dict[str, Result] = {}
        for run in range(effort.runs(RUN_COUNT)):
            for workers, threads in SHAPES:
                row = f"{workers} × {threads}"
                begin = time.perf_counter()
                model = case.model(workers=workers, threads=threads).fit(case.graph)
                ours.setdefault(row, []).append(time.perf_counter() - begin)
                results[row] = getattr(model, case.result)
            for name, call in case.peers.items():
                # Python's loops take seconds to minutes.
                if name.startswith("igraph") or run == 0:
                    begin = time.perf_counter()
                    results[name] = call()
                    peers.setdefault(name, []).append(time.perf_counter() - begin)
        text = f"{case.name}, {graph.name}, {graph.edge_count / 1e6:.1f} M edges; workers × threads"
        for row, seconds in ours.items():
            samples = {name: Samples(tuple(each)) for name, each in peers.items()}
            report.figures.append(Figure(
                case=text, row=row, ours=Samples(tuple(seconds)), peers=samples, limit_s=None, limit="none",
                work=graph.edge_count / 1e6, rate_unit="M edges/s",
            ))  # fmt: skip
            for name in peers:
                differing = int(np.count_nonzero(~np.isclose(results[row], results[name], rtol=1e-12, atol=0)))
                report.counts.append(FigureCount(text, row, differing, f"vertices that differ from {name}", 0))


def _cases(report: Measurements, graph: graphs.BenchGraph) -> list[VertexCase]:
    count, source = graph.vertex_count, int(graph.sources[0])
    weights = np.random.default_rng(0).random(graph.edge_count)
    directed = nx.DiGraph()
    directed.add_nodes_from(range(count))
    ends = graph.sources.tolist(), graph.targets.tolist()
    directed.add_weighted_edges_from(zip(*ends, weights.tolist(), strict=True))
    undirected = directed.to_undirected()

    def distances(of: Callable[..., dict[int, float]], **options: Any) -> Result:
        found = of(directed, source, **options)
        return np.array([found.get(vertex, np.inf) for vertex in range(count)])

    peers: dict[str, dict[str, Callable[[], Result]]] = {
        "bfs": {"networkx": lambda: _finite(distances(nx.single_source_shortest_path_length))},
        "paths": {"networkx": lambda: distances(nx.single_source_dijkstra_path_length)},
        "components": {"networkx": lambda: _components(directed)},
        "communities": {"Counter": lambda: _propagated(directed)},
        "clustering": {"networkx": lambda: np.array(list(nx.clustering(undirected).values()))},
    }
    try:
        import igraph
    except ImportError:
        report.remark("igraph is skipped: pip install igraph")
    else:

        def directed_graph() -> Any:
            return igraph.Graph(count, np.column_stack([graph.sources, graph.targets]), directed=True)

        def undirected_graph() -> Any:
            return directed_graph().as_undirected(mode="collapse")

        calls: dict[str, tuple[Callable[[], Any], Callable[[Any], Result]]] = {
            "bfs": (directed_graph, lambda whole: _finite(np.array(whole.distances(source=source)[0]))),
            "paths": (directed_graph, lambda whole: np.array(whole.distances(source=source, weights=weights)[0])),
            "components": (
                directed_graph,
                lambda whole: _lowest_members(whole.connected_components("weak").membership),
            ),
            "clustering": (
                undirected_graph,
                lambda simple: np.array(simple.transitivity_local_undirected(mode="zero")),
            ),
        }
        for name, (make, call) in calls.items():
            peers[name]["igraph"] = partial(call, make())
            peers[name]["igraph from arrays"] = lambda make=make, call=call: call(make())
    plain = rp.Graph((graph.sources, graph.targets), vertex_count=count)
    undirected_edges = rp.Graph((graph.sources, graph.targets), vertex_count=count, directed=False)
    weighted = rp.Graph((graph.sources, graph.targets, weights), vertex_count=count)

    def model(kind: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        return lambda **options: kind(*arguments, **options)

    return [
        VertexCase("breadth-first search", model(rp.BFS, source), plain, "distances_", peers["bfs"]),
        VertexCase("shortest paths", model(rp.ShortestPaths, source), weighted, "distances_", peers["paths"]),
        VertexCase(f"{ITERATION_COUNT} iterations of label propagation", model(rp.CommunityDetection), plain, "labels_",
             peers["communities"]),
        VertexCase("connected components", model(rp.ConnectedComponents), plain, "labels_", peers["components"]),
        VertexCase("clustering coefficients", model(rp.ClusteringCoefficients), undirected_edges, "coefficients_",
             peers["clustering"]),
    ]  # fmt: skip


def _finite(distances: Result) -> Result:
    """Return -1 for infinite distances."""
    return np.where(np.isfinite(distances), distances, -1)


def _lowest_members(membership: list[int]) -> Result:
    """Return the smallest vertex of each vertex's component, given numbers of components."""
    _, firsts, places = np.unique(membership, return_index=True, return_inverse=True)
    return firsts[places]


def _components(graph: nx.DiGraph) -> Result:
    labels = np.empty(len(graph), np.int64)
    for component in nx.weakly_connected_components(graph):
        labels[list(component)] = min(component)
    return labels


def _propagated(graph: nx.DiGraph) -> Result:
    """Propagate labels one vertex at a time."""
    labels = list(range(len(graph)))
    for _ in range(ITERATION_COUNT):
        previous = labels.copy()
        for node in graph:
            votes = Counter(previous[other] for row in (graph.pred, graph.succ) for other in row[node])
            if votes:
                labels[node] = min(votes, key=lambda label, votes=votes: (-votes[label], label))
    return np.array(labels)
