"""Provide benchmarks of a rank's threads: their costs next to alternatives, and fits in both models and all patterns.

Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC clusters",
table II and figures 3 to 14. As there, TxP is T threads in each of P processes.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.table import Table

import ripieno._native as _native
from ripieno import host
from ripieno.algorithms import MDS, KMeans
from ripieno.bench import figures, table, toolchain
from ripieno.bench.figures import Samples
from ripieno.bench.processes import run
from ripieno.bench.tlb_misses import TlbMisses
from ripieno.errors import InputError
from ripieno.launch import launch
from ripieno.launch.binding import PATTERNS, Binding
from ripieno.units import duration_text

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Model = Literal["fork-join", "bsp"]
MODELS: tuple[Model, ...] = ("fork-join", "bsp")
#: Default number of points by algorithm.
ALGORITHMS: Mapping[str, int] = {"kmeans": 100_000, "mds": 1_000}
#: Ratio of consecutive temperatures of MDS.
COOLING = 0.5
#: Phases of a computing turn, as many as the paper has iterations.
PHASES = 64
#: Phases of an empty turn; fewer where threads are created for each.
EMPTY_PHASES, SPAWN_PHASES = 2000, 100
#: Duration of one thread's work in a computing phase, in microseconds.
PHASE_US = 1000.0
#: Oversubscription factor of the turns with more threads than cores.
OVERSUBSCRIPTION = 4
#: Timeout of an OpenMP turn, in seconds.
TURN_TIMEOUT_S = 60.0
SEED = 7

#: Compared methods, ours first, with the name of our turn or of OpenMP's model.
EMPTY_METHODS = {"a team": "fork-join", "threads made": "made", "OpenMP": "fork-join"}
BARRIER_METHODS = {"a team": "bsp", "std::sync::Barrier": "std-barrier", "OpenMP": "bsp"}
SHARE_BOUND = "one thread's share"
COMPUTE_METHODS = {
    SHARE_BOUND: "share",
    "fork-join": "fork-join",
    "fork-join, dynamic parts": "parts",
    "BSP": "bsp",
    "fork-join, pinned": "fork-join",
    "BSP, pinned": "bsp",
    "threads made": "made",
    "OpenMP, fork-join": "fork-join",
    "OpenMP, BSP": "bsp",
}


@dataclass(frozen=True)
class ThreadsQuery:
    """The requested measurement.

    Attributes
    ----------
    algorithm
        One of `ALGORITHMS`: K-means, or MDS by deterministic annealing.
    points, columns
        Number of points, by default 100,000 for K-means and 1,000 for MDS, and their number of columns.
    centroids
        Numbers of clusters of K-means.
    iterations
        Iterations of each fit.
    repetitions
        Number of alternating repetitions of each fit and of each cost.
    patterns
        Letters of `ripieno.launch.binding`.
    cores
        Total threads of all processes.
    """

    algorithm: str = "kmeans"
    points: int = 0
    columns: int = 2
    centroids: Sequence[int] = (100, 1000)
    iterations: int = 8
    repetitions: int = 3
    patterns: str = "QRUTVS"
    cores: int = 0

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise InputError(f"algorithm={self.algorithm!r}: expected one of {', '.join(ALGORITHMS)}")
        if self.points == 0:
            object.__setattr__(self, "points", ALGORITHMS[self.algorithm])
        if not self.patterns or set(self.patterns) - set(PATTERNS.values()):
            raise InputError(f"patterns={self.patterns!r}: expected letters of QRUTVS")
        if self.algorithm == "mds":
            object.__setattr__(self, "centroids", ())
        elif not self.centroids or max(self.centroids) > self.points or min(self.centroids) < 1:
            raise InputError(f"centroids={list(self.centroids)}: expected 1 to {self.points}, the number of points")
        if self.cores == 0:
            object.__setattr__(self, "cores", host.usable_cores())

    @property
    def sizes(self) -> Sequence[int]:
        """Return the sizes of the fits: numbers of clusters, or for MDS of points."""
        return self.centroids if self.algorithm == "kmeans" else (self.points,)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Return pairs of threads per process and processes, from 1×n to n×1."""
        return [(threads, self.cores // threads) for threads in range(1, self.cores + 1) if self.cores % threads == 0]


#: The paper's points and centroids of K-means; fewer points for MDS, because their matrix must fit in memory.
FULL: Mapping[str, Mapping[str, Any]] = {
    "kmeans": {"points": 1_000_000, "centroids": (1_000, 10_000, 50_000, 100_000, 500_000)},
    "mds": {"points": 20_000},
}


@dataclass(frozen=True)
class FitCost:
    """The cost of a method that starts phases: seconds of a phase, from runs that alternate with the other methods."""

    case: str
    way: str
    threads: int
    phase: Samples


@dataclass(frozen=True)
class FitUsage:
    """Kernel counters of all threads of all processes; None where unavailable."""

    voluntary_switches: int | None
    involuntary_switches: int | None
    migrations: int | None
    minor_faults: int | None
    major_faults: int | None
    tlb_misses: int | None = None


@dataclass(frozen=True)
class ThreadsFit:
    """A fit of the grid: the median seconds of an iteration of each run, and the usage of the runs.

    The size is a number of clusters, or for MDS of points.
    """

    threads: int
    processes: int
    pattern: str
    model: str
    size: int
    iteration: Samples
    usage: FitUsage

    @property
    def shape(self) -> str:
        """Return the shape as TxP."""
        return f"{self.threads}x{self.processes}"


@dataclass(frozen=True)
class ThreadsResults:
    """All measurements and omissions, and the load of the machine."""

    request: ThreadsQuery
    costs: list[FitCost]
    fits: list[ThreadsFit]
    remarks: list[str]
    load: tuple[float, float]

    def as_json(self) -> dict[str, Any]:
        """Return a machine-readable form."""
        return {
            "machine": figures.machine(),
            "load": self.load,
            "request": asdict(self.request),
            "costs": [asdict(each) | {"median_s": each.phase.median_s} for each in self.costs],
            "fits": [
                asdict(each) | {"letter": each.pattern, "median_s": each.iteration.median_s} for each in self.fits
            ],
            "remarks": self.remarks,
        }

    def show(self) -> None:
        """Print tables."""
        console = table.console()
        for case in self.cases:
            shown = Table(title=f"{case}: median (least – greatest)", title_justify="left")
            for heading in ("way", "threads", "a phase"):
                shown.add_column(heading, justify="left" if heading == "way" else "right")
            for each in self.costs:
                if each.case == case:
                    shown.add_row(each.way, str(each.threads), samples_text(each.phase))
            console.print(shown)
        for count in self.request.sizes:
            shown = Table(title=self.grid_title(count), title_justify="left")
            for heading in ("pattern", "model", *self.shapes):
                shown.add_column(heading, justify="left" if heading in ("pattern", "model") else "right")
            for pattern, model in self.lines:
                cells = (self.fit(shape, pattern, model, count) for shape in self.shapes)
                shown.add_row(pattern, model, *(samples_text(each.iteration) if each else "" for each in cells))
            console.print(shown)
        headings, rows = self.usage_table()
        shown = Table(title="Counted in all fits (table II of the paper)", title_justify="left")
        for heading in headings:
            shown.add_column(heading, justify="right")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
        for remark in self.remarks:
            console.print(f"note: {remark}", markup=False)
        console.print(f"load of the machine {self.load[0]:.1f} before, {self.load[1]:.1f} after")

    def usage_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the seconds and counters by shape, pattern and model: medians and sums over all sizes."""
        headings = [
            "T x P",
            "pattern",
            "model",
            "voluntary switches",
            "involuntary",
            "migrations",
            "minor faults",
            "major",
            "dTLB load misses",
        ]
        headings.insert(3, "an iteration")
        rows = []
        for shape in self.shapes:
            for pattern, model in self.lines:
                selected = [self.fit(shape, pattern, model, count) for count in self.request.sizes]
                counted = _added(each.usage for each in selected if each is not None)
                if any(selected):
                    median_s = statistics.median(each.iteration.median_s for each in selected if each is not None)
                    rows.append(
                        [
                            shape,
                            pattern,
                            model,
                            duration_text(median_s),
                            *(_count(value) for value in asdict(counted).values()),
                        ]
                    )
        return headings, rows

    @property
    def cases(self) -> list[str]:
        """Return the cases of the costs."""
        return list(dict.fromkeys(each.case for each in self.costs))

    @property
    def shapes(self) -> list[str]:
        """Return the shapes of the grid as TxP."""
        return list(dict.fromkeys(each.shape for each in self.fits))

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the pairs of pattern and model of the grid."""
        return list(dict.fromkeys((each.pattern, each.model) for each in self.fits))

    def grid_title(self, size: int) -> str:
        """Return the title of a grid."""
        request = self.request
        if request.algorithm == "mds":
            return f"MDS of {size:,} points by deterministic annealing: an iteration"
        return f"K-means, {request.points:,} × {request.columns} points into {size:,}: an iteration"

    def fit(self, shape: str, pattern: str, model: str, size: int) -> ThreadsFit | None:
        """Return a cell of the grid."""
        cell = (shape, pattern, model, size)
        return next((each for each in self.fits if (each.shape, each.pattern, each.model, each.size) == cell), None)


def measure(request: ThreadsQuery) -> ThreadsResults:
    """Measure the costs of threads, and the algorithm in the grid."""
    load, remarks = os.getloadavg()[0], []
    try:
        openmp: Path | None = toolchain.openmp(Path(__file__).parent / "programs/openmp_turns.c")
    except toolchain.Skipped as error:
        openmp = None
        remarks.append(str(error))
    costs = list(_costs(request, openmp))
    fits = _fits(request, remarks)
    return ThreadsResults(request, costs, fits, remarks, (load, os.getloadavg()[0]))


def measure_fits(request: ThreadsQuery) -> tuple[list[ThreadsFit], list[str]]:
    """Measure only the algorithm in the grid. Return the fits, and remarks about patterns that are left out."""
    remarks: list[str] = []
    return _fits(request, remarks), remarks


def samples_text(samples: Samples) -> str:
    """Return a median with minimum and maximum as text."""
    return f"{duration_text(samples.median_s)} ({duration_text(samples.best_s)} – {duration_text(samples.worst_s)})"


def _costs(request: ThreadsQuery, openmp: Path | None) -> Iterator[FitCost]:
    counts = [count for count in (request.cores, 2 * request.cores, OVERSUBSCRIPTION * request.cores) if count > 1]
    for count in counts:
        yield from _case(request, openmp, f"empty fork-join, {count} threads", EMPTY_METHODS, count, 0.0)
    for count in counts:
        yield from _case(request, openmp, f"barrier, {count} threads", BARRIER_METHODS, count, 0.0)
    for count in dict.fromkeys((request.cores, OVERSUBSCRIPTION * request.cores)):
        title = f"phase of {PHASE_US:g} µs of one thread's work, {count} threads"
        yield from _case(request, openmp, title, COMPUTE_METHODS, count, PHASE_US)


def _case(
    request: ThreadsQuery, openmp: Path | None, title: str, methods: Mapping[str, str], threads: int, phase_us: float
) -> list[FitCost]:
    rounds = round(phase_us * _native.rounds_per_us())
    phases = {
        name: PHASES if rounds else SPAWN_PHASES if method == "made" else EMPTY_PHASES
        for name, method in methods.items()
    }
    turns: dict[str, Callable[[], float]] = {}
    for name, method in methods.items():
        # At most as many threads as cores share the work.
        shared = min(threads, request.cores) if method == "share" else threads
        if name.endswith("pinned"):
            turns[name] = partial(_pinned_turn, method, shared, phases[name], rounds)
        elif not name.startswith("OpenMP"):
            turns[name] = partial(_native.thread_turn, method, shared, phases[name], rounds)
        elif openmp is not None:
            turns[name] = partial(_turn_of_openmp, openmp, method, threads, phases[name], rounds)
    taken: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(request.repetitions):
        for name, turn in turns.items():
            taken[name].append(turn() / phases[name])
    return [FitCost(title, name, threads, Samples(tuple(seconds))) for name, seconds in taken.items()]


def _pinned_turn(method: str, threads: int, phases: int, rounds: int) -> float:
    _native.pin_threads(sorted(os.sched_getaffinity(0)))
    try:
        return _native.thread_turn(method, threads, phases, rounds)
    finally:
        _native.pin_threads([])


def _turn_of_openmp(program: Path, model: str, threads: int, phases: int, rounds: int) -> float:
    return float(run([program, model, str(threads), str(phases), str(rounds)], timeout_s=TURN_TIMEOUT_S))


def _fits(request: ThreadsQuery, remarks: list[str]) -> list[ThreadsFit]:
    points = np.random.default_rng(SEED).random((request.points, request.columns), np.float32)
    seconds: dict[tuple[int, int, str, str, int], list[float]] = {}
    usages: dict[tuple[int, int, str, str, int], list[FitUsage]] = {}
    bindings = {letter: Binding(*names) for names, letter in PATTERNS.items()}
    for turn in range(request.repetitions):
        for threads, processes in request.shapes:
            for letter in request.patterns:
                binding = bindings[letter]
                try:
                    job = launch(processes, threads=threads, bind=binding.bind, thread_affinity=binding.thread_affinity)
                except InputError as error:
                    remarks.append(f"{threads}x{processes}, {letter} is left out: {error}")
                    continue
                with job:
                    # Warm up: the first fit of a process takes longer.
                    job.run(_fit, request, points, max(request.sizes), MODELS[0], 1)
                    for size in request.sizes:
                        for model in MODELS if turn % 2 == 0 else MODELS[::-1]:
                            key = (threads, processes, letter, model, size)
                            found = job.run(_fit, request, points, size, model, request.iterations)
                            seconds.setdefault(key, []).append(found[0][0])
                            usages.setdefault(key, []).extend(usage for _, usage in found)
    return [ThreadsFit(*key, Samples(tuple(taken)), _added(usages[key])) for key, taken in seconds.items()]


def _fit(
    comm: Communicator, request: ThreadsQuery, points: np.ndarray[Any, Any], size: int, model: Model, iterations: int
) -> tuple[float, FitUsage]:
    """Return the median seconds of an iteration, and this rank's usage."""
    estimator = (
        KMeans(size, init=points[:size], tol=0, max_iter=iterations, options=KMeans.Options(thread_model=model))
        if request.algorithm == "kmeans"
        else MDS(
            3,
            method="da-smacof",
            metric="euclidean",
            n_init=1,
            tol=0,
            cooling=COOLING,
            random_state=0,
            max_iter=iterations,
            options=MDS.Options(thread_model=model),
        )
    )
    before, misses = _usage(), TlbMisses(_thread_ids())
    found = estimator.fit(points, comm=comm, rows="shared")
    tlb_misses, after = misses.stop(), _usage()
    usage = {
        name: None if value is None or earlier is None else value - earlier
        for (name, value), earlier in zip(asdict(after).items(), asdict(before).values(), strict=True)
    }
    seconds = statistics.median(each.seconds for each in found.report_.iterations)
    return seconds, FitUsage(**usage | {"tlb_misses": tlb_misses})


def _thread_ids() -> list[int]:
    return [int(tid) for tid in os.listdir("/proc/self/task")]


def _usage() -> FitUsage:
    """Return the usage of all current threads of this process, including the persistent threads of the kernels."""
    usages = [host.thread_usage(tid) for tid in _thread_ids()]
    names = [each.name for each in fields(FitUsage) if each.name != "tlb_misses"]
    return _added(FitUsage(**{name: getattr(each, name) for name in names}) for each in usages)


def _added(usages: Iterator[FitUsage] | Sequence[FitUsage]) -> FitUsage:
    columns = zip(*(asdict(each).values() for each in usages), strict=True)
    return FitUsage(*(None if None in column else sum(column) for column in columns))


def _count(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
