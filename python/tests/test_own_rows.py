"""Ranks that fit together on separate rows: they get the model of all rows; deviating calls are detected."""

from __future__ import annotations

import bz2
import gzip
import warnings
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from ripieno import algorithms
from ripieno.algorithms import same_call
from ripieno.errors import CollectiveMismatch, InputError
from scipy.sparse import csr_matrix
from scipy.spatial.distance import cdist
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import ConvergenceWarning

RANDOM = np.random.default_rng(0)
POINTS = RANDOM.normal(size=(60, 4)) + 6 * RANDOM.integers(0, 3, size=60)[:, None]
SQUARE = cdist(POINTS, POINTS)
TARGETS = POINTS @ [1.0, -2.0, 0.5, 3.0] + RANDOM.normal(size=60)
CLASSES = np.array(["no", "yes"])[(np.median(TARGETS) < TARGETS).astype(int)]
WEIGHTS = RANDOM.random(60)
SPARSE = csr_matrix(np.where(np.abs(POINTS) > 1, POINTS, 0.0))
EDGES = np.array([(a, (a * step + 1) % 24) for a in range(24) for step in (1, 2, 5)])
RATINGS = csr_matrix(np.where(RANDOM.random((20, 8)) < 0.5, RANDOM.integers(1, 6, (20, 8)), 0))

# Rank 1 has no rows.
CUTS = (0, 25, 25)


@dataclass(frozen=True)
class OwnRowsCase:
    """An estimator, its input by argument, a parameter with another value on rank 2, and its fitted attributes.

    `of_rows` are attributes with an entry for each row.
    """

    make: Any
    data: dict[str, Any]
    other: dict[str, Any]
    found: tuple[str, ...]
    of_rows: tuple[str, ...] = ()
    rtol: float = 1e-12


def kmeans(**parameters):
    return rp.KMeans(**{"n_clusters": 3, "random_state": 0} | parameters)


def mds(**parameters):
    return rp.MDS(**{"random_state": 0, "n_init": 1, "max_iter": 5} | parameters)


CLUSTERS = ("cluster_centers_", "inertia_", "n_iter_", "n_features_in_")
MODEL = ("coef_", "intercept_", "n_features_in_")
CASES = {
    "KMeans": OwnRowsCase(kmeans, {"X": POINTS}, {"n_clusters": 4}, CLUSTERS, ("labels_",)),
    "KMeans of weights": OwnRowsCase(
        kmeans, {"X": POINTS, "sample_weight": WEIGHTS}, {"tol": 0}, CLUSTERS, ("labels_",)
    ),
    "KMeans of float32": OwnRowsCase(
        kmeans, {"X": POINTS.astype(np.float32)}, {"max_iter": 2}, CLUSTERS, ("labels_",), rtol=1e-6
    ),
    "KMeans of sparse rows": OwnRowsCase(kmeans, {"X": SPARSE}, {"random_state": 1}, CLUSTERS, ("labels_",)),
    "KMeans of a frame": OwnRowsCase(
        kmeans,
        {"X": pd.DataFrame(POINTS, columns=list("abcd"))},
        {"init": "random", "n_init": 1},
        (*CLUSTERS, "feature_names_in_"),
        ("labels_",),
    ),
    "KMeans of given centroids": OwnRowsCase(
        lambda **parameters: kmeans(init=POINTS[[0, 20, 40]], **parameters),
        {"X": POINTS},
        {"tol": 1.0},
        CLUSTERS,
        ("labels_",),
    ),
    "MiniBatchKMeans": OwnRowsCase(
        lambda **parameters: rp.MiniBatchKMeans(**{"n_clusters": 3, "random_state": 0, "max_iter": 3} | parameters),
        {"X": POINTS, "sample_weight": WEIGHTS},
        {"batch_size": 7},
        CLUSTERS,
        ("labels_",),
    ),
    "PCA": OwnRowsCase(
        lambda **parameters: rp.PCA(**{"n_components": 2} | parameters),
        {"X": POINTS},
        {"n_components": 3},
        ("components_", "explained_variance_", "mean_", "n_samples_"),
    ),
    "LinearRegression": OwnRowsCase(
        rp.LinearRegression, {"X": POINTS, "y": TARGETS}, {"fit_intercept": False}, MODEL, rtol=1e-11
    ),
    "Ridge of weights": OwnRowsCase(
        rp.Ridge,
        {"X": POINTS, "y": np.stack([TARGETS, WEIGHTS], axis=1), "sample_weight": WEIGHTS},
        {"alpha": 2.0},
        MODEL,
        rtol=1e-11,
    ),
    "LogisticRegression": OwnRowsCase(
        lambda **parameters: rp.LogisticRegression(**{"tol": 1e-10, "max_iter": 200} | parameters),
        {"X": POINTS, "y": CLASSES, "sample_weight": WEIGHTS},
        {"C": 2.0},
        (*MODEL, "classes_"),
        rtol=1e-6,
    ),
    "LogisticRegression of sparse rows": OwnRowsCase(
        lambda **parameters: rp.LogisticRegression(**{"tol": 1e-10, "max_iter": 200} | parameters),
        {"X": SPARSE, "y": CLASSES},
        {"C": 2.0},
        (*MODEL, "classes_"),
        rtol=1e-6,
    ),
    "ALS of a matrix": OwnRowsCase(
        lambda **parameters: rp.ALS(**{"rank": 2, "max_iter": 3, "random_state": 0} | parameters),
        {"ratings": RATINGS},
        {"reg": 0.5},
        ("user_factors_", "item_factors_", "user_ids_", "item_ids_"),
        rtol=1e-5,
    ),
    "ALS of a table": OwnRowsCase(
        lambda **parameters: rp.ALS(**{"rank": 2, "max_iter": 3, "random_state": 0} | parameters),
        {
            "ratings": pd.DataFrame(
                {"user": [f"u{u}" for u in RATINGS.nonzero()[0]], "item": RATINGS.nonzero()[1], "rating": RATINGS.data}
            )
        },
        {"alpha": 3.0},
        ("user_factors_", "item_factors_", "user_ids_", "item_ids_"),
        rtol=1e-5,
    ),
    "MDS": OwnRowsCase(mds, {"X": SQUARE}, {"tol": 0.1}, ("stress_",), ("embedding_",), rtol=1e-6),
    "MDS of points": OwnRowsCase(
        lambda **parameters: mds(metric="euclidean", **parameters),
        {"X": POINTS},
        {"cooling": 0.5},
        ("stress_", "n_features_in_"),
        ("embedding_",),
        rtol=1e-6,
    ),
    "PageRank": OwnRowsCase(rp.PageRank, {"graph": EDGES}, {"damping": 0.5}, ("vertices_", "ranks_", "n_iter_")),
    "BFS": OwnRowsCase(
        lambda **parameters: rp.BFS(**{"source": 0} | parameters),
        {"graph": EDGES},
        {"source": 1},
        ("vertices_", "distances_", "parents_"),
    ),
    "ShortestPaths": OwnRowsCase(
        lambda **parameters: rp.ShortestPaths(**{"source": 0} | parameters),
        {"graph": EDGES},
        {"source": 1},
        ("vertices_", "distances_", "parents_"),
    ),
    "CommunityDetection": OwnRowsCase(
        rp.CommunityDetection, {"graph": EDGES}, {"max_iter": 2}, ("vertices_", "labels_", "n_iter_")
    ),
    "ClusteringCoefficients": OwnRowsCase(
        rp.ClusteringCoefficients, {"graph": EDGES}, {}, ("vertices_", "coefficients_", "triangles_", "degrees_")
    ),
    "ConnectedComponents": OwnRowsCase(rp.ConnectedComponents, {"graph": EDGES}, {}, ("vertices_", "labels_")),
    "EffectiveDiameter": OwnRowsCase(
        lambda **parameters: rp.EffectiveDiameter(**{"random_state": 0} | parameters),
        {"graph": EDGES},
        {"n_strings": 8},
        ("pairs_", "effective_diameter_"),
    ),
    "SpectralEmbedding": OwnRowsCase(
        lambda **parameters: rp.SpectralEmbedding(**{"n_components": 2, "random_state": 0} | parameters),
        {"graph": EDGES},
        {"tol": 0.1},
        ("vertices_", "embedding_", "eigenvalues_"),
        rtol=1e-6,
    ),
    "SpectralClustering": OwnRowsCase(
        lambda **parameters: rp.SpectralClustering(**{"n_clusters": 2, "random_state": 0} | parameters),
        {"graph": EDGES},
        {"n_clusters": 3},
        ("vertices_", "labels_", "eigenvalues_"),
        rtol=1e-6,
    ),
    "FruchtermanReingold": OwnRowsCase(
        lambda **parameters: rp.FruchtermanReingold(**{"max_iter": 5, "random_state": 0} | parameters),
        {"graph": EDGES},
        {"max_iter": 4},
        ("vertices_", "positions_"),
        rtol=1e-6,
    ),
}
ESTIMATORS = [name for name in algorithms.__all__ if hasattr(getattr(algorithms, name), "fit")]
every_case = pytest.mark.parametrize("name", CASES)


def rows_of(value, rank):
    begin, end = (*CUTS, value.shape[0])[rank : rank + 2]
    return value.iloc[begin:end] if hasattr(value, "iloc") else value[begin:end]


def fitted(make, data, names, comm=None, rows=None, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = make(**parameters).fit(**data, comm=comm, rows=rows)
    return [getattr(model, name) for name in names]


def fit_own(comm, name):
    case = CASES[name]
    data = {key: rows_of(value, comm.rank) for key, value in case.data.items()}
    return fitted(case.make, data, (*case.found, *case.of_rows), comm, "own")


def fit_shared(comm, name):
    case = CASES[name]
    return fitted(case.make, case.data, (*case.found, *case.of_rows), comm)


def assert_close(found, expected, rtol):
    found, expected = np.asarray(found), np.asarray(expected)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max(initial=0))
    else:
        np.testing.assert_array_equal(found, expected)


def test_every_estimator_has_a_case():
    # The steps of a descent depend on the placement of rows on ranks.
    separately_tested = {"SparseSGD"}
    assert {type(case.make()).__name__ for case in CASES.values()} | separately_tested == set(ESTIMATORS)


@every_case
def test_the_model_of_own_rows_matches_all_rows(world, name):
    case = CASES[name]
    expected = fitted(case.make, case.data, (*case.found, *case.of_rows))

    found, shared = world(3).run(fit_own, name), world(3).run(fit_shared, name)

    count = len(case.found)
    for results in (*found, *shared):
        for value, other in zip(results[:count], expected[:count], strict=True):
            assert_close(value, other, case.rtol)
    for at in range(count, count + len(case.of_rows)):
        assert len(found[1][at]) == 0
        assert_close(np.concatenate([results[at] for results in found]), expected[at], case.rtol)
        assert_close(shared[0][at], expected[at], case.rtol)


def fit_with_weights_of_zero(comm, name):
    """Fit own rows; all rows of rank 0 have the weight 0."""
    case = CASES[name]
    data = case.data | {"sample_weight": np.where(np.arange(60) < 20, 0.0, WEIGHTS)}
    mine = slice(20 * comm.rank, 20 * comm.rank + 20)
    own = fitted(case.make, {key: value[mine] for key, value in data.items()}, case.found, comm, rows="own")
    return own, fitted(case.make, data, case.found, comm)


@pytest.mark.parametrize("name", ["KMeans of weights", "Ridge of weights", "LogisticRegression"])
def test_all_rows_of_a_rank_may_have_the_weight_0(world, name):
    for own, shared in world(3).run(fit_with_weights_of_zero, name):
        for value, other in zip(own, shared, strict=True):
            assert_close(value, other, max(CASES[name].rtol, 1e-12))


def fit_with_an_empty_rank(comm):
    """Fit own rows; the last rank has none. Without `rows` the difference is an error on every rank."""
    contributor_count = max(comm.world_size - 1, 1)
    mine = np.array_split(POINTS, contributor_count)[comm.rank] if comm.rank < contributor_count else None
    if comm.world_size > 1:
        with pytest.raises(CollectiveMismatch, match=r"KMeans.fit: ranks differ in X: .*rows='own'"):
            kmeans().fit(mine, comm=comm)
    own, all_rows = kmeans().fit(mine, comm=comm, rows="own"), kmeans().fit(POINTS, comm=comm)
    np.testing.assert_array_equal(np.concatenate(comm.allgather(own.labels_)), all_rows.labels_)
    return own.inertia_, all_rows.inertia_


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_worlds_of_any_size_have_the_model_of_all_rows_or_the_error(threads, p):
    expected = kmeans().fit(POINTS).inertia_

    assert threads(p, fit_with_an_empty_rank) == [pytest.approx((expected, expected), rel=1e-12)] * p


def fit_sparse_axes(comm):
    rows = [SPARSE[:30].astype(np.float32), None, SPARSE[30:]][comm.rank]
    return rp.PCA(2).fit(rows, comm=comm, rows="own").components_.dtype


def test_results_of_sparse_rows_have_one_type_on_all_ranks(threads):
    assert threads(3, fit_sparse_axes) == [np.float64] * 3


def fit_differing(comm, name):
    case = CASES[name]
    data = {key: rows_of(value, 2 * (comm.rank > 0)) for key, value in case.data.items()}
    with pytest.raises(CollectiveMismatch, match=r"rank 0: .*ranks 1, 2: .*rows='own'.*rows='shared'"):
        fitted(case.make, data, (), comm)
    if case.other:
        parameter = next(iter(case.other))
        with pytest.raises(CollectiveMismatch, match=rf"ranks 0, 1: .*{parameter}=.*rank 2: .*{parameter}="):
            fitted(case.make, case.data, (), comm, **case.other if comm.rank == 2 else {})


@every_case
def test_different_rows_and_parameters_are_reported_on_every_rank(world, name):
    world(3).run(fit_differing, name)


def fit_sgd(comm, path):
    """Fit on the same shares of rows as ranks get of whole rows, because descent steps depend on the shares."""
    model = rp.SparseSGD(random_state=0, max_iter=3).fit(SPARSE, CLASSES, comm=comm)
    mine = slice(60 * comm.rank // 3, 60 * (comm.rank + 1) // 3)
    own = rp.SparseSGD(random_state=0, max_iter=3).fit(SPARSE[mine], CLASSES[mine], comm=comm, rows="own")
    assert_close(own.coef_, model.coef_, 0)
    for step in ({"classes": CLASSES}, {}):
        rows, labels = (SPARSE, CLASSES) if comm.rank == 2 else (None, None)
        own.partial_fit(rows, labels, comm=comm, rows="own", **step if not hasattr(own, "classes_") else {})
    files = rp.SparseSGD(random_state=0, max_iter=3).fit(path if comm.rank else None, comm=comm, rows="own")
    assert files.coef_.shape == own.coef_.shape
    return own.coef_, files.coef_


def test_a_descent_on_own_rows_is_the_same_on_every_rank(world, tmp_path):
    path = tmp_path / "rows.libsvm"
    dump_svmlight_file(SPARSE, CLASSES == "yes", str(path), zero_based=False)

    first, *others = world(3).run(fit_sgd, str(path))

    for found in others:
        assert_close(found, first, 0)


def fit_files(comm, folder):
    mine = None if comm.rank == 1 else f"{folder}/rows-{comm.rank}.csv"
    clusters = kmeans().fit(mine, comm=comm, rows="own")
    line = rp.Ridge().fit(mine, "d", comm=comm, rows="own")
    classes = rp.LogisticRegression(tol=1e-10).fit(
        mine, None if mine is None else CLASSES[:30] if comm.rank == 0 else CLASSES[30:], comm=comm, rows="own"
    )
    same = kmeans().fit(f"{folder}/rows-*.csv", comm=comm)
    assert_close(same.cluster_centers_, clusters.cluster_centers_, 1e-12)
    return clusters.labels_, list(clusters.feature_names_in_), line.coef_, classes.coef_


def test_files_of_each_rank_are_read_whole(world, tmp_path):
    frame = pd.DataFrame(POINTS, columns=list("abcd"))
    frame[:30].to_csv(tmp_path / "rows-0.csv", index=False)
    frame[30:].to_csv(tmp_path / "rows-2.csv", index=False)

    found = world(3).run(fit_files, str(tmp_path))

    np.testing.assert_array_equal(np.concatenate([labels for labels, *_ in found]), kmeans().fit(frame).labels_)
    line = rp.Ridge().fit(frame[["a", "b", "c"]], frame["d"])
    classes = rp.LogisticRegression(tol=1e-10).fit(frame, CLASSES)
    for _, names, line_coef, coef in found:
        assert names == list("abcd")
        assert_close(line_coef, line.coef_, 1e-10)
        assert_close(coef, classes.coef_, 1e-6)


def own(make, *data, **options):
    """Return a call of `fit` on own rows."""
    return lambda comm: make().fit(*data, comm=comm, rows="own", **options)


def shared(make, *data, rows=None, **options):
    """Return a call of `fit` on rows that must be equal on all ranks."""
    return lambda comm: make().fit(*data, comm=comm, rows=rows, **options)


def wrong_calls(rank):
    """Return calls that every rank rejects with the same message, by parts of the message."""
    bad = np.where(np.arange(60)[:, None] == 7, np.nan, POINTS) if rank == 1 else POINTS
    names = pd.DataFrame(POINTS, columns=list("abcd" if rank else "abdc"))
    of_first = (lambda X, k, random_state: X[:k]) if rank else lambda X, k, random_state: X[-k:]
    return InputError, {
        "columns: 4 on rank 0, 3 on rank 1": own(kmeans, POINTS[:, : 4 - rank % 2]),
        "rank 1, row 7, column 0: NaN": own(kmeans, bad),
        "names of columns": own(kmeans, names),
        "'dense' on rank 0, 'sparse'": own(kmeans, SPARSE if rank else POINTS),
        "no rank has rows": own(rp.PCA, POINTS[:0]),
        "rank 2: Expected 2D": own(rp.PCA, POINTS[0] if rank == 2 else POINTS),
        "all rows in one place": own(lambda: kmeans(init=first_rows), POINTS),
        "rows='mine': expected 'own'": shared(kmeans, POINTS, rows="mine"),
        "numbers of vertices": own(rp.PageRank, nx.path_graph(4)),
        "reads all sequences": own(lambda: mds(metric="levenshtein"), ["AB", "B"]),
    }, CollectiveMismatch, {
        "y=None on rank 1, not": own(rp.Ridge, POINTS, TARGETS if rank != 1 else None),
        "sample_weight=None on ranks 0, 1, not": own(kmeans, POINTS, sample_weight=WEIGHTS if rank == 2 else None),
        "differ in sample_weight: .*rank 2": shared(kmeans, POINTS, sample_weight=WEIGHTS + rank // 2),
        "expected rows='own'": shared(kmeans, POINTS + rank, rows="shared"),
        "rank 0: KMeans.fit; ranks 1, 2: PCA.fit": shared(rp.PCA if rank else kmeans, POINTS),
        "init=<function": shared(lambda: kmeans(init=of_first), POINTS),
        "rank 0: KMeans.fit with rows='own'": shared(kmeans, POINTS, rows=None if rank else "own"),
    }  # fmt: skip


def make_wrong_calls(comm):
    bad_input, refused, differing, mismatched = wrong_calls(comm.rank)
    for error, calls in ((bad_input, refused), (differing, mismatched)):
        for text, call in calls.items():
            with pytest.raises(error, match=text):
                call(comm)


def first_rows(X, n_clusters, random_state):
    return X[:n_clusters]


def test_wrong_calls_are_rejected_on_every_rank(world):
    world(3).run(make_wrong_calls)


def test_the_rows_argument_needs_ranks():
    with pytest.raises(InputError, match="rows='own' without comm"):
        kmeans().fit(POINTS, rows="own")


def assigned_round_robin(splits, comm):
    """Assign every third split to each rank, as with replicas on every host."""
    return list(range(comm.rank, len(splits), comm.world_size))


def fit_assigned(comm, path):
    parts = rp.input.open_partitions(path)
    with patch.object(same_call, "assigned", assigned_round_robin):
        models = [
            kmeans().fit(path, comm=comm),
            kmeans(options=rp.KMeans.Options(centroids="divided")).fit(parts, comm=comm),
            kmeans(init="k-means++").fit(parts, comm=comm),
        ]
        batches = rp.MiniBatchKMeans(3, random_state=0).fit(parts, comm=comm)
    mine = parts[5 * comm.rank : 5 * comm.rank + 5]
    own = kmeans().fit(mine, comm=comm, rows="own")
    return [
        [(each.inertia_, each.labels_, each.report_.exemplar_rows) for each in models],
        (batches.inertia_, batches.labels_),
        (own.inertia_, own.labels_),
    ]


def test_the_model_of_splits_matches_the_file_for_any_assignment(world, tmp_path):
    np.save(tmp_path / "rows.npy", POINTS)
    path = rp.input.divide(tmp_path / "rows.npy", tmp_path / "parts", partitions=7, replicas=2, nodes=["a", "b"])
    counts = [len(part.read()) for part in rp.input.open_partitions(path)]
    parts = np.split(np.arange(len(POINTS)), np.cumsum(counts)[:-1])
    by_rank = [np.concatenate(parts[rank::3]) for rank in range(3)]

    found = world(3).run(fit_assigned, str(path))

    expected = [kmeans(init=init).fit(POINTS) for init in ["k-means||", "k-means||", "k-means++"]]
    batches, own = rp.MiniBatchKMeans(3, random_state=0).fit(POINTS), kmeans().fit(POINTS)
    for rank, (models, (inertia, labels), _) in enumerate(found):
        for (of_splits, own_labels, exemplars), whole in zip(models, expected, strict=True):
            assert of_splits == pytest.approx(whole.inertia_, rel=1e-12)
            np.testing.assert_array_equal(own_labels, whole.labels_[by_rank[rank]])
            np.testing.assert_array_equal(exemplars, whole.report_.exemplar_rows)
        assert inertia == pytest.approx(batches.inertia_, rel=1e-12)
        np.testing.assert_array_equal(labels, batches.labels_[by_rank[rank]])
    np.testing.assert_array_equal(np.concatenate([labels for _, _, (_, labels) in found]), own.labels_)

    events: list[dict] = []
    model = kmeans(engine=world(3), on_iteration=events.append).fit(path)
    np.testing.assert_array_equal(model.labels_, own.labels_)
    assert model.inertia_ == pytest.approx(own.inertia_, rel=1e-12)
    assert [each["event"] for each in events].count("iteration") == model.n_iter_
    assert model.engine is world(3) and len(model.report_.ranks) == 3


def positions(comm, path, options):
    with patch.object(same_call, "assigned", assigned_round_robin):
        model = mds(**options).fit(path, comm=comm)
    return model.stress_, model.embedding_


@pytest.mark.parametrize(
    "options", [{}, {"weights": SQUARE + 1, "init": POINTS[:, :2], "n_components": 2}, {"n_init": 2}]
)
def test_positions_of_splits_do_not_depend_on_the_rank_that_reads_them(world, tmp_path, options):
    np.save(tmp_path / "square.npy", SQUARE)
    path = rp.input.divide(tmp_path / "square.npy", tmp_path / "parts", partitions=7)
    counts = [len(part.read()) for part in rp.input.open_partitions(path)]
    numbers = np.split(np.arange(len(POINTS)), np.cumsum(counts)[:-1])

    found = world(3).run(positions, str(path), options)

    whole = mds(**options).fit(SQUARE)
    for rank, (stress, embedding) in enumerate(found):
        assert stress == pytest.approx(whole.stress_, rel=1e-5)
        assert_close(embedding, whole.embedding_[np.concatenate(numbers[rank::3])], 1e-4)
    assert_close(mds(**options, engine=world(3)).fit(path).embedding_, whole.embedding_, 1e-4)


def edge_count(comm, graph):
    return graph.partition(comm).edge_count


def test_a_damaged_copy_is_replaced_and_reported(world, tmp_path):
    np.save(tmp_path / "rows.npy", POINTS)
    path = rp.input.divide(tmp_path / "rows.npy", tmp_path / "parts", partitions=4, replicas=2, nodes=["a", "b"])
    damaged = tmp_path / "parts/a/part-00002.npy"
    content = damaged.read_bytes()
    damaged.unlink()
    damaged.write_bytes(content[:-1] + b"?")

    model = kmeans(engine=world(3)).fit(path)

    assert model.inertia_ == pytest.approx(kmeans().fit(POINTS).inertia_, rel=1e-12)
    (note,) = [note for rank in model.report_.ranks for note in rank.notes]
    assert f"{damaged} on a is damaged" in note and "b/part-00002.npy is read instead" in note


def test_splits_of_tables_may_differ_in_types_but_not_in_columns(world, tmp_path):
    table = pa.table({"a": np.arange(6.0), "b": np.arange(6.0) ** 2})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.set_column(0, "a", pa.array(range(6))), tmp_path / "b.parquet")
    pq.write_table(table.select(["b", "a"]), tmp_path / "c.parquet")
    for workers in (1, 2):
        same, other = (rp.input.splits([tmp_path / "a.parquet", tmp_path / f"{name}.parquet"]) for name in ("b", "c"))
        model = rp.KMeans(1, engine=world(workers)).fit(same)
        np.testing.assert_allclose(model.cluster_centers_, [[2.5, 55 / 6]])
        with pytest.raises(rp.InputError, match=r"tables of different columns: a, b; and b, a|names of columns"):
            rp.KMeans(1, engine=world(workers)).fit(other)


def test_splits_of_every_format_are_input(world, tmp_path):
    job = world(3)
    frame = pd.DataFrame(POINTS, columns=list("abcd"))
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=20)
    np.savetxt(tmp_path / "edges.txt", EDGES, "%d")
    np.save(tmp_path / "edges.npy", EDGES)
    patches = "".join(f"p{at} 0 0 {' '.join(map(repr, row))}\n" for at, row in enumerate(POINTS.tolist()))
    (tmp_path / "rows.t12").write_text(patches)
    (tmp_path / "rows.txt.gz").write_bytes(gzip.compress(patches.encode()))
    (tmp_path / "edges.txt.bz2").write_bytes(bz2.compress((tmp_path / "edges.txt").read_bytes()))
    dump_svmlight_file(SPARSE, np.median(TARGETS) < TARGETS, str(tmp_path / "rows.svm"))
    (tmp_path / "rows.svm.gz").write_bytes(gzip.compress((tmp_path / "rows.svm").read_bytes()))
    ratings = CASES["ALS of a table"].data["ratings"]
    ratings.to_csv(tmp_path / "ratings.csv", index=False)

    def splits(name):
        return rp.input.splits(tmp_path / name, count=4)

    line, axes = rp.Ridge().fit(frame[["a", "b", "c"]], frame["d"]), rp.PCA(2).fit(POINTS)
    for name in ("rows.csv", "rows.parquet"):
        model = rp.Ridge(engine=job).fit(splits(name), "d")
        assert_close(model.coef_, line.coef_, 1e-10)
        assert list(model.feature_names_in_) == ["a", "b", "c"]
        assert_close(rp.PCA(2, engine=job).fit(splits(name)).components_, axes.components_, 1e-10)
        assert_close(model.predict(splits(name)), line.predict(frame[["a", "b", "c"]]), 1e-10)
        assert model.score(splits(name), "d") == pytest.approx(line.score(frame[["a", "b", "c"]], frame["d"]))
    labels = kmeans().fit(tmp_path / "rows.t12").labels_
    for name in ("rows.t12", "rows.txt.gz"):
        assert_close(kmeans(engine=job).fit(splits(name)).labels_, labels, 0)
    for name in ("edges.txt", "edges.txt.bz2", "edges.npy"):
        assert_close(rp.PageRank(engine=job).fit(splits(name)).ranks_, rp.PageRank().fit(EDGES).ranks_, 1e-12)
    undirected = rp.Graph(splits("edges.txt"), directed=False, vertex_count=30)
    whole = rp.Graph(EDGES, directed=False, vertex_count=30)
    assert_close(rp.PageRank(engine=job).fit(undirected).ranks_, rp.PageRank().fit(whole).ranks_, 1e-12)
    assert job.run(edge_count, undirected) == 3 * [job.run(edge_count, whole)[0]]
    for name in ("rows.svm", "rows.svm.gz"):
        of_svm = rp.LogisticRegression(engine=job).fit(splits(name))
        assert_close(of_svm.coef_, rp.LogisticRegression().fit(tmp_path / "rows.svm").coef_, 1e-6)
        assert of_svm.score(splits(name)) == of_svm.score(SPARSE, np.median(TARGETS) < TARGETS)
    weighted = kmeans(engine=job).fit(splits("rows.csv"), sample_weight=WEIGHTS)
    assert weighted.inertia_ == pytest.approx(kmeans().fit(POINTS, sample_weight=WEIGHTS).inertia_, rel=1e-12)
    factors = [model.fit(data) for model, data in (
        (rp.ALS(2, max_iter=2, random_state=0, engine=job), splits("ratings.csv")),
        (rp.ALS(2, max_iter=2, random_state=0), ratings),
    )]  # fmt: skip
    assert_close(factors[0].user_factors_, factors[1].user_factors_, 1e-5)

    for text, call in {
        "sample_weight has 3 entries for 60 rows": lambda: kmeans(engine=job).fit(
            splits("rows.csv"), sample_weight=WEIGHTS[:3]
        ),
        "expected one partition file": lambda: kmeans(engine=job).fit([tmp_path / "no.json", tmp_path / "rows.csv"]),
        "y='e': the table of the splits has no such column": lambda: rp.Ridge(engine=job).fit(splits("rows.csv"), "e"),
        "is not a partition file": lambda: kmeans(engine=job).fit(tmp_path / "no.json"),
    }.items():
        (tmp_path / "no.json").write_text("{}")
        with pytest.raises(InputError, match=text):
            call()
