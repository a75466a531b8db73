"""Pool the outputs of map tasks: combine equal keys (ids) on each rank, then send them to their owners once.

All tasks of a rank add to one pool (*local reduction*). If they emit the same keys, the rank sends as much as one task
emits. Outputs are added in the order of task numbers, so the bits do not depend on threads.
Source: Zhang et al., "Social image clustering with iterative MapReduce (Twister)", section 5.1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ripieno.errors import InputError
from ripieno.keyed import Emitter, KeyValues, Table, regroup
from ripieno.keyed.combiners import Combine, combiner_of
from ripieno.keyed.options import refuse_options
from ripieno.keyed.table_calls import table_regrouping
from ripieno.mapreduce.blocks import EXPECTED, as_keyed, bytes_of
from ripieno.mapreduce.object_pairs import MergedPairs, ObjectPairs

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.mapreduce.tasks import Task


@dataclass(frozen=True)
class Shuffle:
    """Options of the shuffle; see `MapReduce` for each."""

    combine: Combine
    partitioner: Any
    local_reduction: bool
    memory_limit: int | None
    spill_directory: str | os.PathLike[str] | None

    def __post_init__(self) -> None:
        # Raise for wrong options before anything starts.
        self.emitter(world_size=1, threads=1)

    def emitter(self, world_size: int, threads: int) -> Emitter:
        """Return an emitter for rows to `world_size` ranks."""
        return Emitter(world_size, self.combine, threads=threads, **self._options)

    def regroup_table(self, comm: Communicator, table: Table) -> tuple[Table, dict[str, Any]]:
        """Combine the tables of all ranks. Return the partitions that this rank owns, and statistics."""
        return regroup(comm, table, combine=self.combine, **self._options)

    def check_objects(self) -> None:
        """Raise InputError if an option does not apply to objects, which stay in memory and are combined at once."""
        options = {"memory_limit": self.memory_limit, "local_reduction": None if self.local_reduction else False}
        refuse_options(ObjectPairs([], []), **options)
        if isinstance(self.partitioner, str) and self.partitioner != "hash":
            raise InputError(f"partitioner={self.partitioner!r} of objects: expected 'hash' or a function of a list")

    def check_table(self, table: Table) -> None:
        """Raise InputError if an option does not apply to tables."""
        table_regrouping(table, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "partitioner": self.partitioner,
            "local_reduction": self.local_reduction,
            "memory_limit": self.memory_limit,
            "spill_directory": self.spill_directory,
        }


class Pool:
    """Outputs of the tasks of a rank in one step.

    Attributes
    ----------
    in_bytes : int
        Bytes of all outputs.
    """

    def __init__(self, comm: Communicator, shuffle: Shuffle) -> None:
        self._comm = comm
        self._shuffle = shuffle
        self._emitter: Emitter | None = None
        self._table: Table | None = None
        self._objects: MergedPairs | None = None
        self.in_bytes = 0

    def add(self, task: Task, output: Any) -> None:
        """Add the output of a task.

        Raises
        ------
        InputError
            A task must not return this type, or other tasks have returned another one.
        """
        try:
            keyed = as_keyed(output)
            if keyed is None:
                return
            self.in_bytes += bytes_of(keyed)
            if isinstance(keyed, KeyValues):
                if len(keyed):
                    self._rows.add(keyed)
            elif isinstance(keyed, ObjectPairs):
                self._add_objects(keyed)
            elif isinstance(keyed, Table):
                self._add_table(keyed)
            else:
                raise InputError(f"a {type(output).__name__}: {EXPECTED}")
        except InputError as error:
            raise InputError(f"{task} returned {error}") from error
        if isinstance(keyed, Table):
            self._shuffle.check_table(keyed)
        if sum(each is not None for each in (self._emitter, self._table, self._objects)) > 1:
            raise InputError(
                f"{task} returned a {type(keyed).__name__}, other tasks another type: expected all KeyValues, or all "
                "tables, or all ObjectPairs"
            )

    def send(self, on_block: Callable[[Any], None]) -> int:
        """Combine equal keys of all ranks at their owners, pass this rank's keys on, and return the bytes sent."""
        pools = {"KeyValues": self._emitter, "tables": self._table, "ObjectPairs": self._objects}
        own = next((name for name, pool in pools.items() if pool is not None), None)
        kinds = {kind for kind in self._comm.allgather(own) if kind is not None}
        if len(kinds) > 1:
            listed = " on some ranks and ".join(sorted(kinds))
            raise InputError(f"map returned {listed} on others: expected one of them")
        if kinds == {"KeyValues"}:
            return int(regroup(self._comm, self._rows, on_block=on_block)[1]["bytes_sent"])
        if kinds == {"tables"}:
            return self._send_table(on_block)
        if kinds == {"ObjectPairs"}:
            return self._send_objects(on_block)
        return 0

    @property
    def _rows(self) -> Emitter:
        if self._emitter is None:
            self._emitter = self._shuffle.emitter(self._comm.world_size, self._comm.threads)
        return self._emitter

    def _add_table(self, table: Table) -> None:
        if self._table is None:
            self._table = Table(combine=self._shuffle.combine)
        for number, array in table.items():
            self._table.add(number, array)

    def _add_objects(self, pairs: ObjectPairs) -> None:
        if self._objects is None:
            self._shuffle.check_objects()
            self._objects = MergedPairs(combiner_of(self._shuffle.combine))
        self._objects.add(pairs)

    def _send_objects(self, on_block: Callable[[Any], None]) -> int:
        combiner, before = combiner_of(self._shuffle.combine), self._comm.stats()["bytes_sent"]
        own = self._objects or MergedPairs(combiner)
        total = MergedPairs(combiner)
        for part in self._comm.alltoall(own.parts(self._shuffle.partitioner, self._comm.world_size)):
            total.merge(part)
        on_block(total.pairs)
        return int(self._comm.stats()["bytes_sent"] - before)

    def _send_table(self, on_block: Callable[[Any], None]) -> int:
        own = self._table if self._table is not None else Table(combine=self._shuffle.combine)
        table, statistics = self._shuffle.regroup_table(self._comm, own)
        on_block(table)
        return int(statistics["bytes_sent"])
