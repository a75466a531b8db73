"""PCA: scikit-learn's numbers and contract, for any placement of rows and number of workers."""

from __future__ import annotations

import doctest
import pickle

import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.parameters import parameters_of
from ripieno.algorithms.pca import estimator as pca
from scipy.sparse import random_array
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks
from varied import exhaustively

everywhere = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
random = np.random.default_rng(0)
X = random.normal(size=(300, 8)) @ random.normal(size=(8, 8)) + 50
WIDE = random.normal(size=(40, 15)) @ random.normal(size=(15, 600)) + random.normal(size=(40, 600)) * 1e-3
NUMBERS = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_")


@parametrize_with_checks([rp.PCA()])
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


@everywhere
@pytest.mark.parametrize("solver", ["covariance", "tsqr"])
@pytest.mark.parametrize("n_components", [None, 3, 8, 0.9, "mle"])
def test_axes_match_scikit_learn(world, workers, solver, n_components):
    model = rp.PCA(n_components, svd_solver=solver, engine=world(workers)).fit(X)
    expected = PCA(n_components, svd_solver="full").fit(X)

    for name in NUMBERS:
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=1e-10, atol=1e-13)
    assert model.n_components_ == expected.n_components_ and model.n_samples_ == 300
    assert model.noise_variance_ == pytest.approx(expected.noise_variance_, rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(model.transform(X), expected.transform(X), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)),
        expected.inverse_transform(expected.transform(X)), rtol=1e-10)  # fmt: skip
    np.testing.assert_allclose(model.get_covariance(), expected.get_covariance(), rtol=1e-9)
    np.testing.assert_allclose(model.get_precision(), expected.get_precision(), rtol=1e-7)
    np.testing.assert_allclose(model.score_samples(X), expected.score_samples(X), rtol=1e-8)
    assert model.score(X) == pytest.approx(expected.score(X), rel=1e-9)


@everywhere
@pytest.mark.parametrize("n_components", [1, 2, 3, "mle"])
def test_the_noise_of_small_omitted_axes_is_not_lost_in_the_total_variance(world, workers, n_components):
    rows = np.random.default_rng(5).normal(size=(300, 4)) * [1e5, 1, 1e-2, 1e-2]
    model = rp.PCA(n_components, svd_solver="tsqr", engine=world(workers)).fit(rows)
    expected = PCA(n_components, svd_solver="full").fit(rows)

    assert model.n_components_ == expected.n_components_
    assert model.noise_variance_ == pytest.approx(expected.noise_variance_, rel=1e-6)
    assert model.score(rows) == pytest.approx(expected.score(rows), rel=1e-3)


@everywhere
def test_more_columns_than_rows_have_as_many_axes_as_rows(world, workers):
    model, expected = rp.PCA(engine=world(workers)).fit(WIDE), PCA(svd_solver="full").fit(WIDE)

    assert model.components_.shape == (40, 600) and model.solver_ == "tsqr"
    np.testing.assert_allclose(model.components_[:15], expected.components_[:15], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.explained_variance_[:39], expected.explained_variance_[:39], rtol=1e-9)


@everywhere
def test_a_random_subspace_finds_the_first_axes_of_wide_rows(world, workers):
    model = rp.PCA(6, random_state=0, engine=world(workers)).fit(WIDE)
    expected = PCA(6, svd_solver="full").fit(WIDE)

    assert model.solver_ == "randomized"
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-6)
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_"):
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=1e-8)


@pytest.mark.parametrize("solver", ["covariance", "tsqr", "randomized", "arpack"])
def test_sparse_rows_have_the_axes_of_dense_rows(world, solver):
    rows = random_array((300, 20), density=0.2, rng=np.random.default_rng(0), format="csr")
    model = rp.PCA(4, svd_solver=solver, random_state=0, engine=world(3)).fit(rows)
    expected = rp.PCA(4, svd_solver=solver, random_state=0).fit(rows.toarray())

    for name in (*NUMBERS, "noise_variance_"):
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.transform(rows), expected.transform(rows.toarray()), rtol=1e-9, atol=1e-12)
    assert model.score(rows) == pytest.approx(expected.score(rows.toarray()))
    single = rp.PCA(4, svd_solver=solver).fit(rows.astype(np.float32))
    assert single.components_.dtype == single.transform(rows.astype(np.float32)).dtype == np.float32


@everywhere
def test_whitened_components_have_unit_variance(world, workers):
    model = rp.PCA(4, whiten=True, engine=world(workers)).fit(X)

    np.testing.assert_allclose(model.transform(X).var(axis=0, ddof=1), 1, rtol=1e-9)
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(X)),
        PCA(4).fit(X).inverse_transform(PCA(4).fit(X).transform(X)),
        rtol=1e-9,
    )


@everywhere
def test_fewer_rows_than_ranks_are_enough(world, workers):
    model, expected = rp.PCA(engine=world(workers)).fit(X[:2]), PCA().fit(X[:2])

    np.testing.assert_allclose(model.explained_variance_, expected.explained_variance_, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        model.fit(X[:1])


@everywhere
def test_files_produce_the_axes_of_their_rows(world, tmp_path, workers):
    np.savetxt(tmp_path / "rows.csv", X, "%.17g", ",", header=",".join("abcdefgh"), comments="")
    model = rp.PCA(3, engine=world(workers)).fit(str(tmp_path / "rows.csv"))
    expected = rp.PCA(3).fit(X)

    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-10)
    np.testing.assert_allclose(model.transform(str(tmp_path / "rows.csv")), expected.transform(X), rtol=1e-9)
    assert model.feature_names_in_.tolist() == list("abcdefgh")
    assert model.get_feature_names_out().tolist() == ["pca0", "pca1", "pca2"]
    (tmp_path / "one.csv").write_text("1,2\n")
    with pytest.raises(rp.InputError, match="n_samples=1: expected at least 2 rows"):
        model.fit(str(tmp_path / "one.csv"))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int32, np.float16])
def test_rows_of_every_dtype_are_accepted(world, dtype):
    rows = np.abs(X).astype(dtype)
    rows.flags.writeable = False
    expected = PCA(3).fit(rows.astype(np.float64))
    model = rp.PCA(3, engine=world(2)).fit(rows)

    assert model.components_.dtype == (np.float32 if dtype == np.float32 else np.float64)
    np.testing.assert_allclose(model.explained_variance_, expected.explained_variance_, rtol=1e-4)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_float32_rows_may_be_as_small_or_large_as_their_type_allows(scale):
    rows = X.astype(np.float32) * np.float32(scale)
    expected = rp.PCA(2).fit(X)
    model = rp.PCA(2).fit(rows)

    np.testing.assert_allclose(model.explained_variance_ratio_, expected.explained_variance_ratio_, rtol=1e-5)
    np.testing.assert_allclose(model.transform(rows) / scale, expected.transform(X), rtol=1e-3, atol=1e-3)


@everywhere
def test_existing_ranks_fit(world, workers):
    def program(comm):
        solvers = parameters_of(rp.PCA)["svd_solver"].domain.names
        return [rp.PCA(2, svd_solver=solver, random_state=0).fit(X, comm=comm).components_ for solver in solvers]

    for found in world(workers).run(program):
        for components in found:
            np.testing.assert_allclose(components, PCA(2).fit(X).components_, atol=1e-7)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components=0: expected a whole number >= 1, a share"),
        (
            {"n_components": "all"},
            "n_components='all': expected a whole number >= 1, a share between 0 and 1, 'mle' or",
        ),
        ({"n_components": 1.5}, "n_components=1.5: expected"),
        ({"n_components": 9}, r"n_components=9: expected at most min\(n_samples, n_features\), 8"),
        ({"n_components": 0.5, "svd_solver": "randomized"}, "n_components=0.5: expected a whole number >= 1, or None"),
        ({"n_components": 8, "svd_solver": "arpack"}, r"n_components=8: expected less than min\(n_samples, n_feat"),
        ({"svd_solver": "lobpcg"}, "svd_solver='lobpcg': expected one of auto"),
        ({"iterated_power": 0}, "iterated_power=0: expected 'auto'"),
        ({"n_oversamples": 0}, "n_oversamples=0"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_bad_parameters_are_named_with_their_value(parameters, message):
    with pytest.raises(rp.InputError, match=message):
        rp.PCA(**parameters).fit(X)


@pytest.mark.parametrize("workers", [1, 2])
def test_non_finite_values_are_reported_with_their_position(world, workers):
    bad = X.copy()
    bad[200, 3] = np.nan

    with pytest.raises(rp.InputError, match="row 200, column 3: NaN"):
        rp.PCA(engine=world(workers)).fit(bad)


@pytest.mark.parametrize("solver", ["covariance", "tsqr", "randomized"])
def test_every_rank_reports_that_squares_of_the_values_overflow(world, solver):
    def program(comm):
        with pytest.raises(rp.InputError, match=r"no principal axes: .* scale the rows if they are large") as caught:
            rp.PCA(2, svd_solver=solver).fit(X * 1e200, comm=comm, rows="shared")
        return str(caught.value)

    assert len(set(world(2).run(program))) == 1


def test_every_rank_reports_that_lanczos_steps_fail(world):
    def program(comm):
        with pytest.raises(rp.InputError, match=r"svd_solver='arpack': .*: expected svd_solver='tsqr'"):
            rp.PCA(2, svd_solver="arpack").fit(np.ones((20, 5)), comm=comm, rows="shared")
        return comm.allreduce(1)

    assert world(2).run(program) == [2, 2]


def test_stages_are_reported(world):
    events: list[dict] = []
    model = rp.PCA(2, engine=world(2), on_iteration=events.append).fit(X)

    assert [event["stage"] for event in events] == ["means", "scatter matrix", "eigenvectors"]
    assert [each.measures["stage"] for each in model.report_.iterations] == [event["stage"] for event in events]
    assert all(len(each.compute_s) == 2 for each in model.report_.iterations)
    model.set_params(on_iteration=None, engine="local")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X), model.transform(X))


def test_the_example_in_the_documentation_runs():
    assert doctest.testmod(pca).failed == 0
