"""K-means: results do not depend on the number of workers, and equal scikit-learn's."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
import ripieno as rp
import ripieno.kernels as kernels
from ripieno.algorithms.kmeans import program
from ripieno.algorithms.kmeans.program import KMeansOptions
from ripieno.comm.thread_statistics import ThreadStatisticsStart
from ripieno.errors import InputError
from ripieno.features import HogOptions, demo_images, hog_vectors
from ripieno.input.matrix import LocalRows, RowsInMemory
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from varied import exhaustively

WORKERS = [3, *exhaustively(1, 2)]


@pytest.fixture(scope="module")
def digits():
    return load_digits().data


@pytest.fixture(scope="module")
def patches():
    options = HogOptions(stride=24)
    pictures = demo_images()[:2]
    gray = [(each.gray(), options.corners(each.height, each.width)) for each in pictures]
    return np.concatenate([hog_vectors(image, corners, options) for image, corners in gray])


def start_from(points, n_clusters, seed=0):
    """Return some slightly moved rows, because rows of whole numbers may have two nearest centroids."""
    random = np.random.default_rng(seed)
    rows = points[random.choice(len(points), n_clusters, replace=False)].astype(np.float64)
    return rows + random.random(rows.shape) * 0.01 * points.max()


def fit(world, workers, points, start, weights=None, max_iter=300, tol=1e-4):
    options = KMeansOptions(len(start), "array", [start], max_iter, tol)
    parts = world(workers).run(program.fit, RowsInMemory(points), weights, options)
    labels = np.concatenate([part.clustering.labels for part in parts])
    return parts, labels, parts[0].clustering


def sklearn_fit(points, start, weights=None, **parameters):
    model = SklearnKMeans(len(start), init=start.astype(points.dtype), n_init=1, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(points, sample_weight=weights)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("n_clusters", [1, 10, 100])
def test_from_the_same_start_labels_match_scikit_learn(world, digits, workers, dtype, n_clusters):
    points = digits.astype(dtype)
    start = start_from(digits, n_clusters).astype(np.float32)
    reference = sklearn_fit(points if dtype != np.uint8 else digits.astype(np.float32), start)

    _, labels, clustering = fit(world, workers, points, start)

    np.testing.assert_array_equal(labels, reference.labels_)
    assert clustering.inertia == pytest.approx(reference.inertia_, rel=1e-5)
    assert clustering.iteration_count == reference.n_iter_
    np.testing.assert_allclose(clustering.centroids, reference.cluster_centers_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("workers", WORKERS)
def test_patches_of_photographs_are_clustered_as_by_scikit_learn(world, patches, workers):
    start = start_from(patches, 20).astype(np.float32)
    reference = sklearn_fit(patches, start)

    _, labels, clustering = fit(world, workers, patches, start)

    np.testing.assert_array_equal(labels, reference.labels_)
    assert clustering.inertia == pytest.approx(reference.inertia_, rel=1e-5)
    assert clustering.iteration_count == reference.n_iter_


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("parameters", [{"max_iter": 1}, {"max_iter": 3}, {"tol": 0.0}, {"tol": 0.5}])
def test_fits_stop_at_the_iteration_of_scikit_learn(world, digits, workers, parameters):
    start = start_from(digits, 10)
    reference = sklearn_fit(digits, start, **parameters)

    _, labels, clustering = fit(world, workers, digits, start, **parameters)

    np.testing.assert_array_equal(labels, reference.labels_)
    assert clustering.inertia == pytest.approx(reference.inertia_, rel=1e-9)
    assert clustering.iteration_count == reference.n_iter_


@pytest.mark.parametrize("workers", WORKERS)
def test_weights_count_as_in_scikit_learn(world, digits, workers):
    weights = np.random.default_rng(1).integers(0, 4, len(digits)).astype(np.float64)
    start = start_from(digits, 10)
    reference = sklearn_fit(digits, start, weights)

    _, labels, clustering = fit(world, workers, digits, start, weights)

    np.testing.assert_array_equal(labels, reference.labels_)
    assert clustering.inertia == pytest.approx(reference.inertia_, rel=1e-9)


@pytest.mark.parametrize("workers", WORKERS)
def test_an_empty_cluster_gets_the_farthest_row_as_in_scikit_learn(world, digits, workers):
    start = start_from(digits, 10)
    start[3] = 1e3  # nearest to no row
    reference = sklearn_fit(digits, start)

    parts, labels, clustering = fit(world, workers, digits, start)

    np.testing.assert_array_equal(labels, reference.labels_)
    assert clustering.inertia == pytest.approx(reference.inertia_, rel=1e-9)
    assert parts[0].cluster_sizes.min() > 0


def test_many_empty_clusters_are_reseeded_alike_by_any_number_of_workers(world, digits):
    start = start_from(digits, 10)
    start[4:] = 1e3

    results = [fit(world, workers, digits, start, max_iter=5) for workers in (1, 2, 3)]

    assert np.bincount(results[0][1], minlength=10).min() > 0
    for _, labels, _ in results[1:]:
        np.testing.assert_array_equal(labels, results[0][1])


def test_empty_clusters_get_the_farthest_rows_in_order_and_ties_go_to_the_first(world):
    points = np.array([[0.0], [1.0], [9.0], [-9.0], [2.0]])
    start = np.array([[0.0], [100.0], [200.0]])

    _, labels, clustering = fit(world, 2, points, start, max_iter=1)

    np.testing.assert_allclose(clustering.centroids.ravel(), [1.0, 9.0, -9.0])
    np.testing.assert_array_equal(labels, [0, 0, 1, 2, 0])


def test_workers_without_rows_change_nothing(world):
    points = np.array([[0.0, 0.0], [10.0, 10.0]])

    parts, labels, clustering = fit(world, 3, points, points + 0.1)

    assert 0 in [len(part.clustering.labels) for part in parts]
    np.testing.assert_array_equal(labels, [0, 1])
    np.testing.assert_array_equal(clustering.centroids, points)


def fit_own(comm, cuts, points, weights, options):
    mine = slice(cuts[comm.rank], cuts[comm.rank + 1])
    return program.fit(comm, LocalRows(RowsInMemory(points[mine]), weights[mine], f"part {comm.rank}"), None, options)


def test_own_rows_and_weights_of_workers_are_used_in_rank_order(world, digits):
    start, weights = start_from(digits, 10), np.random.default_rng(1).random(len(digits))
    options = KMeansOptions(10, "array", [start], 300, 1e-4)
    parts = world(3).run(fit_own, [0, 1000, 1000, len(digits)], digits, weights, options)

    _, labels, whole = fit(world, 1, digits, start, weights)
    assert np.array_equal(np.concatenate([part.clustering.labels for part in parts]), labels)
    np.testing.assert_allclose(parts[0].clustering.centroids, whole.centroids, rtol=1e-12)


def test_an_error_in_an_own_row_of_a_worker_names_the_row(world, digits):
    points = digits.copy()
    points[1003, 2] = np.nan
    options = KMeansOptions(10, "random", [0], 300, 1e-4)
    with pytest.raises(InputError, match="part 1, row 3, column 2: NaN where a finite number is expected"):
        world(2).run(fit_own, [0, 1000, len(digits)], points, np.ones(len(digits)), options)


@pytest.mark.parametrize("workers", [1, *exhaustively(2)])
def test_both_models_of_threads_produce_the_same_bits(digits, workers):
    options = {"workers": workers, "threads": 3, "random_state": 0, "max_iter": 5}
    fits = [
        rp.KMeans(100, **options, options=rp.KMeans.Options(thread_model=model, bounds=bounds)).fit(digits)
        for model, bounds in (("fork-join", "auto"), ("bsp", "auto"), ("bsp", "none"))
    ]
    found = {(fit.cluster_centers_.tobytes(), fit.labels_.tobytes(), fit.inertia_) for fit in fits}
    assert len(found) == 1


def test_helper_threads_sleep_between_kernels_but_not_in_bsp(digits):
    rows = digits[:200].astype(np.float32)

    def sleeps(model):
        start = ThreadStatisticsStart()
        with kernels.threads_in_model(model, 2):
            for _ in range(30):
                kernels.distances(rows, rows, threads=2)
                # A serial section: no kernel runs.
                time.sleep(0.002)
        return sum(each["voluntary_switches"] for each in start.until_now() if each["index"] == 1)

    assert sleeps("fork-join") >= 8
    # The helper thread sleeps only before the first kernel and after the last one.
    assert sleeps("bsp") <= 4


@pytest.mark.parametrize("workers", [2, *exhaustively(1)])
@pytest.mark.parametrize("init", ["k-means||", *exhaustively("random")])
def test_bounds_change_only_the_number_of_comparisons(world, workers, init):
    rows = np.random.default_rng(0).normal(size=(30, 24)).repeat(100, axis=0)
    rows += 0.3 * np.random.default_rng(1).normal(size=rows.shape)
    options = {"engine": world(workers), "init": init, "n_init": 1, "random_state": 0, "max_iter": 30}
    plain, bounded = (
        rp.KMeans(100, **options, options=rp.KMeans.Options(bounds=bounds)).fit(rows) for bounds in ("none", "auto")
    )

    for name in ("cluster_centers_", "labels_"):
        assert getattr(plain, name).tobytes() == getattr(bounded, name).tobytes()
    assert (plain.inertia_, plain.n_iter_) == (bounded.inertia_, bounded.n_iter_)
    assert {each.compared for each in plain.report_.iterations} == {1.0}
    assert bounded.report_.iterations[0].compared == 1.0
    assert bounded.report_.iterations[-1].compared < 0.6
    assert plain.report_.bounds_bytes == (0,) * workers
    assert all(0 < count <= 4 * rows.size for count in bounded.report_.bounds_bytes)


def test_bounds_continue_after_a_cluster_has_lost_its_rows():
    rows = np.random.default_rng(0).normal(size=(20, 16)).repeat(50, axis=0).astype(np.float32)
    rows += np.float32(0.2) * np.random.default_rng(1).normal(size=rows.shape).astype(np.float32)
    start = np.concatenate([rows[::13][:70], np.full((10, 16), 50, np.float32)])
    plain, bounded = (
        rp.KMeans(80, init=start, tol=0, max_iter=40, options=rp.KMeans.Options(bounds=bounds)).fit(rows)
        for bounds in ("none", "auto")
    )

    assert plain.cluster_centers_.tobytes() == bounded.cluster_centers_.tobytes()
    assert plain.labels_.tobytes() == bounded.labels_.tobytes()
    assert min(each.compared for each in bounded.report_.iterations) < 1


def test_unknown_bounds_are_refused(digits):
    with pytest.raises(InputError, match="bounds='elkan': expected one of auto, none"):
        rp.KMeans(2, options=rp.KMeans.Options(bounds="elkan")).fit(digits)


def test_an_unknown_thread_model_is_refused(digits):
    with pytest.raises(InputError, match="thread_model='pool': expected one of fork-join, bsp"):
        rp.KMeans(2, options=rp.KMeans.Options(thread_model="pool")).fit(digits)


def test_every_rank_ends_with_the_same_centroids(world, digits):
    parts, _, _ = fit(world, 5, digits.astype(np.float32), start_from(digits, 50))

    for part in parts[1:]:
        np.testing.assert_array_equal(part.clustering.centroids, parts[0].clustering.centroids)
        assert part.history == parts[0].history


def test_equal_rows_leave_clusters_empty_with_a_warning():
    points = np.repeat([[1.0, 2.0], [3.0, 4.0]], 5, axis=0)

    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(2\)"):
        model = rp.KMeans(3, random_state=0).fit(points)

    assert model.inertia_ == 0
    assert len(set(model.labels_)) == 2


def test_the_best_of_several_runs_is_kept(digits):
    runs = [rp.KMeans(10, init="random", n_init=1, max_iter=3, random_state=np.random.RandomState(7)).fit(digits)]
    best = rp.KMeans(10, init="random", n_init=5, max_iter=3, random_state=np.random.RandomState(7)).fit(digits)

    assert best.inertia_ <= runs[0].inertia_
    assert -best.score(digits) == pytest.approx(best.inertia_)


def test_workers_report_the_times_of_iterations(digits):
    events = []
    model = rp.KMeans(10, workers=2, random_state=0, on_iteration=events.append).fit(digits)
    report = model.report_

    assert [event["event"] for event in events] == ["centroids", "seeding"] + ["iteration"] * model.n_iter_
    assert [event["iteration"] for event in events[2:]] == list(range(1, model.n_iter_ + 1))
    assert {event["run"] for event in events[1:]} == {1}
    assert len(report.iterations) == model.n_iter_
    assert len(report.iterations[0].compute_s) == len(report.hosts) == 2
    assert report.cluster_sizes.sum() == len(digits)
    assert report.iterations[-1].inertia == pytest.approx(model.inertia_)
    nearest = report.exemplar_rows[0][0]
    assert model.labels_[nearest] == report.exemplar_clusters[0] == np.argmax(np.bincount(model.labels_))


def test_exemplars_are_the_rows_nearest_to_their_centroids(digits):
    model = rp.KMeans(10, random_state=0).fit(digits)
    distances = model.transform(digits)

    for cluster, rows in zip(model.report_.exemplar_clusters, model.report_.exemplar_rows, strict=True):
        members = np.flatnonzero(model.labels_ == cluster)
        expected = members[np.argsort(distances[members, cluster], kind="stable")[: len(rows)]]
        np.testing.assert_array_equal(rows[rows >= 0], expected)


def fit_in_program(comm, points, weights, **parameters):
    events = []
    model = rp.KMeans(10, on_iteration=events.append, **parameters).fit(points, sample_weight=weights, comm=comm)
    return model.cluster_centers_, model.labels_, model.inertia_, len(events)


@pytest.mark.parametrize("workers", WORKERS)
def test_existing_ranks_fit_together_and_all_get_the_result(world, digits, workers):
    weights = np.arange(len(digits)) % 3
    alone = rp.KMeans(10, random_state=0).fit(digits, sample_weight=weights)

    parts = world(workers).run(lambda comm: fit_in_program(comm, digits, weights, random_state=0))

    for rank, (centers, labels, inertia, event_count) in enumerate(parts):
        np.testing.assert_array_equal(labels, alone.labels_)
        np.testing.assert_allclose(centers, alone.cluster_centers_, rtol=1e-12)
        assert inertia == pytest.approx(alone.inertia_, rel=1e-12)
        assert event_count == (alone.n_iter_ + 2 if rank == 0 else 0)


def test_ranks_that_fit_together_without_a_seed_use_the_seed_of_rank_0(world, digits):
    parts = world(3).run(lambda comm: fit_in_program(comm, digits, None, max_iter=1))

    for centers, *_ in parts[1:]:
        np.testing.assert_array_equal(centers, parts[0][0])
