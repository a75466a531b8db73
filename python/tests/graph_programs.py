"""Graphs for tests, and programs that build a graph on any number of ranks."""

from __future__ import annotations

import networkx as nx
import numpy as np
import ripieno as rp


def with_islands(directed: bool) -> nx.Graph:
    """Return a graph of components of several sizes, isolated vertices, and a loop."""
    graph = nx.gnm_random_graph(120, 110, seed=3, directed=directed)
    graph.add_edge(7, 7)
    return graph


GRAPHS = {
    "karate": nx.karate_club_graph(),
    "les miserables": nx.les_miserables_graph(),
    "islands": with_islands(directed=False),
    "directed islands": with_islands(directed=True),
    "path": nx.path_graph(30),
    "no edges": nx.empty_graph(5),
}


def random_edges(vertex_count=40, edge_count=150):
    random = np.random.default_rng(7)
    return random.integers(0, vertex_count, (2, edge_count)) * 3, random.integers(1, 5, edge_count).astype(float)


def built(comm, **options):
    """Return the random graph, built from edges of every rank except the last."""
    (sources, targets), weights = random_edges()
    contributor_count = max(comm.world_size - 1, 1)
    mine = np.arange(len(weights)) % contributor_count == comm.rank
    weights = weights[mine] if options.pop("weighted", True) else None
    return rp.Graph.from_edges(sources[mine], targets[mine], weights, comm=comm, **options)


def gathered(comm, ids, rows):
    """Return the ids and rows of all ranks, in the order of the ids."""
    ids, rows = (np.concatenate(comm.allgather(each)) for each in (ids, rows))
    order = np.argsort(ids)
    return ids[order], rows[order]
