"""MiniBatchKMeans: scikit-learn's steps and contract, for any placement of rows."""

from __future__ import annotations

import doctest
import pickle

import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.kmeans import mini_batch
from ripieno.algorithms.kmeans.mini_batch_program import _InertiaTrend
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.cluster import MiniBatchKMeans as SklearnMiniBatchKMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from varied import exhaustively

everywhere = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
SEED = 5
# Batches are drawn by row index, as in scikit-learn.
EXPECTED_FAILURES = {
    f"check_sample_weight_equivalence_on_{kind}_data": "batches are drawn by row number, not by weight"
    for kind in ("dense", "sparse")
}


@pytest.fixture(scope="module")
def digits():
    return load_digits().data


@everywhere
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_partial_fits_match_scikit_learn(world, digits, workers, dtype):
    X = digits.astype(dtype)
    start = digits[:30] + 0.25
    weights = np.random.default_rng(SEED).random(len(X))
    ours = rp.MiniBatchKMeans(30, init=start, engine=world(workers))
    theirs = SklearnMiniBatchKMeans(30, init=start, n_init=1, reassignment_ratio=0)
    # A batch of two rows leaves some ranks without rows.
    for first, end in [(0, 400), (400, 402), (402, 1500)]:
        ours.partial_fit(X[first:end], sample_weight=weights[first:end])
        theirs.partial_fit(X[first:end].astype(np.float64), sample_weight=weights[first:end])

    tolerance = 1e-5 if ours.cluster_centers_.dtype == np.float32 else 1e-11
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=tolerance, atol=16 * tolerance)
    np.testing.assert_allclose(ours.counts_, theirs._counts, rtol=1e-11)
    np.testing.assert_array_equal(ours.labels_, ours.predict(X[402:1500]))
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X.astype(np.float64)))
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-5)
    assert ours.n_steps_ == 3


@everywhere
def test_a_fit_is_as_good_as_scikit_learn_and_does_not_depend_on_workers(world, digits, workers):
    start = digits[:20]
    parameters = {"init": start, "batch_size": 200, "max_iter": 20, "random_state": SEED}
    alone = rp.MiniBatchKMeans(20, **parameters).fit(digits)
    model = rp.MiniBatchKMeans(20, **parameters, engine=world(workers)).fit(digits)
    theirs = SklearnMiniBatchKMeans(20, n_init=1, **parameters).fit(digits)
    whole = SklearnKMeans(20, init=start, n_init=1).fit(digits)

    np.testing.assert_allclose(model.cluster_centers_, alone.cluster_centers_, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.labels_, alone.labels_)
    assert model.n_steps_ == alone.n_steps_
    assert model.inertia_ < 1.03 * theirs.inertia_
    assert model.inertia_ < 1.06 * whole.inertia_


@everywhere
def test_a_fit_works_with_fewer_rows_than_ranks(world, workers):
    rows = np.array([[0.0, 1.0], [9.0, 9.0]])
    model = rp.MiniBatchKMeans(2, random_state=SEED, batch_size=10, engine=world(workers)).fit(rows)

    assert sorted(model.labels_) == [0, 1]
    assert model.inertia_ == pytest.approx(0.0, abs=1e-12)


def test_programs_and_files_give_the_same_fit(world, digits, tmp_path):
    model = rp.MiniBatchKMeans(10, random_state=SEED, batch_size=300, max_iter=3)
    np.save(tmp_path / "digits.npy", digits)
    alone = clone(model).fit(digits)

    fitted = world(2).run(lambda comm: clone(model).fit(digits, comm=comm).cluster_centers_)
    np.testing.assert_array_equal(fitted[0], fitted[1])
    np.testing.assert_allclose(fitted[0], alone.cluster_centers_, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(clone(model).fit(tmp_path / "digits.npy").cluster_centers_, alone.cluster_centers_)


def test_a_fit_ends_without_further_improvement(digits):
    events: list[dict] = []
    model = rp.MiniBatchKMeans(10, random_state=SEED, batch_size=512, on_iteration=events.append).fit(digits)

    assert [event["step"] for event in events] == list(range(1, model.n_steps_ + 1))
    assert model.n_steps_ < events[0]["step_count"] == 100 * len(digits) // 512
    assert events[-1]["batch_inertia"] < events[0]["batch_inertia"]
    assert rp.MiniBatchKMeans(10, random_state=SEED, batch_size=512, tol=1e9).fit(digits).n_steps_ == 2
    endless = rp.MiniBatchKMeans(10, random_state=SEED, batch_size=512, max_iter=7, max_no_improvement=None)
    assert endless.fit(digits).n_steps_ == 7 * len(digits) // 512
    assert endless.n_iter_ == 7


def test_a_batch_larger_than_the_rows_does_not_shorten_the_fit(digits):
    model = rp.MiniBatchKMeans(3, random_state=SEED, max_iter=6, max_no_improvement=None).fit(digits[:50])
    assert (model.n_steps_, model.n_iter_) == (6, 6)


def test_only_a_lower_smoothed_inertia_is_progress():
    progress = _InertiaTrend(batch_size=50, row_count=199, no_improvement_limit=2)
    assert [progress.is_over(inertia) for inertia in (8.0, 8.0, 4.0, 7.0, 7.0)] == [False, False, False, False, True]


def test_a_partial_fit_continues_after_a_fit(digits):
    model = rp.MiniBatchKMeans(5, random_state=SEED, max_iter=1).fit(digits[:1000])
    counts, before = model.counts_.sum(), model.cluster_centers_.copy()
    model.partial_fit(digits[1000:])

    assert model.counts_.sum() == counts + len(digits) - 1000
    assert not np.array_equal(model.cluster_centers_, before)
    again = pickle.loads(pickle.dumps(model)).partial_fit(digits)
    np.testing.assert_array_equal(again.cluster_centers_, model.partial_fit(digits).cluster_centers_)


@pytest.mark.parametrize("form", [np.asarray, csr_matrix], ids=["dense", "sparse"])
def test_means_of_float32_rows_follow_a_long_stream(form, tmp_path):
    batch = np.full((8192, 1), 10_000, np.float32)
    model = rp.MiniBatchKMeans(1, init=batch[:1]).partial_fit(form(batch))
    for value in (0.25, 0.5):
        model.partial_fit(form(batch[:2] + np.float32(value)))
        model.save(tmp_path / f"{value}")
        model = rp.MiniBatchKMeans.load(tmp_path / f"{value}")
    for _ in range(20):
        model.partial_fit(form(batch[:2] + 1))
    np.testing.assert_allclose(model.cluster_centers_, 10_000 + 41.5 / 8236, rtol=1e-7)
    model.cluster_centers_ = np.float32([[0]])
    assert model.partial_fit(form(np.float32([[8237]]))).cluster_centers_ == 1


def test_invalid_parameters_and_inputs_are_rejected(digits):
    for parameters, message in [
        ({"batch_size": 0}, "batch_size=0: expected"),
        ({"max_no_improvement": 0}, "max_no_improvement=0: expected"),
        ({"init": "best"}, "init='best': expected one of"),
    ]:
        with pytest.raises(rp.InputError, match=message):
            rp.MiniBatchKMeans(**parameters).fit(digits)
    with pytest.raises(rp.InputError, match="n_samples=3 should be >= n_clusters=8"):
        rp.MiniBatchKMeans().partial_fit(digits[:3])
    with pytest.raises(NotFittedError):
        rp.MiniBatchKMeans().predict(digits)
    with pytest.raises(ValueError, match="63 features"):
        rp.MiniBatchKMeans().fit(digits).partial_fit(digits[:, 1:])


@parametrize_with_checks([rp.MiniBatchKMeans(max_iter=2)], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


def test_the_examples_run():
    assert doctest.testmod(mini_batch) == doctest.TestResults(failed=0, attempted=5)


def test_the_best_of_several_starts_on_a_sample_is_used(world):
    random = np.random.default_rng(0)
    rows = np.concatenate([random.normal(10 * center, 0.1, (50, 2)) for center in range(8)])
    parameters = {"init": "random", "random_state": 3, "max_iter": 1, "batch_size": 40}
    single, best = (rp.MiniBatchKMeans(8, n_init=n_init, **parameters).fit(rows) for n_init in (1, 30))
    assert best.inertia_ < 0.6 * single.inertia_

    sampled = rp.MiniBatchKMeans(8, n_init=30, init_size=60, **parameters)
    alone, together = sampled.fit(rows).cluster_centers_, sampled.set_params(engine=world(3)).fit(rows)
    np.testing.assert_allclose(together.cluster_centers_, alone, rtol=1e-12)
    np.testing.assert_allclose(sampled.fit(csr_matrix(rows)).cluster_centers_, alone, rtol=1e-9)
    with pytest.raises(rp.InputError, match="init_size=7: expected at least n_clusters=8"):
        rp.MiniBatchKMeans(8, init_size=7).fit(rows)


def test_initial_rows_without_weight_are_reported(digits):
    weights = np.zeros(len(digits))
    weights[-1] = 1.0
    model = rp.MiniBatchKMeans(3, init_size=5, random_state=SEED)
    with pytest.raises(rp.InputError, match="init_size=5: all rows drawn for the initial centroids have weight 0"):
        model.fit(digits, sample_weight=weights)
