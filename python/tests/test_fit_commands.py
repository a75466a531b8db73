"""Tests of the commands that fit a model to files: a command writes the complete result, or no file."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
import ripieno as rp
from ripieno.cli import main
from ripieno.input.matrix import dataset
from sklearn.datasets import dump_svmlight_file
from varied import exhaustively

pytestmark = pytest.mark.usefixtures("without_charts")

random = np.random.default_rng(0)
X = random.normal(size=(80, 4))
PRICE = X @ [1.0, 2, 3, 4] + 5 + 0.1 * random.normal(size=80)
IS_EXPENSIVE = (PRICE + random.normal(size=80) > 5).astype(int)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", X)
    np.savetxt("prices.csv", np.c_[X, PRICE], "%.17g", ",", header="a,b,c,d,price", comments="")
    np.save("prices.npy", PRICE)
    np.savetxt("expensive.csv", np.c_[X, IS_EXPENSIVE], "%.17g", ",", header="a,b,c,d,expensive", comments="")
    dump_svmlight_file(X, IS_EXPENSIVE, "expensive.svm", zero_based=False)
    (tmp_path / "ratings.csv").write_text("user_id,item,rating\nann,7,5\nann,9,1\nbob,7,4\nbob,9,2\ncem,9,3\n")
    return tmp_path


def read_result(folder, names):
    """Check the files of a result, and return its model.json."""
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "model.json", "report.html"])
    page = (folder / "report.html").read_text()
    assert "Where the time went" in page and "http" not in page.replace("http://www.w3.org", "")
    return json.loads((folder / "model.json").read_text())


def test_pca_writes_the_axes_and_the_projected_rows(folder, capfd):
    assert main(["pca", "rows.npy", "--components", "2", "--project", "-n", "2"]) == 0

    names = ("components", "explained_variance", "explained_variance_ratio", "mean", "projected", "singular_values")
    facts = read_result(folder / "result", [f"{name}.npy" for name in names])
    expected = rp.PCA(2).fit(X)
    np.testing.assert_allclose(np.load("result/components.npy"), expected.components_, rtol=1e-10)
    np.testing.assert_allclose(np.load("result/projected.npy"), expected.transform(X), rtol=1e-9)
    assert (facts["algorithm"], facts["row_count"], facts["component_count"]) == ("pca", 80, 2)
    assert [len(stage["compute_s"]) for stage in facts["stages"]] == [2, 2, 2]
    captured = capfd.readouterr()
    assert captured.out == "result/report.html\n" and "stage eigenvectors" in captured.err


@pytest.mark.parametrize(
    "words",
    [["kmeans", "rows.npy", "-k", "2"], ["pca", "rows.npy"], ["ridge", "prices.csv", "--target", "price"]],
    ids=lambda words: words[0],
)
def test_a_command_opens_its_input_once(monkeypatch, words):
    opened, open_file = [], dataset._open_file
    monkeypatch.setattr(dataset, "_open_file", lambda path, *rest: (opened.append(path), open_file(path, *rest))[1])

    assert main([*words, "-q"]) == 0

    assert opened == [os.path.abspath(words[1])]


@pytest.mark.parametrize(
    "words", [["rows.npy", "--target", "prices.npy"], *exhaustively(["prices.csv", "--target", "price"])]
)
def test_ridge_writes_the_weights_of_the_columns(folder, words):
    assert main(["ridge", *words, "--alpha", "0.5", "-q"]) == 0

    report = read_result(folder / "result", ["coef.npy", "intercept.npy"])
    expected = rp.Ridge(0.5).fit(X, PRICE)
    np.testing.assert_allclose(np.load("result/coef.npy"), expected.coef_, rtol=1e-10)
    assert np.load("result/intercept.npy").item() == pytest.approx(expected.intercept_)
    assert report["r2"] == pytest.approx(expected.score(X, PRICE))
    assert report["parameters"]["alpha"] == 0.5


@pytest.mark.parametrize("words", [["expensive.csv", "--target", "expensive"], *exhaustively(["expensive.svm"])])
def test_logistic_writes_the_weights_of_the_columns(folder, words):
    assert main(["logistic", *words, "--c", "0.5", "--tol", "1e-8", "--solver", "newton-cg", "-n", "2", "-q"]) == 0

    report = read_result(folder / "result", ["coef.npy", "intercept.npy", "classes.npy"])
    expected = rp.LogisticRegression(0.5, tol=1e-8).fit(X, IS_EXPENSIVE)
    np.testing.assert_allclose(np.load("result/coef.npy"), expected.coef_, rtol=1e-5)
    np.testing.assert_array_equal(np.load("result/classes.npy"), [0, 1])
    assert report["accuracy"] == expected.score(X, IS_EXPENSIVE)
    assert report["objective"] == pytest.approx(expected.objective_, rel=1e-9)
    assert report["iteration_count"] == len(report["iterations"])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["ridge", "prices.csv", "--target", "price"], ["coef"]),
        *exhaustively(
            (["logistic", "expensive.csv", "--target", "expensive"], ["coef"]),
            (["logistic", "expensive.svm"], ["coef"]),
            (["pca", "rows.npy", "--components", "2", "--project"], ["components", "projected"]),
        ),
        (["layout", "edges.txt"], ["positions", "vertices"]),
    ],
    ids=lambda words: f"{words[0]} {words[1]}" if len(words) > 1 else "",
)
def test_the_result_of_a_partition_file_matches_the_files(folder, words, names):
    (folder / "edges.txt").write_text("".join(f"{at} {at * 3 % 20}\n" for at in range(20)))
    command, source, *more = words
    rp.input.divide(source, "parts", partitions=3)

    assert main([command, "parts/partitions.json", *more, "-o", "of_parts", "-q"]) == 0
    assert main([command, source, *more, "-o", "of_files", "-q"]) == 0

    for name in names:
        of_parts, of_files = np.load(f"of_parts/{name}.npy"), np.load(f"of_files/{name}.npy")
        np.testing.assert_allclose(of_parts, of_files, rtol=1e-6, atol=1e-9)
    assert json.loads((folder / "of_parts/model.json").read_text())["inputs"] == ["parts/partitions.json"]


def test_options_of_tables_are_refused_with_partitions(folder, capfd):
    rp.input.divide("prices.csv", "parts", partitions=2)

    assert main(["ridge", "parts/partitions.json", "--target", "price", "--ignore", "area", "-q"]) != 0

    assert "options of tables apply when files are divided" in capfd.readouterr().err


def test_an_address_requires_an_engine_that_has_one(capfd):
    assert main(["pca", "rows.npy", "--address", "tcp://a:1"]) == 2
    assert "--address requires --engine dask or ray" in capfd.readouterr().err


@pytest.mark.parametrize("more", [["--implicit", "-n", "2"], *exhaustively([])], ids=["implicit", "explicit"])
def test_als_writes_factors_and_ids_of_users_and_items(folder, more, capfd):
    words = ["als", "ratings.csv", "--rank", "2", "--reg", "0.1", "--seed", "3", "--test", "ratings.csv", *more]
    assert main([*words, "--checkpoint", "kept", "--every", "3"]) == 0

    arrays = ["user_factors.npy", "item_factors.npy", "user_ids.npy", "item_ids.npy", "rated.npy", "rated_starts.npy"]
    report = read_result(folder / "result", arrays)
    expected = rp.ALS(2, reg=0.1, implicit=bool(more), random_state=3).fit("ratings.csv")
    assert np.load("result/user_ids.npy").tolist() == ["ann", "bob", "cem"]
    assert np.load("result/item_ids.npy").tolist() == [7, 9]
    np.testing.assert_array_equal(np.load("result/user_factors.npy"), expected.user_factors_)
    np.testing.assert_array_equal(np.load("result/item_factors.npy"), expected.item_factors_)
    assert report["test_percentile_rank" if more else "test_rmse"] == -expected.score("ratings.csv")
    assert (report["rating_count"], report["row_count"], report["column_count"]) == (5, 3, 2)
    assert "iteration 10, objective" in capfd.readouterr().err
    assert main([*words, "--checkpoint", "kept", "--overwrite", "-q"]) == 0
    assert json.loads((folder / "result/model.json").read_text())["resumed_from"] == 9


def test_every_without_a_checkpoint_folder_is_refused(folder, capfd):
    assert main(["als", "ratings.csv", "--rank", "2", "--every", "3", "-q"]) == 2
    assert "--every 3: there is nowhere to save checkpoints: expected a folder, --checkpoint," in capfd.readouterr().err


def test_pca_resumes_from_a_folder(folder):
    words = [
        "pca",
        "rows.npy",
        "--components",
        "2",
        "--solver",
        "randomized",
        "--checkpoint",
        "kept",
        "--overwrite",
        "-q",
    ]
    assert main(words) == 0
    assert json.loads((folder / "result/model.json").read_text())["resumed_from"] is None
    components = np.load("result/components.npy")

    assert main([*words, "-n", "2"]) == 0

    assert json.loads((folder / "result/model.json").read_text())["resumed_from"] is not None
    np.testing.assert_allclose(np.load("result/components.npy"), components, atol=1e-10)


@pytest.mark.parametrize("components", [2, *exhaustively(1, 3)])
def test_mds_writes_positions_and_draws_them(folder, components, capfd):
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    np.save("distances.npy", distances)
    np.save("new.npy", distances[:3])
    np.save("weights.npy", np.ones_like(distances))
    words = [
        "mds",
        "distances.npy",
        "--components",
        str(components),
        "--weights",
        "weights.npy",
        "--interpolate",
        "new.npy",
    ]
    assert main([*words, "--seed", "3", "--max-iter", "20", "-n", "2"]) == 0

    report = read_result(folder / "result", ["embedding.npy", "interpolated.npy"])
    expected = rp.MDS(components, weights=np.ones_like(distances), random_state=3, max_iter=20).fit(distances)
    np.testing.assert_array_equal(np.load("result/embedding.npy"), expected.embedding_)
    np.testing.assert_array_equal(np.load("result/interpolated.npy"), expected.interpolate(distances[:3]))
    assert (report["stress"], report["row_count"], report["iteration_count"]) == (expected.stress_, 80, 20)
    page = (folder / "result" / "report.html").read_text()
    assert page.count("<circle") == (80 if components == 3 else 0) and "<script" not in page
    assert "iteration 20, normalized_stress" in capfd.readouterr().err


def test_mds_of_rows_resumes_annealing(folder):
    words = [
        "mds",
        "rows.npy",
        "--metric",
        "cityblock",
        "--method",
        "da-smacof",
        "--n-init",
        "1",
        "--max-iter",
        "3",
        "-q",
    ]
    for resumed in (None, 3):
        assert main([*words, "--checkpoint", "kept", "--overwrite"]) == 0
        report = json.loads((folder / "result/model.json").read_text())
        assert (report["resumed_from"] is None) == (resumed is None)
    assert report["resumed_from"] == report["iteration_count"] - 1 and report["iterations"][0]["temperature"] == 0.0


@pytest.mark.parametrize("dim", [3, *exhaustively(2)])
def test_layout_writes_positions_and_draws_the_graph(folder, dim, capfd):
    edges = np.array([[0, 1], [1, 2], [2, 9], [9, 0]])
    np.savetxt("edges.txt", edges, "%d")
    assert main(["layout", "edges.txt", "--undirected", "--components", str(dim), "--seed", "2", "-n", "2"]) == 0

    facts = read_result(folder / "result", ["positions.npy", "vertices.npy"])
    expected = rp.FruchtermanReingold(dim, random_state=2).fit(rp.Graph(edges, directed=False))
    np.testing.assert_array_equal(np.load("result/positions.npy"), expected.positions_)
    assert np.load("result/vertices.npy").tolist() == [0, 1, 2, 9]
    assert (facts["row_count"], facts["edge_count"], facts["iteration_count"]) == (4, 4, expected.n_iter_)
    page = (folder / "result" / "report.html").read_text()
    assert "<script" not in page and "all pairs" in page
    output = capfd.readouterr()
    assert output.out == "result/report.html\n" and f"{expected.n_iter_} iterations, all pairs, " in output.err


def test_layout_draws_a_graph_with_names(folder):
    (folder / "edges.csv").write_text("source,target\nann,bob\nbob,cid\n")
    assert main(["layout", "edges.csv", "--undirected"]) == 0

    assert np.load("result/vertices.npy").tolist() == ["ann", "bob", "cid"]
    assert "The graph" in (folder / "result/report.html").read_text()


def test_layout_reports_its_approximation(folder, capfd):
    np.savetxt("edges.txt", np.stack([np.arange(99), np.arange(1, 100)], axis=1), "%d")
    words = ["layout", "edges.txt", "--undirected", "--approximation", "barnes-hut", "--theta", "0.5"]
    assert main([*words, "--max-iter", "3"]) == 0

    facts = json.loads((folder / "result/model.json").read_text())
    assert facts["approximation"] == "barnes-hut" and facts["parameters"]["theta"] == 0.5
    assert {step["approximation"] for step in facts["iterations"]} == {"barnes-hut"}
    assert "Barnes-Hut with theta 0.5" in (folder / "result/report.html").read_text()
    assert "iterations, Barnes-Hut with theta 0.5, " in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mds", "rows.npy"], "X has 80 rows and 4 columns: expected a square matrix of dissimilarities"),
        (["pca", "rows.npy", "--components", "5"], "--components 5: expected at most min(n_samples, n_features), 4"),
        (["ridge", "prices.csv", "--target", "cost"], "prices.csv has no such column"),
        (["ridge", "rows.npy", "--target", "price"], "its columns have no names"),
        (["logistic", "prices.csv"], "prices.csv: "),
        (
            ["als", "prices.csv"],
            "prices.csv has 'a', 'b', 'c', 'd', 'price': the columns of users, items, ratings are unknown",
        ),
        (["als", "ratings.csv", "--columns", "viewer,film"], "--columns viewer,film: expected three names"),
        (["als", "ratings.csv", "--columns", "viewer,item,stars"], "ratings.csv has no such column"),
        (["logistic", "expensive.csv", "--target", "cheap"], "expensive.csv has no such column"),
        (["ridge", "rows.npy", "--target", "none.npy"], "none.npy does not exist"),
    ],
)
def test_input_that_cannot_be_fitted_is_reported_in_a_sentence_and_leaves_nothing(folder, words, message, capfd):
    assert main([*words, "-q"]) == 2

    assert message in capfd.readouterr().err
    assert not (folder / "result").exists()


def test_a_result_is_replaced_only_if_that_is_requested(folder, capfd):
    command = ["pca", "rows.npy", "-q", "--components"]
    assert main([*command, "2"]) == 0
    assert main([*command, "3"]) == 2 and "result" in capfd.readouterr().err
    assert len(np.load("result/components.npy")) == 2

    assert main([*command, "3", "--overwrite"]) == 0
    assert len(np.load("result/components.npy")) == 3


FITS = {
    "als": ["als", "ratings.csv", "--rank", "2"],
    "kmeans": ["kmeans", "rows.npy", "-k", "3"],
    "layout": ["layout", "edges.txt", "--max-iter", "3"],
    "logistic": ["logistic", "expensive.svm"],
    "mds": ["mds", "rows.npy", "--metric", "euclidean", "--max-iter", "3"],
    "pca": ["pca", "rows.npy"],
    "ridge": ["ridge", "prices.csv", "--target", "price"],
}


@pytest.mark.parametrize("name", ["kmeans", "ridge", *exhaustively("als", "layout", "logistic", "mds", "pca")])
def test_a_failed_report_keeps_the_result(folder, name, capfd, monkeypatch):
    words = FITS[name]
    (folder / "edges.txt").write_text("0 1\n1 2\n2 0\n2 3\n")

    def fail(*_, **__):
        raise IndexError("no chart")

    for function in ("ripieno.report.page._page", "ripieno.algorithms.reported._about"):
        monkeypatch.setattr(function, fail)

    assert main([*words, "-q"]) == 0

    output = capfd.readouterr()
    assert output.out == "result\n"
    assert "result/report.html is lost: IndexError: no chart; the result is kept" in output.err
    assert "the report of the fit is lost" in output.err
    assert json.loads((folder / "result/model.json").read_text())["algorithm"] == words[0]
    assert list((folder / "result").glob("*.npy")) and not (folder / "result/report.html").exists()


@pytest.mark.parametrize("name", ["pca", *exhaustively(*(name for name in FITS if name != "pca"))])
def test_a_result_is_written_without_the_packages_of_reports(folder, name, capfd, monkeypatch):
    (folder / "edges.txt").write_text("0 1\n1 2\n2 0\n2 3\n")
    for module in [module for module in sys.modules if module.startswith("ripieno.report")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    assert main([*FITS[name], "-q"]) == 0

    output = capfd.readouterr()
    assert output.out == "result\n" and 'pip install "ripieno[reports]"; the result is kept' in output.err
    assert json.loads((folder / "result/model.json").read_text())["algorithm"] == name


def test_a_fit_without_a_report_has_its_result(monkeypatch):
    monkeypatch.setattr("ripieno.algorithms.iteration_log.RunReport.of", lambda *_, **__: 1 / 0)

    with pytest.warns(UserWarning, match="the report of the fit is lost: ZeroDivisionError"):
        model = rp.PCA(2).fit(X)

    assert model.components_.shape == (2, 4) and model.report_.about.estimator == "PCA"


def test_kmeans_whose_best_run_ended_before_an_interruption_is_written(folder, capfd):
    words = ["kmeans", "rows.npy", "-k", "3", "--init", "random", "--n-init", "4", "--tol", "0", "--seed", "7"]
    assert main([*words, "-o", "whole", "--checkpoint", "kept", "--every", "1", "-q"]) == 0

    assert main([*words, "-o", "resumed", "--checkpoint", "kept", "-q"]) == 0

    whole, resumed = (json.loads((folder / name / "model.json").read_text()) for name in ("whole", "resumed"))
    assert (
        resumed["inertia"] == pytest.approx(whole["inertia"])
        and resumed["iteration_count"] == whole["iteration_count"] > 1
    )
    assert whole["iterations"] and not resumed["iterations"], "the best run was not the last"
    assert "Inertia falls from" in (folder / "resumed/report.html").read_text()
    np.testing.assert_array_equal(np.load("resumed/labels.npy"), np.load("whole/labels.npy"))
