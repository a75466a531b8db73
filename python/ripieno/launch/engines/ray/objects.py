"""Provide Ray objects as arguments of a program: each rank reads its objects from Ray's store, not the caller.

An ``ObjectRef`` is the same value on every rank. A list or tuple of them, one per rank, gives each rank its value. A
``ray.data.Dataset`` becomes `ripieno.spark.Batches` on each rank, in order and in whole blocks. Arrays and batches are
read-only and stay in the store.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray
from ray.exceptions import RayActorError
from ray.util import placement_group_table

from ripieno.errors import EngineError, InputError
from ripieno.launch.job.programs import ProgramCall
from ripieno.launch.job.stand_ins import RankValue
from ripieno.launch.limits import POLL_S

_numbers = itertools.count()


@dataclass(frozen=True)
class _ObjectArgument:
    """The objects of one argument, per rank, and whether they are blocks of a table."""

    name: str
    shares: list[list[ray.ObjectRef]]
    blocks: bool = False


@contextmanager
def objects_on_actors(actors: list[Any], call: ProgramCall, check: Callable[[], None]) -> Iterator[ProgramCall]:
    """Return the call with stand-ins for Ray objects. Meanwhile each actor holds the objects under their names.

    During waits for objects, `check` is called repeatedly.

    Raises
    ------
    InputError
        If the number of objects differs from the number of ranks, or a dataset has fewer blocks than ranks.
    EngineError
        If objects are not computed yet, and the ranks of jobs occupy all CPUs, so that no CPU is left to compute them.
    Exception
        Raised by the task that computes an object.
    """
    arguments: list[_ObjectArgument] = []

    def placeholder(value: Any) -> Any:
        argument = _object_argument(value, len(actors))
        if argument is None:
            return value
        arguments.append(argument)
        return RankValue(argument.name)

    with_stand_ins = call.mapped(placeholder)
    try:
        _await({ref for argument in arguments for share in argument.shares for ref in share}, check)
        # The job detects dead actors with a better cause by other means.
        with suppress(RayActorError):
            ray.get(
                [
                    actor.take.remote(argument.name, argument.blocks, *share)
                    for argument in arguments
                    for actor, share in zip(actors, argument.shares, strict=True)
                ]
            )
        yield with_stand_ins
    finally:
        # Without this check, a call after shutdown would start Ray again.
        if ray.is_initialized():
            for argument, actor in itertools.product(arguments, actors):
                actor.drop.remote(argument.name)


def _object_argument(value: Any, workers: int) -> _ObjectArgument | None:
    name = f"ray {next(_numbers)}"
    if isinstance(value, ray.ObjectRef):
        return _ObjectArgument(name, [[value]] * workers)
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, ray.ObjectRef) for each in value):
        if len(value) != workers:
            raise InputError(f"{len(value)} objects of Ray for {workers} workers: expected one for each")
        return _ObjectArgument(name, [[ref] for ref in value])
    data = sys.modules.get("ray.data")
    if data is not None and isinstance(value, data.Dataset):
        return _ObjectArgument(name, _blocks(value, workers), blocks=True)
    return None


def _blocks(dataset: Any, workers: int) -> list[list[ray.ObjectRef]]:
    from ray.data.dataset import MaterializedDataset

    is_stored = isinstance(dataset, MaterializedDataset) and isinstance(dataset.schema().base_schema, pa.Schema)
    if not is_stored and not _free_cpus():
        raise EngineError(
            "this Dataset is not in Ray's store as Arrow blocks yet, and the ranks of jobs occupy all CPUs, so that "
            "none is left to compute it: before launching, call its materialize() (if it consists of pandas frames: "
            "ray.data.from_arrow_refs(dataset.to_arrow_refs())), or launch fewer workers"
        )
    refs = dataset.to_arrow_refs()
    if len(refs) < workers:
        raise InputError(f"a Dataset of {len(refs)} blocks for {workers} workers: repartition({workers}) makes enough")
    return [refs[rank * len(refs) // workers : (rank + 1) * len(refs) // workers] for rank in range(workers)]


def _await(refs: set[ray.ObjectRef], check: Callable[[], None]) -> None:
    if not refs:
        return
    _, missing = ray.wait(list(refs), num_returns=len(refs), timeout=0, fetch_local=False)
    if not missing:
        return
    if not _free_cpus():
        raise EngineError(
            f"{len(missing)} of {len(refs)} objects of Ray do not exist yet, and the ranks of jobs occupy all CPUs, so "
            "that none is left to compute them: wait for them before launching (ray.wait), or launch fewer workers"
        )
    while missing:
        _, missing = ray.wait(missing, num_returns=len(missing), timeout=POLL_S, fetch_local=False)
        check()


def _free_cpus() -> int:
    """Return the number of whole CPUs for tasks outside of placement groups, now or later."""
    groups = placement_group_table().values()
    taken = sum(
        bundle.get("CPU", 0) for group in groups if group["state"] == "CREATED" for bundle in group["bundles"].values()
    )
    return int(ray.cluster_resources().get("CPU", 0) - taken)
