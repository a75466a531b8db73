"""Randomly damaged files: a reader returns the contents, or raises an error of ours that names the file.

RIPIENO_FUZZ_INPUTS is the number of files per reader, RIPIENO_FUZZ_FIRST the first seed.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ripieno as rp
from damage import damaged
from ripieno.algorithms.result_folder import ResultFolder
from ripieno.cli import main
from ripieno.graph.graph import open_graph
from ripieno.input import open_partitions
from ripieno.input.matrix import open_source
from ripieno.input.matrix.libsvm import LibsvmFiles
from ripieno.launch import racks
from ripieno.mapreduce.checkpoint import MANIFEST, CheckpointContents, Checkpoints
from ripieno.simulation import link_costs, replay
from ripieno.sparse import packets

INPUTS = int(os.environ.get("RIPIENO_FUZZ_INPUTS", "300"))
FIRST = int(os.environ.get("RIPIENO_FUZZ_FIRST", "0"))
#: Maximum memory of a reader for a file of a few KiB, regardless of sizes stated in the file.
MEMORY_BYTES_MAX = 64 << 20

ROWS = np.arange(24, dtype=np.float32).reshape(8, 3)
EDGES = np.array([[0, 1], [1, 2], [2, 0], [5, 3]])


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


def rows(path: Path) -> object:
    return open_source(str(path)).read_share(0, 1)


def edges(path: Path) -> object:
    return open_graph(str(path)).read_share(0, 1)


def partition_file() -> list[bytes]:
    Path("lines.txt").write_bytes(b"one\ntwo\nthree\n" * 10)
    assert main(["split", "lines.txt", "--partitions", "2", "--out", "listed"]) == 0
    return [Path("listed", "partitions.json").read_bytes()]


def checkpoint() -> list[bytes]:
    kept = Checkpoints(Path("kept"), "job", "program")
    kept.save(CheckpointContents(3, ROWS, {"seed": 7, "words": ["a", (1, 2.5)]}, [1, 2]))
    kept.close()
    return [(Path("kept") / "job" / MANIFEST).read_bytes()]


def restored(path: Path) -> object:
    # A damaged manifest may reference fewer blobs, and unreferenced blobs are removed.
    for blob in Path("kept", "job").iterdir():
        if blob.name != MANIFEST:
            shutil.copy(blob, path.parent)
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


def costs() -> bytes:
    link = link_costs.LinkCost(1e-6, 1e9)
    described = dict.fromkeys(("add_s_per_byte", "copy_s_per_byte"), 1e-09)
    known = {"memory": link, "cable": link, "uplink": None, "uplink_bytes_per_s": None, "measured_at": 1.0, **described}
    fields = link_costs.MeasuredCosts.__dataclass_fields__
    filled = {name: known.get(name, ["a", "b"] if name == "hosts" else 1) for name in fields}
    return json.dumps(link_costs.MeasuredCosts(**filled).as_json()).encode()


def curve() -> bytes:
    points = [{"bytes": 1 << at, "seconds": 1e-6 * (1 + at)} for at in range(4, 12)]
    return json.dumps({"points": points, "latency_s": 1e-5, "crowd_s": 1e-6}).encode()


def of_this_host(path: Path) -> object:
    return racks.rack_of("host1", racks.read(path), str(path))


CSV = b"a,b,c\n1,2,3\n4,5,6\n7,8.5,-9e3\n"
SVM = b"1 1:0.5 3:2\n-1 2:1e-3 # words\n2 qid:3 1:1 7:4\n"
READERS = [
    FileReader("rows.npy", lambda: [saved(np.save, ROWS), saved(np.save, ROWS.astype(">f8"))], rows),
    FileReader("rows.npz", lambda: [saved(np.savez, ROWS), saved(np.savez_compressed, a=ROWS)], rows),
    FileReader("rows.csv", lambda: [CSV, b"1,2\n3,4\n"], rows),
    FileReader("rows.txt", lambda: [b"p 0 0 1 2\np 0 1 1 3\n"], rows),
    FileReader("rows.parquet", lambda: [table(a=[1.0, 2.0], b=[3.0, 4.0])], rows),
    FileReader("rows.svm", lambda: [SVM], lambda path: LibsvmFiles.open(str(path)).read_share(0, 1)),
    FileReader("edges.txt", lambda: [b"# graph\n0 1\n1 2\n2\t0\n", b"0\t1,2\n3\t\n"], edges),
    FileReader(
        "edges.csv", lambda: [b"source,target\n0,1\n1,2\n", b"0;1\n1;2\n", b"source,target,weight\n0,1,0.5\n"], edges
    ),
    FileReader("edges.npy", lambda: [saved(np.save, EDGES)], edges),
    FileReader("edges.npz", lambda: [saved(np.savez, sources=EDGES[:, 0], targets=EDGES[:, 1])], edges),
    FileReader("edges.parquet", lambda: [table(source=[0, 1], target=[1, 2])], edges),
    FileReader("partitions.json", partition_file, open_partitions),
    FileReader(f"job/{MANIFEST}", checkpoint, restored),
    FileReader("model.json", result, described),
    FileReader("centers.npy", lambda: [saved(np.save, ROWS)], array_of_result),
    FileReader("racks.toml", lambda: [b'[racks]\nnorth = ["host1", "host2*"]\nsouth = ["host3"]\n'], of_this_host),
    FileReader("trace.json", lambda: [job_trace()], replay.read),
    FileReader("costs.json", lambda: [costs()], link_costs.read),
    FileReader("packets.json", lambda: [curve()], packets.read),
]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_damaged_file_is_read_or_named(reader: FileReader, tmp_path, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    valid, path = reader.valid(), tmp_path / "damaged" / reader.name
    path.parent.mkdir(parents=True)
    for content in valid:
        path.write_bytes(content)
        reader.read(path)

    read_count = 0
    for seed in range(FIRST, FIRST + INPUTS):
        content = damaged(valid, seed)
        path.write_bytes(content)
        text = f"{reader.name}, seed {seed}: {content!r}"
        tracemalloc.start()
        try:
            reader.read(path)
            read_count += 1
        except rp.RipienoError as error:
            assert path.name in str(error) or path.parent.name in str(error), f"{text}: {error}"
        except Exception as error:
            raise AssertionError(f"{text}: {type(error).__name__}: {error}") from error
        finally:
            taken_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert taken_bytes <= MEMORY_BYTES_MAX, f"{text}: took {taken_bytes} bytes"
    assert read_count < INPUTS, "some damage shows"
