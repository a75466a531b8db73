"""Test programs on rows of DataFrames, for ranks and for Spark's own tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa


def note(file: str | Path, text: str) -> None:
    """Append a few bytes atomically."""
    with open(file, "ab", buffering=0) as out:
        out.write(text.encode())


def noting_in(file: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def noting(batches):
        note(file, "x")
        yield from batches

    return noting


def failing_once(flag: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return rows; partition 1 raises an error before `flag` exists."""

    def failing(batches):
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == 1 and not flag.exists():
            flag.touch()
            raise OSError("not yet")
        yield from batches

    return failing


def ids(comm, batches) -> list[int]:
    return sorted(batches.to_numpy("id").tolist()) if count_runs(comm) else []


def count_runs(comm) -> int:
    comm.cache["runs"] = comm.cache.get("runs", 0) + 1
    return comm.cache["runs"]


def size(comm, batches) -> int:
    comm.barrier()
    return batches.row_count


def keys(comm, batches) -> set[int]:
    return set((batches.to_numpy("id") % 4).tolist())


def columns(comm, batches) -> tuple[int, list[list[str]]]:
    schemas = [batches.schema, batches.to_table().schema, *(batch.schema for batch in batches)]
    return batches.row_count, [schema.names for schema in schemas]


def arrow_bytes_of_a_fit(comm, batch_count: int, options) -> list[int]:
    """Return the bytes that Arrow holds before and during a fit of rows in Spark's transfer format."""
    from unittest import mock

    from ripieno.algorithms.kmeans import program as kmeans_program
    from ripieno.launch.engines.spark import task
    from ripieno.spark import kmeans_ranks

    def counting(*args):
        held.append(pa.total_allocated_bytes())
        return fit(*args)

    def rows():
        for _ in range(batch_count):
            yield pa.record_batch({"c0": pa.array(np.random.default_rng(0).random((1000, 4)).tolist())})

    batches = task.with_names(rows(), pa.schema([("point", pa.list_(pa.float64()))]))
    held, fit = [pa.total_allocated_bytes()], kmeans_program.fit
    with mock.patch.object(kmeans_program, "fit", counting):
        kmeans_ranks.fit_rows(comm, batches, options)
    return held


def features(comm, batches) -> np.ndarray:
    return batches.to_numpy("features")


def doubled(comm, batches, ran: str) -> Iterator[pa.RecordBatch]:
    note(ran, "x")
    for batch in batches:
        doubled = pa.array(batch.column("id").to_numpy() * 2)
        yield pa.record_batch({"rank": pa.array(np.full(len(doubled), comm.rank, np.int32)), "doubled": doubled})


def ranks_seen(rows) -> Iterator[list[int]]:
    yield sorted({row.rank for row in rows})


def look(comm, batches) -> dict[str, Any]:
    x, v = batches.to_numpy("x"), batches.to_numpy("v")
    values = batches[0].column("v").flatten()
    return {
        "batches": len(batches),
        "rows": batches.row_count,
        "x is a view": x.ctypes.data == batches[0].column("x").buffers()[1].address,
        "v is a view": v.ctypes.data == values.buffers()[1].address and v.shape == (len(x), 2),
        "sum": x.sum(),
    }


def describe(comm, batches) -> tuple[int, str, tuple[int, ...]]:
    return batches.row_count, str(batches.schema), batches.to_numpy("f").shape


def divide(comm, batches, culprit: int) -> None:
    if comm.rank == culprit:
        raise ZeroDivisionError("on purpose")
    comm.barrier()


def exit_after_noting(comm, batches, ran: str, culprit: int) -> None:
    note(ran, str(comm.rank))
    comm.barrier()
    if comm.rank == culprit:
        os._exit(3)
    comm.barrier()


def gathered_tasks(comm, batches) -> pa.Table:
    """Return the tasks of all ranks, as every rank sees them."""
    from pyspark import TaskContext

    tasks = comm.allgather(TaskContext.get().taskAttemptId())
    return pa.table({"pid": [os.getpid()], "tasks": [sorted(tasks)]})


def returning(comm, batches, returned: Any) -> Any:
    return returned if comm.rank == 0 else None


def taking(seconds):
    """Return a function for mapPartitions that delays rows."""

    def slow(rows):
        time.sleep(seconds)
        yield from rows

    return slow


def key_alone(pair):
    return (pair[0],)


def counting_after(seconds):
    """Return a program that takes this long and returns its number of rows."""

    def program(comm, batches):
        time.sleep(seconds)
        comm.barrier()
        return pa.record_batch({"rows": [float(batches.row_count)]})

    return program


def named_like_ours(comm, batches):
    """Return a column with a name like Ripieno's own, and one with a space and a dot."""
    return pa.record_batch({"ripieno_rank": [comm.rank], "rank a.b": [7]})
