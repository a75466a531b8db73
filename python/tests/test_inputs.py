"""Exactly one worker reads each row of every kind of file, and bad files are reported in one sentence."""

from __future__ import annotations

import os
import re

import fsspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from hypothesis import given, settings
from hypothesis import strategies as st
from ripieno.algorithms.als import table as ratings
from ripieno.algorithms.kmeans import program
from ripieno.algorithms.kmeans.program import KMeansOptions
from ripieno.files.results import save_array
from ripieno.input import TableFiles
from ripieno.input.matrix import open_source
from ripieno.input.matrix.sparse_files import LibsvmFiles
from varied import exhaustively

X = np.random.default_rng(0).random((23, 5)).astype(np.float32)
BYTES = (X * 255).astype(np.uint8)


def lines(rows, number_format="{:.9g}"):
    return "".join(
        f"a%20b.jpg {at} 0 {' '.join(number_format.format(value) for value in row)}\n" for at, row in enumerate(rows)
    )


def parquet_columns(path, rows):
    pq.write_table(pa.table({f"c{at}": column for at, column in enumerate(rows.T)}), path, row_group_size=4)


def parquet_list(path, rows):
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    pq.write_table(pa.table({"picture": ["p"] * len(rows), "vector": column}), path, row_group_size=4)


WRITERS = {
    "plain.npy": (np.save, X),
    "fortran.npy": (lambda path, rows: np.save(path, np.asfortranarray(rows)), X),
    "bytes.npy": (np.save, BYTES),
    "whole.npy": (np.save, BYTES.astype(np.int64)),
    "swapped.npy": (lambda path, rows: np.save(path, rows.astype(">f8")), X.astype(np.float64)),
    "half.npy": (lambda path, rows: np.save(path, rows.astype(np.float16)), X.astype(np.float16).astype(np.float32)),
    "stored.npz": (lambda path, rows: np.savez(path, other=rows[:2], vectors=rows), X),
    "packed.npz": (lambda path, rows: np.savez_compressed(path, rows), X),
    "bare.csv": (lambda path, rows: np.savetxt(path, rows, "%.9g", ","), X),
    "named.csv": (lambda path, rows: np.savetxt(path, rows, "%.9g", ";", header="a;b;c;d;e", comments=""), X),
    "crlf.csv": (lambda path, rows: np.savetxt(path, rows, "%.9g", ",", newline="\r\n"), X),
    "columns.parquet": (parquet_columns, X),
    "list.parquet": (parquet_list, X),
    "floats.txt": (lambda path, rows: path.write_text(lines(rows)), X),
    "bytes.txt": (lambda path, rows: path.write_text(lines(rows, "{}")), BYTES),
    "spaced.txt": (lambda path, rows: path.write_text(lines(rows).replace("\n", " \n")), X),
}


@pytest.fixture
def write(tmp_path):
    def write(name, rows=None):
        writer, expected = WRITERS[name]
        writer(tmp_path / name, expected if rows is None else rows)
        return tmp_path / name

    return write


def read(dataset, world_size):
    return [dataset.read_share(rank, world_size).points for rank in range(world_size)]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("world_size", [3, 40, *exhaustively(1, 2, 7)])
def test_shares_are_all_rows_in_order(write, name, world_size):
    dataset = open_source(write(name))

    shares = read(dataset, world_size)

    np.testing.assert_allclose(np.concatenate(shares), WRITERS[name][1], rtol=1e-6)
    assert dataset.column_count == 5
    assert dataset.row_count in (23, None)


@pytest.fixture
def publish(write):
    """Write a file to a URL, and return the URL."""
    memory = fsspec.filesystem("memory")

    def publish(name):
        memory.pipe(f"/shares/{name}", write(name).read_bytes())
        return f"memory://shares/{name}"

    yield publish
    memory.rm("/shares", recursive=True)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("world_size", [1, 3])
def test_shares_of_a_file_at_a_url_match_the_file(write, publish, name, world_size):
    local, remote = open_source(write(name)), open_source(publish(name))

    for expected, actual in zip(read(local, world_size), read(remote, world_size), strict=True):
        assert np.array_equal(actual, expected) and actual.dtype == expected.dtype and actual.flags.c_contiguous
    assert remote.names == [f"memory://shares/{name}"]


@pytest.mark.parametrize("source", ["memory://shares", "memory://shares/", "memory://shares/*.npy"])
def test_a_url_may_be_a_folder_or_a_glob(publish, source):
    publish("plain.npy"), publish("bytes.npy")
    fsspec.filesystem("memory").pipe("/shares/readme.md", b"of no known kind")

    assert open_source(source).names == ["memory://shares/bytes.npy", "memory://shares/plain.npy"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("memory://shares/none.npy", "memory://shares/none.npy does not exist"),
        ("memory://shares/*.csv", "no file matches"),
        ("memory://shares/short.npy", "memory://shares/short.npy is shorter than it should be"),
        ("memory://shares/cut.npz", "memory://shares/cut.npz is not a readable .npz file"),
        ("memory://shares/cut.parquet", "memory://shares/cut.parquet"),
        ("nosuch://shares/a.npy", "nosuch"),
    ],
)
def test_bad_files_at_urls_are_named(publish, write, source, message):
    publish("plain.npy")
    memory = fsspec.filesystem("memory")
    memory.pipe("/shares/short.npy", write("plain.npy").read_bytes()[:-1])
    memory.pipe("/shares/cut.npz", write("packed.npz").read_bytes()[:-30])
    memory.pipe("/shares/cut.parquet", write("columns.parquet").read_bytes()[:-30])

    with pytest.raises(rp.errors.InputError, match=re.escape(message)):
        open_source(source).read_share(0, 1)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("plain.npy", np.float32),
        ("bytes.npy", np.uint8),
        ("whole.npy", np.float64),
        ("swapped.npy", np.float64),
        ("half.npy", np.float32),
        ("bare.csv", np.float64),
        ("columns.parquet", np.float32),
        ("floats.txt", np.float32),
        ("bytes.txt", np.uint8),
    ],
)
def test_rows_have_the_documented_dtype(write, name, dtype):
    points = open_source(write(name)).read_share(0, 1).points

    assert points.dtype == dtype and points.flags.c_contiguous and points.dtype.isnative


@pytest.mark.parametrize("name", ["plain.npy", "bytes.npy"])
def test_rows_of_one_file_are_mapped_not_copied(write, name):
    points = open_source(write(name)).read_share(1, 3).points

    base = points
    while getattr(base, "base", None) is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_shares_of_counted_files_differ_by_one_row_at_most(write):
    dataset = open_source([write("plain.npy"), write("columns.parquet"), write("packed.npz")])

    counts = [len(share) for share in read(dataset, 7)]

    assert sum(counts) == 69
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_files_of_different_kinds_are_one_list_of_rows(write, world_size):
    paths = [write("plain.npy"), write("bytes.txt"), write("bare.csv"), write("columns.parquet")]

    rows = np.concatenate(read(open_source(paths), world_size))

    np.testing.assert_allclose(rows, np.concatenate([X, BYTES, X, X]), rtol=1e-6)


@settings(deadline=None, max_examples=50)
@given(
    rows=st.lists(st.tuples(st.integers(-(10**9), 10**9), st.floats(-1e6, 1e6)), min_size=1, max_size=30),
    world_size=st.integers(1, 12),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    last=st.booleans(),
)
def test_every_line_is_read_once_for_any_cut(tmp_path_factory, rows, world_size, end, last):
    path = tmp_path_factory.mktemp("cut") / "rows.csv"
    text = end.join(f"{a},{b!r}" for a, b in rows)
    path.write_bytes((text + end * last).encode())

    actual = np.concatenate(read(open_source(path), world_size))

    np.testing.assert_array_equal(actual, np.array(rows, np.float64))


def test_globs_are_sorted_and_folders_are_searched(tmp_path):
    for at in (2, 0, 1):
        np.save(tmp_path / f"part{at}.npy", np.full((2, 3), float(at)))
    (tmp_path / "notes.md").write_text("no vectors")

    for source in (tmp_path / "*.npy", tmp_path):
        np.testing.assert_array_equal(read(open_source(source), 1)[0][:, 0], [0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize("workers", [2, *exhaustively(1)])
@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_can_be_clustered(write, world, name, workers):
    parts = world(workers).run(program.fit, open_source(write(name)), None, KMeansOptions(4, "random", [0], 10, 0.0))

    assert sum(len(part.clustering.labels) for part in parts) == 23


def test_members_of_archives_and_arrays_need_no_alignment(tmp_path):
    for shift in range(1, 5):
        np.savez(tmp_path / "x.npz", **{"n" * shift: X})
        points = open_source(tmp_path / "x.npz").read_share(1, 2).points
        assert points.flags.aligned
        np.testing.assert_array_equal(points, X[11:])
    unaligned = np.frombuffer(b"x" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(X.shape)
    assert not unaligned.flags.aligned

    model = rp.KMeans(4, random_state=0).fit(unaligned)

    np.testing.assert_array_equal(model.labels_, rp.KMeans(4, random_state=0).fit(X).labels_)


@pytest.mark.parametrize(
    ("workers", "names"), [*exhaustively((1, ["plain.npy"]), (2, ["bytes.txt"])), (3, ["bare.csv", "plain.npy"])]
)
def test_files_are_clustered_as_their_array(write, workers, names):
    paths = [write(name) for name in names]
    rows = open_source(paths).read_share(0, 1).points
    expected = rp.KMeans(4, random_state=0).fit(rows)

    model = rp.KMeans(4, random_state=0, workers=workers).fit(paths)

    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.predict(paths), model.labels_)
    assert model.cluster_centers_.dtype == expected.cluster_centers_.dtype
    assert model.n_features_in_ == 5


def test_files_are_transformed_and_scored_as_their_array(write):
    model = rp.KMeans(4, random_state=0).fit(X)
    path = write("plain.npy")

    np.testing.assert_array_equal(model.transform(path), model.transform(X))
    assert model.score(path) == pytest.approx(-model.inertia_)


def test_weights_follow_the_rows_of_files(write):
    weights = np.arange(23.0)
    expected = rp.KMeans(4, random_state=0).fit(X, sample_weight=weights)

    model = rp.KMeans(4, random_state=0, workers=2).fit(str(write("plain.npy")), sample_weight=weights)

    np.testing.assert_array_equal(model.labels_, expected.labels_)
    with pytest.raises(rp.InputError, match="22 entries for 23 rows"):
        rp.KMeans(4).fit(str(write("plain.npy")), sample_weight=weights[1:])


def damaged(path, at, noise=b"\xff" * 20):
    """Write noise into a file."""
    content = bytearray(path.read_bytes())
    content[at : at + len(noise)] = noise
    path.write_bytes(content)


def damaged_npz(path):
    np.savez_compressed(path, np.tile(X, (100, 1)))
    damaged(path, path.stat().st_size // 2)


def damaged_parquet(path):
    parquet_columns(path, X)
    damaged(path, 10)


BAD = {
    "missing.npy": (None, "missing.npy does not exist"),
    "empty.npy": (b"", "empty.npy is empty"),
    "norows.npy": (lambda path: np.save(path, np.empty((0, 3))), "norows.npy is empty"),
    "line.npy": (lambda path: np.save(path, np.arange(3.0)), r"shape \(3,\), expected two dimensions"),
    "complex.npy": (lambda path: np.save(path, np.ones((2, 2), complex)), "complex128, expected real numbers"),
    "words.npy": (lambda path: np.save(path, np.array([["a", "b"]])), "<U1, expected real numbers"),
    "torn.npy": (b"\x93NUMPY\x01\x00v\x00{'descr'", "not a readable .npy"),
    "noise.npy": (b"noise and nothing else", "not a readable .npy"),
    "noise.npz": (b"noise", "not a readable .npz"),
    "damaged.npz": (damaged_npz, "damaged.npz is damaged"),
    "damaged.parquet": (damaged_parquet, "damaged.parquet is damaged"),
    "two.npz": (lambda path: np.savez(path, a=X, b=X), "2 two-dimensional arrays"),
    "noise.parquet": (b"noise", "not a readable Parquet"),
    "words.parquet": (lambda path: pq.write_table(pa.table({"w": ["a"]}), path), "column 'w': .* string"),
    "header.csv": (b"a,b,c\n", "header and no rows"),
    "ragged.csv": (b"1,2,3\n4,5,6\n7,8\n", "ragged.csv, line 3: 2 values, expected 3"),
    "words.csv": (b"1,2,3\n4,five,6\n", r"words.csv, line 2, column 'f1' \(2 of 3\): 'five' is not a number"),
    "gap.csv": (b"1,2,3\n4,,6\n7,8,9\n", "gap.csv, line 2, column 1: NaN"),
    "nan.csv": (b"x,y\n1,2\n\n3,4\n5,nan\n", r"nan.csv, line 5, column 'y' \(2 of 2\): NaN"),
    "inf.txt": (b"p 0 0 1 2\np 0 1 1 inf\n", "inf.txt, line 2, column 1: infinity"),
    "ragged.txt": (b"p 0 0 1 2\np 0 1 1\n", "ragged.txt, line 2: 4 values, expected 5"),
    "prose.txt": (b"Once upon a time\n", 'line 1: expected "picture row col f1 f2'),
    "blank.txt": (b"\n\n", "blank.txt is empty"),
    "picture.jpg": (b"x", "unknown kind of file"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_named_in_one_sentence(tmp_path, name):
    content, message = BAD[name]
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif content is not None:
        content(tmp_path / name)

    with pytest.raises(rp.InputError, match=message) as caught:
        rp.KMeans(1).fit(str(tmp_path / name))

    assert name in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("code", ["NA", "?", "null", "-", "", "missing"])
@pytest.mark.parametrize("line", [1, 3])
def test_a_missing_value_is_named_with_its_line_in_a_file_without_a_header(code, line, tmp_path):
    rows = ["2,3", "4,5", "6,7"]
    rows[line - 1] = f"{code},1"
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(rp.InputError, match=rf"rows\.csv, line {line}[,:]"):
        rp.KMeans(1).fit(tmp_path / "rows.csv")


def test_columns_of_lists_are_matrices_in_files_and_frames(tmp_path):
    rows = X.astype(np.float64)
    table = pa.table({"id": np.arange(len(X)), "text": ["t"] * len(X), "vector": rows.tolist()})
    pq.write_table(table, tmp_path / "lists.parquet", row_group_size=7)
    read = np.concatenate([open_source(tmp_path / "lists.parquet").read_share(rank, 3).points for rank in range(3)])
    np.testing.assert_array_equal(read, rows)
    center = rows.mean(axis=0)
    for source in (tmp_path / "lists.parquet", table.slice(0), table.to_pandas(), pl.from_arrow(table)):
        np.testing.assert_allclose(rp.KMeans(1).fit(source).cluster_centers_[0], center)
    uneven = pa.table({"vector": [*rows.tolist()[:4], [1.0, 2.0]]})
    pq.write_table(uneven, tmp_path / "uneven.parquet")
    with pytest.raises(rp.InputError, match=r"uneven\.parquet, column 'vector', row 4: a list of 2 values, expected"):
        open_source(tmp_path / "uneven.parquet").read_share(0, 1)
    with pytest.raises(rp.InputError, match="columns 'vector', 'age' could each be the matrix"):
        rp.KMeans(1).fit(uneven.append_column("age", pa.array([0.5] * 5)))


def test_a_missing_value_in_a_list_of_bytes_is_not_zero(tmp_path):
    for kind in (pa.list_(pa.uint8()), pa.list_(pa.uint8(), 2)):
        pq.write_table(pa.table({"v": pa.array([[3, 4], [1, None]], kind)}), tmp_path / "bytes.parquet")
        with pytest.raises(
            rp.InputError, match=r"bytes\.parquet, column 'v', row 1: value 1 is missing; pass missing="
        ):
            rp.KMeans(1).fit(tmp_path / "bytes.parquet")
        model = rp.KMeans(1).fit(TableFiles(tmp_path / "bytes.parquet", missing="mean"))
        assert model.cluster_centers_.tolist() == [[2.0, 4.0]]


def test_stored_members_of_archives_are_compared_with_their_checksums(tmp_path):
    np.savez(tmp_path / "x.npz", X)
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[bytes(content).index(X[3].tobytes())] ^= 1
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(rp.InputError, match=r"x\.npz is not a readable \.npz file: Bad CRC-32"):
        open_source(tmp_path / "x.npz")


def test_paths_are_relative_to_the_directory_of_the_call(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "g.txt").write_text("0 1\n")
    (tmp_path / "s.libsvm").write_text("1 0:1\n")
    (tmp_path / "r.csv").write_text("user,item,rating\n1,2,3\n")
    monkeypatch.chdir(tmp_path)
    expected = str(tmp_path / "x.npy")
    urls = (f"file://{expected}", f"file://localhost{tmp_path}/%78.npy")
    for name in ("x.npy", "~/x.npy", *urls, "../" + tmp_path.name + "/x.npy"):
        assert open_source(name).names == [expected]
        assert [part.path for part in rp.input.splits(name)] == [expected]
    assert rp.Graph("g.txt").names == [str(tmp_path / "g.txt")]
    assert LibsvmFiles.open("s.libsvm").name == str(tmp_path / "s.libsvm")
    assert ratings.opened("r.csv", None).paths == (str(tmp_path / "r.csv"),)
    assert rp.KMeans(1, checkpoint="kept")._checkpoint_options().folder == str(tmp_path / "kept")


def test_a_line_with_too_many_columns_is_named(tmp_path):
    (tmp_path / "wide.csv").write_text(",".join(["1.5"] * 300_000) + "\n")
    with pytest.raises(rp.InputError, match=r"wide\.csv: its first line has 300,000 fields: expected at most 100,000"):
        open_source(tmp_path / "wide.csv")


def test_a_file_that_ends_early_is_named(tmp_path):
    np.save(tmp_path / "short.npy", X)
    os.truncate(tmp_path / "short.npy", 300)

    with pytest.raises(rp.InputError, match=r"short\.npy is shorter than it should be"):
        rp.KMeans(2).fit(str(tmp_path / "short.npy"))


def test_an_error_of_one_worker_is_raised_to_the_caller(tmp_path):
    (tmp_path / "rows.csv").write_text("1,2\n" * 50 + "3,x\n" + "1,2\n" * 50)

    with pytest.raises(rp.InputError, match=r"rows\.csv, line 51, column .*: 'x' is not a number"):
        rp.KMeans(2, workers=3).fit(str(tmp_path / "rows.csv"))


def test_files_of_different_widths_are_both_named(write, tmp_path):
    np.save(tmp_path / "wide.npy", np.ones((2, 7)))

    with pytest.raises(rp.InputError, match=r"wide\.npy has 7 columns but .*plain\.npy has 5"):
        open_source([write("plain.npy"), tmp_path / "wide.npy"])


def test_a_glob_without_a_match_and_a_folder_without_vectors_are_named(tmp_path):
    with pytest.raises(rp.InputError, match=r"\*\.npy: no file matches"):
        open_source(tmp_path / "*.npy")
    with pytest.raises(rp.InputError, match="no file of a known kind"):
        open_source(tmp_path)


def test_a_model_refuses_files_of_another_width(write, tmp_path):
    np.save(tmp_path / "wide.npy", np.ones((2, 7)))
    model = rp.KMeans(2, random_state=0).fit(X)

    with pytest.raises(rp.InputError, match="7 columns, but KMeans was fitted on 5"):
        model.predict(str(tmp_path / "wide.npy"))


def test_a_fortran_ordered_array_is_saved_unchanged(tmp_path):
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    save_array(tmp_path / "columns.npy", columns)
    np.testing.assert_array_equal(np.load(tmp_path / "columns.npy"), columns)
