"""Fitted estimators are saved to folders of numbers, and restored from them."""

from __future__ import annotations

import json
import pickle

import joblib
import numpy as np
import pytest
import ripieno as rp
from ripieno import algorithms
from ripieno.algorithms.result_folder import ResultFolder
from ripieno.cli import main
from ripieno.cli.predict import APPLIED
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file

pytestmark = pytest.mark.usefixtures("without_charts")

X = np.random.default_rng(0).normal(size=(60, 4))
LABELS = np.array(["a", "b", "c"])[np.arange(60) % 3]
PRICES = X @ [1.0, 2.0, 3.0, 4.0]
GAPS = np.abs(X[:, :1] - X[:, 0])
RING = rp.Graph(([f"v{n}" for n in range(20)], [f"v{n}" for n in [*range(1, 20), 0]]), directed=False)
PAIR = rp.Graph(([0, 2], [1, 3]))
RATINGS = (["ann", "ann", "bob", "bob", "cem"], [7, 9, 7, 8, 9], [5.0, 1, 5, 4, 2])
#: An estimator of each class and its data.
MODELS = {
    "ALS": (rp.ALS(rank=2, random_state=0), RATINGS),
    "BFS": (rp.BFS("v3"), RING),
    "ClusteringCoefficients": (rp.ClusteringCoefficients(), RING),
    "CommunityDetection": (rp.CommunityDetection(), RING),
    "ConnectedComponents": (rp.ConnectedComponents(), RING),
    "EffectiveDiameter": (rp.EffectiveDiameter(random_state=0), RING),
    "FruchtermanReingold": (rp.FruchtermanReingold(random_state=0), RING),
    "KMeans": (rp.KMeans(3, init=X[:3], random_state=0), X),
    "LinearRegression": (rp.LinearRegression(), X, PRICES),
    "LogisticRegression": (rp.LogisticRegression(), X, LABELS),
    "MDS": (rp.MDS(max_iter=5, random_state=0), GAPS),
    "MiniBatchKMeans": (rp.MiniBatchKMeans(3, random_state=0), X),
    "PCA": (rp.PCA(2), X),
    "PageRank": (rp.PageRank(), RING),
    "Ridge": (rp.Ridge(np.float64(0.5)), X, np.c_[PRICES, -PRICES]),
    "ShortestPaths": (rp.ShortestPaths(0), PAIR),
    "SparseSGD": (rp.SparseSGD(max_iter=3, random_state=0), X, LABELS),
    "SpectralClustering": (rp.SpectralClustering(2, random_state=0), RING),
    "SpectralEmbedding": (rp.SpectralEmbedding(2, random_state=0), RING),
}


def fitted(name):
    model, *data = MODELS[name]
    return clone(model).fit(*data)


def results(model):
    """Return the fitted attributes."""
    others = {"report_", "_facts_of_ranks", *model.get_params()}
    return {name: value for name, value in vars(model).items() if name not in others}


def test_a_model_of_every_class_is_saved():
    assert sorted(MODELS) == sorted(algorithms.ESTIMATORS)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_restored_model_has_all_results_of_the_fitted_one(name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "model")

    joblib.dump(model, tmp_path / "model.joblib")
    copies = (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib"))

    for restored in (type(model).load(tmp_path / "model"), *copies):
        for attribute, value in results(model).items():
            found = getattr(restored, attribute)
            assert type(found) is type(value), attribute
            np.testing.assert_array_equal(found, value, attribute)
            if isinstance(value, np.ndarray):
                # Strings in an array of objects are restored as an array of strings.
                expected = value.astype(str) if value.dtype.hasobject else value
                assert found.dtype in (expected.dtype, value.dtype), attribute
    assert "parameters" in (tmp_path / "model/model.json").read_text()
    for shown in (model, model.report_, *copies):
        assert len(repr(shown).splitlines()) <= 10


def test_a_restored_model_continues_as_the_fitted_one(tmp_path):
    model = fitted("SparseSGD")
    model.save(tmp_path / "sgd")
    restored = rp.SparseSGD.load(tmp_path / "sgd")
    assert np.array_equal(restored.partial_fit(X, LABELS).coef_, model.partial_fit(X, LABELS).coef_)

    model = fitted("ALS")
    model.save(tmp_path / "als")
    restored = rp.ALS.load(tmp_path / "als")
    for found, expected in zip(restored.recommend(["ann", "cem"]), model.recommend(["ann", "cem"]), strict=True):
        np.testing.assert_array_equal(found, expected)


def applied(model):
    """Return predictions for the data of the fit."""
    if isinstance(model, rp.MDS):
        return model.interpolate(GAPS)
    if isinstance(model, rp.ALS):
        return model.predict(RATINGS[0], RATINGS[1])
    return model.transform(X) if isinstance(model, rp.PCA) else model.predict(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [name for name, _ in APPLIED.values()])
def test_a_saved_model_serves_the_command(name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "model")
    rows = tmp_path / ("rows.svm" if name == "SparseSGD" else "rows.csv" if name == "ALS" else "rows.npy")
    if name == "SparseSGD":
        dump_svmlight_file(X, np.zeros(len(X)), str(rows), zero_based=True)
    elif name == "ALS":
        rows.write_text("item,user\n" + "".join(f"{item},{user}\n" for user, item, _ in zip(*RATINGS, strict=True)))
    else:
        np.save(rows, GAPS if name == "MDS" else X)

    out = tmp_path / "out.npy"
    assert main(["predict", str(tmp_path / "model"), str(rows), "-q", "-o", str(out)]) == 0
    np.testing.assert_array_equal(np.load(out), applied(model))


def test_a_model_is_replaced_only_if_requested(tmp_path):
    model = fitted("PCA")
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


def test_a_fitted_attribute_without_a_declaration_is_refused(tmp_path):
    model = rp.PCA(2).fit(X)
    model.medians_ = np.median(X, axis=0)
    with pytest.raises(TypeError, match=r"PCA does not declare medians_: expected medians_: NDArray"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
