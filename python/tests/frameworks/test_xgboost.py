"""XGBoost's training on the ranks of jobs."""

from __future__ import annotations

import os
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from sklearn.datasets import make_classification

xgboost = pytest.importorskip("xgboost", reason="needs XGBoost: make frameworks")

PARAMS = {"objective": "binary:logistic", "max_depth": 4, "nthread": 1}


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(1500, 8, n_informative=5, random_state=0)
    X[::17, 3] = np.nan
    return X, y


def accuracy(booster, X, y):
    return ((booster.predict(xgboost.DMatrix(X)) > 0.5) == y).mean()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_distributed_training_is_reproducible_and_as_accurate_as_one_process(rows, workers):
    X, y = rows
    alone = xgboost.train(PARAMS, xgboost.DMatrix(X[:1000], y[:1000]), 15)

    trained = [rp.xgboost.train(PARAMS, X[:1000], y[:1000], 15, workers=workers) for _ in range(2)]

    assert trained[0].save_raw() == trained[1].save_raw()
    assert accuracy(trained[0], X[1000:], y[1000:]) >= accuracy(alone, X[1000:], y[1000:]) - 0.02
    if workers == 1:
        assert trained[0].save_raw() == alone.save_raw()


def test_workers_without_rows_participate():
    booster = rp.xgboost.train({"nthread": 1}, [[0.0], [1.0]], [0.0, 1.0], 2, workers=3)

    assert booster.num_boosted_rounds() == 2


def test_training_stops_early_and_returns_evaluations(rows):
    X, y = rows
    found = {}

    booster = rp.xgboost.train(
        PARAMS, X[:300], y[:300], 200, evals=[(X[300:], y[300:], "rest")], evals_result=found, early_stopping_rounds=3,
        workers=2,
    )  # fmt: skip

    losses = found["rest"]["logloss"]
    assert len(losses) < 200 and booster.best_iteration == int(np.argmin(losses))


def test_training_from_a_file_is_as_accurate_as_from_memory(rows, tmp_path):
    X, y = rows
    X = np.nan_to_num(X)
    table = pa.table({f"x{at}": X[:, at] for at in range(8)} | {"y": y.astype(float)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=200)

    of_files = rp.xgboost.train(PARAMS, str(tmp_path / "rows.parquet"), "y", 5, workers=2)

    assert accuracy(of_files, X, y) == pytest.approx(
        accuracy(rp.xgboost.train(PARAMS, X, y, 5, workers=2), X, y), abs=0.01
    )


def test_weights_have_an_effect(rows):
    X, y = rows
    weights = np.where(y == 1, 100.0, 1.0)

    plain, weighted = (rp.xgboost.train(PARAMS, X, y, 3, weights=each, workers=2) for each in (None, weights))

    assert weighted.predict(xgboost.DMatrix(X)).mean() > plain.predict(xgboost.DMatrix(X)).mean() + 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], [1.0, 2.0]), "labels of X: 2 for 1 rows"),
        (([1.0, 2.0], [1.0, 2.0]), r"X: shape \(2,\)"),
        (([[1.0]], None), "X: labels are missing"),
        (([["a"]], [1.0]), "expected rows of numbers"),
        (([[1.0]], "y"), "no column is called 'y'"),
    ],
)
def test_bad_rows_are_reported_before_workers_start(arguments, message):
    with pytest.raises(rp.InputError, match=message):
        rp.xgboost.train({}, *arguments, workers=2)


@pytest.mark.parametrize("name", ["held out", "held-out", "held:out", ""])
def test_evaluations_have_names_that_xgboost_can_read(name):
    with pytest.raises(rp.InputError, match=f"name '{name}': expected a word"):
        rp.xgboost.train({}, [[1.0]], [1.0], evals=[([[1.0]], [1.0], name)])


def test_parameters_without_distributed_training_are_rejected():
    with pytest.raises(rp.InputError, match="tree_method='exact'"):
        rp.xgboost.train({"tree_method": "exact"}, [[1.0]], [1.0], workers=2)


def _killed(comm):
    with rp.xgboost.network(comm):
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        xgboost.train({}, xgboost.DMatrix(np.random.default_rng(0).random((50, 2)), np.arange(50.0)), 50)


def test_a_dead_worker_is_named():
    with rp.launch(workers=3) as job, pytest.raises(rp.RankFailed, match="rank 1"):
        job.run(_killed)
