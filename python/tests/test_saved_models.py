"""Fitted estimators are saved to folders of numbers, and restored from them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import ripieno as rp
from ripieno.algorithms.result_folder import ResultFolder
from ripieno.cli import main

X = np.random.default_rng(0).normal(size=(60, 4))
LABELS = np.array(["a", "b", "c"])[np.arange(60) % 3]
MODELS = {
    "kmeans": rp.KMeans(3, init=X[:3], random_state=0),
    "pca": rp.PCA(2),
    "ridge": rp.Ridge(np.float64(0.5)),
    "logistic": rp.LogisticRegression(),
}


def fitted(name):
    y = {"ridge": X @ [1.0, 2.0, 3.0, 4.0], "logistic": LABELS}.get(name)
    return MODELS[name].fit(X, y)


def applied(model):
    return model.transform(X) if isinstance(model, rp.PCA) else model.predict(X)


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_predicts_as_the_fitted_one(name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "model")
    restored = type(model).load(tmp_path / "model")
    assert np.array_equal(applied(restored), applied(model))

    np.save(tmp_path / "rows.npy", X)
    out = tmp_path / "out.npy"
    assert main(["predict", str(tmp_path / "model"), str(tmp_path / "rows.npy"), "-q", "-o", str(out)]) == 0
    assert np.array_equal(np.load(out), applied(model))


def test_a_model_is_replaced_only_if_requested(tmp_path):
    model = fitted("pca")
    model.save(tmp_path / "model")
    with pytest.raises(rp.InputError, match="model"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)
    assert json.loads((tmp_path / "model/model.json").read_text())["parameters"]["n_components"] == 2


def test_parameters_that_json_cannot_hold_are_restored(tmp_path):
    model = rp.LogisticRegression(C=np.inf, class_weight={"a": 2.0, "b": np.float32(0.5)}).fit(X, LABELS)
    model.save(tmp_path / "names")
    assert rp.LogisticRegression.load(tmp_path / "names").get_params() == model.get_params()

    model.set_params(class_weight={0: 2.0, np.int64(2): 0.25}).fit(X, np.arange(60) % 3)
    model.save(tmp_path / "numbers")
    text = (tmp_path / "numbers/model.json").read_text()
    parameters = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["parameters"]
    assert parameters["C"] == "inf" and parameters["class_weight"] == [[0, 2.0], [2, 0.25]]
    restored = rp.LogisticRegression.load(tmp_path / "numbers")
    assert restored.get_params() == model.get_params()
    assert np.array_equal(restored.fit(X, np.arange(60) % 3).coef_, model.coef_)


@pytest.mark.parametrize("value", [[], [[[1], 2]], [[{}, 2]]])
def test_lists_that_are_no_dict_are_read_as_lists(tmp_path, value):
    (tmp_path / "model.json").write_text(json.dumps({"parameters": {"tol": value}}))
    assert ResultFolder.read(tmp_path).description["parameters"] == {"tol": value}


def test_a_model_that_is_not_fitted_writes_nothing(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        rp.PCA(2).save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
