"""Ripieno as a backend of networkx: the same results, by networkx's own tests and compared with networkx."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import wraps
from inspect import signature
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from networkx.utils.backends import _registered_algorithms
from ripieno.networkx import backend, listing

OWN_TESTS = (
    "algorithms/link_analysis/tests/test_pagerank.py",
    "algorithms/components/tests/test_connected.py",
    "algorithms/components/tests/test_weakly_connected.py",
    "algorithms/shortest_paths/tests/test_unweighted.py",
    "algorithms/shortest_paths/tests/test_weighted.py",
    "algorithms/tests/test_cluster.py",
)
MULTIGRAPH = nx.MultiDiGraph([(0, 1, {"toll": 3}), (0, 1, {"toll": 2}), (1, 2), (2, 0, {"toll": 0.5}), (0, 2)])
GRAPHS = {
    "karate": nx.karate_club_graph(),
    "names": nx.les_miserables_graph(),
    "directed": nx.gnp_random_graph(60, 0.03, seed=1, directed=True),
    "parts": nx.disjoint_union(nx.cycle_graph(4), nx.path_graph([7, 5, 6])),
    "loops": nx.Graph([(1, 1), (1, 2), (3, 3)]),
    "parallel": MULTIGRAPH,
    "view": MULTIGRAPH.edge_subgraph([(0, 1, 1), (2, 0, 0)]),
    "isolated": nx.empty_graph(3),
}


@pytest.fixture(autouse=True)
def quiet_cache(monkeypatch):
    """Silence networkx's warnings about converted graphs."""
    monkeypatch.setattr(nx.config, "warnings_to_ignore", {"cache"})


def both(name, graph, *arguments, **named):
    ours = getattr(nx, name)(graph, *arguments, backend="ripieno", **named)
    named.pop("workers", None)
    return ours, getattr(nx, name)(graph, *arguments, backend="networkx", **named)


@pytest.mark.exhaustive
def test_tests_of_networkx_pass_with_our_functions():
    folder = Path(nx.__file__).parent
    environment = os.environ | {"NETWORKX_TEST_BACKEND": "ripieno", "NETWORKX_FALLBACK_TO_NX": "True"}
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}"]

    done = subprocess.run(
        [sys.executable, *words, *(str(folder / test) for test in OWN_TESTS)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )

    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout and "failed" not in done.stdout


@pytest.mark.parametrize("name", listing.FUNCTIONS)
def test_every_registered_function_has_the_parameters_of_networkx(name):
    assert name in _registered_algorithms
    theirs = [each for each in signature(getattr(nx, name)).parameters if each not in ("backend", "backend_kwargs")]

    assert list(signature(getattr(backend, name)).parameters) == [*theirs, "workers", "threads"]


@pytest.mark.parametrize(
    ("graph", "workers"), [*((graph, 1) for graph in GRAPHS), ("names", 2), ("isolated", 2), ("parts", 3)]
)
def test_ranks_match_networkx(graph, workers):
    ours, theirs = both("pagerank", GRAPHS[graph], tol=1e-12, max_iter=500, workers=workers)
    assert list(ours) == list(theirs)
    np.testing.assert_allclose(list(ours.values()), list(theirs.values()), rtol=1e-9)


@pytest.mark.parametrize("weight", [None, "toll"])
def test_page_ranks_by_another_weight_match_networkx(weight):
    first = next(iter(MULTIGRAPH))
    ours, theirs = both(
        "pagerank",
        MULTIGRAPH,
        weight=weight,
        personalization={first: 1, "unknown": 3},
        dangling={2: 1},
        tol=1e-13,
        max_iter=999,
    )
    assert ours == pytest.approx(theirs, abs=1e-11)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_components_and_distances_match_networkx(graph):
    prefix = "weakly_" if graph.is_directed() else ""
    ours, theirs = both(f"{prefix}connected_components", graph)
    assert list(ours) == list(theirs)
    for name in (f"number_{prefix}connected_components", f"is_{prefix}connected"):
        ours, theirs = both(name, graph)
        assert ours == theirs and type(ours) is type(theirs)
    for cutoff in (None, -1, 0, 1, 2.5):
        ours, theirs = both("single_source_shortest_path_length", graph, next(iter(graph)), cutoff=cutoff)
        assert ours == theirs and list(ours.values()) == list(theirs.values())


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_weighted_distances_match_networkx(graph):
    for weight in ("weight", "toll", None):
        for cutoff in (None, -1, 0, 2.5):
            first = next(iter(graph))
            ours, theirs = both("single_source_dijkstra_path_length", graph, first, cutoff=cutoff, weight=weight)
            assert ours == theirs and list(ours.values()) == list(theirs.values())


@pytest.mark.parametrize("name", ["karate", "names", "parts", "loops", "isolated"])
def test_clustering_coefficients_match_networkx(name):
    graph = GRAPHS[name]
    first, *others = graph
    for function in ("clustering", "triangles"):
        for nodes in (None, first, [*others, "unknown"]):
            ours, theirs = both(function, graph, nodes)
            assert ours == theirs
            assert nodes == first or list(ours) == list(theirs)
    assert both("average_clustering", graph)[0] == nx.average_clustering(graph)
    ours, theirs = both("transitivity", graph, workers=2)
    assert ours == theirs


def test_components_and_distances_of_two_workers_match_networkx():
    ours, theirs = both("connected_components", GRAPHS["parts"], workers=2)
    assert list(ours) == list(theirs)
    ours, theirs = both("single_source_shortest_path_length", GRAPHS["names"], "Javert", workers=2)
    assert ours == theirs


def test_input_that_cannot_be_computed_is_declined_with_the_reason():
    graph = nx.path_graph(3)
    for words, reason in [
        ({"nstart": {0: 1}}, "nstart"),
        ({"alpha": 1.5}, "alpha=1.5"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"personalization": {"unknown": 1}}, "personalization is 0 everywhere"),
    ]:
        assert reason in backend.can_run("pagerank", (graph,), words)
    assert "no nodes" in backend.can_run("is_connected", (nx.Graph(),), {})
    assert "has parallel edges" in backend.can_run("clustering", (MULTIGRAPH,), {})
    assert "directed" in backend.can_run("triangles", (GRAPHS["directed"],), {})
    assert "weights" in backend.can_run("average_clustering", (graph,), {"weight": "weight"})
    assert "a function" in backend.can_run("single_source_dijkstra_path_length", (graph, 0, None, max), {})
    assert "not a node" in backend.can_run("single_source_shortest_path_length", (graph, 9), {})
    with pytest.raises(NotImplementedError, match="not implemented by 'ripieno' backend for the given arguments"):
        nx.pagerank(graph, nstart={0: 1}, backend="ripieno")


def test_errors_match_networkx_or_our_own_sentences():
    with pytest.raises(nx.PowerIterationFailedConvergence):
        nx.pagerank(GRAPHS["directed"], max_iter=2, tol=1e-12, backend="ripieno")
    with pytest.raises(rp.InputError, match="weights >= 0"):
        nx.pagerank(nx.Graph([(0, 1, {"weight": -1.0})]), backend="ripieno")
    with pytest.raises(ValueError, match=r"weight -1\.0: ShortestPaths needs weights >= 0"):
        nx.single_source_dijkstra_path_length(nx.Graph([(0, 1, {"weight": -1})]), 0, backend="ripieno")


def test_large_graphs_use_the_backend_if_a_priority_is_set(monkeypatch):
    called = []

    @wraps(backend.pagerank)
    def recorded(G, *arguments, **named):
        called.append(G)
        return {}

    monkeypatch.setattr(backend, "pagerank", recorded)
    small, large = nx.path_graph(10), nx.path_graph(backend.MIN_EDGES + 1)
    with nx.config.backend_priority(algos=["ripieno"]):
        assert len(nx.pagerank(small)) == 10 and not called
        assert nx.pagerank(large) == {} and called


def test_the_number_of_workers_is_a_setting(monkeypatch):
    requested = []

    class RecordedPageRank(rp.PageRank):
        def fit(self, graph, y=None, *, comm=None):
            requested.append(self.workers)
            return super().fit(graph, comm=comm)

    monkeypatch.setattr(backend, "PageRank", RecordedPageRank)
    with nx.config.backends.ripieno(workers=2):
        nx.pagerank(nx.path_graph(5), backend="ripieno")
    assert requested == [2]


def test_other_functions_convert_the_graph_back():
    converted = backend.convert_from_nx(GRAPHS["names"])
    assert nx.pagerank(converted) == nx.pagerank(GRAPHS["names"], backend="ripieno")
    assert backend.convert_to_nx(converted) is GRAPHS["names"]
