"""Benchmark of networkx functions, by Ripieno and by networkx itself, on an RMAT graph with nodes and edges as dicts.

The first call makes arrays of the graph, which networkx keeps for later calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import graphs
import networkx as nx
from effort import Effort
from ripieno.bench.figures import Figure, Measurements, Samples

SCALE, QUICK_SCALE = 16, 8
TARGET = 1 / 20
CALLS: dict[str, Callable[[nx.DiGraph, str], Any]] = {
    "pagerank": lambda graph, backend: nx.pagerank(graph, tol=1e-9, max_iter=200, backend=backend),
    "weakly_connected_components": lambda graph, backend: list(nx.weakly_connected_components(graph, backend=backend)),
    "single_source_shortest_path_length": lambda graph, backend: nx.single_source_shortest_path_length(
        graph, next(iter(graph)), backend=backend
    ),
}


def measured(report: Measurements, effort: Effort) -> None:
    """Measure one case per function: calls with and without cached arrays."""
    nx.config.warnings_to_ignore.add("cache")
    numbered = graphs.rmat(QUICK_SCALE if effort.quick else SCALE)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(numbered.vertex_count))
    graph.add_edges_from(zip(numbered.sources.tolist(), numbered.targets.tolist(), strict=True))
    for name, call in CALLS.items():
        found, first, peer = [], [], []
        for _ in range(effort.runs(5)):
            graph.__networkx_cache__.clear()
            first.append(_timed(call, graph, "ripieno"))
            found.append(_timed(call, graph, "ripieno"))
            peer.append(_timed(call, graph, "networkx"))
        for row, ours in (("arrays kept", found), ("arrays made", first)):
            target = {"peer": TARGET} if (name, row) == ("pagerank", "arrays kept") else {}
            report.figures.append(Figure(
                case=f"{name}, {numbered.name}, {numbered.edge_count / 1e6:.1f} M edges", row=row,
                ours=Samples(tuple(ours)), peers={"networkx": Samples(tuple(peer))}, limit_s=None, limit="none",
                work=numbered.edge_count / 1e6, rate_unit="M edges/s", targets=target,
            ))  # fmt: skip


def _timed(call: Callable[[nx.DiGraph, str], Any], graph: nx.DiGraph, backend: str) -> float:
    begin = time.perf_counter()
    call(graph, backend)
    return time.perf_counter() - begin
