"""Provide the functions for the tasks of a barrier stage, which become ranks on the executors.

The functions are nested so that cloudpickle sends them by value. They hold bytes only, because an executor unpickles
them before it can import ripieno.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ripieno.launch.engine.member_server import Invitation

if TYPE_CHECKING:
    import pyarrow as pa

    from ripieno.launch.engine.batches import Batches

# Keys of a rank's rows, and of its results for Spark, in the local values of its programs.
ROWS, OUTPUT = "spark rows", "spark output"


def plain(
    invitation: Invitation, archive: str | None, racks: Mapping[str, str]
) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """Return the task of a rank without data; `archive` was shipped, `racks` maps executor hosts to racks."""
    pickled = pickle.dumps(invitation)

    def run_rank(_: Iterable[Any]) -> Iterable[Any]:
        find_ripieno()
        from ripieno.launch.engines.spark import task

        task.serve(pickle.loads(pickled), racks, {})
        return ()

    find_ripieno = _finder(archive)
    return run_rank


def with_rows(
    invitation: Invitation, archive: str | None, racks: Mapping[str, str], schema: pa.Schema
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the task of a rank with rows of a DataFrame. The rank may return other rows.

    `schema` has the original column names; Spark may use others.
    """
    pickled, serialized = pickle.dumps(invitation), schema.serialize().to_pybytes()

    def run_rank(rows: Iterable[Any]) -> Iterator[Any]:
        find_ripieno()
        import pyarrow

        from ripieno.launch.engines.spark import task

        own = task.with_names(rows, pyarrow.ipc.read_schema(pyarrow.py_buffer(serialized)))
        output: list[pyarrow.RecordBatch] = []
        task.serve(pickle.loads(pickled), racks, {task.ROWS: own, task.OUTPUT: output})
        yield from output

    find_ripieno = _finder(archive)
    return run_rank


def with_names(rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> Batches:
    """Return the batches from Spark with the column names of `schema`."""
    import pyarrow as pa

    from ripieno.launch.engine.batches import Batches

    batches = list(rows)
    if batches:
        fields = zip(batches[0].schema, schema.names, strict=True)
        schema = pa.schema([field.with_name(name) for field, name in fields])
    return Batches([pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches], schema)


def serve(invitation: Invitation, racks: Mapping[str, str], local: dict[str, Any]) -> None:
    """Run the rank with the number of this task's partition until the job is over."""
    from pyspark import BarrierTaskContext

    from ripieno.launch import member

    context = BarrierTaskContext.get()
    rank = context.partitionId()
    hosts = [each.address.rpartition(":")[0] for each in context.getTaskInfos()]
    # Executors may have registered after the racks were read.
    rack = racks[hosts[rank]] if racks.keys() >= set(hosts) else None
    address = hosts[rank].strip("[]")
    member.serve(invitation, rank, exchange=context.allGather, bind_host=address, rack=rack, local=local)


def _finder(archive: str | None) -> Callable[[], None]:
    def find_ripieno() -> None:
        """Make ``import ripieno`` work, from an installation or from the shipped archive."""
        import sys
        from importlib.util import find_spec

        from pyspark import SparkFiles

        if find_spec("ripieno") is not None:
            return
        if archive is None:
            raise ModuleNotFoundError(
                f"ripieno is not installed for {sys.executable}, which Spark runs on this executor: install it there, "
                "name another Python by PYSPARK_PYTHON, start Spark with an archive of the environment, or give it to "
                "all executors by rp.spark.ship(spark)"
            )
        sys.path.insert(0, SparkFiles.get(archive))

    return find_ripieno
