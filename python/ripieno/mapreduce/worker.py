"""Provide the driver's functions on every rank, and the rank's part of a job between steps.

A part holds partitions, functions and the last broadcast value. `Communicator.cache` stores it, so it ends with the
communicator at the latest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ripieno._threads import mapped
from ripieno.errors import CommunicatorClosed, InputError
from ripieno.files.sources import version
from ripieno.launch.job.accumulators import AccumulatorTotals, Addition, Amounts, fold
from ripieno.mapreduce import moving
from ripieno.mapreduce.blocks import Reducer, bytes_of
from ripieno.mapreduce.emitted import Pool, Shuffle
from ripieno.mapreduce.serialized_value import SerializedValue
from ripieno.mapreduce.tasks import Task, size_bytes

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


#: Partitions up to this size stay on all ranks, so that each rank can run their tasks. Ranks of one host share memory.
SHARED_PARTITION_BYTES = 1 << 20
_NO_PARTITION = SerializedValue(None, "nothing")


class PartsLost(CommunicatorClosed):
    """The ranks have reconnected since a job sent them their parts."""


@dataclass(frozen=True)
class TaskFunctions:
    """Functions of a job's tasks; see `MapReduce` for each."""

    map: Callable[..., Any]
    reduce: Callable[..., Any] | None
    shuffle: Shuffle
    threads: int
    additions: dict[int, Addition]


@dataclass(frozen=True)
class Result:
    """Result of a step on one rank: reduced blocks, amounts for accumulators, cost of each stage."""

    blocks: list[Any]
    amounts: Amounts
    seconds: dict[str, float]
    bytes: dict[str, int]
    moved_count: int


@dataclass(frozen=True)
class SerializedPartition:
    """A partition in the form for sending to the ranks.

    Parameters
    ----------
    task
        Its task.
    serialized
        The partition.
    size_bytes
        Its size when it was sent.
    hosts
        The hosts of ranks that can load it; empty for all hosts, None for its own rank only.
    paths
        Its files, which must not change until another rank loads it.
    """

    task: Task
    serialized: SerializedValue
    size_bytes: int
    hosts: tuple[str, ...] | None = None
    paths: tuple[str, ...] = ()


@dataclass
class WorkerState:
    """One rank's part of a job."""

    comm: Communicator
    totals: AccumulatorTotals = field(default_factory=AccumulatorTotals)
    tasks: list[tuple[Task, Any]] = field(default_factory=list)
    # All partitions by number. Partitions that this rank cannot run are empty.
    partitions: list[SerializedPartition] = field(default_factory=list)
    loader: Callable[[Any], Any] | None = None
    versions: dict[str, Hashable] = field(default_factory=dict)
    replicas: dict[int, Any] = field(default_factory=dict)
    program: TaskFunctions | None = None
    value: Any = None


def open_part(comm: Communicator, key: str, replicas: int) -> str:
    """Begin a job on this rank, which may have replicas, and return its host."""
    part = comm.cache[key] = WorkerState(comm if replicas == 1 else comm.replicate(replicas))
    return part.comm.hosts[part.comm.rank]


def close_part(comm: Communicator, key: str) -> None:
    """Drop the part of the job."""
    part = comm.cache.pop(key, None)
    if part is not None and part.comm is not comm:
        part.comm.close()


def _part(comm: Communicator, key: str) -> WorkerState:
    part: WorkerState | None = comm.cache.get(key)
    if part is None:
        raise PartsLost(
            "the ranks lost the state of this map-reduce job when a program failed: make another "
            "one; with the same name it resumes from the last checkpoint"
        )
    return part


def load(
    comm: Communicator, key: str, partitions: list[SerializedPartition], loader: SerializedValue, threads: int
) -> tuple[float, int]:
    """Load this rank's partitions; return seconds and bytes."""
    begin = time.perf_counter()
    part = _part(comm, key)
    part.loader, part.replicas = loader.open(part.totals), {}
    rank = part.comm.rank
    own = [each for each in partitions if each.task.rank == rank]

    def loaded(partition: SerializedPartition) -> tuple[Task, Any]:
        with with_note(f"while {partition.task} was loaded"):
            return partition.task, _loaded(part, partition)

    # A rank keeps the serialized partitions of other ranks only if it may run their tasks.
    can_run = [_may_run(part.comm, each, rank) for each in partitions]
    runnable = list(zip(partitions, can_run, strict=True))
    part.partitions = [each if can else replace(each, serialized=_NO_PARTITION) for each, can in runnable]
    paths = dict.fromkeys(path for each, can in runnable if can for path in each.paths)
    part.versions = {path: version(path) for path in paths if os.path.exists(path)}
    part.tasks = list(mapped(loaded, own, threads))
    known = [size_bytes(data) for _, data in part.tasks]
    return time.perf_counter() - begin, sum(
        each.serialized.size_bytes if size is None else size for each, size in zip(own, known, strict=True)
    )


def _loaded(part: WorkerState, partition: SerializedPartition) -> Any:
    assert part.loader is not None, "load() sets the loader"
    return in_memory(part.loader(partition.serialized.open(part.totals)))


def _may_run(comm: Communicator, partition: SerializedPartition, rank: int) -> bool:
    """Return whether a rank that does not keep a partition can load it."""
    if partition.hosts is None or rank == partition.task.rank:
        return False
    if partition.hosts:
        return comm.hosts[rank] in partition.hosts
    return bool(partition.paths) or partition.size_bytes <= SHARED_PARTITION_BYTES or len(set(comm.hosts)) == 1


def configure(comm: Communicator, key: str, program: SerializedValue) -> None:
    """Store the functions."""
    part = _part(comm, key)
    part.program = program.open(part.totals)


def receive(comm: Communicator, key: str, value: SerializedValue) -> None:
    """Store the value for the map tasks of the next steps."""
    part = _part(comm, key)
    part.value = value.open(part.totals)


def step(comm: Communicator, key: str, moves: bool) -> Result:
    """Map, shuffle and reduce. With `moves`, idle ranks run tasks of slower ranks."""
    part = _part(comm, key)
    program = part.program
    assert program is not None, "functions come before the first step"
    amounts: Amounts = {}
    begin = time.perf_counter()
    pool = Pool(part.comm, program.shuffle)

    def add(task: Task, output: Any, added: Amounts) -> None:
        with with_note(f"in the output of {task}"):
            pool.add(task, output)
        fold(amounts, added, program.additions)

    if moves:
        moved_count = _with_moves(part, add)
    else:
        moved_count = 0
        for each in mapped(lambda pair: _map_task(part, *pair), part.tasks, program.threads):
            add(*each)
    mapped_s = time.perf_counter()
    reducer = Reducer(program.reduce, part.totals, program.additions, part.comm.rank)
    sent_bytes = pool.send(reducer.take)
    end = time.perf_counter()
    fold(amounts, reducer.amounts, program.additions)
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
        moved_count,
    )


def _with_moves(part: WorkerState, add: Callable[[Task, Any, Amounts], None]) -> int:
    """Run the tasks of all ranks together, add the outputs of this rank, and return the number of moved tasks."""
    assert part.program is not None, "functions come before the first step"
    own = {task.number: (task, data) for task, data in part.tasks}

    def elsewhere(number: int) -> tuple[Task, Any, Amounts] | None:
        partition = part.partitions[number]
        if number not in part.replicas:
            found = _load_replica(part, partition)
            if found is None:
                return None
            part.replicas[number] = found[0]
        with with_note(f"run by rank {part.comm.rank} instead"):
            return _map_task(part, partition.task, part.replicas[number])

    claims = moving.Claims(
        [each.task.rank for each in part.partitions],
        lambda number, rank: _may_run(part.comm, part.partitions[number], rank),
        part.comm.world_size,
    )
    return moving.run(
        part.comm,
        claims,
        lambda number: _map_task(part, *own[number]),
        elsewhere,
        lambda number, output: add(*output),
        part.program.threads,
    )


def _load_replica(part: WorkerState, partition: SerializedPartition) -> tuple[Any] | None:
    """Load a partition of another rank; return None if its files have changed, or are missing."""
    found = [path for path in partition.paths if path in part.versions]
    if partition.paths and not (found and _unchanged(part, found)):
        return None
    try:
        data = _loaded(part, partition)
    except InputError:
        # The owner reports the error, or has read the file before it was damaged.
        return None
    return (data,) if _unchanged(part, found) else None


def _unchanged(part: WorkerState, paths: Sequence[str]) -> bool:
    return all(os.path.exists(path) and version(path) == part.versions[path] for path in paths)


def default_loader(partition: Any) -> Any:
    """Load a partition without a `loader`: read a readable object such as a split, and return others unchanged."""
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


def has_mapped_file(value: Any) -> bool:
    """Return whether `in_memory` would copy arrays of a partition, because they are in mapped files."""
    if type(value) in (list, tuple):
        return any(map(has_mapped_file, value))
    if type(value) is dict:
        return any(map(has_mapped_file, value.values()))
    return _is_mapped_file(value)


def _is_mapped_file(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.filename is not None:
            return True
        array = array.base
    return False


@contextmanager
def with_note(where: str) -> Iterator[None]:
    """Add a note with the location to an exception."""
    try:
        yield
    except Exception as error:
        error.add_note(where)
        raise


def _map_task(part: WorkerState, task: Task, data: Any) -> tuple[Task, Any, Amounts]:
    assert part.program is not None, "functions come before the first step"
    with with_note(f"in {task}"), part.totals.collecting() as amounts:
        return task, part.program.map(data, part.value), amounts
