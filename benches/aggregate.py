"""Benchmark of sums and means by key of Parquet files on all cores, compared with duckdb and polars.

benches/run.py aggregate [--quick] [--json FILE]

The files have been read before, so they are in the page cache. A run ends with all keys in one process. Workers have
started before, as have the threads of the peers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ripieno as rp
from effort import Effort
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.comm.communicator import Communicator
from ripieno.host import usable_cores
from ripieno.input import share, splits
from ripieno.input.aggregating import BLOCK_BYTES, SPLITS_PER_RANK

ROW_COUNT, QUICK_ROW_COUNT, RUN_COUNT, FILE_COUNT = 20_000_000, 20_000, 5, 8
#: Keys of each case: name of the column, and its number of values.
CASES = {"region": 100, "user": 1_000_000}
AGGREGATIONS = {
    "amount": ("amount", "sum"), "qty": ("qty", "sum"), "price": ("price", "mean"), "count": "count",
}  # fmt: skip


def measured(report: Measurements, effort: Effort) -> None:
    """Measure all implementations, alternating, after comparing their results."""
    row_count = QUICK_ROW_COUNT if effort.quick else ROW_COUNT
    with tempfile.TemporaryDirectory() as folder:
        size_bytes = _write(Path(folder), row_count)
        with rp.launch(workers=usable_cores(), threads=1) as job:
            for key, key_count in CASES.items():
                runs: dict[str, Any] = {"ours": lambda key=key: _aggregated(job, folder, key)}
                wanted = _in_order(runs["ours"](), key)
                for name, run in _peers(report, folder, key).items():
                    if _are_close(_in_order(run(), key), wanted):
                        runs[name] = run
                    else:
                        report.remark(f"{name} is left out: its result by {key} differs from ours")
                runs["read"] = lambda key=key: job.run(_read_of_rank, folder, key)
                seconds: dict[str, list[float]] = {name: [] for name in runs}
                for _ in range(effort.runs(RUN_COUNT)):
                    for name, run in runs.items():
                        start = time.perf_counter()
                        run()
                        seconds[name].append(time.perf_counter() - start)
                samples = {name: Samples(tuple(each)) for name, each in seconds.items()}
                ours, read = samples.pop("ours"), samples.pop("read")
                report.figures.append(
                    Figure(
                        case=f"two sums, a mean and a count of {row_count:,} rows",
                        row=f"{key_count:,} keys ({key})",
                        ours=ours,
                        peers=samples,
                        limit_s=read.best_s,
                        limit="reading the columns",
                        work=size_bytes / 1e6,
                        rate_unit="MB/s",
                    )
                )


def _write(folder: Path, row_count: int) -> int:
    """Write the files and return their size in bytes."""
    rng = np.random.default_rng(0)
    regions = pa.array([f"region {number:03}" for number in range(CASES["region"])])
    count = row_count // FILE_COUNT
    for number in range(FILE_COUNT):
        table = pa.table(
            {
                "region": regions.take(pa.array(rng.integers(0, len(regions), count))),
                "user": rng.integers(0, CASES["user"], count),
                "amount": rng.integers(0, 100_000, count),
                "qty": rng.integers(1, 20, count).astype(np.int32),
                "price": rng.random(count),
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet")
    return sum(path.stat().st_size for path in folder.iterdir())


def _aggregated(job: Any, folder: str, key: str) -> pa.Table:
    return pa.concat_tables(job.run(_of_rank, folder, key))


def _of_rank(comm: Communicator, folder: str, key: str) -> pa.Table:
    return rp.input.aggregate(folder, key, AGGREGATIONS, comm).to_arrow()


def _read_of_rank(comm: Communicator, folder: str, key: str) -> None:
    columns = [key, "amount", "qty", "price"]
    for split in share(splits(folder, count=SPLITS_PER_RANK * comm.world_size, columns=columns), comm):
        for _ in split.blocks(BLOCK_BYTES):
            pass


def _in_order(table: Any, key: str) -> pa.Table:
    found = pa.table(table).select([key, *AGGREGATIONS])
    # Arrow does not sort the string views of polars.
    keys = found[key] if pa.types.is_integer(found[key].type) else found[key].cast(pa.large_string())
    return found.set_column(0, key, keys).sort_by(key)


def _are_close(one: pa.Table, other: pa.Table) -> bool:
    key, *names = one.column_names
    return one[key].to_pylist() == other[key].to_pylist() and all(
        np.allclose(one[name].cast("double").to_numpy(), other[name].cast("double").to_numpy()) for name in names
    )


def _peers(report: Measurements, folder: str, key: str) -> dict[str, Callable[[], Any]]:
    """Return the installed peers; each returns a table with the key and the aggregates."""
    found: dict[str, Callable[[], Any]] = {}
    try:
        import polars as pl

        terms = [pl.col("amount").sum(), pl.col("qty").cast(pl.Int64).sum(), pl.col("price").mean(),
                 pl.len().alias("count")]  # fmt: skip
        plan = pl.scan_parquet(f"{folder}/*.parquet").group_by(key).agg(*terms)
        found["polars"] = lambda: plan.collect(engine="streaming")
    except ImportError:
        report.remark("polars is not installed: make bench installs it")
    try:
        import duckdb

        base = duckdb.connect(config={"threads": usable_cores()})
        query = f"""
            select {key}, sum(amount)::bigint as amount, sum(qty)::bigint as qty, avg(price) as price,
            count(*) as count from read_parquet('{folder}/*.parquet') group by {key}
        """
        found["duckdb"] = lambda: base.sql(query).to_arrow_table()
    except ImportError:
        report.remark("duckdb is not installed: make bench installs it")
    return found
