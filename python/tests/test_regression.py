"""Ridge and LinearRegression: scikit-learn's numbers and contract, for any placement of rows and number of workers."""

from __future__ import annotations

import doctest
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from ripieno.algorithms.linear import regression
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks
from varied import exhaustively

everywhere = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
random = np.random.default_rng(0)
X = random.normal(size=(200, 6)) * [1, 2, 3, 0.5, 1, 1] + 2
Y = X @ random.normal(size=(6, 2)) + random.normal(size=(200, 2)) + 7
WEIGHTS = random.random(200)
PAIRS = {
    "least squares": (rp.LinearRegression(), LinearRegression(tol=1e-12)),
    "ridge": (rp.Ridge(3.0), Ridge(3.0)),
}


@parametrize_with_checks([rp.Ridge(), rp.LinearRegression()])
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


@everywhere
@pytest.mark.parametrize("solver", ["auto", "normal", "tsqr"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", PAIRS)
def test_weights_match_scikit_learn(world, workers, solver, weights, fit_intercept, name):
    ours, theirs = (clone(each).set_params(fit_intercept=fit_intercept) for each in PAIRS[name])
    for y in (Y[:, 0], Y):
        ours.set_params(solver=solver, engine=world(workers)).fit(X, y, sample_weight=weights)
        theirs.fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-10)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-10, atol=1e-300)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-10)
        assert ours.coef_.shape == theirs.coef_.shape
        assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-10)


@pytest.mark.parametrize("solver", ["normal", "tsqr"])
def test_sparse_rows_and_a_penalty_per_target_match_scikit_learn(world, solver):
    rows = csr_matrix(np.where(X > 3, X, 0))
    for alpha in (2.0, [0.5, 40.0]):
        model = rp.Ridge(alpha, solver=solver, engine=world(3)).fit(rows, Y, sample_weight=WEIGHTS)
        expected = Ridge(alpha, solver="cholesky").fit(rows.toarray(), Y, sample_weight=WEIGHTS)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9)
        np.testing.assert_allclose(model.intercept_, expected.intercept_, rtol=1e-9)
        np.testing.assert_allclose(model.predict(rows), expected.predict(rows.toarray()), rtol=1e-9)
        assert model.score(rows, Y) == pytest.approx(expected.score(rows.toarray(), Y))


def test_positive_weights_match_scikit_learn(world):
    ours = rp.LinearRegression(positive=True, engine=world(2)).fit(X, Y)
    expected = LinearRegression(positive=True).fit(X, Y)
    assert (ours.coef_ >= 0).all() and not ours.coef_.all()
    np.testing.assert_allclose(ours.coef_, expected.coef_, rtol=1e-9, atol=1e-12)
    ridge, expected = rp.Ridge(5.0, positive=True).fit(X, Y), Ridge(5.0, positive=True, tol=1e-12).fit(X, Y)
    np.testing.assert_allclose(ridge.coef_, expected.coef_, rtol=1e-4, atol=1e-4)


def test_least_squares_that_do_not_converge_are_an_error_on_every_rank(threads, monkeypatch):
    def nnls(points, target):
        raise RuntimeError("Maximum number of iterations reached.")

    def program(comm):
        with pytest.raises(rp.InputError, match=r"least squares of 6 columns: Maximum number of iterations"):
            rp.Ridge(positive=True).fit(X, Y, comm=comm)

    monkeypatch.setattr("ripieno.algorithms.linear.regression_program.optimize.nnls", nnls)
    threads(2, program)


@everywhere
def test_dependent_columns_have_the_shortest_weights(world, workers):
    dependent = np.hstack([X, X[:, :2] @ [[1], [-1]]])
    model = rp.LinearRegression(engine=world(workers)).fit(dependent, Y)
    expected = LinearRegression().fit(dependent, Y)

    assert (model.solver_, model.rank_) == ("tsqr", 6)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9)
    with pytest.raises(rp.InputError, match="solver='normal': the columns are linearly dependent"):
        rp.LinearRegression(solver="normal", engine=world(workers)).fit(dependent, Y)


@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
def test_rounding_errors_of_large_columns_are_no_rank(world, offset):
    shifted = X + offset
    dependent = np.hstack([shifted, shifted[:, :1] + shifted[:, 1:2]])
    for model in (rp.LinearRegression(engine=world(2)), rp.Ridge(1e-9, engine=world(2))):
        model.fit(dependent, Y)
        expected = LinearRegression(tol=1e-7).fit(dependent, Y)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-4)
        assert getattr(model, "rank_", 6) == 6
    few = rp.LinearRegression().fit(shifted[:4], Y[:4, 0])
    assert few.rank_ == 3
    np.testing.assert_allclose(few.coef_, LinearRegression().fit(shifted[:4], Y[:4, 0]).coef_, rtol=1e-4)


@everywhere
def test_fewer_rows_than_columns_or_ranks_have_the_shortest_weights(world, workers):
    for count in (2, 4):
        model = rp.LinearRegression(engine=world(workers)).fit(X[:count], Y[:count])
        expected = LinearRegression().fit(X[:count], Y[:count])
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(model.singular_, expected.singular_[: len(model.singular_)], atol=1e-10)


def test_badly_scaled_columns_are_solved_by_factorization():
    scaled = X * [1, 1e-3, 1, 1, 1e2, 1]
    model = rp.LinearRegression().fit(scaled, Y)
    expected = np.linalg.lstsq(scaled - scaled.mean(axis=0), Y - Y.mean(axis=0), rcond=None)[0]

    assert model.solver_ == "tsqr" and rp.LinearRegression().fit(X, Y).solver_ == "normal"
    np.testing.assert_allclose(model.coef_, expected.T, rtol=1e-8)


@everywhere
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_files_is_the_target(world, tmp_path, workers, kind):
    names = ["a", "b", "price", "c", "d", "e", "f"]
    rows = np.insert(X, 2, Y[:, 0], axis=1)
    paths = []
    for at, part in enumerate(np.array_split(rows, 2)):
        paths.append(str(tmp_path / f"{at}.{kind}"))
        if kind == "csv":
            np.savetxt(paths[-1], part, "%.17g", ",", header=",".join(names), comments="")
        else:
            pq.write_table(pa.table(dict(zip(names, part.T, strict=True))), paths[-1])
    model = rp.Ridge(engine=world(workers)).fit(paths, "price")
    expected = rp.Ridge().fit(X, Y[:, 0])

    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-12)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d", "e", "f"]
    np.testing.assert_allclose(model.predict(paths), expected.predict(X), rtol=1e-12)
    assert model.score(paths, "price") == pytest.approx(expected.score(X, Y[:, 0]))
    with pytest.raises(rp.InputError, match=r"y='cost': .* has no such column: expected one of a, b, price"):
        model.fit(paths, "cost")


def _fit_in_program(comm, X, Y):
    return rp.LinearRegression().fit(X, Y, comm=comm).coef_


@everywhere
def test_existing_ranks_fit(world, workers):
    for coef in world(workers).run(_fit_in_program, X, Y):
        np.testing.assert_allclose(coef, LinearRegression().fit(X, Y).coef_, rtol=1e-10)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (rp.Ridge(-1), "alpha=-1: expected a number >= 0"),
        (rp.Ridge(float("nan")), "alpha=nan"),
        (rp.Ridge([1.0, -2.0]), r"alpha=\[1.0, -2.0\]: expected a number >= 0, or one for each target"),
        (rp.Ridge([1.0, 2.0, 3.0]), "alpha has 3 entries: expected one number, or one for each target"),
        (rp.Ridge(solver="svd"), "solver='svd': expected one of auto, normal, tsqr"),
        (rp.LinearRegression(workers=0), "workers=0"),
        (rp.LinearRegression(engine="unknown"), "engine='unknown'"),
    ],
)
def test_bad_parameters_are_named_with_their_value(estimator, message):
    with pytest.raises(rp.InputError, match=message):
        estimator.fit(X, Y)


@pytest.mark.parametrize("workers", [1, 2])
def test_non_finite_values_are_reported_with_their_position(world, workers):
    bad_rows, bad_targets = X.copy(), Y.copy()
    bad_rows[150, 3], bad_targets[7, 1] = np.nan, np.inf
    model = rp.Ridge(engine=world(workers))

    with pytest.raises(rp.InputError, match="row 150, column 3: NaN"):
        model.fit(bad_rows, Y)
    with pytest.raises(ValueError, match="Input y contains infinity"):
        model.fit(X, bad_targets)


def test_every_number_type_produces_the_weights_of_float64(world):
    whole = np.random.default_rng(1).integers(0, 100, (50, 3))
    y = whole @ [1.0, 2, 3]
    for dtype in (np.float32, np.uint8, np.int64, np.float16):
        rows = whole.astype(dtype)
        rows.flags.writeable = False
        np.testing.assert_allclose(rp.LinearRegression(engine=world(2)).fit(rows, y).coef_, [1, 2, 3], rtol=1e-10)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
@pytest.mark.parametrize("spread", [1, 30], ids=["well conditioned", "ill conditioned"])
def test_products_in_float32_lose_no_digits_of_the_weights(world, spread, weights):
    rows = (random.normal(size=(200, 20)) * np.geomspace(1, spread, 20) + 120).astype(np.float32)
    targets = np.stack([rows[:, :5].sum(axis=1) + random.normal(size=200), np.zeros(200)], axis=1)
    model, expected = (
        rp.Ridge(2.0, engine=world(2)).fit(each, targets, sample_weight=weights)
        for each in (rows, rows.astype(np.float64))
    )
    assert model.solver_ == expected.solver_ == "normal"
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_have_the_same_bits_for_any_number_of_threads(dtype):
    rows = random.normal(size=(3000, 130)).astype(dtype)
    models = [rp.Ridge(workers=1, threads=threads).fit(rows, rows[:, 0] + 1) for threads in (1, 3)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_stages_are_reported(world):
    events: list[dict] = []
    model = rp.Ridge(engine=world(2), on_iteration=events.append).fit(X, Y)

    stages = ["means", "scatter matrix", "normal equations"]
    assert [event["stage"] for event in events] == stages
    assert [each.measures["stage"] for each in model.report_.iterations] == stages
    assert all(len(each.compute_s) == 2 and each.seconds > 0 for each in model.report_.iterations)
    assert (model.report_.row_count, model.report_.column_count) == (200, 6)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model.set_params(on_iteration=None, engine="local"))).coef_, model.coef_
    )


def test_the_examples_in_the_documentation_run():
    assert doctest.testmod(regression).failed == 0
