"""KMeans satisfies scikit-learn's contract, and reports wrong input in one sentence."""

from __future__ import annotations

import doctest
import pickle

import numpy as np
import pytest
import ripieno as rp
from sklearn.base import clone
from sklearn.cluster import KMeans as SklearnKMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from stand_in_engine import StandIn

X = np.random.default_rng(0).normal(size=(60, 4))

# Random rows are drawn by index, so a repeated row and a row of double weight lead to different starts. scikit-learn's
# own KMeans also expects this check to fail.
EXPECTED_FAILURES = {
    f"check_sample_weight_equivalence_on_{kind}_data": "starts are drawn by row number, not by weight"
    for kind in ("dense", "sparse")
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([rp.KMeans()], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


def test_prediction_transformation_and_score_match_scikit_learn():
    start = X[:5] + 0.01
    ours, theirs = (kind(5, init=start, n_init=1).fit(X) for kind in (rp.KMeans, SklearnKMeans))
    new = np.random.default_rng(1).normal(size=(30, 4))

    np.testing.assert_array_equal(ours.predict(new), theirs.predict(new))
    np.testing.assert_allclose(ours.transform(new), theirs.transform(new))
    assert ours.score(new) == pytest.approx(theirs.score(new))
    assert ours.score(new, sample_weight=np.arange(30)) == pytest.approx(theirs.score(new, sample_weight=np.arange(30)))
    np.testing.assert_array_equal(ours.labels_, ours.predict(X))


@pytest.mark.parametrize("fitted", [np.float32, np.float64])
@pytest.mark.parametrize("predicted", [np.float32, np.float64, np.int64])
def test_a_model_predicts_for_rows_of_another_type(fitted, predicted):
    model = rp.KMeans(3, random_state=0).fit((X * 10).round().astype(fitted))

    np.testing.assert_array_equal(model.predict((X * 10).round().astype(predicted)), model.labels_)


def test_dtypes_that_kernels_support_are_kept():
    for dtype, expected in [(np.float32, np.float32), (np.float64, np.float64), (np.uint8, np.float32), (int, float)]:
        model = rp.KMeans(3, random_state=0).fit(np.abs(X * 20).astype(dtype))
        assert model.cluster_centers_.dtype == expected
        assert model.labels_.dtype == np.int32


def test_a_callable_returns_the_start():
    model = rp.KMeans(3, init=lambda X, n, random_state: X[:n], n_init=1).fit(X)

    np.testing.assert_array_equal(model.labels_, rp.KMeans(3, init=X[:3]).fit(X).labels_)


def test_fitted_models_are_cloned_pickled_and_piped():
    model = rp.KMeans(3, random_state=0, workers=2).fit(X)

    assert clone(model).get_params() == model.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.labels_)
    assert make_pipeline(StandardScaler(), rp.KMeans(3)).fit_transform(X).shape == (60, 3)
    assert list(model.get_feature_names_out()) == ["kmeans0", "kmeans1", "kmeans2"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0: expected a whole number >= 1"),
        ({"n_clusters": 61}, "n_samples=60 should be >= n_clusters=61"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"tol": -1}, "tol=-1: expected a number >= 0"),
        ({"tol": float("nan")}, "tol=nan"),
        ({"n_init": 0}, "n_init=0: expected 'auto'"),
        ({"init": "kmeans"}, "init='kmeans': expected one of"),
        ({"algorithm": "full"}, "algorithm='full': expected one of lloyd, elkan"),
        ({"init": X[:2]}, r"init has shape \(2, 4\): expected .* \(8, 4\)"),
        ({"workers": 0}, "workers=0"),
        ({"threads": 0}, "threads=0"),
        ({"engine": "hadoop"}, "engine='hadoop'"),
    ],
)
def test_bad_parameters_are_named_with_their_value(parameters, message):
    with pytest.raises(rp.InputError, match=message):
        rp.KMeans(**parameters).fit(X)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_values_that_are_not_finite_are_named_by_row_and_column(value, name, workers):
    bad = X.copy()
    bad[41, 2] = value

    with pytest.raises(rp.InputError, match=f"row 41, column 2: {name}"):
        rp.KMeans(3, workers=workers).fit(bad)


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_with_infinite_distances_are_refused(workers):
    with pytest.raises(rp.InputError, match="too far apart for squared distances in float64"):
        rp.KMeans(3, workers=workers).fit(X * 1e200)


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_whose_distances_vanish_are_refused(workers):
    for estimator in (rp.KMeans(3, workers=workers), rp.MiniBatchKMeans(3, workers=workers)):
        with pytest.raises(rp.InputError, match="too close together for squared distances in float64: scale them"):
            estimator.fit(X * 1e-200)
        assert estimator.fit(np.repeat(X[:3], 4, axis=0)).inertia_ == pytest.approx(0, abs=1e-9)
        assert estimator.fit(np.repeat(X[:3] * 1e-200, 4, axis=0) * 0).inertia_ == 0


@pytest.mark.parametrize("weights", [np.ones(59), -np.ones(60), np.zeros(60), np.full(60, np.nan)])
def test_invalid_weights_are_refused(weights):
    with pytest.raises(ValueError, match="weight"):
        rp.KMeans(3).fit(X, sample_weight=weights)


def test_the_example_in_the_documentation_runs():
    from ripieno.algorithms.kmeans import estimator as kmeans

    assert doctest.testmod(kmeans) == doctest.TestResults(failed=0, attempted=6)


def test_a_running_job_fits_estimators_and_continues(world):
    job, events = world(3), []
    expected = rp.KMeans(4, random_state=0, workers=3, threads=1).fit(X)

    models = [rp.KMeans(4, random_state=0, engine=job, on_iteration=events.append).fit(X) for _ in range(2)]

    for model in models:
        np.testing.assert_array_equal(model.labels_, expected.labels_)
        assert model.inertia_ == expected.inertia_
    assert len([event for event in events if event["event"] == "iteration"]) == 2 * expected.n_iter_
    assert not job.over and clone(models[0]).engine is job
    with pytest.raises(rp.SerializationError, match="set_params"):
        pickle.dumps(models[0])


def test_a_custom_engine_fits_estimators():
    expected = rp.KMeans(4, random_state=0, workers=2, threads=1).fit(X)

    model = clone(rp.KMeans(4, random_state=0, workers=2, engine=StandIn())).fit(X)

    np.testing.assert_array_equal(model.labels_, expected.labels_)


def test_options_of_a_running_job_cannot_be_changed(world):
    with pytest.raises(rp.InputError, match="the job passed as engine has 3 workers with 1 threads: leave both out"):
        rp.KMeans(4, workers=2, engine=world(3)).fit(X)


@pytest.mark.parametrize("engine", ["lokal", None, rp.KMeans()])
def test_engines_that_do_not_exist_are_reported(engine):
    with pytest.raises(rp.InputError, match=r"engine=.*: expected one of local, spark, dask, ray"):
        rp.KMeans(4, engine=engine).fit(X)
