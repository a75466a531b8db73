"""Benchmark of sums by key of (int64, float64) pairs between processes, compared with polars, duckdb and PySpark.

benches/regroup.py [--rows 50e6] [--keys 1e6] [--ranks 2] [--spark] [--repetitions N] [--quick] [--json FILE]

Each rank has an equal share of the rows, and ends with the sums of its own keys. Peers have all rows in one process and
all cores. Their seconds include the time of the link between the ranks for the bytes that a rank sends, measured in the
same turn. PySpark runs after the turns, with its rows in its own memory.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import command
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import ripieno as rp
from effort import Effort
from numpy.typing import NDArray
from ripieno import _native, keyed
from ripieno.bench import processes
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.comm.communicator import Communicator
from ripieno.host import usable_cores
from ripieno.units import bytes_text, duration_text

ROW_COUNT, KEY_COUNT, RANK_COUNT, RUN_COUNT = 50_000_000, 1_000_000, 2, 5
QUICK_ROW_COUNT, QUICK_KEY_COUNT = 40_000, 1_000
ROW_BYTES = 16
#: Stages of a regroup: reducing local rows, exchanging sizes, waiting for blocks, and merging them.
STAGES = ("local reduction", "sizes", "exchange", "merge")
PASS_BUDGET_S, QUICK_PASS_BUDGET_S = 1.0, 0.01
SPARK_TIMEOUT_S = 3600.0
#: Upper limits relative to the best peer in one process, and to the best of PySpark's.
TARGETS, SPARK_TARGETS = {"peer": 1.0}, {"peer": 1 / 5}
#: Relative tolerance of values: sums in different orders differ by rounding.
DIFFERENCE = 1e-9

Column = NDArray[Any]


@dataclass(frozen=True)
class RegroupRows:
    """The rows to regroup: keys uniform in 0 … key_count - 1, values uniform in 0 to 1, seeded by rank."""

    row_count: int
    key_count: int
    rank_count: int

    def of_rank(self, rank: int) -> tuple[Column, Column]:
        """Return keys and values of a rank."""
        random = np.random.default_rng([self.key_count, rank])
        count = (self.row_count + rank) // self.rank_count
        return random.integers(0, self.key_count, count), random.random(count)

    def of_all(self) -> tuple[Column, Column]:
        """Return keys and values of all ranks, in order of rank."""
        keys, values = zip(*map(self.of_rank, range(self.rank_count)), strict=True)
        return np.concatenate(keys), np.concatenate(values)


@dataclass(frozen=True)
class RegroupRun:
    """One regroup by Ripieno.

    Parameters
    ----------
    seconds, stages_s
        Seconds from a barrier to the result, and of its stages.
    sent_bytes, wire_s
        Bytes to other ranks, and seconds of the link for as many bytes in an alltoall.
    """

    seconds: float
    stages_s: dict[str, float]
    sent_bytes: int
    wire_s: float


def measured(report: Measurements, effort: Effort, *, rows: RegroupRows | None = None, spark: bool = False) -> None:
    """Measure all implementations, alternating. Each result is checked before it counts."""
    quick = RegroupRows(QUICK_ROW_COUNT, QUICK_KEY_COUNT, RANK_COUNT)
    rows = rows or (quick if effort.quick else RegroupRows(ROW_COUNT, KEY_COUNT, RANK_COUNT))
    keys, values = rows.of_all()
    right = _right(keys, values)
    peers = _peers(report, keys, values)
    for name, peer in list(peers.items()):
        if (difference := _difference(right, *_columns(peer()))) is not None:
            report.remark(f"{name} is left out: {difference}")
            del peers[name]
    ours: list[RegroupRun] = []
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    with rp.launch(workers=rows.rank_count) as job:
        found = (np.concatenate(column) for column in zip(*job.run(_sums, rows), strict=True))
        if (difference := _difference(right, *found)) is not None:
            raise RuntimeError(f"Ripieno: {difference}, so there is no figure")
        for _ in range(effort.runs(RUN_COUNT)):
            ours.append(_slowest(job.run(_run, rows)))
            for name, peer in peers.items():
                start = time.perf_counter()
                peer()
                seconds[name].append(time.perf_counter() - start + ours[-1].wire_s)
    copy_s = _copy_s(rows, QUICK_PASS_BUDGET_S if effort.quick else PASS_BUDGET_S)
    _add_figures(report, rows, ours, seconds, copy_s)
    if spark:
        _add_spark(report, rows, ours, right, effort.runs(RUN_COUNT), copy_s)


def _right(keys: Column, values: Column) -> tuple[Column, Column, Column]:
    """Return the distinct keys, ascending, with the sum and the number of values of each."""
    counts = np.bincount(keys)
    present = np.flatnonzero(counts)
    return present, np.bincount(keys, values)[present], counts[present]


def _difference(right: Sequence[Column], keys: Column, sums: Column, counts: Column | None = None) -> str | None:
    """Return how a result differs from NumPy's, or None."""
    order = np.argsort(keys)
    if not np.array_equal(keys[order], right[0]) or not np.allclose(sums[order], right[1], rtol=DIFFERENCE, atol=0):
        return "the sums by key differ from NumPy's"
    if counts is not None and not np.array_equal(counts[order], right[2]):
        return "the counts by key differ from NumPy's"
    return None


def _peers(report: Measurements, keys: Column, values: Column) -> dict[str, Callable[[], Any]]:
    """Return the installed peers; each returns a table with columns "key" and "value"."""
    found: dict[str, Callable[[], Any]] = {}
    try:
        import polars

        sums = polars.DataFrame({"key": keys, "value": values}).lazy().group_by("key").agg(polars.col("value").sum())
        found |= {"polars": sums.collect, "polars, streaming": lambda: sums.collect(engine="streaming")}
    except ImportError:
        report.remark("polars is not installed: make bench installs it")
    try:
        import duckdb

        base = duckdb.connect(config={"threads": usable_cores()})
        base.register("pairs", pa.table({"key": keys, "value": values}))
        query = "select key, sum(value) as value from pairs group by key"
        found["duckdb"] = lambda: base.sql(query).to_arrow_table()
    except ImportError:
        report.remark("duckdb is not installed: make bench installs it")
    return found


def _columns(sums: Any) -> tuple[Column, Column]:
    return sums["key"].to_numpy(), sums["value"].to_numpy()


def _sums(comm: Communicator, rows: RegroupRows) -> tuple[Column, Column, Column]:
    """Return the keys of this rank, with the sum and the number of values of each."""
    keys, values = rows.of_rank(comm.rank)
    sums = comm.regroup(rp.KeyValues(keys, values), combine="sum")
    counts = comm.regroup(rp.KeyValues(keys, np.ones(len(keys), np.int64)), combine="sum")
    if not np.array_equal(sums.keys, counts.keys):
        raise AssertionError("equal keys reached different ranks, or in a different order")
    return sums.keys, sums.values, counts.values


def _run(comm: Communicator, rows: RegroupRows) -> RegroupRun:
    """Return a regroup with `comm.regroup`, and an alltoall of as many bytes."""
    pairs = rp.KeyValues(*rows.of_rank(comm.rank))
    comm.barrier()
    start = time.perf_counter()
    emitter = keyed.Emitter(comm.world_size, "sum", threads=comm.threads)
    emitter.add(pairs)
    reduced_s = time.perf_counter() - start
    _, found = keyed.regroup(comm, emitter)
    seconds = time.perf_counter() - start
    stages_s = dict(zip(STAGES, (reduced_s, *(found[f"{stage}_s"] for stage in STAGES[1:])), strict=True))
    return RegroupRun(seconds, stages_s, found["bytes_sent"], _wire_s(comm, found["bytes_sent"]))


def _wire_s(comm: Communicator, sent_bytes: int) -> float:
    """Return the seconds of an alltoall in which each rank sends as many bytes as the busiest rank."""
    peers = max(comm.world_size - 1, 1)
    size = -(-comm.allreduce(sent_bytes, op="max") // peers)
    counts = [0 if rank == comm.rank else size for rank in range(comm.world_size)]
    sent, received = np.ones(sum(counts), np.uint8), np.ones(sum(counts), np.uint8)
    # The first alltoall opens connections.
    for _ in range(2):
        comm.barrier()
        start = time.perf_counter()
        comm.alltoall(sent, out=received, counts=counts, out_counts=counts)
    return time.perf_counter() - start


def _slowest(runs: Sequence[RegroupRun]) -> RegroupRun:
    """Return the maximum over all ranks of each field."""
    stages_s = {name: max(run.stages_s[name] for run in runs) for name in runs[0].stages_s}
    return RegroupRun(
        max(run.seconds for run in runs), stages_s, max(run.sent_bytes for run in runs), max(run.wire_s for run in runs)
    )


def _copy_s(rows: RegroupRows, budget_s: float) -> float:
    """Return the time for all cores together to copy the rows once, in seconds."""
    cores = usable_cores()
    return _native.memory_pass(cores, ROW_BYTES * rows.row_count // cores, budget_s)[1]


def _add_figures(
    report: Measurements, rows: RegroupRows, ours: Sequence[RegroupRun], peers: dict[str, list[float]], copy_s: float
) -> None:
    peer_samples = {name: Samples(tuple(seconds)) for name, seconds in peers.items()}
    report.figures.append(_figure(rows, "", ours, peer_samples, TARGETS, copy_s))
    for stage in STAGES:
        seconds = Samples(tuple(run.stages_s[stage] for run in ours))
        case = f"{_case(rows)}; stages of {_name(rows)}"
        report.figures.append(Figure(case, stage, seconds, {}, None, "none", 0.0, ""))
    wire_s = statistics.median(run.wire_s for run in ours)
    report.remark(
        f"times of peers include the transfer of the {bytes_text(ours[0].sent_bytes)} that a rank sends, "
        f"{duration_text(wire_s)}; the sums and counts of all systems match NumPy"
    )


def _add_spark(
    report: Measurements,
    rows: RegroupRows,
    ours: Sequence[RegroupRun],
    right: Sequence[Column],
    run_count: int,
    copy_s: float,
) -> None:
    """Add PySpark, if it and Java are installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        report.remark("PySpark is not installed: make bench installs it")
        return
    if shutil.which("java") is None:
        report.remark("PySpark is skipped: it needs Java, apt-get install openjdk-17-jre-headless")
        return
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(rows.rank_count):
            pairs = dict(zip(("key", "value"), rows.of_rank(rank), strict=True))
            parquet.write_table(pa.table(pairs), Path(folder) / f"rows-{rank}.parquet", compression="none")
        words = [sys.executable, Path(__file__).with_name("regroup_spark.py"), folder, str(run_count)]
        output = processes.run(words, environment={"PYSPARK_PYTHON": sys.executable}, timeout_s=SPARK_TIMEOUT_S)
        seconds = json.loads(output.splitlines()[-1])
        for name in list(seconds):
            sums = _columns(parquet.read_table(Path(folder) / f"sums-{name}.parquet"))
            if (difference := _difference(right, *sums)) is not None:
                report.remark(f"PySpark, {name}, is left out: {difference}")
                del seconds[name]
    peer_samples = {f"PySpark, {name}": Samples(tuple(times)) for name, times in seconds.items()}
    where = f"; compared with Spark local[{rows.rank_count}]"
    report.figures.append(_figure(rows, where, ours, peer_samples, SPARK_TARGETS, copy_s))


def _figure(
    rows: RegroupRows,
    where: str,
    ours: Sequence[RegroupRun],
    peers: dict[str, Samples],
    targets: dict[str, float],
    limit_s: float,
) -> Figure:
    return Figure(
        case=_case(rows) + where,
        row=_name(rows),
        ours=Samples(tuple(run.seconds for run in ours)),
        peers=peers,
        limit_s=limit_s,
        limit="all rows copied once by all cores",
        work=rows.row_count / 1e6,
        rate_unit="pairs/µs",
        targets=targets if peers else {},
    )


def _case(rows: RegroupRows) -> str:
    return f"{rows.row_count:,} pairs, {rows.key_count:,} keys, sums"


def _name(rows: RegroupRows) -> str:
    return f"{rows.rank_count} processes"


@click.command()
@click.option("--rows", "row_count", type=float, default=ROW_COUNT, show_default=True, help="Pairs of all ranks.")
@click.option(
    "--keys", "key_count", type=float, default=KEY_COUNT, show_default=True, help="Number of keys to draw from."
)
@click.option("--ranks", "rank_count", type=click.IntRange(min=1), default=RANK_COUNT, show_default=True)
@click.option("--spark", is_flag=True, help="Also measure PySpark; this takes minutes.")
@command.repetitions_option
@command.quick_option
@command.json_option
def main(
    row_count: float, key_count: float, rank_count: int, spark: bool, repetitions: int | None, quick: bool,
    target: Path | None,
) -> None:  # fmt: skip
    """Regroup pairs by key, and sum them, compared with peers."""
    if quick:
        row_count, key_count = QUICK_ROW_COUNT, QUICK_KEY_COUNT
    report = Measurements("regroup")
    rows = RegroupRows(int(row_count), int(key_count), rank_count)
    measured(report, Effort(quick, repetitions), rows=rows, spark=spark)
    command.show(report, target, quick=quick)


if __name__ == "__main__":
    main()
