"""Record the seconds and bytes of each step's stages on every worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

STAGES = ("load", "broadcast", "map", "shuffle", "reduce", "combine")


@dataclass(frozen=True)
class Stage:
    """A stage of a step.

    Attributes
    ----------
    worker_s : tuple of float
        Seconds on each rank; for broadcast and combine, one number of the driver.
    worker_bytes : tuple of int
        Bytes on each rank. Load: partitions. Broadcast: the value. Map: outputs of its tasks. Shuffle: bytes sent to
        other ranks. Reduce: input blocks. Combine: bytes that the driver received.
    """

    worker_s: tuple[float, ...] = (0.0,)
    worker_bytes: tuple[int, ...] = (0,)

    @property
    def seconds(self) -> float:
        """Seconds of the slowest worker."""
        return max(self.worker_s)

    @property
    def bytes(self) -> int:
        """Bytes of all workers."""
        return sum(self.worker_bytes)


@dataclass(frozen=True)
class StepStatistics:
    """Statistics of one step.

    Attributes
    ----------
    iteration : int
        The number of its iteration, from 1.
    load, broadcast, map, shuffle, reduce, combine : Stage
        Load is zero except in the first step after `MapReduce.cache`. Broadcast is zero without a new value.
    moved_count : int
        The number of tasks that ran on another rank than their own.
    """

    iteration: int
    load: Stage
    broadcast: Stage
    combine: Stage
    moved_count: int
    map: Stage
    shuffle: Stage
    reduce: Stage

    @property
    def seconds(self) -> float:
        """The sum over the stages of the slowest worker's seconds."""
        stages: list[Stage] = [getattr(self, stage) for stage in STAGES]
        return sum(stage.seconds for stage in stages)


def table(steps: Sequence[StepStatistics]) -> str:
    """Return a table with a line per step, seconds and megabytes of every stage, and a line of sums."""
    shown = {"iteration", "moved_count", *STAGES}
    assert {field.name for field in fields(StepStatistics)} == shown, "the table has all stages"
    rows = [
        [str(step.iteration), *(_cell(getattr(step, stage)) for stage in STAGES), f"{step.seconds:.4f}"]
        for step in steps
    ]
    sums = [_cell_of(*_sum(steps, stage)) for stage in STAGES]
    rows.append(["all", *sums, f"{sum(step.seconds for step in steps):.4f}"])
    head = ["iteration", *(f"{stage} s, MB" for stage in STAGES), "seconds"]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]
    )


def _sum(steps: Sequence[StepStatistics], stage: str) -> tuple[float, int]:
    return sum(getattr(step, stage).seconds for step in steps), sum(getattr(step, stage).bytes for step in steps)


def _cell(stage: Stage) -> str:
    return _cell_of(stage.seconds, stage.bytes)


def _cell_of(seconds: float, size_bytes: int) -> str:
    return f"{seconds:.4f}, {size_bytes / 1e6:.3f}"
