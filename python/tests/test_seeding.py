"""First centroids depend only on the seed and the data, and are as good as scikit-learn's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import ripieno as rp
from hypothesis import given
from hypothesis import strategies as st
from ripieno import kernels
from ripieno.algorithms.kmeans.rows import WeightedRows
from seeding_program import first_centroids, lowest_of
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.cluster import kmeans_plusplus
from sklearn.datasets import load_digits, make_blobs
from varied import exhaustively

INITS = ["random", "k-means++", "k-means||"]


def start(world, workers, points, init, n_clusters, seed=0, weights=None):
    return world(workers).run(first_centroids, points, weights, init, n_clusters, seed)


@pytest.fixture(scope="module")
def digits():
    return load_digits().data


@given(cuts=st.lists(st.integers(0, 100), max_size=6), seed=st.integers(0, 2**31), stream=st.integers(0, 2**33))
def test_a_row_draws_the_same_number_for_any_division_of_rows(cuts, seed, stream):
    points = np.zeros((100, 1))
    whole = WeightedRows(points, None, 0, 100).draw(seed, stream)
    edges = [0, *sorted(cuts), 100]

    parts = [WeightedRows(points[a:b], None, a, 100).draw(seed, stream) for a, b in pairwise(edges)]

    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("weighted", [True, *exhaustively(False)])
def test_the_number_of_workers_does_not_change_the_start(world, digits, init, weighted):
    weights = np.arange(len(digits), dtype=np.float64) % 5 if weighted else None
    alone = start(world, 1, digits, init, 30, seed=3, weights=weights)[0]

    for workers in (2, 3):
        for centroids in start(world, workers, digits, init, 30, seed=3, weights=weights):
            np.testing.assert_array_equal(centroids, alone)


@pytest.mark.parametrize("init", INITS)
def test_another_seed_gives_another_start_and_the_same_seed_the_same(world, digits, init):
    first, again, other = (start(world, 1, digits, init, 10, seed=seed)[0] for seed in (1, 1, 2))

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize("workers", [3, *exhaustively(1)])
def test_centroids_are_different_rows_even_if_all_rows_are_needed(world, init, workers):
    points = np.arange(12.0).reshape(6, 2)

    centroids = start(world, workers, points, init, 6)[0]

    np.testing.assert_array_equal(np.sort(centroids, axis=0), points)


@pytest.mark.parametrize("init", INITS)
def test_rows_without_weight_are_never_chosen(world, init):
    points = np.arange(40.0).reshape(40, 1)
    weights = (np.arange(40) % 2).astype(np.float64)

    centroids = start(world, 2, points, init, 10, weights=weights)[0]

    assert (centroids % 2 == 1).all()


def test_rows_are_drawn_in_proportion_to_their_weight(world):
    points, weights = np.arange(4.0).reshape(4, 1), np.array([1.0, 2.0, 3.0, 4.0])

    drawn = [start(world, 1, points, "random", 1, seed=seed, weights=weights)[0].item() for seed in range(2000)]

    np.testing.assert_allclose(np.bincount(np.int64(drawn), minlength=4) / 2000, weights / 10, atol=0.04)


@pytest.mark.parametrize("init", ["k-means++", "k-means||"])
def test_every_blob_is_found(init):
    points, _, centers = make_blobs(600, centers=12, cluster_std=0.1, random_state=0, return_centers=True)

    model = rp.KMeans(12, init=init, random_state=0).fit(points)

    distances = np.linalg.norm(centers[:, None] - model.cluster_centers_, axis=2)
    assert distances.min(axis=1).max() < 0.1


@pytest.mark.parametrize("init", ["k-means||", *exhaustively("k-means++")])
def test_results_are_as_good_as_those_of_scikit_learn(digits, init):
    ours = [rp.KMeans(20, init=init, random_state=seed).fit(digits).inertia_ for seed in range(5)]
    theirs = [SklearnKMeans(20, n_init=1, random_state=seed).fit(digits).inertia_ for seed in range(5)]

    assert np.median(ours) < 1.02 * np.median(theirs)


def test_equal_integer_seeds_give_equal_models_for_any_number_of_workers(digits):
    labels = [rp.KMeans(10, workers=workers, random_state=5).fit(digits).labels_ for workers in (1, 2, 3)]

    np.testing.assert_array_equal(labels[0], labels[1])
    np.testing.assert_array_equal(labels[0], labels[2])


def blobs(row_count, column_count=3):
    return make_blobs(row_count, column_count, centers=40, random_state=0)[0]


# More than 10 000 rows for 1 001 clusters are sampled.
@pytest.mark.parametrize(
    ("row_count", "weighted", "dtype"),
    [(3000, True, np.uint8), *exhaustively((3000, False, np.float64), (12_000, False, np.float64))],
)
def test_the_number_of_workers_does_not_change_the_start_of_many_clusters(world, row_count, weighted, dtype):
    points = (blobs(row_count) * 10 + 128).clip(0, 255).astype(dtype)
    weights = np.arange(row_count, dtype=np.float64) % 5 if weighted else None
    alone = start(world, 1, points, "k-means||", 1001, seed=3, weights=weights)[0]

    for workers in (2, 3):
        for centroids in start(world, workers, points, "k-means||", 1001, seed=3, weights=weights):
            np.testing.assert_array_equal(centroids, alone)


@pytest.mark.parametrize("workers", [3, *exhaustively(1)])
def test_many_centroids_are_different_rows_while_different_rows_exist(world, workers):
    points = np.repeat(np.arange(1100.0), 2)[:, None]

    for n_clusters, different in [(1100, 1100), (1099, 1099), (1500, 1100)]:
        centroids = start(world, workers, points, "k-means||", n_clusters)[0]
        assert len(centroids) == n_clusters and len(np.unique(centroids)) == different


@pytest.mark.parametrize("row_count", [2500, *exhaustively(25_000)])
def test_rows_without_weight_are_never_chosen_for_many_clusters(world, row_count):
    points = np.arange(row_count, dtype=np.float64)[:, None]
    weights = (np.arange(row_count) % 2).astype(np.float64)

    centroids = start(world, 2, points, "k-means||", 1200, weights=weights)[0]

    assert (centroids % 2 == 1).all() and len(np.unique(centroids)) == 1200


@pytest.mark.parametrize("row_count", [5000, *exhaustively(15_000)])
def test_many_clusters_start_as_well_as_by_k_means_plus_plus(world, row_count):
    points = blobs(row_count, 4)

    ours = start(world, 1, points, "k-means||", 1200)[0]

    theirs, _ = kmeans_plusplus(points, 1200, random_state=0)
    cost, reference = (inertia(points, centroids) for centroids in (ours, theirs))
    assert cost < 1.1 * reference


def inertia(points, centroids):
    distances = np.full(len(points), np.inf)
    kernels.update_min_distances(points, centroids, distances)
    return distances.sum()


@pytest.mark.parametrize(
    "keys",
    [
        np.random.default_rng(0).random(20_000),
        np.random.default_rng(0).normal(size=20_000) * 1e9,
        np.round(np.random.default_rng(0).normal(size=20_000)),
        np.where(np.arange(20_000) % 7, np.inf, 0.5),
        -np.zeros(20_000),
    ],
    ids=["uniform", "normal", "ties", "mostly infinite", "all equal"],
)
@pytest.mark.parametrize("count", [1, 4097, *exhaustively(15_000, 30_000)])
def test_the_lowest_keys_of_all_ranks_are_found_in_order(world, keys, count):
    expected = np.argsort(keys, kind="stable")[:count]

    for numbers in world(3).run(lowest_of, keys, count):
        np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize(("init", "n_clusters"), [*exhaustively(("k-means++", 1000)), ("k-means||", 1200)])
def test_long_seedings_report_their_progress(init, n_clusters):
    events = []

    rp.KMeans(n_clusters, init=init, max_iter=1, random_state=0, on_iteration=events.append).fit(blobs(1500))

    chosen = [event["chosen"] for event in events if event["event"] == "seeding"]
    assert chosen[0] == 0 and chosen == sorted(chosen) and len(chosen) > 2
    assert chosen[-1] == n_clusters
