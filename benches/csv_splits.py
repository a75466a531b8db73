"""Benchmark of splits of a CSV file, read as tables by one thread, compared with pyarrow.csv on the whole file.

benches/run.py csv [--quick] [--json FILE]

The file has been read before, so it is in the page cache. The time of splits includes the search for the cuts.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import ripieno as rp
from effort import Effort
from ripieno.bench.figures import Figure, Measurements, Samples

ROWS = 100_000
SIZE_BYTES, QUICK_BYTES = 10**9, 10**6
SPLIT_COUNTS = (1, 8)
#: Upper limit of the time relative to the peer's.
PEER_TARGET = 1.2


def write(path: Path, size_bytes: int) -> None:
    """Write rows of a whole number, a word and four floats."""
    rng = np.random.default_rng(0)
    columns = {"id": rng.integers(0, 10**9, ROWS), "word": rng.choice(["north", "south", "east", "west"], ROWS)}
    columns |= {f"x{at}": rng.normal(size=ROWS) for at in range(4)}
    text = pa.BufferOutputStream()
    pyarrow.csv.write_csv(pa.table(columns), text)
    header, _, rows = text.getvalue().to_pybytes().partition(b"\n")
    with path.open("wb") as file:
        file.write(header + b"\n")
        while file.tell() < size_bytes:
            file.write(rows)


def by_pyarrow(path: Path) -> int:
    """Return the number of rows that pyarrow reads."""
    return len(pyarrow.csv.read_csv(path, pyarrow.csv.ReadOptions(use_threads=False)))


def by_splits(path: Path, count: int) -> int:
    """Return the number of rows of all splits, each read as a table."""
    return sum(len(split.read()) for split in rp.input.splits(path, count=count))


def measured(report: Measurements, effort: Effort) -> None:
    """Measure all readers, alternating, after comparing their numbers of rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write(path, QUICK_BYTES if effort.quick else SIZE_BYTES)
        size_bytes, row_count = path.stat().st_size, by_pyarrow(path)
        readers = {"pyarrow": by_pyarrow} | {f"{n}": lambda path, n=n: by_splits(path, n) for n in SPLIT_COUNTS}
        times: dict[str, list[float]] = {name: [] for name in readers}
        for _ in range(effort.runs(5)):
            for name, reader in readers.items():
                begin_s = time.perf_counter()
                if reader(path) != row_count:
                    raise RuntimeError(f"{name}: another number of rows than pyarrow")
                times[name].append(time.perf_counter() - begin_s)
    samples = {name: Samples(tuple(each)) for name, each in times.items()}
    peer = samples.pop("pyarrow")
    for name, each in samples.items():
        report.figures.append(
            Figure(
                case=f"{row_count:,} rows of six columns, one thread",
                row=f"splits: {name}",
                ours=each,
                peers={"pyarrow.csv": peer},
                limit_s=None,
                limit="",
                work=size_bytes / 1e6,
                rate_unit="MB/s",
                targets={"peer": PEER_TARGET},
            )
        )
