"""The iteration log of a worker, and the report built from the logs of all workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ripieno.algorithms.clock import IterationClock, IterationTime
from ripieno.algorithms.reported import PlainReport

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Measures = Mapping[str, float | str]
Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class WorkerReport:
    """One worker's record of a fit. The measures are identical on all workers."""

    laps: tuple[tuple[float, float], ...]
    measures: tuple[Measures, ...]
    load_s: float
    host: str
    threads: int


@dataclass(frozen=True)
class FitStep(IterationTime):
    """One iteration with its duration, or one stage of a fit that does not iterate.

    Parameters
    ----------
    measures
        Measured values, by name.
    """

    measures: Measures


@dataclass(frozen=True, kw_only=True, repr=False)
class FitReport(PlainReport):
    """Fields shared by all reports of fits to rows, in addition to the fields of `PlainReport`.

    Parameters
    ----------
    row_count, column_count, dtype
        Shape and type of the data during computation.
    hosts, threads
        Host and thread count of each rank.
    load_s
        Seconds of reading, on the slowest rank.
    """

    row_count: int
    column_count: int
    dtype: str
    hosts: tuple[str, ...]
    threads: tuple[int, ...]
    load_s: float

    @property
    def iterate_s(self) -> float:
        """Total seconds of all iterations."""
        return sum(each.seconds for each in self.iterations)


@dataclass(frozen=True, kw_only=True, repr=False)
class RunReport(FitReport):
    """The report of a fit, with measures of each iteration or stage. `FitReport` describes the other fields."""

    iterations: tuple[FitStep, ...]

    @classmethod
    def of(cls, records: Sequence[WorkerReport], *, row_count: int, column_count: int, dtype: str) -> RunReport:
        """Combine the workers' records into a report; the decorator of the fit adds the total time."""
        laps = zip(*(record.laps for record in records), strict=True)
        steps = (
            FitStep(tuple(compute for compute, _ in lap), tuple(communication for _, communication in lap), measures)
            for measures, lap in zip(records[0].measures, laps, strict=True)
        )
        return cls(
            iterations=tuple(steps),
            row_count=row_count,
            column_count=column_count,
            dtype=dtype,
            hosts=tuple(record.host for record in records),
            threads=tuple(record.threads for record in records),
            load_s=max(record.load_s for record in records),
        )


class IterationLog:
    """Log of the time and measures of each iteration. Rank 0 also emits them as events.

    Parameters
    ----------
    comm
        The workers.
    emit
        Callable that receives the events. Default: `comm.emit`.
    """

    def __init__(self, comm: Communicator, emit: Emit | None) -> None:
        self.clock = IterationClock()
        #: Number of iterations that an earlier fit completed and that this fit resumes after.
        self.iterations_before = 0
        self._comm = comm
        self._emit = emit or comm.emit
        self._laps: list[tuple[float, float]] = []
        self._measures: list[Measures] = []

    def end_iteration(self, **measures: float | str) -> None:
        """Record the end of an iteration; every rank passes the same measures."""
        compute_s, communication_s = lap = self.clock.lap()
        self._laps.append(lap)
        self._measures.append(measures)
        if self._comm.rank == 0:
            event = {"event": "iteration", "iteration": self.iterations_before + len(self._laps), **measures}
            self._emit(event | {"compute_s": compute_s, "communication_s": communication_s})

    def record(self, load_s: float) -> WorkerReport:
        """Return this worker's record of the fit."""
        comm = self._comm
        return WorkerReport(
            laps=tuple(self._laps),
            measures=tuple(self._measures),
            load_s=load_s,
            host=comm.hosts[comm.rank],
            threads=comm.threads,
        )
