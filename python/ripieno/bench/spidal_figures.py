"""Provide tables and figures of the paper on threads and processes, measured on the cores of this machine.

Source: Ekanayake et al., "Java thread and process performance for parallel machine learning on multicore HPC clusters",
tables II and III and figures 3 to 14. As there, TxP is T threads in each of P processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ripieno import host
from ripieno.bench import threads
from ripieno.bench.measured_figures import REPETITIONS, machine_input, verdict
from ripieno.bench.threads import ThreadsFit, ThreadsQuery
from ripieno.errors import LabError
from ripieno.simulation.reproduction import Claim, FigureRow, Kind, Reproduction

#: The measured fits of K-means, and of MDS in the patterns of the paper.
KMEANS = ThreadsQuery(points=50_000, centroids=(100, 1000), patterns="UT", repetitions=REPETITIONS, iterations=5)
SCALING = ThreadsQuery(algorithm="mds", points=1_000, patterns="UTVS", repetitions=REPETITIONS)
#: Points of the scaled table.
SCALED_POINTS = (500, 1_000, 2_000)


@cache
def _fits(query: ThreadsQuery) -> tuple[list[ThreadsFit], list[str]]:
    """Return the fits, and remarks about patterns that are left out.

    Raises
    ------
    LabError
        The machine has a single core, so no process has several threads.
    """
    if host.usable_cores() == 1:
        raise LabError("models of threads are compared on two cores or more; this process may use one")
    return threads.measure_fits(query)


def figures_3_8() -> Reproduction:
    """K-means by threads and processes, in two models of threads and two patterns of affinity."""
    fits, left_out = _fits(KMEANS)
    rows = [
        FigureRow(f"{each.shape}, {each.pattern}, {each.model}, {each.size:,} centroids", None,
                  1e3 * each.iteration.median_s)
        for each in fits
    ]  # fmt: skip
    return Reproduction(
        "spidal-figures-3-8",
        "SPIDAL, figures 3 to 8: an iteration of K-means by threads × processes, affinity and model of threads",
        Kind.MEASURED,
        "ms",
        (machine_input(f"{KMEANS.points:,} points in 2-d, {KMEANS.cores} threads, median of {REPETITIONS}"),),
        rows,
        (
            Claim(
                "In Java fork-join is the slowest in every pattern with threads; BSP threads are as fast as processes.",
                f"{_fork_join_verdict(fits)} Its threads persist, like the threads of OpenMP in C, with which the "
                "paper finds both models equal.",
            ),
        ),
        ("`ripieno bench threads` measures all six patterns and more threads than cores.", *left_out),
    )


def figures_9_14() -> Reproduction:
    """MDS by deterministic annealing, by threads and processes, in two models and four patterns of affinity."""
    fits, left_out = _fits(SCALING)
    rows = [
        FigureRow(f"{each.shape}, {each.pattern}, {each.model}", None, 1e3 * each.iteration.median_s) for each in fits
    ]
    bsp = [each.iteration.median_s for each in fits if each.model == "bsp"]
    return Reproduction(
        "spidal-figures-9-14",
        "SPIDAL, figures 9 to 14: an iteration of DA-MDS by threads × processes, affinity and model of threads",
        Kind.MEASURED,
        "ms",
        (machine_input(f"{SCALING.points:,} points instead of 50 k to 200 k, {SCALING.cores} threads, median of "
                       f"{REPETITIONS}"),),
        rows,
        (
            Claim(
                "Fork-join is the slowest for all affinities, sizes and numbers of threads.",
                f"{_fork_join_verdict(fits)}",
            ),
            Claim(
                "BSP is equally fast for all of them.",
                f"{verdict(max(bsp) < 1.25 * min(bsp))}: the slowest takes {max(bsp) / min(bsp):.2f} times as long as "
                "the fastest.",
            ),
        ),
        ("`ripieno bench threads --algorithm mds` measures all six patterns.", *left_out),
    )  # fmt: skip


def table_2() -> Reproduction:
    """Context switches and migrations of fork-join and BSP threads of MDS."""
    fits = [each for each in _fits(SCALING)[0] if each.threads > 1 and each.pattern == "T"]
    counters = {
        "context switches": ("voluntary_switches", "involuntary_switches"),
        "migrations": ("migrations",),
        "dTLB load misses": ("tlb_misses",),
    }
    counts = {(model, name): _sum(fits, model, fields) for name, fields in counters.items() for model in threads.MODELS}
    rows = [FigureRow(f"{model}, {name}", None, count) for (model, name), count in counts.items() if count is not None]

    def compared(name: str, factor: float) -> str:
        fork_join, bsp = (counts[model, name] for model in threads.MODELS)
        if fork_join is None or bsp is None:
            return f"Not measured: this machine provides no counter of {name}."
        return f"{verdict(fork_join > factor * bsp)}: {fork_join:,} against {bsp:,} {name}."

    return Reproduction(
        "spidal-table-2",
        "SPIDAL, table II: counts of the kernel for fork-join and BSP threads of DA-MDS, affinity T",
        Kind.MEASURED,
        "times",
        (machine_input(f"{REPETITIONS} fits of {SCALING.points:,} points, {SCALING.cores} threads in one process"),),
        rows,
        (
            Claim(
                "Fork-join has 15 times the context switches of BSP, 477,913 against 31,433.",
                compared("context switches", 2),
            ),
            Claim("Fork-join has twice the migrations, 63,953 against 31,433.", compared("migrations", 1.5)),
            Claim("Fork-join has 2.7 times the misses of the TLB.", compared("dTLB load misses", 1.5)),
        ),
    )


def table_3() -> Reproduction:
    """Speedups of MDS over one core: processes and threads, by number of points."""
    cores = host.usable_cores()
    rows, excess = [], []
    for points in SCALED_POINTS:
        single, shared = (
            _fits(ThreadsQuery(algorithm="mds", points=points, patterns="T", repetitions=REPETITIONS, cores=count))[0]
            for count in (1, cores)
        )
        single_s = min(each.iteration.median_s for each in single)
        speedups = {(each.shape, each.model): single_s / each.iteration.median_s for each in shared}
        selected = ((f"1x{cores}", "bsp"), (f"{cores}x1", "bsp"), (f"{cores}x1", "fork-join"))
        for shape, model in selected:
            rows.append(FigureRow(f"{points:,} points, {shape}, {model}", None, speedups[shape, model]))
        excess.append(speedups[f"{cores}x1", "fork-join"] / speedups[f"1x{cores}", "bsp"])
    return Reproduction(
        "spidal-table-3",
        "SPIDAL, table III: speedup of DA-MDS over the smallest configuration",
        Kind.MEASURED,
        "x",
        (machine_input(f"{cores} cores over one, instead of 32 or 64 nodes over 16; median of {REPETITIONS}"),),
        rows,
        (
            Claim(
                "Fork-join threads reach 0.4 to 0.6 times the speed of processes; BSP threads reach their full speed.",
                f"{verdict(max(excess) < 0.8)}: fork-join reaches {min(excess):.2f} to {max(excess):.2f} times their "
                "speed.",
            ),
        ),
    )


def _sum(fits: Sequence[ThreadsFit], model: str, fields: Sequence[str]) -> int | None:
    """Return the sum of counters over the fits of a model; None if one is not available."""
    counts = [getattr(each.usage, name) for each in fits if each.model == model for name in fields]
    return None if None in counts else sum(counts)


def _fork_join_verdict(fits: Sequence[ThreadsFit]) -> str:
    """Return whether fork-join takes longer than BSP in each cell with several threads."""
    seconds = {(each.shape, each.pattern, each.size, each.model): each.iteration.median_s for each in fits}
    excess = [
        seconds[shape, pattern, size, "fork-join"] / seconds[shape, pattern, size, "bsp"]
        for shape, pattern, size, model in seconds
        if model == "bsp" and not shape.startswith("1x")
    ]
    return f"{verdict(min(excess) > 1.1)}: fork-join takes {min(excess):.2f} to {max(excess):.2f} times as long as BSP."
