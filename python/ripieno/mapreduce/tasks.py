"""Provide map tasks: one per partition of the input, each assigned to a rank for the whole job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ripieno.errors import InputError


@dataclass(frozen=True)
class Task:
    """A map task.

    Attributes
    ----------
    number : int
        Index of its partition in the list. Results are combined in this order.
    rank : int
        The rank that runs it, in every step.
    partition : str
        A readable description of its input.
    size_bytes : int or None
        Size of the input, if known.
    """

    number: int
    rank: int
    partition: str
    size_bytes: int | None

    def __str__(self) -> str:
        return f"map task {self.number} ({self.partition}) on rank {self.rank}"


def as_partitions(data: Any, count: int) -> tuple[list[Any], list[str]]:
    """Return partitions and their names: `count` blocks of rows of an array, otherwise the listed partitions."""
    if isinstance(data, np.ndarray):
        if data.ndim == 0 or not 1 <= count <= len(data):
            raise InputError(
                f"cache: {count} tasks for an array of shape {data.shape}: expected at least one row for each"
            )
        bounds = [len(data) * number // count for number in range(count + 1)]
        return [data[a:b] for a, b in pairwise(bounds)], [f"rows {a} … {b - 1}" for a, b in pairwise(bounds)]
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InputError(f"cache: a {type(data).__name__}: expected an array, or a list of partitions")
    partitions = list(data)
    if not partitions:
        raise InputError("cache: no partitions: expected at least one")
    return partitions, [_name(partition) for partition in partitions]


def assign_tasks(partitions: Sequence[Any], names: Sequence[str], hosts: Sequence[str]) -> list[Task]:
    """Assign the tasks to the ranks on `hosts`. Every rank gets a task if there are enough.

    Splits of files with known hosts are assigned by `ripieno.input.assign` to ranks on these hosts. Other partitions
    are assigned in contiguous parts, so that the largest part is as small as possible. If some sizes are unknown, all
    partitions have equal weight.
    """
    sizes = [size_bytes(partition) for partition in partitions]
    if any(getattr(partition, "hosts", ()) for partition in partitions):
        ranks = _ranks_near_splits(partitions, hosts)
    else:
        ranks = _ranks_by_weight(
            [max(1, size or 0) for size in sizes] if None not in sizes else [1] * len(sizes), len(hosts)
        )
    return [Task(number, *each) for number, each in enumerate(zip(ranks, names, sizes, strict=True))]


def size_bytes(value: Any) -> int | None:
    """Return the size of a partition in bytes, if it is known without reading it."""
    for name in ("size_bytes", "nbytes"):
        size = getattr(value, name, None)
        if isinstance(size, int):
            return size
    return len(value) if isinstance(value, bytes | bytearray | str) else None


def _ranks_near_splits(splits: Sequence[Any], hosts: Sequence[str]) -> list[int]:
    from ripieno.input import assign

    ranks = [0] * len(splits)
    for rank, numbers in enumerate(assign(splits, hosts)):
        for number in numbers:
            ranks[number] = rank
    return ranks


def _ranks_by_weight(weights: Sequence[int], rank_count: int) -> list[int]:
    """Return the rank of each item, ascending, with the smallest possible largest sum of weights per rank."""
    low, high = max(max(weights), -(-sum(weights) // rank_count)), sum(weights)
    while low < high:
        middle = (low + high) // 2
        if _part_count(weights, middle) <= rank_count:
            high = middle
        else:
            low = middle + 1
    ranks, rank, load = [], 0, 0
    for number, weight in enumerate(weights):
        others = rank_count - 1 - rank
        if load and others and (load + weight > low or len(weights) - number <= others):
            rank, load = rank + 1, 0
        load += weight
        ranks.append(rank)
    return ranks


def _part_count(weights: Sequence[int], limit: int) -> int:
    """Return the number of contiguous parts of at most `limit`, each filled before the next begins."""
    count, load = 1, 0
    for weight in weights:
        count, load = (count + 1, weight) if load + weight > limit else (count, load + weight)
    return count


def _name(partition: Any) -> str:
    if isinstance(partition, np.ndarray):
        return f"{partition.dtype} array of shape {partition.shape}"
    # Splits of files describe their location.
    return str(partition) if hasattr(partition, "path") else type(partition).__name__
