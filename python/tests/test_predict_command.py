"""`ripieno predict` and `Estimator.load`: results of commands predict like the fitted estimator."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from ripieno.cli import main
from ripieno.files.tables import ARRAY_FORMATS
from scipy.io import mmwrite
from scipy.sparse import csr_matrix, save_npz
from sklearn.datasets import dump_svmlight_file
from varied import exhaustively

pytestmark = pytest.mark.usefixtures("without_charts")

random = np.random.default_rng(1)
X = random.normal(size=(60, 4))
MORE = random.normal(size=(7, 4))
PRICE = X @ [1.0, 2, 3, 4] + 5
CLASSES = np.where(PRICE > 5, 7, 3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", X)
    np.save("more.npy", MORE)
    names = "a,b,c,d"
    for name, rows, prices in [("prices", X, PRICE), ("later", MORE, MORE[:, 0])]:
        np.savetxt(f"{name}.csv", np.c_[rows, prices], "%.17g", ",", header=f"{names},price", comments="")
    np.savetxt("bare.csv", MORE, "%.17g", ",", header=names, comments="")
    np.savetxt("other.csv", MORE[:, ::-1], "%.17g", ",", header="d,c,b,a", comments="")
    np.savetxt("renamed.csv", MORE, "%.17g", ",", header="a,b,c,z", comments="")
    dump_svmlight_file(X, (PRICE > 5).astype(int), "dear.svm", zero_based=False)
    dump_svmlight_file(MORE, np.zeros(len(MORE)), "later.svm", zero_based=False)
    return tmp_path


def predictions(*arguments):
    assert main(["predict", "result", *arguments, "--out", "found.npy", "--overwrite", "-q"]) == 0
    return np.load("found.npy")


@pytest.mark.parametrize("workers", [3, *exhaustively(1, 2)])
def test_clusters_of_new_rows_match_the_fitted_estimator(workers):
    assert main(["kmeans", "rows.npy", "-k", "3", "--seed", "4", "-q"]) == 0
    fitted = rp.KMeans(3, random_state=4).fit(X)

    np.testing.assert_array_equal(predictions("more.npy", "-n", str(workers)), fitted.predict(MORE))
    np.testing.assert_array_equal(predictions("more.npy", "rows.npy"), fitted.predict(np.vstack([MORE, X])))
    np.testing.assert_allclose(predictions("more.npy", "--method", "transform"), fitted.transform(MORE), rtol=1e-12)


def test_a_loaded_estimator_has_its_results_but_no_engine():
    assert main(["kmeans", "rows.npy", "-k", "3", "--seed", "4", "--tol", "0.01", "-n", "2", "-q"]) == 0

    model = rp.KMeans.load("result")

    fitted = rp.KMeans(3, random_state=4, tol=0.01).fit(X)
    assert model.get_params() == fitted.get_params()
    for name in ("cluster_centers_", "labels_", "inertia_", "n_iter_", "inertia_gap_", "n_features_in_"):
        np.testing.assert_allclose(getattr(model, name), getattr(fitted, name), rtol=1e-12)
    with pytest.raises(ValueError, match="has 3 features, but KMeans is expecting 4"):
        model.predict(MORE[:, :3])
    np.testing.assert_array_equal(model.fit(X).labels_, fitted.labels_)


def test_initial_centroids_of_a_file_are_not_a_parameter_of_the_loaded_estimator():
    np.save("start.npy", X[:3])
    assert main(["kmeans", "rows.npy", "-k", "3", "--start", "start.npy", "-q"]) == 0

    assert rp.KMeans.load("result").init == "k-means||"


def test_projections_and_predictions_of_new_rows_match_the_models():
    assert main(["pca", "rows.npy", "--components", "2", "-q"]) == 0
    fitted = rp.PCA(2, random_state=0).fit(X)
    np.testing.assert_allclose(predictions("more.npy", "-n", "2"), fitted.transform(MORE), rtol=1e-9)
    loaded = rp.PCA.load("result")
    np.testing.assert_allclose(loaded.get_covariance(), fitted.get_covariance(), rtol=1e-9)
    np.testing.assert_allclose(loaded.singular_values_, fitted.singular_values_, rtol=1e-9)

    assert main(["ridge", "prices.csv", "--target", "price", "--overwrite", "-q", "-o", "ridge"]) == 0
    expected = rp.Ridge().fit(X, PRICE).predict(MORE)
    for name in ("later.csv", "bare.csv"):
        assert main(["predict", "ridge", name, "-o", f"{name}.npy", "-q"]) == 0
        np.testing.assert_allclose(np.load(f"{name}.npy"), expected, rtol=1e-9)


@pytest.mark.parametrize("targets", [np.c_[PRICE, -PRICE], PRICE[:, None]], ids=["two", "one"])
def test_targets_in_columns_are_predicted(targets):
    np.save("targets.npy", targets)
    assert main(["ridge", "rows.npy", "--target", "targets.npy", "-q"]) == 0

    np.testing.assert_allclose(predictions("more.npy"), rp.Ridge().fit(X, targets).predict(MORE), rtol=1e-9)


def test_classes_of_new_rows_are_predicted():
    pq.write_table(pa.table({**dict(zip("abcd", X.T, strict=True)), "dear": CLASSES}), "dear.parquet")
    assert main(["logistic", "dear.parquet", "--target", "dear", "-q"]) == 0
    fitted = rp.LogisticRegression().fit(X, CLASSES)

    np.testing.assert_array_equal(predictions("bare.csv"), fitted.predict(MORE))
    found = predictions("bare.csv", "--method", "predict_proba", "-n", "2")
    np.testing.assert_allclose(found, fitted.predict_proba(MORE), rtol=1e-6)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_names_of_rows_are_written_though_another_column_has_text(suffix):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(price=PRICE, town="t", name=[f"n{row}" for row in range(60)])
    frame.to_parquet("named.parquet")
    frame.to_csv("named.csv", index=False)
    assert main(["ridge", f"named{suffix}", "--target", "price", "--columns", "d,b,price", "-q"]) == 0

    assert main(["predict", "result", f"named{suffix}", "--id", "name", "--out", "found.csv", "-q"]) == 0

    found = pd.read_csv("found.csv")
    assert found["name"].tolist() == frame["name"].tolist()
    np.testing.assert_allclose(found["predict"], rp.Ridge().fit(X[:, [3, 1]], PRICE).predict(X[:, [3, 1]]))


def test_classes_of_new_libsvm_text_are_predicted():
    assert main(["logistic", "dear.svm", "-q"]) == 0

    fitted = rp.LogisticRegression().fit(X, (PRICE > 5).astype(int))
    np.testing.assert_array_equal(predictions("later.svm"), fitted.predict(MORE))
    np.testing.assert_array_equal(rp.LogisticRegression.load("result").predict(MORE), fitted.predict(MORE))


@pytest.mark.parametrize("name", ["more.npy", "more.npz", "more.mtx", "later.csv"])
def test_a_model_of_sparse_rows_reads_every_format(name):
    train = pd.read_csv("prices.csv").drop(columns="price").assign(kind=CLASSES)
    is_table = name.endswith(".csv")
    model = rp.SparseSGD(random_state=0).fit(*((train, "kind") if is_table else (X, CLASSES)))
    model.save("model")
    save_npz("more.npz", csr_matrix(MORE))
    mmwrite("more.mtx", csr_matrix(MORE))
    later = pd.read_csv("later.csv").rename(columns={"price": "kind"})
    later.to_csv("later.csv", index=False)

    assert main(["predict", "model", name, "-o", "kinds.npy", "-q"]) == 0

    expected = model.predict(later.drop(columns="kind") if is_table else MORE)
    assert np.load("kinds.npy").tolist() == expected.tolist()


def test_a_file_has_the_format_of_its_name(capfd):
    assert main(["pca", "rows.npy", "--components", "2", "-q"]) == 0
    expected = rp.PCA.load("result").transform(MORE)
    read = {
        ".npy": np.load,
        ".npz": lambda path: np.stack(list(np.load(path).values()), axis=1),
        ".csv": lambda path: np.genfromtxt(path, delimiter=",", skip_header=1),
        ".tsv": lambda path: np.genfromtxt(path, delimiter="\t", skip_header=1),
        ".parquet": lambda path: pd.read_parquet(path).to_numpy(),
        ".arrow": lambda path: pa.ipc.open_file(path).read_all().to_pandas().to_numpy(),
        ".feather": lambda path: pd.read_feather(path).to_numpy(),
    }

    for end, reader in read.items():
        assert main(["predict", "result", "more.npy", "-o", f"found{end}", "-q"]) == 0
        np.testing.assert_allclose(reader(f"found{end}"), expected, rtol=1e-12)
    assert set(read) == set(ARRAY_FORMATS)
    assert Path("found.csv").read_text().startswith('"transform_0","transform_1"\n')


def error_text(capfd, *arguments):
    assert main(["predict", *arguments, "-o", "found.npy"]) == 2
    assert not Path("found.npy").exists()
    return capfd.readouterr().err


def test_models_that_cannot_be_applied_are_reported(folder, capfd):
    assert main(["kmeans", "rows.npy", "-k", "3", "-q"]) == 0
    assert main(["ridge", "prices.csv", "--target", "price", "-o", "ridge", "-q"]) == 0
    (folder / "edges.txt").write_text("0 1\n1 2\n")
    assert main(["layout", "edges.txt", "--undirected", "-o", "layout", "-q"]) == 0

    assert "nothing/model.json does not exist" in error_text(capfd, "nothing", "more.npy")
    assert "result of 'layout', which has no predictions" in error_text(capfd, "layout", "more.npy")
    assert "missing.npy" in error_text(capfd, "result", "missing.npy")
    assert "--method 'fly'" in error_text(capfd, "result", "more.npy", "--method", "fly")
    assert "has 5 columns, but KMeans was fitted on 4" in error_text(capfd, "result", "later.csv")
    assert "renamed.csv has no such column: expected one of a, b, c, z" in error_text(capfd, "ridge", "renamed.csv")
    # A saved model finds its columns by name.
    assert main(["predict", "ridge", "other.csv", "-o", "by_name.npy", "-q"]) == 0
    assert main(["predict", "ridge", "bare.csv", "-o", "in_order.npy", "-q"]) == 0
    np.testing.assert_array_equal(np.load("by_name.npy"), np.load("in_order.npy"))
    with pytest.raises(rp.InputError, match="holds a result of `ripieno kmeans`: PCA reads results of `ripieno pca`"):
        rp.PCA.load("result")


DAMAGES = [
    (lambda folder: (folder / "model.json").write_text("{"), "model.json is damaged"),
    (lambda folder: (folder / "model.json").write_text("[]"), "expected an object"),
    (lambda folder: changed_field(folder, "parameters", None), "'parameters' is None, expected a dict"),
    (lambda folder: changed_field(folder, "column_count", None), "'column_count' is None, expected a int"),
    (lambda folder: changed_field(folder, "inertia", "low"), "'inertia' is 'low', expected a float"),
    (lambda folder: changed_field(folder, "arrays", {"centroids": 3}), "shape of 'centroids' is 3, expected a list"),
    (lambda folder: changed_field(folder, "arrays", {}), "has no 'centroids'"),
    (lambda folder: np.save(folder / "centroids.npy", np.ones((3, 5))), r"the shape \(3, 5\): expected \(3, 4\)"),
    (lambda folder: (folder / "centroids.npy").unlink(), "centroids.npy does not exist"),
    (lambda folder: (folder / "centroids.npy").write_bytes(b"\x93NUMPY\x01"), "centroids.npy is damaged"),
    (lambda folder: np.save(folder / "centroids.npy", np.full((3, 4), np.nan)), "not finite"),
    (lambda folder: np.save(folder / "labels.npy", np.array([{}] * 60)), "labels.npy is damaged"),
]


def test_a_damaged_result_is_refused(folder):
    assert main(["kmeans", "rows.npy", "-k", "3", "-q"]) == 0
    for number, (damage, message) in enumerate(DAMAGES):
        copied = shutil.copytree(folder / "result", folder / f"damaged{number}")
        damage(copied)
        with pytest.raises(rp.InputError, match=message):
            rp.KMeans.load(copied)


def changed_field(folder, name, value):
    known = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(known | {name: value}))
