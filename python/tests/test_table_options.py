"""Tables of every format are read alike by all consumers, with the options of `TableFiles` and of the commands."""

from __future__ import annotations

import gzip
import io
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import ripieno as rp
import scipy.io
import scipy.sparse
from ripieno.algorithms.als import table as ratings
from ripieno.cli import main
from ripieno.graph import Graph
from ripieno.input import TableFiles, splits
from ripieno.input.matrix import open_source

pytestmark = pytest.mark.usefixtures("without_charts")

TABLE = pa.table({"source": np.arange(40) % 7, "target": np.arange(40) % 5 + 1, "rating": np.arange(40) / 4})
ROWS = np.column_stack([column.to_numpy() for column in TABLE.columns])


def write(path, table=TABLE):
    """Write a table in the format of the name, compressed if the name says so."""
    name = path.name
    if name.endswith(".parquet"):
        pq.write_table(table, path, row_group_size=16)
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=9)
    elif name.endswith(".feather"):
        pa.feather.write_feather(table, path, "zstd", chunksize=11)
    else:
        delimiter = "\t" if ".tsv" in name else ","
        with pa.output_stream(path, "detect", buffer_size=1 << 16) as file:
            pa.csv.write_csv(table, file, pa.csv.WriteOptions(delimiter=delimiter))
    return path


@pytest.mark.parametrize(
    "name",
    ["t.csv", "t.tsv", "t.csv.gz", "t.tsv.bz2", "t.csv.zst", "t.csv.lz4", "t.parquet", "t.arrow", "t.feather"],
)
def test_a_table_is_the_same_to_every_consumer(name, tmp_path):
    path = write(tmp_path / name)

    dataset = open_source(path)
    for world_size in (1, 3, 50):
        shares = [dataset.read_share(rank, world_size).points for rank in range(world_size)]
        np.testing.assert_array_equal(np.concatenate(shares), ROWS)
    assert dataset.column_names == ("source", "target", "rating")
    assert pa.concat_tables(part.read() for part in splits(path, count=3)).to_pydict() == TABLE.to_pydict()
    assert splits(path, ignore=["rating"])[0].read().column_names == ["source", "target"]
    for source in (path, TableFiles(path, columns=("source", "target"))):
        # Tables of tabs are edge lists unless options name their columns.
        if ".tsv" in name and source is path:
            continue
        edges = [Graph(source).read_share(rank, 3) for rank in range(3)]
        assert sorted((a, b) for part in edges for a, b in zip(part.sources, part.targets, strict=True)) == sorted(
            (a, b) for a, b in ROWS[:, :2].tolist()
        )
    found = ratings.opened(TableFiles(path, columns=("target", "source", "rating")), None).read()
    assert (found.users.to_pylist(), found.items.to_pylist()) == (
        TABLE["target"].to_pylist(),
        TABLE["source"].to_pylist(),
    )
    model = rp.Ridge().fit(path, "rating")
    np.testing.assert_allclose(model.predict(path), rp.Ridge().fit(ROWS[:, :2], ROWS[:, 2]).predict(ROWS[:, :2]))


GAPS = "a;b;note;y\n1,5;2;x;1.003\n2,5;NA;y;4\n3;4;z;?\n4,25;5;w;6,5\n"


def test_missing_values_are_errors_unless_dropped_or_replaced_by_the_mean(tmp_path):
    (tmp_path / "t.csv").write_text(GAPS)
    numbers = {"decimal": ",", "thousands": "."}

    def read(**options):
        return open_source(TableFiles(tmp_path / "t.csv", ignore=["note"], **numbers, **options))

    with pytest.raises(rp.InputError, match=r"t.csv, line 4, column 'y' \(4 of 4\): '\?', a missing .* missing='drop'"):
        read().read_share(0, 1)
    with pytest.raises(rp.InputError, match=r"line 3, column 'b' .*: NaN where .* missing='drop' .*missing='mean'"):
        rp.KMeans(1).fit(TableFiles(tmp_path / "t.csv", columns=["a", "b"], decimal=","))
    dropped = read(missing="drop")
    assert dropped.row_count is None
    for world_size in (1, 2, 5):
        shares = [dropped.read_share(rank, world_size).points for rank in range(world_size)]
        np.testing.assert_array_equal(np.concatenate(shares), [[1.5, 2, 1003], [4.25, 5, 6.5]])
    mean = read(missing="mean").read_share(0, 1).points
    np.testing.assert_allclose(mean, [[1.5, 2, 1003], [2.5, 11 / 3, 4], [3, 4, 1013.5 / 3], [4.25, 5, 6.5]])
    # Missing targets are not replaced by a mean.
    with pytest.raises(
        rp.InputError, match=r"column 'y' .*: NaN .* a target is not replaced by a mean: pass missing='drop'"
    ):
        rp.Ridge().fit(TableFiles(tmp_path / "t.csv", ignore=["note"], missing="mean", **numbers), "y")
    fitted = rp.Ridge(0.0).fit(TableFiles(tmp_path / "t.csv", ignore=["note"], missing="drop", **numbers), "y")
    assert fitted.report_.row_count == 2
    pq.write_table(pa.table({"a": pa.array([1, None, 3], pa.uint8()), "b": [0.5, 1, np.nan]}), tmp_path / "t.parquet")
    np.testing.assert_array_equal(
        open_source(TableFiles(tmp_path / "t.parquet", missing="mean")).read_share(0, 1).points,
        [[1, 0.5], [2, 1], [3, 0.75]],
    )
    lists = pa.array([[1.0, 2], None, [3, 4], [None, 1]], pa.list_(pa.float64(), 2))
    pq.write_table(pa.table({"v": lists}), tmp_path / "lists.parquet")
    kept = open_source(TableFiles(tmp_path / "lists.parquet", missing="drop")).read_share(0, 1).points
    np.testing.assert_array_equal(kept, [[1, 2], [3, 4]])
    (tmp_path / "inf.csv").write_text("a,b\n1,\n2,inf\n")
    with pytest.raises(rp.InputError, match=r"inf.csv, line 3, column 'b' .*: infinity"):
        rp.KMeans(1).fit(TableFiles(tmp_path / "inf.csv", missing="drop"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": "zero"}, "missing='zero': expected one of drop, mean"),
        ({"decimal": ",,"}, "decimal=',,': expected one ASCII character"),
        ({"thousands": "."}, "thousands='.': expected another character than decimal"),
        ({"types": {"a": "word"}}, "types=.*'word'.*expected the name of an Arrow type"),
        ({"columns": "a"}, r"columns='a': expected a list of names"),
        ({"columns": ["c"]}, "columns='c': .* has no such column: expected one of a, b, note, y"),
        ({"decimal": ",", "columns": ["a", "b", "note"]}, r"line 2, column 'note' .*: 'x' is not a number"),
        ({}, r"line 2, column 'a' \(1 of 4\): '1,5' is not a number; for a decimal comma, pass decimal=','"),
        (
            {"decimal": ",", "thousands": "'", "columns": ["y"]},
            r"line 2, column 'y' \(4 of 4\): '1.003' is not a number",
        ),
    ],
)
def test_invalid_options_are_reported(options, message, tmp_path):
    (tmp_path / "t.csv").write_text(GAPS)
    with pytest.raises(rp.InputError, match=message):
        open_source(TableFiles(tmp_path / "t.csv", **options)).read_share(0, 1)


def test_quoted_numbers_may_use_the_delimiter_for_thousands(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n"1,234",5\n"-12,345.5",6\n')
    rows = open_source(TableFiles(tmp_path / "t.csv", thousands=",")).read_share(0, 1).points
    np.testing.assert_array_equal(rows, [[1234, 5], [-12345.5, 6]])
    (tmp_path / "t.csv").write_text('a,b\n"1,23",5\n')
    with pytest.raises(rp.InputError, match=r"line 2, column 'a' \(1 of 2\): '1,23' is not a number"):
        open_source(TableFiles(tmp_path / "t.csv", thousands=",")).read_share(0, 1)


def test_types_select_the_parsing_of_text(tmp_path):
    (tmp_path / "t.csv").write_text("flag,zip,n\ntrue,01,1\nfalse,02,2\n")
    types = {"flag": "bool", "zip": "string"}
    rows = open_source(TableFiles(tmp_path / "t.csv", types=types, ignore=["zip"])).read_share(0, 1).points
    np.testing.assert_array_equal(rows, [[1, 1], [0, 2]])
    with pytest.raises(rp.InputError, match="column 'zip': the type of the values is string, expected real numbers"):
        open_source(TableFiles(tmp_path / "t.csv", types=types))


def labeled(tmp_path, name):
    frame = pd.DataFrame({"id": [f"r{i}" for i in range(20)], "a": np.arange(20) % 7, "b": np.arange(20) % 3})
    frame["kind"] = np.where(frame.a > 2 * frame.b, "yes", "no")
    text = frame.to_csv(index=False, sep="\t" if ".tsv" in name else ",").encode()
    if name.endswith(".parquet"):
        frame.to_parquet(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(pa.compress(text, "zstd", asbytes=True) if name.endswith(".zst") else text)
    return frame


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.tsv", "t.csv.zst"])
def test_classes_in_files_may_be_strings_as_in_frames(name, tmp_path):
    frame = labeled(tmp_path, name)
    files = TableFiles(tmp_path / name, id="id")
    expected = rp.LogisticRegression().fit(frame[["a", "b"]], frame["kind"])
    model = rp.LogisticRegression().fit(files, "kind")

    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6)
    assert model.score(files, "kind") == expected.score(frame[["a", "b"]], frame["kind"])
    assert model.predict(files).tolist() == expected.predict(frame[["a", "b"]]).tolist()
    with pytest.raises(rp.InputError, match=r"pass ignore=\['id'\] to leave the column out"):
        rp.LogisticRegression().fit(tmp_path / name, "kind")
    with pytest.raises(rp.InputError, match=r"y='kin': .* has no such column: expected one of a, b, kind"):
        rp.LogisticRegression().fit(files, "kin")
    with pytest.raises(rp.InputError, match=r"id='key': .* has no such column: expected one of id, a, b, kind"):
        rp.KMeans(2).fit(TableFiles(tmp_path / name, id="key"))


def test_results_are_written_with_the_ids_of_their_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = labeled(tmp_path, "t.parquet")
    labeled(tmp_path, "t.csv")
    assert main(["logistic", "t.csv", "--id", "id", "--target", "kind", "--out", "fit", "--quiet"]) == 0
    assert main(["predict", "fit", "t.parquet", "--id", "id", "--out", "p.csv", "--quiet"]) == 0
    found = pd.read_csv("p.csv")
    assert found["id"].tolist() == frame["id"].tolist() and set(found["predict"]) == {"no", "yes"}
    assert main(["predict", "fit", "t.csv", "--id", "id", "--out", "p.npy", "--quiet"]) == 2
    assert "p.npy: unknown kind of file, expected one of .parquet, .csv" in capsys.readouterr().err


def test_edges_with_a_missing_end_are_dropped_if_requested(tmp_path):
    (tmp_path / "g.csv").write_text("a,b,c\n1,2,0.5\n,3,1\n4,5,x\n")
    edges = Graph(TableFiles(tmp_path / "g.csv", columns=("b", "a"), missing="drop")).read_share(0, 1)
    assert (edges.sources.tolist(), edges.targets.tolist(), edges.weights) == ([2, 5], [1, 4], None)
    with pytest.raises(rp.InputError, match="line 3, column 'a': a missing value: expected vertex ids"):
        Graph(TableFiles(tmp_path / "g.csv", columns=("b", "a"))).read_share(0, 1)
    with pytest.raises(rp.InputError, match=r"missing='mean': the ends of an edge have no mean"):
        Graph(TableFiles(tmp_path / "g.csv", missing="mean"))


def test_ids_of_ratings_may_be_of_any_type(tmp_path):
    values = [1.0, 2.0, 3.0, 4.0]

    def users(ids):
        return rp.ALS(1, max_iter=1, random_state=0).fit(ids).user_ids_.tolist()

    frame = pd.DataFrame({"user": pd.Categorical(["b", "a", "b", "c"]), "item": [1, 2, 3, 4], "rating": values})
    assert users(frame) == users(pl.from_pandas(frame)) == ["a", "b", "c"]
    frame.to_feather(tmp_path / "r.feather")
    assert users(tmp_path / "r.feather") == ["a", "b", "c"]
    assert users((np.array([True, False, True, False]), [1, 2, 3, 4], values)) == [0, 1]
    days = pa.array([3, 1, 3, 2], pa.int32()).cast(pa.date32())
    assert users(pa.table({"user": days, "item": [1, 2, 3, 4], "rating": values}))[0] == "1970-01-02"
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes([each] * 16) for each in b"abca"], pa.binary(16)))
    assert users((uuids, [1, 2, 3, 4], values))[0] == "61616161-6161-6161-6161-616161616161"
    with pytest.raises(rp.InputError, match=r"users: fractions from 2\^53 on are not exact: expected whole numbers"):
        users((np.array([1, 2, 3, 2.0**53]), [1, 2, 3, 4], values))
    (tmp_path / "r.csv").write_text("user;item;rating\n01;2;1,5\n02;3;NA\n1;2;2,5\n")
    options = {"types": {"user": "string"}, "decimal": ","}
    assert users(TableFiles(tmp_path / "r.csv", missing="drop", **options)) == ["01", "1"]
    with pytest.raises(rp.InputError, match=r"column 'rating' has missing values; .* missing='drop'"):
        users(TableFiles(tmp_path / "r.csv", **options))


def test_pairs_in_files_may_have_ids_of_different_widths(tmp_path):
    model = rp.ALS(1, max_iter=1, random_state=0).fit(([1, 2, 3], [1, 2, 3], [1.0, 2.0, 3.0]))
    for at, kind in enumerate((pa.int32(), pa.int64())):
        pq.write_table(pa.table({"user": pa.array([1, 2], kind), "item": [2, 3]}), tmp_path / f"{at}.parquet")
    assert len(model.predict([tmp_path / "0.parquet", tmp_path / "1.parquet"])) == 4


def test_commands_have_the_options_of_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(GAPS)
    table = ["t.csv", "--decimal", ",", "--thousands", ".", "--ignore", "note"]
    assert main(["ridge", *table, "--missing", "drop", "--target", "y", "--out", "fit", "--quiet"]) == 0
    assert json.loads((tmp_path / "fit" / "model.json").read_text())["row_count"] == 2
    assert main(["predict", "fit", *table, "--missing", "mean", "--out", "p.npy", "--quiet"]) == 0
    assert len(np.load("p.npy")) == 4
    assert main(["kmeans", "-k", "1", *table, "--out", "clusters", "--quiet"]) == 2
    assert "pass --missing drop to leave its row out, or --missing mean" in capsys.readouterr().err
    assert main(["kmeans", "-k", "1", "t.csv", "--columns", "zip", "--out", "clusters"]) == 2
    assert "--columns zip: " in capsys.readouterr().err
    (tmp_path / "names.csv").write_text("name,a\nx,1\n")
    assert main(["kmeans", "-k", "1", "names.csv", "--out", "clusters"]) == 2
    assert "pass --ignore name to leave the column out" in capsys.readouterr().err
    (tmp_path / "g.csv").write_text("a,b,c\n1,2,0.5\n3,4,1\n")
    assert main(["components", "g.csv", "--columns", "a,b", "--out", "c.csv"]) == 0
    assert main(["als", "g.csv", "--columns", "b,a,c", "--rank", "1", "--types", "b=string", "--out", "als"]) == 0
    assert np.load("als/user_ids.npy").tolist() == ["2", "4"]


@pytest.mark.parametrize("name", ["m.mtx", "m.mtx.gz"])
def test_matrix_market_files_are_rows_of_estimators(name, tmp_path):
    sparse = scipy.sparse.random_array((30, 4), density=0.5, rng=np.random.default_rng(0))
    path = tmp_path / name

    def saved(matrix):
        file = io.BytesIO()
        scipy.io.mmwrite(file, matrix, precision=17)
        path.write_bytes(gzip.compress(file.getvalue()) if name.endswith("gz") else file.getvalue())
        return path

    expected = rp.KMeans(2, random_state=0).fit(sparse).labels_
    np.testing.assert_array_equal(rp.KMeans(2, random_state=0).fit(saved(sparse)).labels_, expected)
    np.testing.assert_array_equal(rp.PCA(1).fit(path).components_, rp.PCA(1).fit(sparse).components_)
    with pytest.raises(rp.InputError, match=rf"{name} is a sparse matrix, which is not read here"):
        rp.MDS(metric="euclidean").fit(path)
    dense = open_source(saved(sparse.toarray()))
    np.testing.assert_array_equal(np.concatenate([dense.read_share(at, 3).points for at in range(3)]), sparse.toarray())
