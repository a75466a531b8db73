"""Ranks without data do not affect results: fewer rows, edges or lines than ranks give the result of one rank."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import ripieno as rp
from PIL import Image
from ripieno.features import extract, find_pictures
from scipy.sparse import csr_matrix
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.linear_model import LogisticRegression
from varied import exhaustively

SEVERAL_WORKERS = [5, *exhaustively(2)]
GRAPHS = {
    "one edge": nx.DiGraph([(0, 1)]),
    "a loop": nx.DiGraph([(0, 0)]),
    "two edges far apart": nx.DiGraph([(0, 1), (2, 3)]),
    "no edge": nx.empty_graph(4, nx.DiGraph),
    "one weighted edge": nx.DiGraph([(0, 1, {"weight": 2.5})]),
}


def some_rows(count, dtype=np.float64):
    return (np.random.default_rng(count).random((count, 3)) * 100).astype(dtype)


def fitted(source, job, **parameters):
    model = rp.KMeans(random_state=0, engine=job, **parameters).fit(source)
    return [
        model.cluster_centers_, model.labels_, model.inertia_, model.n_iter_, model.report_.cluster_sizes,
        model.report_.exemplar_rows,
    ]  # fmt: skip


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_allclose(one, other, rtol=1e-7 if np.asarray(one).dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("workers", SEVERAL_WORKERS)
@pytest.mark.parametrize("init", ["k-means||", "k-means++", "random"])
@pytest.mark.parametrize("dtype", [np.uint8, *exhaustively(np.float32, np.float64)])
def test_few_rows_are_clustered_as_by_one_rank_for_any_type_and_the_start(world, workers, init, dtype):
    for row_count, n_clusters in [(1, 1), (2, 1), (3, 1), (3, 2), (3, 3)]:
        rows = some_rows(row_count, dtype)
        of_one_rank, found = (fitted(rows, world(p), init=init, n_init=1, n_clusters=n_clusters) for p in (1, workers))
        assert_equal(found, of_one_rank)


@pytest.mark.parametrize("workers", [1, *SEVERAL_WORKERS])
def test_the_one_cluster_of_few_rows_matches_scikit_learn(world, workers):
    rows = some_rows(3)

    for weights in (None, np.array([0.0, 1.0, 3.0])):
        model = rp.KMeans(1, random_state=0, engine=world(workers)).fit(rows, sample_weight=weights)
        expected = SklearnKMeans(1, random_state=0).fit(rows, sample_weight=weights)
        np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_)
        assert model.inertia_ == pytest.approx(expected.inertia_)


@pytest.mark.parametrize("workers", SEVERAL_WORKERS)
@pytest.mark.parametrize("name", ["rows.csv", "rows.txt", "bytes.txt", "rows.npy"])
def test_files_of_few_rows_are_clustered_as_by_one_rank(world, tmp_path, workers, name):
    rows = some_rows(2, np.uint8 if name == "bytes.txt" else np.float64).round(2)
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, rows)
    elif name.endswith(".csv"):
        np.savetxt(path, rows, "%.9g", ",")
    else:
        path.write_text("".join(f"p 0 {at} {' '.join(map(str, row))}\n" for at, row in enumerate(rows.tolist())))

    assert_equal(*(fitted(path, world(p), n_clusters=1) for p in (1, workers)))
    model = rp.KMeans(1, random_state=0, engine=world(workers)).fit(path)
    np.testing.assert_allclose(model.transform(path)[:, 0], np.linalg.norm(rows - rows.mean(axis=0), axis=1), rtol=1e-6)


@pytest.mark.parametrize("workers", [1, *SEVERAL_WORKERS])
@pytest.mark.parametrize("name", GRAPHS)
def test_vertices_of_graphs_with_few_edges_rank_as_in_networkx(world, workers, name):
    graph = GRAPHS[name]

    model = rp.PageRank(engine=world(workers)).fit(graph)

    expected = nx.pagerank(graph, tol=1e-14, max_iter=1000)
    np.testing.assert_allclose(model.ranks_, [expected[vertex] for vertex in model.vertices_], atol=1e-12)


@pytest.mark.parametrize("workers", [1, *SEVERAL_WORKERS])
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_with_few_edges_are_connected_and_searched_as_in_networkx(world, workers, name):
    graph = GRAPHS[name]
    job = world(workers)

    components = rp.ConnectedComponents(engine=job).fit(graph)
    search = rp.BFS(0, engine=job).fit(graph)
    diameter = rp.EffectiveDiameter(random_state=0, engine=job).fit(graph)
    paths = rp.ShortestPaths(0, engine=job).fit(graph)
    communities = rp.CommunityDetection(max_iter=1, engine=job).fit(graph)
    clustering = rp.ClusteringCoefficients(engine=job).fit(graph)

    expected = {frozenset(component) for component in nx.weakly_connected_components(graph)}
    labels = components.labels_
    assert {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())} == expected
    distances = nx.single_source_shortest_path_length(graph, 0)
    assert search.distances_.tolist() == [distances.get(vertex, -1) for vertex in search.vertices_.tolist()]
    distances = nx.single_source_dijkstra_path_length(graph, 0)
    assert paths.distances_.tolist() == [distances.get(vertex, np.inf) for vertex in paths.vertices_.tolist()]
    neighbors = [min([*graph.pred[vertex], *graph.succ[vertex]], default=vertex) for vertex in graph]
    assert communities.labels_.tolist() == neighbors
    assert not clustering.coefficients_.any() and len(clustering.coefficients_) == len(graph)
    of_one_rank = rp.EffectiveDiameter(random_state=0).fit(graph)
    assert diameter.effective_diameter_ == of_one_rank.effective_diameter_
    np.testing.assert_array_equal(diameter.pairs_, of_one_rank.pairs_)


@pytest.mark.parametrize("workers", [1, *SEVERAL_WORKERS])
def test_a_graph_with_few_edges_is_embedded_by_its_eigenvectors(world, workers):
    path = nx.path_graph(3)

    model = rp.SpectralEmbedding(2, random_state=0, engine=world(workers)).fit(path)

    np.testing.assert_allclose(model.eigenvalues_, [1, 2], atol=1e-9)
    np.testing.assert_allclose(np.abs(model.embedding_[:, 0] / model.embedding_[0, 0]), [1, 0, 1], atol=1e-6)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_empty_graph_is_reported_by_any_number_of_ranks(world, workers):
    nothing = rp.Graph((np.empty(0, np.int64), np.empty(0, np.int64)))

    with pytest.raises(rp.InputError, match="no edges and no vertices"):
        rp.PageRank(engine=world(workers)).fit(nothing)


@pytest.mark.parametrize("workers", SEVERAL_WORKERS)
@pytest.mark.parametrize("row_count", [2, 3])
def test_models_of_few_sparse_rows_match_one_rank(world, workers, row_count):
    rows, classes = csr_matrix(np.eye(4)[:row_count]), np.array(["a", "b", "a"])[:row_count]
    # One batch has all rows, so their order does not matter.
    parameters = {"random_state": 0, "max_iter": 3, "batch_size": 8}

    of_one_rank, found = (rp.SparseSGD(engine=world(p), **parameters).fit(rows, classes) for p in (1, workers))

    np.testing.assert_allclose(found.coef_, of_one_rank.coef_, rtol=1e-12)
    assert found.loss_ == pytest.approx(of_one_rank.loss_, rel=1e-12)
    expected = LogisticRegression(C=1e5).fit(rows, classes)
    assert found.predict(rows).tolist() == expected.predict(rows).tolist()


@pytest.mark.parametrize("name", ["KMeans", "MiniBatchKMeans", "LogisticRegression", "SparseSGD"])
def test_a_rank_without_rows_saves_and_resumes(world, tmp_path, name):
    X, y = some_rows(8), np.arange(8) % 2
    parameters = {} if name == "LogisticRegression" else {"random_state": 0}
    parameters |= {"n_clusters": 2} if "KMeans" in name else {}
    kind = getattr(rp, name)
    estimator = kind(checkpoint=tmp_path, options=kind.Options(every=1), **parameters)

    def program(comm):
        own = slice(0, 8 if comm.rank == 0 else 0)
        target = {"y": y[own]} if name in ("LogisticRegression", "SparseSGD") else {"sample_weight": np.ones(8)[own]}
        estimator.fit(X[own], **target, comm=comm, rows="own")
        return estimator.n_iter_

    before = world(2).run(program)
    assert len(list(tmp_path.glob("*/checkpoint"))) == 1
    assert world(2).run(program) == before


@pytest.mark.parametrize("workers", [1, *SEVERAL_WORKERS])
def test_files_of_few_or_no_sparse_rows_are_fitted(world, tmp_path, workers):
    (tmp_path / "two.svm").write_text("0 1:1.5\n1 2:1.5\n")
    (tmp_path / "none.svm").write_text("")

    model = rp.SparseSGD(max_iter=3, random_state=0, engine=world(workers)).fit(
        [tmp_path / "two.svm", tmp_path / "none.svm"]
    )

    assert model.score(tmp_path / "two.svm") == 1


@pytest.mark.parametrize("workers", [1, *SEVERAL_WORKERS])
@pytest.mark.parametrize("text", ["", "\n\n", "  ", "word", "two words\ntwo"])
def test_texts_of_few_lines_are_counted_and_searched(world, tmp_path, workers, text):
    path = tmp_path / "text"
    path.write_text(text)

    def program(comm):
        words, lines = rp.count_words(path, comm=comm), rp.grep("wo", path, comm=comm)
        return [*zip(words.keys.to_pylist(), words.values.tolist(), strict=True)], lines["line"].to_pylist()

    parts = world(workers).run(program)

    counts = dict(pair for words, _ in parts for pair in words)
    assert counts == {word: text.split().count(word) for word in text.split()}
    numbers = [at for at, line in enumerate(text.split("\n"), start=1) if "wo" in line]
    assert [lines for _, lines in parts] == [numbers] + [[]] * (workers - 1)


@pytest.mark.parametrize("workers", [1, *SEVERAL_WORKERS])
def test_a_step_of_fewer_tasks_than_workers_completes(world, workers):
    with rp.MapReduce(lambda part, _: ([part % 2], [part]), job=world(workers)) as job:
        job.cache([3])
        counts = job.step()

    assert dict(zip(counts.keys.tolist(), counts.values.tolist(), strict=True)) == {1: 3}


def test_one_picture_has_the_same_vectors_with_more_workers_than_pictures(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)).save(tmp_path / "one.png")
    for workers in (1, 2):
        extract(find_pictures([tmp_path / "one.png"]), tmp_path / f"{workers}.npy", workers=workers)

    assert (tmp_path / "2.npy").read_bytes() == (tmp_path / "1.npy").read_bytes()
