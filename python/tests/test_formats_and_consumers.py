"""Every consumer reads the values that a reference reader reads, or refuses the format with an `InputError`.

`python test_formats_and_consumers.py` prints the table of formats and consumers.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
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
import sklearn.datasets
import sklearn.linear_model
from ripieno.algorithms.als import table as ratings
from ripieno.cli import main
from varied import exhaustively

pytestmark = pytest.mark.usefixtures("without_charts")

COUNT = 24
SOURCES, TARGETS = np.arange(COUNT) % 5, 1 + np.arange(COUNT) * 7 % COUNT
TABLE = pa.table({"source": SOURCES, "target": TARGETS, "weight": np.arange(COUNT) / 4})
ROWS = np.column_stack([column.to_numpy() for column in TABLE.columns])
CLASSES = np.arange(COUNT) % 2
#: Sparse formats have these rows.
MATRIX = scipy.sparse.random(COUNT, COUNT, 0.3, "csr", random_state=3)
MATRIX.data = np.round(MATRIX.data, 3) + 1
LETTERS = ["ACGTACGT", "ACGTTCGT", "GGGTACGA"]


def text(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def delimited(path: Path, table: pa.Table) -> Path:
    with pa.output_stream(path, "detect") as file:
        pa.csv.write_csv(table, file, pa.csv.WriteOptions(delimiter="\t" if ".tsv" in path.name else ","))
    return path


def arrow(path: Path, table: pa.Table) -> Path:
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=9)
    return path


def saved(save: Callable[..., object], path: Path, *values: object, **arrays: object) -> Path:
    save(path, *values, **arrays)
    return path


#: Files of all three columns, or of the sparse matrix.
FILES: dict[str, Callable[[Path], Any]] = {
    "t.parquet": lambda path: saved(lambda *a: pq.write_table(*reversed(a), row_group_size=7), path, TABLE),
    "t.arrow": lambda path: arrow(path, TABLE),
    "t.feather": lambda path: saved(lambda *a: pa.feather.write_feather(*reversed(a), "zstd"), path, TABLE),
    "t.csv": lambda path: delimited(path, TABLE),
    "t.tsv": lambda path: delimited(path, TABLE),
    "t.csv.gz": lambda path: delimited(path, TABLE),
    "t.csv.zst": lambda path: delimited(path, TABLE),
    "a.npy": lambda path: saved(np.save, path, ROWS),
    "ids.npy": lambda path: saved(np.save, path, ROWS[:, :2].astype(np.int64)),
    "matrix.npz": lambda path: saved(np.savez, path, vectors=ROWS),
    "columns.npz": lambda path: saved(np.savez, path, **{name: TABLE[name].to_numpy() for name in TABLE.column_names}),
    "sparse.npz": lambda path: saved(scipy.sparse.save_npz, path, MATRIX),
    "sparse.mtx": lambda path: saved(scipy.io.mmwrite, path, MATRIX),
    "dense.mtx": lambda path: saved(scipy.io.mmwrite, path, ROWS),
    "s.libsvm": lambda path: saved(
        lambda path: sklearn.datasets.dump_svmlight_file(MATRIX, CLASSES, str(path), zero_based=True), path
    ),
    "patches.t12": lambda path: text(path, [f"p 0 0 {' '.join(map(str, row))}" for row in ROWS.tolist()]),
    "edges.txt": lambda path: text(path, [f"{int(a)} {int(b)} {w}" for a, b, w in ROWS.tolist()]),
    "lists.adj": lambda path: text(
        path, [f"{a}\t{','.join(map(str, TARGETS[a == SOURCES].tolist()))}" for a in range(5)]
    ),
    "letters.fasta": lambda path: text(path, [line for at, each in enumerate(LETTERS) for line in (f">{at}", each)]),
    "raw.bin": lambda path: saved(lambda path: path.write_bytes(ROWS.tobytes()), path),
}
#: The same data in memory.
FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": TABLE.to_pandas,
    "polars": lambda: pl.from_arrow(TABLE),
    "Arrow": lambda: TABLE,
    "DuckDB": lambda: duckdb.from_arrow(TABLE),
    "NumPy": lambda: ROWS,
    "SciPy": lambda: MATRIX,
}
SPARSE = ("sparse.npz", "sparse.mtx", "s.libsvm", "SciPy")


def source_of(name: str, folder: Path) -> Any:
    if name in FRAMES:
        return FRAMES[name]()
    path = FILES[name](folder / name)
    return rp.input.BinaryFiles(path, record_bytes=ROWS[0].nbytes, dtype="f8") if name == "raw.bin" else path


def rows_of(name: str) -> Any:
    return MATRIX.toarray() if name in SPARSE else ROWS[:, :2] if name == "ids.npy" else ROWS


def named(name: str) -> bool:
    return name.startswith("t.") or name in ("pandas", "polars", "Arrow", "DuckDB")


def centers(source: Any, name: str) -> tuple[Any, Any]:
    return rp.KMeans(1).fit(source).cluster_centers_[0], rows_of(name).mean(axis=0)


def means(source: Any, name: str) -> tuple[Any, Any]:
    model, centered = rp.PCA(2).fit(source), rows_of(name) - rows_of(name).mean(axis=0)
    values = np.linalg.svd(centered, compute_uv=False)[:2]
    return [*model.mean_, *model.singular_values_], [*rows_of(name).mean(axis=0), *values]


def ridge(source: Any, name: str) -> tuple[Any, Any]:
    reference, rows = sklearn.linear_model.Ridge(), rows_of(name)
    if named(name):
        model, expected = rp.Ridge().fit(source, target="weight"), reference.fit(rows[:, :2], rows[:, 2])
    else:
        model, expected = rp.Ridge().fit(source, CLASSES), reference.fit(rows, CLASSES)
    return model.coef_, expected.coef_


def logistic(source: Any, name: str) -> tuple[Any, Any]:
    labels = () if name == "s.libsvm" else (CLASSES,)
    model = rp.LogisticRegression(tol=1e-9, max_iter=1000).fit(source, *labels)
    expected = sklearn.linear_model.LogisticRegression(tol=1e-9, max_iter=1000).fit(rows_of(name), CLASSES)
    return model.decision_function(FRAMES["SciPy"]() if name in SPARSE else rows_of(name)), expected.decision_function(
        rows_of(name)
    )


def edges(source: Any, name: str) -> tuple[Any, Any]:
    weighted = True if name == "edges.txt" else None
    parts = [rp.Graph(source, weighted=weighted).read_share(rank, 3) for rank in range(3)]
    found = [each for part in parts for each in zip(part.sources, part.targets, *_weights(part), strict=True)]
    return sorted(found), triples(name, is_weighted=name not in ("ids.npy", "lists.adj"))


def _weights(part: Any) -> tuple[Any, ...]:
    return () if part.weights is None else (part.weights,)


def triples(name: str, *, is_weighted: bool = True) -> list[tuple[float, ...]]:
    matrix = MATRIX.tocoo()
    columns = [matrix.row, matrix.col, matrix.data] if name in SPARSE else ROWS.T
    return sorted(zip(*columns[: 3 if is_weighted else 2], strict=True))


def rated(source: Any, name: str) -> tuple[Any, Any]:
    columns = ("source", "target", "weight") if named(name) or name == "columns.npz" else None
    found = ratings.opened(source, columns)
    found = found.read() if hasattr(found, "read") else found
    expected = np.array(triples(name))
    order = np.lexsort((found.items.to_numpy(), found.users.to_numpy()))
    assert found.values[order].tolist() == np.float32(expected[:, 2]).tolist()
    return np.column_stack([found.users, found.items])[order], expected[:, :2]


def totals(source: Any, name: str) -> tuple[Any, Any]:
    key, value = ("row", "weight") if name in SPARSE else ("source", "weight")

    def program(comm):
        return rp.input.aggregate(source, key, {"n": "count", "s": (value, "sum")}, comm).to_arrow().to_pylist()

    with rp.launch(workers=1) as job:
        found = job.run(program)[0]
    sums = pd.DataFrame(triples(name), columns=["k", "c", "w"]).groupby("k")["w"].agg(["size", "sum"])
    rows = sorted((each[key], each["n"], each["s"]) for each in found)
    return rows, [(key, row["size"], row["sum"]) for key, row in sums.iterrows()]


def parts(source: Any, name: str) -> tuple[Any, Any]:
    record = {"record_bytes": ROWS[0].nbytes, "dtype": "f8"} if name == "raw.bin" else {}
    path = source.source if name == "raw.bin" else source
    found = [part.read() for part in rp.input.splits(path, count=3, **record)]
    if isinstance(found[0], bytes):
        return b"".join(found), path.read_bytes()
    if isinstance(found[0], np.ndarray):
        return np.concatenate(found), rows_of(name)
    table = pa.concat_tables(found)
    return sorted(zip(*(table[name].to_pylist() for name in table.column_names), strict=True)), triples(name)


def predicted(source: Any, name: str) -> tuple[Any, Any]:
    rows = rows_of(name)
    model = rp.KMeans(2, random_state=0).fit(source)
    return model.predict(source), np.argmin(((rows[:, None] - model.cluster_centers_) ** 2).sum(axis=2), axis=1)


def command(source: Any, name: str) -> tuple[Any, Any]:
    path = source.source if name == "raw.bin" else source
    options = ["--record-bytes", str(ROWS[0].nbytes), "--dtype", "float64"] if name == "raw.bin" else []
    out = str(path) + ".result"
    if main(["kmeans", str(path), *options, "--clusters", "1", "--out", out]):
        raise rp.InputError("the command ends with an error")
    return np.load(f"{out}/centroids.npy")[0], rows_of(name).mean(axis=0)


CONSUMERS: dict[str, Callable[[Any, str], tuple[Any, Any]]] = {
    "K-means": centers,
    "PCA": means,
    "Ridge": ridge,
    "logistic": logistic,
    "graph": edges,
    "ALS": rated,
    "aggregate": totals,
    "splits": parts,
    "predict": predicted,
    "command": command,
}


TABLES = ("t.parquet", "t.arrow", "t.feather", "t.csv", "t.tsv", "t.csv.gz", "t.csv.zst")
DENSE = (*TABLES, "a.npy", "ids.npy", "matrix.npz", "dense.mtx", "patches.t12", "raw.bin")
ENTRIES = ("columns.npz", "sparse.npz", "sparse.mtx")
IN_MEMORY = ("pandas", "polars", "Arrow", "DuckDB")
ALL_ROWS = (*DENSE, "sparse.npz", "sparse.mtx", "s.libsvm", *FRAMES)
#: The formats that each consumer reads. It refuses all others.
READ: dict[str, tuple[str, ...]] = {
    "K-means": ALL_ROWS,
    "PCA": ALL_ROWS,
    "Ridge": (*DENSE, *FRAMES),
    "logistic": (*DENSE, "s.libsvm", *FRAMES),
    "graph": (*TABLES, "ids.npy", *ENTRIES, "edges.txt", "lists.adj", *IN_MEMORY, "SciPy"),
    "ALS": (*TABLES, *ENTRIES, *IN_MEMORY, "SciPy"),
    "aggregate": (*TABLES, *ENTRIES),
    "splits": (*TABLES, "a.npy", "ids.npy", *ENTRIES, "s.libsvm", "patches.t12", "edges.txt", "raw.bin"),
    "predict": ALL_ROWS,
    "command": (*DENSE, "sparse.npz", "sparse.mtx", "s.libsvm"),
}


def outcome(consumer: str, name: str, folder: Path) -> str:
    """Return "yes" if the values are those of the reference, or the error; raise if values differ."""
    source = source_of(name, folder)
    try:
        found, expected = CONSUMERS[consumer](source, name)
    except (rp.InputError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(expected, bytes):
        assert found == expected
    else:
        np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-5, atol=1e-6)
    return "yes"


@pytest.mark.parametrize("consumer", [each for each in CONSUMERS if each != "command"])
@pytest.mark.parametrize("name", [*FILES, *FRAMES])
def test_a_format_has_the_values_of_the_reference_or_is_refused(consumer, name, tmp_path):
    result = outcome(consumer, name, tmp_path)

    assert (result == "yes") == (name in READ[consumer]), result


@pytest.mark.parametrize("name", ["raw.bin", "t.csv.zst", *exhaustively(*set(FILES) - {"raw.bin", "t.csv.zst"})])
def test_the_command_has_the_values_of_the_reference_or_refuses_the_format(name, tmp_path):
    assert (outcome("command", name, tmp_path) == "yes") == (name in READ["command"])


if __name__ == "__main__":
    for name in [*FILES, *FRAMES]:
        for consumer in CONSUMERS:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    result = outcome(consumer, name, Path(folder))
                except AssertionError as error:
                    result = f"DIFFERS: {error}"
                sys.stdout.write(f"{name} {consumer}: {' '.join(result.replace(folder, '').split())}\n")
