"""Describe the backend for networkx, which reads this description at import, without an import of the backend."""

from __future__ import annotations

from typing import Any

_WORKERS = {
    "workers : int, optional": "Worker processes; by default `nx.config.backends.ripieno.workers`, at first 1.",
    "threads : int, optional": "Threads of each worker; by default an even share of the machine's cores.",
}
#: Supported functions, and the estimator of each.
FUNCTIONS = {
    "pagerank": "By `rp.PageRank`.",
    "connected_components": "By `rp.ConnectedComponents`.",
    "number_connected_components": "By `rp.ConnectedComponents`.",
    "is_connected": "By `rp.ConnectedComponents`.",
    "weakly_connected_components": "By `rp.ConnectedComponents`.",
    "number_weakly_connected_components": "By `rp.ConnectedComponents`.",
    "is_weakly_connected": "By `rp.ConnectedComponents`.",
    "single_source_shortest_path_length": "By `rp.BFS`.",
    "single_source_dijkstra_path_length": "By `rp.ShortestPaths`.",
    "clustering": "By `rp.ClusteringCoefficients`.",
    "average_clustering": "By `rp.ClusteringCoefficients`.",
    "transitivity": "By `rp.ClusteringCoefficients`.",
    "triangles": "By `rp.ClusteringCoefficients`.",
}


def about() -> dict[str, Any]:
    """Return the documentation of the backend, and its settings."""
    return {
        "backend_name": "ripieno",
        "project": "ripieno",
        "package": "ripieno",
        "short_summary": "Parallel graph algorithms on cores and clusters.",
        "default_config": {"workers": 1},
        "functions": {
            name: {"additional_docs": text, "additional_parameters": _WORKERS} for name, text in FUNCTIONS.items()
        },
    }
