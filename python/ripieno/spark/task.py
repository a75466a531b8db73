"""What runs at the executors: functions for the tasks of a barrier stage, each of which becomes a rank.

They are nested in functions, so that cloudpickle takes them by value, and hold bytes only: an executor can unpickle
them before it knows where its ripieno is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ripieno.launch.hub import Invitation

if TYPE_CHECKING:
    import pyarrow as pa

# Archives that `ripieno.spark.ship` has added are unpacked in folders with names like this, among Spark's files.
ARCHIVE_PREFIX = "ripieno-shipped-"

# The rows of a rank, and what it returns to Spark, among what its programs find there.
ROWS, OUTPUT = "spark rows", "spark output"


def plain(invitation: Invitation) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """The task of a rank without data."""
    pickled = pickle.dumps(invitation)
    prefix = ARCHIVE_PREFIX

    def be_rank(_: Iterable[Any]) -> Iterable[Any]:
        find_ripieno(prefix)
        from ripieno.spark import task

        task.serve(pickle.loads(pickled), {})
        return ()

    find_ripieno = _finder()
    return be_rank


def with_rows(invitation: Invitation, schema: pa.Schema) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The task of a rank that has rows of a DataFrame of `schema`, and may return others."""
    pickled, serialized = pickle.dumps(invitation), schema.serialize().to_pybytes()
    prefix = ARCHIVE_PREFIX

    def be_rank(rows: Iterable[Any]) -> Iterator[Any]:
        find_ripieno(prefix)
        import pyarrow

        from ripieno.spark import Batches, task

        batches = list(rows)
        schema = batches[0].schema if batches else pyarrow.ipc.read_schema(pyarrow.py_buffer(serialized))
        output: list[pyarrow.RecordBatch] = []
        task.serve(pickle.loads(pickled), {task.ROWS: Batches(batches, schema), task.OUTPUT: output})
        yield from output

    find_ripieno = _finder()
    return be_rank


def serve(invitation: Invitation, local: dict[str, Any]) -> None:
    """Be the rank with the number of this task's partition, until the job is over."""
    from pyspark import BarrierTaskContext

    from ripieno.launch import member

    context = BarrierTaskContext.get()
    rank = context.partitionId()
    address = context.getTaskInfos()[rank].address.rpartition(":")[0].strip("[]")
    member.serve(invitation, rank, exchange=context.allGather, bind_host=address, local=local)


def _finder() -> Callable[[str], None]:
    def find_ripieno(prefix: str) -> None:
        """Make ``import ripieno`` possible: it is installed here, or was shipped."""
        import sys
        from importlib.util import find_spec
        from pathlib import Path

        from pyspark import SparkFiles

        if find_spec("ripieno") is not None:
            return
        sys.path += [str(folder) for folder in Path(SparkFiles.getRootDirectory()).glob(f"{prefix}*")]
        if find_spec("ripieno") is None:
            raise ModuleNotFoundError(
                f"ripieno is not installed for {sys.executable}, which Spark runs on this executor: install it there, "
                "name another Python by PYSPARK_PYTHON, start Spark with an archive of the environment, or give it to "
                "all executors by ripieno.spark.ship(spark)"
            )

    return find_ripieno
