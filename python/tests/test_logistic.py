"""LogisticRegression: scikit-learn's optimum and contract, dense and sparse rows, any number of workers."""

from __future__ import annotations

import doctest
import fcntl
import os
import pickle
import signal
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import ripieno as rp
from ripieno.algorithms.logistic import estimator as logistic
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from varied import exhaustively

everywhere = pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
random = np.random.default_rng(0)
X = random.normal(size=(300, 6)) * (random.random((300, 6)) < 0.6)
LABELS = {
    2: np.array(["no", "yes"])[(X @ random.normal(size=6) + random.normal(size=300) > 0.3).astype(int)],
    4: (X @ random.normal(size=(6, 4)) + random.normal(size=(300, 4))).argmax(axis=1) * 10,
}
WEIGHTS = random.random(300)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([rp.LogisticRegression()])
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


def objective(model, C, rows, y, weights):
    """Return scikit-learn's objective: half the squared weights plus C times the losses."""
    probabilities = model.predict_proba(rows)[np.arange(len(y)), np.searchsorted(model.classes_, y)]
    weights = np.ones(len(y)) if weights is None else weights
    return 0.5 * (model.coef_**2).sum() - C * (weights * np.log(probabilities)).sum()


@everywhere
@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
@pytest.mark.parametrize("classes", LABELS)
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize(("weights", "fit_intercept"), [(None, True), (WEIGHTS, False)], ids=["plain", "weighted"])
def test_the_optimum_matches_scikit_learn(world, workers, solver, classes, kind, weights, fit_intercept):
    rows, y = kind(X), LABELS[classes]
    parameters = {"C": 0.7, "fit_intercept": fit_intercept, "tol": 1e-9, "max_iter": 1000}
    model = rp.LogisticRegression(solver=solver, engine=world(workers), **parameters)
    model.fit(rows, y, sample_weight=weights)
    expected = LogisticRegression(**parameters).fit(rows, y, sample_weight=weights)

    assert model.classes_.tolist() == expected.classes_.tolist()
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, expected.intercept_ * np.ones(len(model.intercept_)), atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(rows), expected.predict_proba(rows), atol=1e-5)
    best = objective(expected, 0.7, rows, y, weights)
    assert objective(model, 0.7, rows, y, weights) == pytest.approx(best, rel=1e-6)
    assert model.objective_ == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "parameters",
    [
        {"C": 0.1, "l1_ratio": 1.0},
        {"C": 0.2, "l1_ratio": 0.3},
        {"C": np.inf},
        {"class_weight": "balanced"},
        {"class_weight": {10: 3}},
    ],
    ids=str,
)
def test_penalties_and_class_weights_match_scikit_learn(world, classes, parameters):
    # With three classes, an L1 penalty has a single optimum: the median weight of each column is 0.
    y = LABELS[4] % (10 * classes)
    model = rp.LogisticRegression(engine=world(2), tol=1e-8, max_iter=1000, **parameters)
    solver = "saga" if "l1_ratio" in parameters else "lbfgs"
    expected = LogisticRegression(solver=solver, tol=1e-8, max_iter=10_000, **parameters)
    for rows, weights in ((X, WEIGHTS), (csr_matrix(X), None)):
        model.fit(rows, y, sample_weight=weights)
        expected.fit(rows, y, sample_weight=weights)
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=2e-5)
        np.testing.assert_array_equal(model.coef_ == 0, expected.coef_ == 0)
        np.testing.assert_allclose(model.predict_proba(rows), expected.predict_proba(rows), atol=2e-5)


def test_an_l1_penalty_reaches_a_lower_value_than_scikit_learn_and_resumes(tmp_path):
    rows = X * np.logspace(-1, 1, 6)
    parameters = {"C": 0.5, "l1_ratio": 0.9}
    model = rp.LogisticRegression(tol=1e-8, max_iter=1000, **parameters).fit(rows, LABELS[4])
    expected = LogisticRegression(solver="saga", tol=1e-3, max_iter=1000, **parameters).fit(rows, LABELS[4])
    squares, absolutes = (0.5 * (expected.coef_**2).sum(), np.abs(expected.coef_).sum())
    losses = objective(expected, 0.5, rows, LABELS[4], None) - squares
    assert model.objective_ <= 0.1 * squares + 0.9 * absolutes + losses
    assert 0 < np.count_nonzero(model.coef_ == 0) < model.coef_.size

    resumed = rp.LogisticRegression(tol=1e-8, checkpoint=tmp_path, max_iter=5, **parameters)
    with pytest.warns(ConvergenceWarning):
        resumed.fit(rows, LABELS[4])
    resumed.set_params(max_iter=1000).fit(rows, LABELS[4])
    assert resumed.resumed_from_ == 5
    np.testing.assert_array_equal(resumed.coef_, model.coef_)
    with pytest.raises(rp.CheckpointError, match=r"l1_ratio was 0\.9 in the checkpoint and is 0\.0 now"):
        resumed.set_params(l1_ratio=0.0).fit(rows, LABELS[4])


@pytest.mark.parametrize("kind", ["csv", "parquet", "libsvm"])
def test_classes_that_float64_cannot_distinguish_are_refused(kind, tmp_path):
    ids = np.array([2**53, 2**53 + 1, 5])[np.arange(30) % 3]
    points, path = np.arange(30)[:, None] % 3 + np.linspace(0, 0.1, 30)[:, None], tmp_path / f"rows.{kind}"
    frame = pd.DataFrame({"point": points[:, 0], "id": ids})
    {
        "csv": lambda: frame.to_csv(path, index=False),
        "parquet": lambda: frame.to_parquet(path),
        "libsvm": lambda: dump_svmlight_file(points, ids, str(path)),
    }[kind]()

    with pytest.raises(rp.InputError, match=r"has the class 9007199254740992, and .*: expected classes of strings"):
        rp.LogisticRegression().fit(path, None if kind == "libsvm" else "id")

    if kind == "csv":
        path = rp.input.TableFiles(path, types={"id": "string"})
        assert rp.LogisticRegression().fit(path, "id").classes_.tolist() == sorted(set(ids.astype(str)))


def test_weights_of_classes_apply_to_files(tmp_path):
    dump_svmlight_file(X, LABELS[4], str(tmp_path / "rows.svm"))
    np.savetxt(tmp_path / "rows.csv", np.c_[LABELS[4], X], "%.17g", ",", header="class,a,b,c,d,e,f", comments="")
    for weights in ("balanced", {0: 2.0, 30: 0.5}):
        expected = rp.LogisticRegression(tol=1e-8, class_weight=weights).fit(X, LABELS[4])
        for path, target in (("rows.svm", None), ("rows.csv", "class")):
            model = rp.LogisticRegression(tol=1e-8, class_weight=weights).fit(str(tmp_path / path), target)
            np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    with pytest.raises(rp.InputError, match=r"class_weight: 5\.0 is not a class of the rows"):
        rp.LogisticRegression(class_weight={5: 2}).fit(str(tmp_path / "rows.svm"))
    with pytest.raises(rp.InputError, match="class_weight: 'spam' is not a class of y, which has numbers"):
        rp.LogisticRegression(class_weight={"spam": 2}).fit(str(tmp_path / "rows.svm"))


@everywhere
def test_gradient_descent_reaches_the_optimum(world, workers):
    model = rp.LogisticRegression(solver="gd", max_iter=2000, engine=world(workers)).fit(X, LABELS[2])

    best = rp.LogisticRegression(tol=1e-9).fit(X, LABELS[2]).objective_
    assert model.objective_ == pytest.approx(best, rel=1e-4)


@everywhere
def test_files_produce_the_model_of_their_rows(world, tmp_path, workers):
    y = LABELS[4]
    expected = rp.LogisticRegression(tol=1e-8).fit(X, y)
    text, table = str(tmp_path / "rows.svm"), str(tmp_path / "rows.csv")
    dump_svmlight_file(X, y, text, zero_based=False)
    np.savetxt(table, np.c_[y, X], "%.17g", ",", header="class,a,b,c,d,e,f", comments="")
    for path, target in ((text, None), (table, "class")):
        model = rp.LogisticRegression(tol=1e-8, engine=world(workers)).fit(path, target)
        np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
        assert model.classes_.tolist() == [0, 10, 20, 30] and model.n_features_in_ == 6
        assert model.predict(path).tolist() == expected.predict(X).tolist()
        assert model.score(path, target) == expected.score(X, y)
    assert model.feature_names_in_.tolist() == list("abcdef")


@everywhere
def test_fewer_rows_than_ranks_are_enough(world, workers):
    rows, y = X[:2], [0, 1]
    for kind in (np.asarray, csr_matrix):
        model = rp.LogisticRegression(tol=1e-8, engine=world(workers)).fit(kind(rows), y)
        np.testing.assert_allclose(model.coef_, LogisticRegression(tol=1e-8).fit(rows, y).coef_, atol=1e-5)


def _fit_in_program(comm, rows, y):
    return rp.LogisticRegression(solver="newton-cg", tol=1e-8).fit(rows, y, comm=comm).coef_


@everywhere
def test_existing_ranks_fit(world, workers):
    coefs = world(workers).run(_fit_in_program, X, LABELS[2])

    for coef in coefs:
        np.testing.assert_array_equal(coef, coefs[0])
        np.testing.assert_allclose(coef, LogisticRegression(tol=1e-8).fit(X, LABELS[2]).coef_, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_rows_of_every_dtype_are_accepted(world, dtype):
    rows = np.random.default_rng(1).integers(0, 5, (100, 3))
    y = rows[:, 0] > rows[:, 1]
    model = rp.LogisticRegression(engine=world(2), tol=1e-8)
    expected = LogisticRegression(tol=1e-8).fit(rows, y)
    read_only = rows.astype(dtype)
    read_only.flags.writeable = False

    for kind in (np.asarray, csr_matrix, csr_array):
        np.testing.assert_allclose(model.fit(kind(read_only), y).coef_, expected.coef_, atol=1e-4)


def test_a_warm_start_continues_where_the_last_fit_ended():
    model = rp.LogisticRegression(max_iter=3, warm_start=True)
    with warnings.catch_warnings(action="ignore"):
        first = model.fit(X, LABELS[4]).objective_
        second = model.fit(X, LABELS[4]).objective_
    assert second < first

    with pytest.warns(ConvergenceWarning, match=r"max_iter=1\), the gradient is still larger than tol=0.0001"):
        rp.LogisticRegression(max_iter=1).fit(X, LABELS[2])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0}, "C=0: expected a number >= 1e-300"),
        ({"C": 1e-320}, "C=1e-320: expected a number >= 1e-300"),
        ({"tol": -1}, "tol=-1: expected a number > 0"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"l1_ratio": 2}, "l1_ratio=2: expected a number from 0 to 1"),
        ({"l1_ratio": 0.5, "solver": "gd"}, "l1_ratio=0.5 with solver='gd': expected solver='lbfgs'"),
        ({"class_weight": "even"}, "class_weight='even': expected a dict of numbers >= 0, 'balanced' or None"),
        ({"class_weight": {"no": -1}}, "class_weight={'no': -1}: expected a dict of numbers >= 0"),
        ({"class_weight": {"maybe": 1}}, r"class_weight: 'maybe' is not a class of y, \['no', 'yes'\]"),
        ({"class_weight": {"no": 0, "yes": 0}}, "class_weight: all rows have weight 0"),
        ({"solver": "saga"}, "solver='saga': expected one of lbfgs, newton-cg, gd"),
        ({"workers": 0}, "workers=0"),
    ],
)
def test_bad_parameters_are_named_with_their_value(parameters, message):
    with pytest.raises(rp.InputError, match=message):
        rp.LogisticRegression(**parameters).fit(X, LABELS[2])


@pytest.mark.parametrize("workers", [2, *exhaustively(1)])
def test_invalid_rows_and_classes_are_reported(world, tmp_path, workers):
    model = rp.LogisticRegression(engine=world(workers))
    bad = X.copy()
    bad[200, 3] = np.nan
    (tmp_path / "one.svm").write_text("1 1:2\n1 2:1\n")

    with pytest.raises(rp.InputError, match="row 200, column 3: NaN"):
        model.fit(bad, LABELS[2])
    with pytest.raises(ValueError, match="NaN"):
        model.fit(csr_matrix(bad), LABELS[2])
    with pytest.raises(rp.InputError, match="y has 1 class: expected at least 2"):
        model.fit(X, np.zeros(300))
    with pytest.raises(rp.InputError, match="has 1 class: expected at least 2"):
        model.fit(str(tmp_path / "one.svm"))


def test_iterations_are_reported(world):
    events: list[dict] = []
    model = rp.LogisticRegression(engine=world(2), on_iteration=events.append).fit(X, LABELS[2])

    assert [event["iteration"] for event in events] == list(range(1, model.n_iter_ + 1))
    reported = [event["objective"] for event in events]
    assert reported == [step.measures["objective"] for step in model.report_.iterations]
    assert reported[-1] == pytest.approx(model.objective_) and reported[0] > reported[-1]
    assert all(len(step.compute_s) == 2 and step.seconds > 0 for step in model.report_.iterations)
    model.set_params(on_iteration=None, engine="local")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def _killed_after(iteration, folder, solver, workers):
    """Fit in a process that is killed after an iteration."""
    program = f"""if __name__ == "__main__":
    import os, signal, sys
    sys.path.insert(0, {os.path.dirname(__file__)!r})
    from test_logistic import LABELS, X, rp

    def on_iteration(event):
        if event["iteration"] == {iteration}:
            os.kill(os.getpid(), signal.SIGKILL)

    fit = rp.LogisticRegression(solver={solver!r}, tol=1e-6, workers={workers})
    fit.set_params(checkpoint={str(folder)!r}, options__every=1)
    fit.set_params(on_iteration=on_iteration).fit(X, LABELS[4])
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == -signal.SIGKILL
    # Workers may outlive it briefly; they keep the checkpoint open until they end.
    kept = os.open(folder / "logistic", os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(kept, fcntl.LOCK_EX)
    os.close(kept)


@pytest.mark.parametrize(("solver", "workers"), exhaustively(("lbfgs", 2), ("lbfgs", 1), ("newton-cg", 1), ("gd", 1)))
def test_a_killed_fit_continues_and_ends_with_the_same_bits(world, tmp_path, solver, workers):
    parameters = {"solver": solver, "tol": 1e-6, "max_iter": 2000, "engine": world(workers)}
    expected = rp.LogisticRegression(**parameters).fit(X, LABELS[4])
    _killed_after(3, tmp_path, solver, workers)
    events: list[dict] = []
    model = rp.LogisticRegression(**parameters, checkpoint=tmp_path, on_iteration=events.append).fit(X, LABELS[4])

    assert model.resumed_from_ is not None and model.resumed_from_ >= 3 and expected.resumed_from_ is None
    first = min(model.resumed_from_ + 1, model.n_iter_)
    assert [event["iteration"] for event in events] == list(range(first, model.n_iter_ + 1))
    assert model.n_iter_ == expected.n_iter_
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    np.testing.assert_array_equal(model.intercept_, expected.intercept_)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@everywhere
def test_a_checkpoint_of_another_fit_is_refused(world, tmp_path, workers):
    first = rp.LogisticRegression(max_iter=3, engine=world(workers), checkpoint=tmp_path).fit(X, LABELS[2])
    with pytest.raises(
        rp.CheckpointError, match=r"another fit: C was 1\.0 in the checkpoint and is " r"2\.0 now: delete it"
    ):
        clone(first).set_params(C=2).fit(X, LABELS[2])
    with pytest.raises(rp.CheckpointError, match="the digest of rows was"):
        clone(first).fit(X + 1, LABELS[2])
    with pytest.raises(rp.CheckpointError, match=r"the type of rows was '6 of float64' .* is '5 of float64' now"):
        clone(first).fit(X[:, :5], LABELS[2])

    # Without remaining iterations, the result is the same.
    again = clone(first).fit(X, LABELS[2])
    assert again.resumed_from_ == again.n_iter_ == 3
    np.testing.assert_array_equal(again.coef_, first.coef_)
    further = clone(first).set_params(max_iter=100).fit(X, LABELS[2])
    assert further.objective_ < first.objective_ and further.resumed_from_ == 3
    (tmp_path / "logistic" / "checkpoint").write_text("ripieno checkpoint 2\nnonsense")
    with pytest.raises(rp.CheckpointError, match="is torn"):
        clone(first).fit(X, LABELS[2])


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_columns_of_very_different_sizes_take_few_iterations(world, solver, fit_intercept):
    rows = np.random.default_rng(2).normal(size=(2000, 8)) * 10.0 ** np.arange(-3, 5)
    y = rows @ 10.0 ** -np.arange(-3, 5) + np.random.default_rng(3).normal(size=2000) > 0
    for kind in (np.asarray, csr_matrix):
        model = rp.LogisticRegression(solver=solver, fit_intercept=fit_intercept, tol=1e-6, engine=world(2))
        model.fit(kind(rows), y)
        # Without a second-order estimate hundreds are needed.
        assert model.n_iter_ < 40


@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
@pytest.mark.parametrize("classes", LABELS)
def test_columns_far_from_zero_have_the_optimum_of_centered_columns(world, solver, classes):
    y = LABELS[classes]
    expected = rp.LogisticRegression(tol=1e-9).fit(X, y).predict_proba(X)
    for kind in (np.asarray, csr_matrix):
        model = rp.LogisticRegression(solver=solver, tol=1e-9, engine=world(2)).fit(kind(X + 1e6), y)
        np.testing.assert_allclose(model.predict_proba(kind(X + 1e6)), expected, atol=1e-4)


def test_the_example_in_the_documentation_runs():
    assert doctest.testmod(logistic).failed == 0
