"""Fits choose columns by name, in frames and in files alike."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import ripieno as rp
from ripieno import algorithms
from ripieno.algorithms.column_choice import declared_by

HOUSES = pd.DataFrame(
    {
        "name": [f"house {number}" for number in range(12)],
        "rooms": np.arange(12.0) % 5,
        "area": np.arange(12.0) ** 2,
        "price": 3 * (np.arange(12.0) % 5) + np.arange(12.0) ** 2 + 1,
        "kind": ["old", "new", "new"] * 4,
    }
)


def sources(folder):
    HOUSES.to_csv(folder / "houses.csv", index=False)
    HOUSES.to_parquet(folder / "houses.parquet")
    table = pa.Table.from_pandas(HOUSES)
    return [
        HOUSES,
        pl.from_pandas(HOUSES),
        table,
        folder / "houses.csv",
        rp.input.TableFiles(folder / "houses.parquet"),
    ]


def test_frames_and_files_have_the_same_choice(tmp_path):
    for source in sources(tmp_path):
        for choice in ({"columns": ["rooms", "area"]}, {"ignore": ["kind"], "id": "name"}):
            model = rp.LinearRegression().fit(source, target="price", **choice)
            assert model.feature_names_in_.tolist() == ["rooms", "area"]
            np.testing.assert_allclose(model.coef_, [3, 1])
            # Later input may have all columns.
            np.testing.assert_allclose(model.predict(source), HOUSES["price"])
            assert model.score(source, "price") == pytest.approx(1)


def test_classes_and_clusters_have_the_choice(tmp_path):
    HOUSES.to_csv(tmp_path / "houses.csv", index=False)
    for source in (HOUSES, tmp_path / "houses.csv"):
        model = rp.LogisticRegression().fit(source, "kind", columns=["area"])
        assert set(model.predict(source)) <= {"old", "new"}
        assert model.score(source, "kind") == pytest.approx(np.mean(model.predict(source) == HOUSES["kind"]))
        clusters = rp.KMeans(2, random_state=0).fit(source, columns=["area", "rooms"])
        assert clusters.feature_names_in_.tolist() == ["area", "rooms"]
        np.testing.assert_array_equal(clusters.predict(source), clusters.labels_)


def test_an_estimator_without_target_ignores_y():
    model = rp.KMeans(2, random_state=0).fit(HOUSES, "price", ignore=["name", "kind"])
    assert model.feature_names_in_.tolist() == ["rooms", "area", "price"]
    assert model.report_.about.target is None


def test_errors_of_unknown_names_list_the_known_names(tmp_path):
    for source in sources(tmp_path):
        with pytest.raises(rp.InputError, match=r"ignore='town'.* name, rooms, area, price, kind"):
            rp.PCA(1).fit(source, ignore=["town"])
        with pytest.raises(rp.InputError, match=r"y='cost'.* name, rooms, area, price, kind|y='cost'.* rooms"):
            rp.Ridge().fit(source, "cost", columns=["rooms"])
        with pytest.raises(rp.InputError, match="expected one of them"):
            rp.Ridge().fit(source, "price", target="price")
    with pytest.raises(rp.InputError, match="columns of a ndarray have no names"):
        rp.PCA(1).fit(np.eye(3), columns=["a"])
    with pytest.raises(TypeError, match="colums"):
        rp.PCA(1).fit(HOUSES, colums=["rooms"])


def test_every_estimator_has_the_choice():
    # The columns of ratings are a parameter of ALS.
    for name in set(algorithms.__all__) - {"ALS"}:
        fit = getattr(getattr(algorithms, name), "fit", None)
        if fit is not None:
            assert declared_by(inspect.unwrap(fit)) is not None, name
            assert {"columns", "ignore", "id"} <= inspect.signature(fit).parameters.keys(), name


def test_graphs_have_the_choice(tmp_path):
    edges = pd.DataFrame({"day": [1, 1, 2], "from": [0, 1, 2], "to": [1, 2, 0], "weight": [1.0, 2.0, 3.0]})
    edges.to_csv(tmp_path / "edges.csv", index=False)
    for source in (edges, tmp_path / "edges.csv"):
        found = rp.PageRank().fit(source, columns=["from", "to"])
        np.testing.assert_allclose(found.ranks_, 1 / 3)


def test_a_saved_model_finds_its_columns(tmp_path):
    HOUSES.to_csv(tmp_path / "houses.csv", index=False)
    rp.KMeans(2, random_state=0).fit(HOUSES, columns=["area", "rooms"]).save(tmp_path / "model")
    model = rp.KMeans.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict(tmp_path / "houses.csv"), model.labels_)
    # Columns without names are the columns of the fit.
    np.save(tmp_path / "rows.npy", HOUSES[["area", "rooms"]].to_numpy())
    HOUSES[["area", "rooms"]].to_csv(tmp_path / "rows.csv", index=False, header=False)
    for name in ("rows.npy", "rows.csv"):
        np.testing.assert_array_equal(model.predict(tmp_path / name), model.labels_)


def test_ranks_choose_columns_together(world):
    def program(comm):
        own = HOUSES[comm.rank :: comm.world_size]
        model = rp.LinearRegression().fit(own, "price", comm=comm, rows="own", ignore=["name", "kind"])
        with pytest.raises(rp.InputError, match="ignore='town'"):
            rp.PCA(1).fit(own, comm=comm, rows="own", ignore=["town"])
        ignored = ("name", "kind", "price") if comm.rank == 0 else ["name", "kind", "rooms"]
        with pytest.raises(rp.CollectiveMismatch, match=r"ignore=\('name', 'kind', 'price'\).*rank 1.*'rooms'"):
            rp.PCA(1).fit(own, comm=comm, rows="own", ignore=ignored)
        rp.PCA(1).fit(own, comm=comm, rows="own", columns=["rooms", "area"] if comm.rank else ("rooms", "area"))
        return model.coef_

    for coef in world(2).run(program):
        np.testing.assert_allclose(coef, [3, 1])


def test_a_rank_without_rows_has_the_choice_of_the_others(world):
    def program(comm):
        own = HOUSES if comm.rank == 0 else None
        model = rp.LogisticRegression().fit(own, "kind", comm=comm, rows="own", ignore=["name", "price"])
        return list(model.feature_names_in_), model.predict(HOUSES).tolist()

    first, second = world(2).run(program)
    assert first == second and first[0] == ["rooms", "area"]


def test_a_later_fit_forgets_the_name_of_the_target():
    columns = HOUSES[["rooms", "area"]]
    for model in (rp.SparseSGD(random_state=0), rp.LogisticRegression(tol=10.0)):
        named = model.fit(HOUSES[["rooms", "area", "kind"]], target="kind").report_.about
        assert (named.target, model.fit(columns, HOUSES["kind"]).report_.about.target) == ("kind", None)
