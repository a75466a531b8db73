"""Results per vertex equal networkx, SciPy and scikit-learn, on any number of workers."""

from __future__ import annotations

import doctest
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from ripieno.algorithms.vertices import (
    bfs,
    clustering,
    communities,
    components,
    diameter,
    shortest_paths,
    spectral,
    spectral_clustering,
)
from ripieno.algorithms.vertices.components_program import _inverse_mixed
from ripieno.algorithms.vertices.diameter_program import effective_diameter
from ripieno.kernels.hashing import mixed
from scipy.sparse.csgraph import connected_components, laplacian
from sklearn.base import BaseEstimator
from sklearn.cluster import SpectralClustering
from sklearn.exceptions import ConvergenceWarning
from sklearn.manifold import spectral_embedding
from sklearn.metrics import adjusted_rand_score
from varied import exhaustively


def rmat(scale: int, edge_count: int, seed: int) -> np.ndarray:
    """Return edges, (edge_count, 2), of a recursive matrix with the probabilities of Graph500."""
    random = np.random.default_rng(seed)
    edges = np.zeros((edge_count, 2), np.int64)
    for _ in range(scale):
        quarter = random.choice(4, edge_count, p=[0.57, 0.19, 0.19, 0.05])
        edges = 2 * edges + np.stack([quarter // 2, quarter % 2], axis=1)
    return edges


def with_islands(directed: bool) -> nx.Graph:
    """Return a graph of components of several sizes, isolated vertices, and a loop."""
    graph = nx.gnm_random_graph(120, 110, seed=3, directed=directed)
    graph.add_edge(7, 7)
    return graph


GRAPHS = {
    "karate": nx.karate_club_graph(),
    "islands": with_islands(directed=False),
    "directed islands": with_islands(directed=True),
    "path": nx.path_graph(40),
    "no edges": nx.empty_graph(5),
    "words": nx.relabel_nodes(nx.path_graph(4), dict(enumerate("dbca"))),
}


def fit(comm, model, graph):
    return model.fit(graph, comm=comm)


@pytest.fixture(params=[3, *exhaustively(1, 2)], ids=lambda workers: f"{workers} workers")
def fitted(request, world) -> Callable[[BaseEstimator, object], Any]:
    """Fit a model on a number of ranks, which all get the same result."""
    return lambda model, graph: world(request.param).run(fit, model, graph)[-1]


every_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


@every_graph
def test_components_match_networkx(graph, fitted):
    model = fitted(rp.ConnectedComponents(), graph)

    expected = list(nx.connected_components(graph.to_undirected()))
    assert list(model.vertices_) == list(graph.nodes)
    assert model.n_components_ == len(expected)
    assert list(model.sizes_) == sorted(map(len, expected), reverse=True)
    labels = dict(zip(model.vertices_, model.labels_, strict=True))
    for part in expected:
        first = next(node for node in graph.nodes if node in part)
        assert {labels[node] for node in part} == {first}


def test_components_of_a_skewed_graph_match_scipy(fitted):
    edges = rmat(11, 3000, seed=5)
    model = fitted(rp.ConnectedComponents(), rp.Graph(edges, vertex_count=1 << 11))

    matrix = sp.coo_array((np.ones(len(edges)), tuple(edges.T)), shape=(1 << 11,) * 2)
    count, labels = connected_components(matrix, directed=False)
    first = np.array([np.flatnonzero(labels == label)[0] for label in range(count)])
    assert_array_equal(model.labels_, first[labels])


def test_a_long_path_is_one_component_after_few_rounds(world):
    ends = np.random.default_rng(0).permutation(1 << 14)
    far = ends.astype(np.int64) << 26
    model = world(3).run(fit, rp.ConnectedComponents(), (far[:-1], far[1:]))[0]

    assert model.n_components_ == 1 and (model.labels_ == 0).all()
    assert model.n_iter_ < 3 * np.log2(len(far))


def test_a_shuffle_of_numbers_is_inverted():
    numbers = np.array([0, 1, 2, 12345, (1 << 62) - 1, *np.random.default_rng(0).integers(0, 1 << 62, 100)])
    assert_array_equal(_inverse_mixed(mixed(numbers)), numbers)


@every_graph
def test_distances_match_networkx(graph, fitted):
    source = next(iter(graph.nodes))
    model = fitted(rp.BFS(source), graph)

    expected = nx.single_source_shortest_path_length(graph, source)
    assert list(model.vertices_) == list(graph.nodes)
    assert_array_equal(model.distances_, [expected.get(node, -1) for node in graph.nodes])
    assert model.n_iter_ == max(expected.values())
    places = {node: place for place, node in enumerate(graph.nodes)}
    into = graph.predecessors if graph.is_directed() else graph.neighbors
    for node, parent in zip(graph.nodes, model.parents_, strict=True):
        before = [places[other] for other in into(node) if expected.get(other, -2) == expected.get(node, -2) - 1]
        assert parent == (min(before) if expected.get(node, 0) > 0 else -1)


def test_distances_are_the_same_bits_on_any_workers(world):
    edges = rmat(9, 3000, seed=2) * 10**15
    models = [world(workers).run(fit, rp.BFS(0), edges)[0] for workers in (1, 2, 3)]

    for model in models[1:]:
        assert_array_equal(model.distances_, models[0].distances_)
        assert_array_equal(model.parents_, models[0].parents_)


def random_graph(kind: type[nx.Graph]) -> nx.Graph:
    """Return a graph with loops, parallel edges, isolated and unreachable vertices, and weights of 0."""
    random = np.random.default_rng(5)
    graph = kind()
    graph.add_nodes_from(range(40))
    ends, weights = random.integers(0, 34, (2, 90)), random.choice([0.0, 0.5, 1.0, 2.25, 1 / 3], 90)
    graph.add_weighted_edges_from(zip(*ends.tolist(), weights.tolist(), strict=True))
    return graph


every_kind = pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])


@every_kind
def test_weighted_distances_match_networkx(kind, fitted):
    graph = random_graph(kind)
    model, narrow = (fitted(rp.ShortestPaths(0, delta=delta), graph) for delta in (None, 0.1))

    expected = nx.single_source_dijkstra_path_length(graph, 0)
    assert_array_equal(model.distances_, [expected.get(node, np.inf) for node in graph])
    assert_array_equal(narrow.distances_, model.distances_)
    assert narrow.n_iter_ > model.n_iter_
    for node, parent in zip(graph, model.parents_.tolist(), strict=True):
        assert (parent == -1) == (node == 0 or node not in expected)
        if parent >= 0:
            edges = graph[parent][node].values() if graph.is_multigraph() else [graph[parent][node]]
            assert expected[parent] + min(edge["weight"] for edge in edges) == expected[node]


def test_weighted_distances_and_parents_are_the_same_bits_on_any_workers(world):
    edges = rmat(9, 3000, seed=2) * 10**15
    graph = (*edges.T, np.random.default_rng(0).random(len(edges)))
    models = [world(workers).run(fit, rp.ShortestPaths(0), graph)[0] for workers in (1, 2, 3)]

    for model in models[1:]:
        assert_array_equal(model.distances_, models[0].distances_)
        assert_array_equal(model.parents_, models[0].parents_)


def propagated(graph: nx.Graph, iterations: int) -> list[int]:
    """Return the labels after some iterations by the rule of LDBC Graphalytics, computed one vertex at a time."""
    rows = [graph.pred, graph.succ] if graph.is_directed() else [graph.adj]
    labels = {node: node for node in graph}
    for _ in range(iterations):
        votes: dict[Any, Counter[Any]] = {node: Counter() for node in graph}
        for node, vote in votes.items():
            for row in rows:
                for other, edges in row[node].items():
                    vote[labels[other]] += len(edges) if graph.is_multigraph() else 1
        labels = {
            node: min(vote, key=lambda label, vote=vote: (-vote[label], label)) if vote else labels[node]
            for node, vote in votes.items()
        }
    return list(labels.values())


@every_kind
def test_communities_match_sequential_updates(kind, fitted):
    graph = random_graph(kind)
    for iterations in (1, 2, 4):
        model = fitted(rp.CommunityDetection(max_iter=iterations), graph)
        assert model.labels_.tolist() == propagated(graph, iterations)
        assert model.n_iter_ == iterations
        assert model.n_communities_ == len(set(model.labels_.tolist())) == len(model.sizes_)


def test_label_propagation_ends_when_no_label_changes(fitted):
    model = fitted(rp.CommunityDetection(max_iter=50), nx.barbell_graph(4, 0))
    assert model.n_iter_ == 3 and model.labels_.tolist() == [0] * 4 + [4] * 4


def clustered(graph: nx.Graph) -> list[float]:
    """Return the local clustering coefficients by the definition of LDBC Graphalytics."""
    edges = {(a, b) for a, b in nx.DiGraph(graph).edges if a != b}
    near = {node: {b for a, b in edges if a == node} | {a for a, b in edges if b == node} for node in graph}
    links = [sum((a, b) in edges for a in others for b in others) for others in near.values()]
    pairs = [len(others) * (len(others) - 1) for others in near.values()]
    return [count / possible if possible else 0.0 for count, possible in zip(links, pairs, strict=True)]


@every_kind
def test_clustering_coefficients_match_the_definition_and_networkx(kind, fitted):
    graph = random_graph(kind)
    model = fitted(rp.ClusteringCoefficients(), graph)

    assert model.coefficients_.tolist() == clustered(graph)
    plain = nx.Graph(graph)
    plain.remove_edges_from(list(nx.selfloop_edges(plain)))
    assert model.triangles_.tolist() == list(nx.triangles(plain).values())
    assert model.degrees_.tolist() == [degree for _, degree in plain.degree]
    if not graph.is_directed():
        assert model.coefficients_.tolist() == list(nx.clustering(plain).values())


def test_triangles_are_counted_in_blocks(world):
    edges, model = rmat(8, 2000, seed=3), rp.ClusteringCoefficients()
    model._block_edges = 100
    models = [world(2).run(fit, model, edges)[0], model.fit(edges)]

    simple = nx.Graph(edges.tolist())
    simple.remove_edges_from(list(nx.selfloop_edges(simple)))
    for model in models:
        assert model.n_iter_ > 5
        assert model.triangles_.tolist() == [nx.triangles(simple, node) for node in model.vertices_.tolist()]
    assert_array_equal(models[0].coefficients_, models[1].coefficients_)


def pairs_within(graph: nx.Graph) -> list[int]:
    """Return the numbers of ordered pairs with a path of at most 0, 1, … edges."""
    counts: Counter[int] = Counter()
    for _, found in nx.all_pairs_shortest_path_length(graph):
        counts.update(found.values())
    return np.cumsum([counts[distance] for distance in range(max(counts) + 1)]).tolist()


@pytest.mark.parametrize("name", ["karate", "path", "directed islands"])
def test_the_effective_diameter_is_found_within_the_error_of_the_strings(name):
    graph, n_strings = GRAPHS[name], 256
    exact = pairs_within(graph)
    models = [rp.EffectiveDiameter(n_strings=n_strings, random_state=seed).fit(graph) for seed in range(4)]

    # The error of each count; the mean of four counts has a smaller one.
    error = 0.78 / np.sqrt(n_strings)
    mean = np.mean([model.pairs_[-1] for model in models])
    assert abs(mean / exact[-1] - 1) < 3 * error
    wanted = effective_diameter(exact, 0.9)
    assert abs(np.mean([model.effective_diameter_ for model in models]) - wanted) < max(0.25, 3 * error * wanted)
    assert all(model.n_iter_ <= len(exact) - 1 for model in models)


@pytest.mark.parametrize("size", [2, 3, 5, 12])
def test_few_vertices_are_counted_without_bias(size):
    cliques = np.arange(size * 500).reshape(-1, size)
    ends = np.triu_indices(size, 1)
    edges = tuple(cliques[:, end].ravel() for end in ends)
    model = rp.EffectiveDiameter(random_state=0).fit(rp.Graph(edges, directed=False))

    # The error of a count is 0.78 / sqrt(64); the error of a sum of five hundred is below one per cent.
    assert_allclose(model.pairs_, [cliques.size, cliques.size * size], rtol=0.02)


def test_the_effective_diameter_lies_between_steps_on_a_straight_line():
    assert effective_diameter([10.0, 60.0, 100.0], 0.9) == 1.75
    assert effective_diameter([10.0], 0.9) == 0.0


def test_the_estimate_is_the_same_bits_on_any_workers(world):
    edges = rmat(9, 2000, seed=4)
    models = [world(workers).run(fit, rp.EffectiveDiameter(random_state=1), edges)[0] for workers in (1, 2, 3)]

    for model in models:
        assert_array_equal(model.pairs_, models[0].pairs_)
        assert model.effective_diameter_ == models[0].effective_diameter_


def test_a_path_longer_than_the_steps_is_reported():
    with pytest.warns(ConvergenceWarning, match="longer than max_iter=5"):
        model = rp.EffectiveDiameter(max_iter=5, random_state=0).fit(GRAPHS["path"])
    assert model.n_iter_ == 5


def test_the_longest_path_may_visit_every_vertex():
    whole = rp.EffectiveDiameter(random_state=0).fit(GRAPHS["path"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = rp.EffectiveDiameter(max_iter=whole.n_iter_, random_state=0).fit(GRAPHS["path"])
    assert_array_equal(model.pairs_, whole.pairs_)
    with pytest.warns(ConvergenceWarning):
        rp.EffectiveDiameter(max_iter=whole.n_iter_ - 1, random_state=0).fit(GRAPHS["path"])


def test_embeddings_match_scikit_learn(fitted):
    graph = nx.karate_club_graph()
    model = fitted(rp.SpectralEmbedding(3, tol=1e-9, random_state=0), graph)

    matrix = nx.to_numpy_array(graph)
    expected = spectral_embedding(matrix, n_components=3, random_state=0, eigen_solver="arpack")
    assert_array_equal(np.sign(model.embedding_.max(axis=0) + model.embedding_.min(axis=0)), 1)
    for ours, theirs in zip(model.embedding_.T, expected.T, strict=True):
        np.testing.assert_allclose(ours, theirs * np.sign(theirs @ ours), atol=1e-7)
    assert_array_equal(fitted(model, graph).embedding_, model.embedding_)


@pytest.mark.parametrize("name", ["islands", "directed islands", "path"])
def test_eigenvalues_match_the_laplacian_for_any_multiplicity(name, fitted):
    graph = GRAPHS[name]
    model = fitted(rp.SpectralEmbedding(6, drop_first=False, tol=1e-9, random_state=0), graph)

    matrix = nx.to_scipy_sparse_array(graph, weight=None).astype(float)
    both_ways = ((matrix + matrix.T) > 0).astype(float)
    operator, roots = laplacian(both_ways, normed=True, return_diag=True)
    np.testing.assert_allclose(model.eigenvalues_, np.linalg.eigvalsh(operator.toarray())[:6], atol=1e-8)
    vectors = model.embedding_ * roots[:, None]
    np.testing.assert_allclose(operator @ vectors, vectors * model.eigenvalues_, atol=1e-7)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(6), atol=1e-8)


def test_an_infinite_tolerance_ends_an_embedding_after_its_first_step():
    model = rp.SpectralEmbedding(2, tol=np.inf, random_state=0).fit(nx.karate_club_graph())
    assert model.n_iter_ == 1 and np.isfinite(model.embedding_).all()


def test_an_embedding_that_is_not_finished_is_reported():
    with pytest.warns(ConvergenceWarning, match="after max_iter=2 products"):
        model = rp.SpectralEmbedding(1, max_iter=2, random_state=0).fit(nx.path_graph(500))
    assert model.n_iter_ == 2 and model.residual_ > 1e-6


def community_graph(sizes: list[int], p_in: float, p_out: float, seed: int) -> tuple[nx.Graph, np.ndarray]:
    """Return a random graph of communities, with the probabilities of edges inside and between, and their numbers."""
    return nx.random_partition_graph(sizes, p_in, p_out, seed=seed), np.repeat(np.arange(len(sizes)), sizes)


@pytest.mark.parametrize(
    ("sizes", "p_in", "p_out", "least"),
    [([40, 50, 60], 0.3, 0.02, 1), ([60] * 5, 0.2, 0.03, 0.98), ([30, 40, 50, 20], 0.3, 0, 1)],
    ids=["clear", "noisy", "disconnected"],
)
@pytest.mark.filterwarnings("ignore:Graph is not fully connected")
def test_communities_are_found_as_by_scikit_learn_with_the_same_labels_on_any_workers(sizes, p_in, p_out, least, world):
    graph, truth = community_graph(sizes, p_in, p_out, seed=2)
    model = rp.SpectralClustering(len(sizes), random_state=0)
    labels = [world(workers).run(fit, model, graph)[-1].labels_ for workers in (1, 2, 3)]

    expected = SpectralClustering(len(sizes), affinity="precomputed", random_state=0)
    assert adjusted_rand_score(labels[0], expected.fit_predict(nx.to_numpy_array(graph))) == 1
    assert adjusted_rand_score(labels[0], truth) >= least
    for others in labels[1:]:
        assert_array_equal(others, labels[0])


def test_weights_of_edges_decide_the_clusters():
    square = [(0, 1), (1, 2), (2, 3), (3, 0)]
    for weights, expected in (([9, 1, 9, 1], [0, 0, 1, 1]), ([1, 9, 1, 9], [0, 1, 1, 0])):
        graph = rp.Graph((*np.transpose(square), np.array(weights, float)), directed=False)
        assert rp.SpectralClustering(2, random_state=0).fit_predict(graph).tolist() == expected


def test_fewer_clusters_than_requested_are_reported():
    with pytest.warns(ConvergenceWarning, match="found 1 distinct clusters, fewer than n_clusters=2"):
        model = rp.SpectralClustering(2, n_components=1, random_state=0).fit(nx.path_graph(2))
    assert model.labels_.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: rp.BFS(99).fit(nx.path_graph(3)), "source=99: the graph has no such vertex"),
        (lambda: rp.BFS(5).fit(np.array([[0, 1]])), "source=5: the graph has no such vertex"),
        (lambda: rp.BFS("a").fit(np.array([[0, 1]])), "source='a': expected the id of a vertex"),
        (lambda: rp.ConnectedComponents(workers=0).fit(nx.path_graph(3)), "workers=0"),
        (lambda: rp.EffectiveDiameter(n_strings=3).fit(nx.path_graph(3)), "n_strings=3: expected an even number"),
        (lambda: rp.EffectiveDiameter(share=0).fit(nx.path_graph(3)), "share=0: expected a number > 0"),
        (lambda: rp.SpectralEmbedding(3).fit(nx.path_graph(3)), "4 eigenvectors of 3 vertices"),
        (lambda: rp.ShortestPaths(9).fit(nx.path_graph(3)), "source=9: the graph has no such vertex"),
        (lambda: rp.ShortestPaths(0, delta=0).fit(nx.path_graph(3)), "delta=0: expected a number > 0, or None"),
        (
            lambda: rp.ShortestPaths(0).fit(nx.Graph([(0, 1, {"weight": -2})])),
            "an edge from vertex . has the weight -2.0: ShortestPaths needs weights >= 0",
        ),
        (
            lambda: rp.ShortestPaths(0).fit(([0, 1], [1, 2], [1.0, np.nan])),
            "edges, edge 1: the weight is nan, expected a finite number",
        ),
        (lambda: rp.CommunityDetection(max_iter=0).fit(nx.path_graph(3)), "max_iter=0: expected a whole number >= 1"),
        (
            lambda: rp.SpectralEmbedding(1).fit((np.array([0, 1]), np.array([1, 2]), np.array([1.0, -1.0]))),
            "an edge from vertex . has the weight -1.0: a Laplacian needs weights >= 0",
        ),
        (lambda: rp.SpectralClustering(4).fit(nx.path_graph(3)), "4 eigenvectors of 3 vertices"),
        (
            lambda: rp.SpectralClustering(4, n_components=2).fit(nx.path_graph(3)),
            "n_samples=3 should be >= n_clusters=4",
        ),
        (lambda: rp.SpectralClustering(n_components=0).fit(nx.path_graph(3)), "n_components=0: expected a whole"),
        (
            lambda: rp.SpectralClustering(n_init=0).fit(nx.path_graph(3)),
            "n_init=0: expected a whole number, 1 … 1000000",
        ),
    ],
)
def test_impossible_requests_are_reported_by_name_and_value(fit, message):
    with pytest.raises(rp.InputError, match=message):
        fit()


RESULTS = [
    (rp.ConnectedComponents(workers=2), "labels_"),
    (rp.BFS(0, workers=2), "distances_"),
    (rp.ShortestPaths(0, workers=2), "parents_"),
    (rp.CommunityDetection(workers=2), "sizes_"),
    (rp.ClusteringCoefficients(workers=2), "coefficients_"),
    (rp.EffectiveDiameter(random_state=0, workers=2), "pairs_"),
    (rp.SpectralEmbedding(1, random_state=0, workers=2), "embedding_"),
    (rp.SpectralClustering(3, random_state=0, workers=2), "labels_"),
]


@pytest.mark.parametrize(("model", "attribute"), RESULTS, ids=lambda each: type(each).__name__)
def test_started_workers_give_the_result_of_existing_ranks(world, model, attribute):
    edges = rmat(7, 400, seed=1)
    everyone = world(2).run(fit, model, edges)
    found = getattr(model.fit(edges), attribute)
    for each in everyone:
        assert_array_equal(getattr(each, attribute), found)


def test_without_a_seed_ranks_use_a_common_random_seed(world):
    graph = nx.karate_club_graph()
    counted = world(2).run(fit, rp.EffectiveDiameter(n_strings=256), graph)[0]
    embedded = world(2).run(fit, rp.SpectralEmbedding(1, tol=1e-9), graph)[0]

    # With two seeds, a vertex would be counted twice, and the vectors would not be eigenvectors.
    assert abs(counted.pairs_[-1] / 34**2 - 1) < 0.3
    expected = rp.SpectralEmbedding(1, tol=1e-9, random_state=0).fit(graph)
    np.testing.assert_allclose(embedded.embedding_, expected.embedding_, atol=1e-7)


@pytest.mark.parametrize(
    "module",
    [bfs, clustering, communities, components, diameter, shortest_paths, spectral, spectral_clustering],
    ids=lambda module: module.__name__,
)
def test_the_examples_of_the_documentation_run(module):
    assert doctest.testmod(module).failed == 0
