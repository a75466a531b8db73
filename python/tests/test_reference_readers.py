"""A damaged file that a reference reader (pyarrow, NumPy, SciPy, networkx) also accepts has the same number of rows.

RIPIENO_FUZZ_INPUTS is the number of files per format, RIPIENO_FUZZ_FIRST the first seed.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from damage import damaged
from ripieno.errors import InputError
from ripieno.files import matrix_market
from ripieno.graph.edge_files import open_edges
from ripieno.input import splits
from ripieno.input.columns.libsvm import COLUMN_LIMIT
from ripieno.input.matrix.sparse_files import LibsvmFiles
from scipy.io import _mmio
from sklearn.datasets import load_svmlight_file

INPUT_COUNT = int(os.environ.get("RIPIENO_FUZZ_INPUTS", "100"))
FIRST_SEED = int(os.environ.get("RIPIENO_FUZZ_FIRST", "0"))
TABLES = [
    pa.table({"a": [1, 2, 3], "b": [0.5, None, 2.0], "c": ["x", "y, z", "w"]}),
    pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8.0)), 2), "t": pa.array([1, 2, 3, 4], "u1")}),
]
MATRIX = scipy.sparse.random(7, 5, 0.5, "csr", random_state=0)


@dataclass(frozen=True)
class FormatReaders:
    """Valid files, and two functions that count the rows of a file: ours, and one that returns None if it differs."""

    name: str
    valid: list[bytes]
    count: Callable[[Path], int]
    expected: Callable[[bytes], int | None]


def saved(save: Callable[..., object], *values: object, **named: object) -> bytes:
    file = io.BytesIO()
    save(file, *values, **named)
    return file.getvalue()


def rows(path: Path) -> int:
    parts = splits(path, count=3)
    count = sum(len(part.read()) for part in parts)
    assert count == sum(len(block) for part in parts for block in part.blocks(64))
    return count


def csv_rows(data: bytes) -> int | None:
    # The dialect of other files is inferred.
    is_known = data.startswith((b"a,b,c\n", b'"a","b","c"\r\n', b"a,b,c\r1,")) and not any(
        each in data for each in b";\t\0"
    )
    if not is_known:
        return None
    return len(pyarrow.csv.read_csv(io.BytesIO(data), parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)))


def archive_rows(data: bytes) -> int | None:
    with np.load(io.BytesIO(data)) as archive:
        if {"format", "shape"} <= set(archive.files):
            return int(scipy.sparse.load_npz(io.BytesIO(data)).nnz)
        lengths = {len(archive[name]) for name in archive.files}
        return lengths.pop() if len(lengths) == 1 else None


def entries(matrix: object) -> int:
    return int(matrix.nnz if scipy.sparse.issparse(matrix) else np.size(matrix))


def edges(path: Path) -> int:
    file = open_edges(str(path), "text", False)
    cuts = [file.source.size * at // 3 for at in range(4)]
    return sum(len(file.read(*each).sources) for each in itertools.pairwise(cuts))


def networkx_edges(data: bytes) -> int | None:
    # networkx knows no adjacency lists, other comments and attributes.
    if any(each in data for each in b"{,%\r\0"):
        return None
    return nx.read_edgelist(io.BytesIO(data), nodetype=int, data=False, create_using=nx.MultiDiGraph).number_of_edges()


def archives() -> list[bytes]:
    arrays = [saved(save, src=np.arange(5), dst=np.arange(5.0)) for save in (np.savez, np.savez_compressed)]
    forms = {"csr": False, "csc": False, "coo": True}
    return [*arrays, *(saved(scipy.sparse.save_npz, MATRIX.asformat(f), compressed=c) for f, c in forms.items())]


BANNER = b"%%MatrixMarket matrix "
FORMATS = [
    FormatReaders(
        "rows.csv",
        [b"a,b,c\n1,2.5,x\n3,,y\n", b'"a","b","c"\r\n1,2,"x, ""y"""\r\n4,5,"l\nm"\r\n', b"a,b,c\r1,2,3\r4,5,6\r"],
        rows,
        csv_rows,
    ),
    FormatReaders(
        "rows.parquet",
        [saved(lambda file, table=table: pq.write_table(table, file, row_group_size=2)) for table in TABLES],
        rows,
        lambda data: len(pq.read_table(io.BytesIO(data))),
    ),
    FormatReaders(
        "rows.feather",
        [saved(lambda file, table=table: pa.feather.write_feather(table, file, "uncompressed")) for table in TABLES],
        rows,
        lambda data: len(pa.feather.read_table(io.BytesIO(data))),
    ),
    FormatReaders(
        "rows.npy",
        [saved(np.save, np.arange(12.0).reshape(4, 3)), saved(np.save, np.arange(5, dtype="i2"))],
        rows,
        lambda data: len(np.load(io.BytesIO(data))),
    ),
    FormatReaders("rows.npz", archives(), rows, archive_rows),
    FormatReaders(
        "rows.mtx",
        [
            BANNER + b"coordinate real general\n%c\n3 3 2\n1 1 0.5\n3 2 1e3\n",
            BANNER + b"coordinate integer symmetric\n3 3 2\n1 1 5\n3 2 -7\n",
            BANNER + b"coordinate pattern general\n4 3 3\n1 1\n4 3\n2 2\n",
            BANNER + b"array real general\n2 2\n1\n2\n3\n4\n",
        ],
        lambda path: entries(matrix_market.read_matrix(str(path))),
        # scipy.io.mmread ends the process on some damaged files.
        lambda data: entries(_mmio.mmread(io.BytesIO(data))),
    ),
    FormatReaders(
        "rows.libsvm",
        [b"1 1:0.5 7:2\n-1 2:1e-3\n", b"0 0:1 # c\r\n3\n2.5 4:1 5:2\n"],
        lambda path: LibsvmFiles.open(str(path)).read_share(0, 1).points.shape[0],
        lambda data: load_svmlight_file(io.BytesIO(data), n_features=COLUMN_LIMIT, zero_based=True)[0].shape[0],
    ),
    FormatReaders("edges.txt", [b"0 1\n1 2\n2 0\n", b"# c\n0\t1\n5\t3\n", b"0 1 0.5\n1 2 3\n"], edges, networkx_edges),
]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_damaged_file_has_the_rows_that_a_reference_reader_finds(form: FormatReaders, tmp_path):
    path, compared_count = tmp_path / form.name, 0
    for content in form.valid:
        path.write_bytes(content)
        assert form.count(path) == form.expected(content)
    for seed in range(FIRST_SEED, FIRST_SEED + INPUT_COUNT):
        content = damaged(form.valid, seed)
        path.write_bytes(content)
        with contextlib.suppress(InputError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            count = form.count(path)
            try:
                expected = form.expected(content)
            except Exception:  # the reference reader refuses the file, by any error
                continue
            if expected is not None:
                compared_count += 1
                assert count == expected, f"{form.name}, seed {seed}: {content!r}"
    assert compared_count
