"""Randomly damaged files: a reader returns the contents, or raises a `RipienoError` that names the file.

RIPIENO_FUZZ_INPUTS is the number of files per reader, RIPIENO_FUZZ_FIRST the first seed.
"""

from __future__ import annotations

import ast
import gzip
import io
import json
import os
import pickle
import re
import resource
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import ripieno as rp
import scipy.io
import scipy.sparse
from damage import damaged
from malice import Marker, npy, zipped
from ripieno import flight
from ripieno.algorithms.als.table import opened
from ripieno.algorithms.result_folder import ResultFolder
from ripieno.checkpoints.folder import FILE, CheckpointContents, Checkpoints
from ripieno.cli import main
from ripieno.cli.options import read_numbers
from ripieno.files.sources import File
from ripieno.graph.graph import open_graph
from ripieno.input import TableFiles, open_partitions
from ripieno.input.columns import TableOptions
from ripieno.input.columns.delimited import sniff
from ripieno.input.formats import fasta
from ripieno.input.matrix import open_source
from ripieno.input.matrix.sparse_files import LibsvmFiles, SparseFiles
from ripieno.simulation import link_costs, replay
from ripieno.sparse import packets
from ripieno.topology import rack_names

INPUT_COUNT = int(os.environ.get("RIPIENO_FUZZ_INPUTS", "120"))
FIRST_SEED = int(os.environ.get("RIPIENO_FUZZ_FIRST", "0"))
#: Maximum memory of a reader for a file of a few KiB, regardless of sizes stated in the file.
MEMORY_BYTES_MAX = 64 << 20
#: Allocations are traced for one file in this many. For the others, the growth of the process is measured.
TRACED_EVERY = 1000

ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)
EDGES = np.array([[0, 1], [1, 2], [2, 0], [5, 3]])
SPARSE = scipy.sparse.csr_array(np.array([[0, 2.5, 0], [1, 0, 0], [0, 0, -3]]))
PATTERN = b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n"
TABLE = pa.table({"a": [1.0, 2.0], "b": [3, 4]})
INDEXED = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]}, index=pd.Index([7, 9], name="id"))
LISTS = pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))
#: A byte order mark, names with separators and line ends, CRs alone, semicolons and tabs.
DIALECTS = [
    b'\xef\xbb\xbf"a,1","b\n2"\n1,2\n3,4\n',
    b"a,b\r1,2\r3,4\r",
    b"a;b\r\n1;2\r\n3;4\r\n",
    b"1\t2\n3\t4\n",
    b"NA,2\n3,4\n",
]
QUOTED_EDGES = b'source,"name, town",target\n0,"x\n1,2",1\n1,"say ""y""",2\n'


PACKAGE = Path(rp.__file__).parent


@dataclass(frozen=True)
class FileReader:
    """A function that reads files of this name, with the contents of valid files."""

    name: str
    valid: Callable[[], list[bytes]]
    read: Callable[[Path], object]


def saved(save: Callable[..., object], *values: object, **named: object) -> bytes:
    file = io.BytesIO()
    save(file, *values, **named)
    return file.getvalue()


def table(**columns: object) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def arrow(**columns: object) -> bytes:
    file = io.BytesIO()
    with pa.ipc.new_file(file, pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    return file.getvalue()


def market(matrix: object) -> bytes:
    return saved(scipy.io.mmwrite, matrix)


def rows(path: Path) -> Any:
    return open_source(str(path)).read_share(0, 1)


def edges(path: Path) -> Any:
    return open_graph(str(path)).read_share(0, 1)


def with_options(path: Path) -> object:
    return open_source(TableFiles(path, decimal=",", thousands=".", missing="mean")).read_share(0, 1)


def sparse(path: Path) -> Any:
    files = SparseFiles.find([str(path)])
    return rows(path) if files is None else files.read()


def triples(path: Path) -> object:
    return opened(str(path), None).read()


def partition_file() -> list[bytes]:
    Path("lines.txt").write_bytes(b"one\ntwo\nthree\n" * 10)
    assert main(["split", "lines.txt", "--partitions", "2", "--out", "listed"]) == 0
    return [Path("listed", "partitions.json").read_bytes()]


def checkpoint() -> list[bytes]:
    kept = Checkpoints(Path("kept"), "job", "program")
    kept.save(CheckpointContents(3, ROWS, {"seed": 7, "words": ["a", (1, 2.5)]}))
    kept.close()
    return [(Path("kept") / "job" / FILE).read_bytes()]


def restored(path: Path) -> object:
    kept = Checkpoints(path.parent.parent, "job", "program")
    try:
        return kept.load()
    finally:
        kept.close()


def result() -> list[bytes]:
    return [json.dumps({"algorithm": "kmeans", "column_count": 3, "n_clusters": 8}).encode()]


def described(path: Path) -> object:
    found = ResultFolder.read(path.parent)
    return found.algorithm, found.column_count


def array_of_result(path: Path) -> object:
    return ResultFolder(str(path.parent), {}).array(path.stem, None, 3)


def job_trace() -> bytes:
    def collective(tid: int, sequence: int) -> dict[str, object]:
        described = {"communicator": 0, "sequence": sequence, "outcome": "done", "bytes": 80, "algorithm": "ring"}
        return {"ph": "X", "name": "allreduce", "tid": tid, "ts": 10.0 * sequence, "dur": 4.0, "args": described}

    names = [{"ph": "M", "name": "thread_name", "tid": tid, "args": {"name": f"rank {tid}"}} for tid in range(2)]
    calls = [collective(tid, sequence) for tid in range(2) for sequence in range(3)]
    return json.dumps({"traceEvents": [*names, *calls]}).encode()


def flight_records() -> list[bytes]:
    return [json.dumps({"rank": 0, "job": "a", "world_size": 1, "records": [], "clock": "c"}).encode()]


def costs() -> bytes:
    link = link_costs.LinkCost(1e-6, 1e9)
    described = dict.fromkeys(("add_s_per_byte", "copy_s_per_byte"), 1e-09)
    known = {
        "memory": link,
        "network_link": link,
        "uplink": None,
        "uplink_bytes_per_s": None,
        "measured_at": 1.0,
        **described,
    }
    fields = link_costs.MeasuredCosts.__dataclass_fields__
    filled = {name: known.get(name, ["a", "b"] if name == "hosts" else 1) for name in fields}
    return json.dumps(link_costs.MeasuredCosts(**filled).as_json()).encode()


def curve() -> bytes:
    points = [{"bytes": 1 << at, "seconds": 1e-6 * (1 + at)} for at in range(4, 12)]
    return json.dumps({"points": points, "latency_s": 1e-5, "contention_s": 1e-6}).encode()


def rack_of_this_host(path: Path) -> object:
    return rack_names.rack_of("host1", rack_names.read(path), str(path))


CSV = b"a,b,c\n1,2,3\n4,5,6\n7,8.5,-9e3\n"
SVM = b"1 1:0.5 3:2\n-1 2:1e-3 # words\n2 qid:3 1:1 7:4\n"
READERS = [
    FileReader("rows.npy", lambda: [saved(np.save, ROWS), saved(np.save, ROWS.astype(">f8"))], rows),
    FileReader("weights.npy", lambda: [saved(np.save, ROWS[0])], lambda path: read_numbers(path, "weights")),
    FileReader("rows.npz", lambda: [saved(np.savez, ROWS), saved(np.savez_compressed, a=ROWS)], rows),
    FileReader("rows.csv", lambda: [CSV, b"1,2\n3,4\n", *DIALECTS[:-1]], rows),
    FileReader("rows.txt", lambda: [b"p 0 0 1 2\np 0 1 1 3\n"], rows),
    FileReader(
        "rows.parquet", lambda: [table(a=[1.0, 2.0], b=[3.0, 4.0]), saved(INDEXED.to_parquet), table(a=LISTS)], rows
    ),
    FileReader("rows.arrow", lambda: [arrow(a=[1.0, 2.0], b=[3.0, 4.0]), arrow(a=[[1, 2], [3, 4]])], rows),
    FileReader("rows.feather", lambda: [saved(lambda file, table: pa.feather.write_feather(table, file), TABLE)], rows),
    FileReader("rows.csv.gz", lambda: [gzip.compress(CSV, mtime=0)], rows),
    FileReader("rows.csv.zst", lambda: [pa.compress(CSV, "zstd", asbytes=True)], rows),
    FileReader("numbers.csv", lambda: [b"a;b\n1.000,5;2\nNA;3\n1,5;-7\n"], with_options),
    FileReader("rows.mtx", lambda: [market(ROWS)], rows),
    FileReader("sparse.mtx", lambda: [market(SPARSE)], lambda path: SparseFiles.find([str(path)]).read()),
    FileReader("sparse.npz", lambda: [saved(scipy.sparse.save_npz, SPARSE)], sparse),
    FileReader("rows.svm", lambda: [SVM], lambda path: LibsvmFiles.open(str(path)).read_share(0, 1)),
    FileReader("edges.txt", lambda: [b"# graph\n0 1\n1 2\n2\t0\n", b"0\t1,2\n3\t\n"], edges),
    FileReader(
        "edges.csv",
        lambda: [b"source,target\n0,1\n1,2\n", b"0;1\n1;2\n", b"source,target,weight\n0,1,0.5\n", QUOTED_EDGES],
        edges,
    ),
    FileReader("edges.npy", lambda: [saved(np.save, EDGES)], edges),
    FileReader("edges.npz", lambda: [saved(np.savez, sources=EDGES[:, 0], targets=EDGES[:, 1])], edges),
    FileReader("edges.parquet", lambda: [table(source=[0, 1], target=[1, 2])], edges),
    FileReader("edges.arrow", lambda: [arrow(source=[0, 1], target=[1, 2])], edges),
    FileReader("edges.mtx", lambda: [market(SPARSE), PATTERN], edges),
    FileReader("ratings.csv", lambda: [b"user,item,rating\na,1,2.5\nb,2,3\na,2,4\n"], triples),
    FileReader("ratings.arrow", lambda: [arrow(user=["a", "b"], item=[1, 2], rating=[0.5, 2.0])], triples),
    FileReader("partitions.json", partition_file, open_partitions),
    FileReader(f"job/{FILE}", checkpoint, restored),
    FileReader("model.json", result, described),
    FileReader("centers.npy", lambda: [saved(np.save, ROWS)], array_of_result),
    FileReader("racks.toml", lambda: [b'[racks]\nnorth = ["host1", "host2*"]\nsouth = ["host3"]\n'], rack_of_this_host),
    FileReader("trace.json", lambda: [job_trace()], replay.read),
    FileReader("costs.json", lambda: [costs()], link_costs.read),
    FileReader("rank.flight.json", flight_records, lambda path: flight.trace.read([path.parent])),
    FileReader("packets.json", lambda: [curve()], packets.read),
]


def peak_bytes() -> int:
    """Return the maximum memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_damaged_file_is_read_or_named_in_an_error(reader: FileReader, tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    valid, path = reader.valid(), tmp_path / "damaged" / reader.name
    path.parent.mkdir(parents=True)
    for content in valid:
        path.write_bytes(content)
        reader.read(path)

    read_count = 0
    for seed in range(FIRST_SEED, FIRST_SEED + INPUT_COUNT):
        content = damaged(valid, seed)
        path.write_bytes(content)
        description = f"{reader.name}, seed {seed}: {content!r}"
        # Tracing takes several times as long as reading.
        is_traced = INPUT_COUNT < TRACED_EVERY or seed % TRACED_EVERY == 0
        before_bytes = peak_bytes()
        if is_traced:
            tracemalloc.start()
        try:
            reader.read(path)
            read_count += 1
        except rp.RipienoError as error:
            assert path.name in str(error) or path.parent.name in str(error), f"{description}: {error}"
        except Exception as error:
            raise AssertionError(f"{description}: {type(error).__name__}: {error}") from error
        finally:
            taken_bytes = tracemalloc.get_traced_memory()[1] if is_traced else peak_bytes() - before_bytes
            tracemalloc.stop()
        assert taken_bytes <= MEMORY_BYTES_MAX, f"{description}: took {taken_bytes} bytes"
    assert read_count < INPUT_COUNT, "no damage was detected"


def malicious(marker: Path) -> list[bytes]:
    """Return files that run code when unpickled, claim or unpack to much memory, or name files outside."""
    code = pickle.dumps(Marker(marker))
    extension = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": code}
    table = pa.table([pa.array([1.0, 2.0])], pa.schema([pa.field("a", pa.float64(), metadata=extension)]))
    entry = {"path": "../../secret", "start": 0, "stop": 9, "size_bytes": 9, "hosts": [], "copies": ["/dev/zero"]}
    listed = {"kind": "ripieno partitions", "version": 2, "formats": [{"name": "text"}]}
    described = {"format": 0, "checksum": {"ranges": [[0, 9]], "sha256": "", "file_bytes": 9}, "compression": None}
    objects = npy((1,), "|O", code)
    return [
        code,
        objects,
        npy((1 << 50,)),
        *(zipped(name, content) for name in ("x.npy", "../../x.npy", "data.npy") for content in (objects, code)),
        zipped("x.npy", npy((1 << 50,))),
        *(saved(lambda file, write=write: write(table, file)) for write in (pq.write_table, pa.feather.write_feather)),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        json.dumps(listed | {"partitions": [entry | described]}).encode(),
        b"%%MatrixMarket matrix coordinate real general\n9999999999 9999999999 9999999999999\n1 1 1\n",
        b"1 9223372036854775807:1\n",
        pa.compress(b"9" * (1 << 22), "gzip", asbytes=True),
        pa.compress(b"9" * (1 << 22), "zstd", asbytes=True),
    ]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_malicious_file_runs_no_code_and_takes_little_memory(reader: FileReader, tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    reader.valid()
    path, marker = tmp_path / "malicious" / reader.name, tmp_path / "ran"
    path.parent.mkdir(parents=True)
    for content in malicious(marker):
        path.write_bytes(content)
        tracemalloc.start()
        try:
            reader.read(path)
        except rp.RipienoError as error:
            assert path.name in str(error) or path.parent.name in str(error), (content[:40], error)
        except Exception as error:
            raise AssertionError(f"{reader.name}: {content[:40]!r}: {type(error).__name__}: {error}") from error
        finally:
            taken_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert taken_bytes <= MEMORY_BYTES_MAX, (content[:40], taken_bytes)
    assert not marker.exists()
    assert [each.name for each in tmp_path.rglob("*") if each.name in ("x.npy", "data.npy", "secret")] == []


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_link_to_a_device_and_a_pipe_are_named(reader: FileReader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader.valid()
    path = tmp_path / "special" / reader.name
    path.parent.mkdir(parents=True)
    for make in (lambda: path.symlink_to("/dev/zero"), lambda: os.mkfifo(path), lambda: path.symlink_to(path)):
        make()
        with pytest.raises(rp.RipienoError, match=rf"{re.escape(path.name)}|{re.escape(path.parent.name)}"):
            reader.read(path)
        path.unlink()


#: Parts of the package whose functions open files that `READERS` need not read, and why.
OTHER_LOADERS = {
    **dict.fromkeys(
        ("algorithms/als/estimator.py", "algorithms/own_rows.py", "cli/mds.py", "cli/pca.py", "cli/ridge.py"),
        "`opened` and `open` are functions of estimators there, which call the readers",
    ),
    "bench/": "it reads files of its own programs",
    "cli/kubernetes.py": "a script becomes text in a manifest",
    "comm/": "files pass as bytes, and descriptors are of the same job",
    "dashboard/": "files of the package",
    "features/": "Pillow decodes pictures, with its limits",
    "files/disk.py": "it writes files",
    "files/uploads.py": "it sends results to other file systems",
    "flight/__init__.py": "a file of the kernel",
    "input/": "splits of the same formats, see `LARGE`",
    "lab/": "files of the kernel and of root",
    "launch/": "messages of authenticated processes, and files whose owners are checked",
    "mpi/": "messages of the same job",
    "report/": "files of the package and of the kernel",
    "simulation/algorithm_choices.py": "the cache of this user",
    "wire/": "messages of the same job",
}
#: Calls that open or parse contents of files.
LOADING = re.compile(
    r"(open|opened|opened_archive|read_whole|.*\.read_text|.*\.read_bytes|(json|pickle|cloudpickle|tomllib)\.loads?"
    r"|np\.(load|loadtxt|fromfile|memmap)|.*ZipFile|.*ParquetFile|.*\.memory_map|.*\.mmread|.*\.safe_load)"
)


def loaders() -> dict[tuple[str, int], str]:
    """Return the functions of the package that open or parse files: their module and first line, and their name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(map(is_loading, calls_of(node))):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                found[str(path), first] = f"{path.relative_to(PACKAGE)}: {node.name}"
    return found


def calls_of(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """Return the calls of a function, without calls in inner functions."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.FunctionDef):
            if isinstance(node, ast.Call):
                yield node
            waiting += ast.iter_child_nodes(node)


def is_loading(call: ast.Call) -> bool:
    """Return whether a call opens a file for reading, or parses one."""
    modes = [each for each in map(ast.unparse, call.args[1:2]) if re.fullmatch("'[a-z+]+'", each)]
    is_reading = all(set(mode) & set("r") for mode in modes)
    name = ast.unparse(call.func)
    return is_reading and LOADING.fullmatch(name) is not None


@pytest.mark.exhaustive
def test_the_list_of_readers_covers_every_loader(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called = set()

    def record(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            called.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    sys.setprofile(record)
    try:
        for reader in READERS:
            for content in reader.valid():
                path = tmp_path / "valid" / reader.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                reader.read(path)
    finally:
        sys.setprofile(None)
    missing = [name for place, name in loaders().items() if place not in called]
    parts = {part for part in OTHER_LOADERS if any(name.startswith(part) for name in missing)}
    assert [name for name in missing if not name.startswith(tuple(parts))] == []
    assert parts == OTHER_LOADERS.keys()


def text_split(path: Path) -> Any:
    return rp.input.splits(path)[0]


#: A repeated record of a file of each kind of text, and its reader.
LARGE = {
    "rows.csv": (b"1,2\n", rows),
    "rows.txt": (b"p 0 0 1 2\n", rows),
    "rows.npy": (saved(np.save, np.zeros((1 << 17, 3)))[:-1], rows),
    "rows.mtx": (saved(scipy.io.mmwrite, np.zeros((1 << 17, 3))), rows),
    "edges.txt": (b"1 2\n", edges),
    "edges.csv": (b"1,2\n", edges),
    "rows.svm": (b"1 1:0.5\n", lambda path: LibsvmFiles.open(path).read_share(0, 1)),
    "ratings.csv": (b"1,2,3\n", triples),
    "letters.fasta": (b">a\nACGT\n", lambda path: list(fasta.sequences(File(str(path), path.stat().st_size)))),
    "lines.log": (b"word\n", lambda path: text_split(path).read()),
    "lines.csv": (b"1,2\n", lambda path: text_split(path).read()),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_small_file_that_unpacks_to_more_than_the_memory_is_named(name: str, tmp_path, monkeypatch):
    record, read = LARGE[name]
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(record * (1 if len(record) > 99 else 1 << 18), 1))
    monkeypatch.setattr("ripieno.files.sources.UNCHECKED_BYTES", 1 << 16)
    monkeypatch.setattr("ripieno.files.sources.available_bytes", lambda: 1 << 17)
    with pytest.raises(rp.InputError, match=f"{name}.*take more than the 131,072 bytes of memory"):
        read(path)


@pytest.mark.parametrize(("count", "message"), [(1 << 14, "take more than the 131,072"), (1 << 15, "states 262,144")])
def test_an_archive_that_unpacks_to_more_than_the_memory_is_named(count: int, message: str, tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "edges.npz", src=np.zeros(count, np.int64), dst=np.zeros(count, np.int64))
    monkeypatch.setattr("ripieno.files.sources.UNCHECKED_BYTES", 1 << 16)
    monkeypatch.setattr("ripieno.files.sources.available_bytes", lambda: 1 << 17)
    with pytest.raises(rp.InputError, match=rf"edges\.npz.*{message}"):
        edges(tmp_path / "edges.npz")


@pytest.mark.parametrize("name", ["lines.csv", "lines.log", "rows.csv", "rows.svm", "edges.txt", "letters.fasta"])
def test_a_line_that_unpacks_to_more_than_the_longest_record_is_named(name: str, tmp_path, monkeypatch):
    path = tmp_path / f"{name}.gz"
    long = b" 7" if name.endswith(("svm", "txt")) else b'"' if name.endswith("csv") else b"A"
    path.write_bytes(gzip.compress(LARGE[name][0] * 9 + long * (1 << 18), 1))
    monkeypatch.setattr("ripieno.input.lines.RECORD_BYTES_MAX", 1 << 16)
    for module in ("csv", "edges", "libsvm"):
        monkeypatch.setattr(f"ripieno.input.columns.{module}.WINDOW_BYTES", 1 << 5)
    with pytest.raises(rp.InputError, match=f"{name}.*a line or record has more than 65,536 bytes"):
        LARGE[name][1](path)


@pytest.mark.parametrize("name", ["lines.csv.zst", "lines.log.gz"])
def test_blocks_of_compressed_text_take_bounded_memory(name: str, tmp_path):
    path, count = tmp_path / name, 1 << 21
    path.write_bytes(pa.compress(b"1,2\n" * count, "zstd" if name.endswith("zst") else "gzip", asbytes=True))
    split = text_split(path)
    tracemalloc.start()
    try:
        sizes = [len(block) for block in split.blocks(1 << 16)]
        taken_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == count * (1 if "csv" in name else 4) and taken_bytes < 3 << 20


@dataclass(frozen=True)
class Reference:
    """Another reader of the same files. Both return comparable arrays."""

    name: str
    valid: Callable[[], list[bytes]]
    ours: Callable[[Path], Any]
    theirs: Callable[[Path], Any]


def matrix(path: Path) -> Any:
    return rows(path).points.astype(np.float64)


def csv_of_pandas(path: Path) -> Any:
    names = open_source(str(path)).column_names
    header = None if names is None else 0
    # pandas cannot detect the delimiter of a single line.
    delimiter = sniff(str(path), None, TableOptions()).delimiter
    found = pd.read_csv(
        path, sep=delimiter, header=header, dtype=np.float64, float_precision="round_trip", keep_default_na=False
    )
    # A first column without a name is an index, and no feature.
    return found.to_numpy()[:, len(found.columns) - len(names or found.columns) :]


def parquet_of_pandas(path: Path) -> Any:
    found = pq.read_table(path).to_pandas()
    return found.to_numpy(np.float64)[:, found.columns[0] == "" and len(found.columns) > 1 :]


def dense(matrix: Any) -> Any:
    return np.asarray(matrix.todense(), np.float64)


def sorted_edges(path: Path) -> Any:
    found = edges(path)
    return np.array(sorted(zip(found.sources.tolist(), found.targets.tolist(), strict=True)))


def edges_of_networkx(path: Path) -> Any:
    graph = nx.read_edgelist(path, nodetype=int, data=False, create_using=nx.MultiDiGraph)
    return np.array(sorted(graph.edges()))


def edges_of_pandas(path: Path) -> Any:
    frame = pd.read_csv(path, dtype={"source": np.int64, "target": np.int64})
    return np.array(sorted(zip(frame["source"], frame["target"], strict=True)))


REFERENCES = [
    Reference("rows.npy", lambda: [saved(np.save, ROWS)], matrix, lambda path: np.load(path).astype(np.float64)),
    Reference("rows.csv", lambda: [CSV, b"1,2\n3,4\n", *DIALECTS[:2]], matrix, csv_of_pandas),
    Reference(
        "rows.parquet",
        lambda: [table(a=[1.0, 2.0], b=[3.0, 4.0])],
        matrix,
        parquet_of_pandas,
    ),
    Reference(
        "rows.arrow",
        lambda: [arrow(a=[1.0, 2.0], b=[3, 4])],
        matrix,
        lambda path: pa.ipc.open_file(path).read_pandas().to_numpy(np.float64),
    ),
    Reference(
        "sparse.npz",
        lambda: [saved(scipy.sparse.save_npz, SPARSE)],
        lambda path: dense(sparse(path)[0]),
        lambda path: dense(scipy.sparse.load_npz(path)),
    ),
    Reference("edges.txt", lambda: [b"# graph\n0 1\n1 2\n2\t0\n"], sorted_edges, edges_of_networkx),
    Reference("edges.csv", lambda: [b"source,target\n0,1\n1,2\n", QUOTED_EDGES], sorted_edges, edges_of_pandas),
]


@pytest.mark.parametrize("reference", REFERENCES, ids=lambda reference: reference.name)
def test_accepted_files_are_read_like_the_reference_reader(reference: Reference, tmp_path, recwarn):
    valid, path = reference.valid(), tmp_path / reference.name
    compared_count = 0
    for seed in range(FIRST_SEED, FIRST_SEED + INPUT_COUNT // 3):
        path.write_bytes(damaged(valid, seed))
        try:
            ours = reference.ours(path)
            theirs = reference.theirs(path)
        except Exception:
            # Other readers raise errors of any type. The test above checks the errors of Ripieno.
            continue
        compared_count += 1
        np.testing.assert_array_equal(ours, theirs, f"seed {seed}: {path.read_bytes()!r}")
    assert compared_count > 0, "no damaged file was read by both"
