"""Provide the functions that the driver calls on every rank, and the rank's part of a job between steps.

A part holds partitions, functions and the last broadcast value. It lies in `Communicator.kept`, so it ends with the
communicator at the latest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ripieno._threads import mapped
from ripieno.errors import CommunicatorClosed
from ripieno.launch.job.accumulators import AccumulatorTotals, Amounts, fold
from ripieno.mapreduce.blocks import Reducer, bytes_of
from ripieno.mapreduce.emitted import Pool, Shuffle
from ripieno.mapreduce.serialized_value import SerializedValue
from ripieno.mapreduce.tasks import Task, size_bytes

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


class PartsLost(CommunicatorClosed):
    """The ranks have reconnected since a job sent them their parts."""


@dataclass(frozen=True)
class TaskFunctions:
    """Functions of a job's tasks; see `MapReduce` for each."""

    map: Callable[..., Any]
    reduce: Callable[..., Any] | None
    shuffle: Shuffle
    threads: int
    ops: dict[int, str]


@dataclass(frozen=True)
class Result:
    """Result of a step on one rank: reduced blocks, amounts for accumulators, cost of each stage."""

    blocks: list[Any]
    amounts: Amounts
    seconds: dict[str, float]
    bytes: dict[str, int]


@dataclass
class WorkerState:
    """One rank's part of a job."""

    comm: Communicator
    ledger: AccumulatorTotals = field(default_factory=AccumulatorTotals)
    tasks: list[tuple[Task, Any]] = field(default_factory=list)
    program: TaskFunctions | None = None
    value: Any = None


def open_part(comm: Communicator, key: str, replicas: int) -> str:
    """Begin a job on this rank, which may have replicas, and return its host."""
    part = comm.kept[key] = WorkerState(comm if replicas == 1 else comm.replicate(replicas))
    return part.comm.hosts[part.comm.rank]


def close_part(comm: Communicator, key: str) -> None:
    """Drop the part of the job."""
    part = comm.kept.pop(key, None)
    if part is not None and part.comm is not comm:
        part.comm.close()


def _part(comm: Communicator, key: str) -> WorkerState:
    part: WorkerState | None = comm.kept.get(key)
    if part is None:
        raise PartsLost(
            "the ranks lost the state of this map-reduce job when a program failed: make another "
            "one; with the same name it resumes from the last checkpoint"
        )
    return part


def load(
    comm: Communicator, key: str, tasks: list[tuple[Task, SerializedValue]], loader: SerializedValue, threads: int
) -> tuple[float, int]:
    """Load this rank's partitions; return seconds and bytes."""
    begin = time.perf_counter()
    part = _part(comm, key)
    load_one = loader.open(part.ledger)
    mine = [(task, sealed) for task, sealed in tasks if task.rank == part.comm.rank]

    def loaded(pair: tuple[Task, SerializedValue]) -> tuple[Task, Any]:
        task, sealed = pair
        with noted(f"while {task} was loaded"):
            return task, in_memory(load_one(sealed.open(part.ledger)))

    part.tasks = list(mapped(loaded, mine, threads))
    known = [size_bytes(data) for _, data in part.tasks]
    return time.perf_counter() - begin, sum(
        sealed.size_bytes if size is None else size for (_, sealed), size in zip(mine, known, strict=True)
    )


def configure(comm: Communicator, key: str, program: SerializedValue) -> None:
    """Store the functions."""
    part = _part(comm, key)
    part.program = program.open(part.ledger)


def receive(comm: Communicator, key: str, value: SerializedValue) -> None:
    """Store the value for the map tasks of the next steps."""
    part = _part(comm, key)
    part.value = value.open(part.ledger)


def step(comm: Communicator, key: str) -> Result:
    """Map, shuffle and reduce."""
    part = _part(comm, key)
    program = part.program
    assert program is not None, "functions come before the first step"
    amounts: Amounts = {}
    begin = time.perf_counter()
    pool = Pool(part.comm, program.shuffle)
    for task, output, added in mapped(lambda pair: _mapped(part, *pair), part.tasks, program.threads):
        with noted(f"in what {task} gave"):
            pool.add(task, output)
        fold(amounts, added, program.ops)
    mapped_s = time.perf_counter()
    reducer = Reducer(program.reduce, part.ledger, program.ops, part.comm.rank)
    sent_bytes = pool.send(reducer.take)
    end = time.perf_counter()
    fold(amounts, reducer.amounts, program.ops)
    return Result(
        reducer.blocks,
        amounts,
        {"map": mapped_s - begin, "shuffle": end - mapped_s - reducer.seconds, "reduce": reducer.seconds},
        {
            "map": pool.in_bytes,
            "shuffle": sent_bytes,
            "reduce": 0 if program.reduce is None else reducer.in_bytes,
            "combine": sum(bytes_of(block) for block in reducer.blocks),
        },
    )


def as_given(partition: Any) -> Any:
    """Load a partition by default: read a readable object, such as a split of a file; return others unchanged."""
    read = getattr(partition, "read", None)
    return read() if callable(read) else partition


def in_memory(value: Any) -> Any:
    """Return a partition with copies of the arrays that are mapped files, also in lists, tuples and dicts.

    A cached partition must not change during the job. Rewriting a mapped file would change the partition between steps,
    and reading from a truncated mapped file ends the process.
    """
    if isinstance(value, np.ndarray):
        if not _is_mapped_file(value):
            return value
        copied = np.array(value, order="K", subok=False)
        copied.flags.writeable = value.flags.writeable
        return copied
    if type(value) in (list, tuple):
        return type(value)(in_memory(each) for each in value)
    if type(value) is dict:
        return {key: in_memory(each) for key, each in value.items()}
    return value


def _is_mapped_file(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.filename is not None:
            return True
        array = array.base
    return False


@contextmanager
def noted(where: str) -> Iterator[None]:
    """Add a note with the location to an exception."""
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise


def _mapped(part: WorkerState, task: Task, data: Any) -> tuple[Task, Any, Amounts]:
    assert part.program is not None, "functions come before the first step"
    with noted(f"in {task}"), part.ledger.page() as amounts:
        return task, part.program.map(data, part.value), amounts
