"""Benchmark of the overhead of Spark: until ranks have run their first program there, and in each later iteration."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from effort import Effort
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples
from spark_programs import iterated, nothing

WORKER_COUNT, RUN_COUNT = 2, 5
ITERATION_COUNT, QUICK_ITERATION_COUNT = 300, 10
#: Maximum additional start time over local workers in seconds, and maximum ratio to a local iteration, which covers
#: run-to-run variation.
START_TARGET_S, ITERATION_TARGETS = 3.0, {"peer": 1.1}


def measured(report: Measurements, effort: Effort) -> None:
    """Compare with workers of this machine that run the same program."""
    from ripieno import Job, launch

    engines: dict[str, Callable[[], Job]] = {
        "Spark": lambda: launch(WORKER_COUNT, "spark", 1),
        "local": lambda: launch(WORKER_COUNT, threads=1),
    }
    start_s, iteration_s = ({name: [] for name in engines} for _ in range(2))
    iteration_count = QUICK_ITERATION_COUNT if effort.quick else ITERATION_COUNT
    for _ in range(effort.runs(RUN_COUNT)):
        for name, started in engines.items():
            begin = time.perf_counter()
            with started() as job:
                job.run(nothing)
                start_s[name].append(time.perf_counter() - begin)
                job.run(iterated, iteration_count)
                iteration_s[name].append(max(job.run(iterated, iteration_count)))
    case = f"{WORKER_COUNT} ranks in Spark and {WORKER_COUNT} local ranks"
    for row, seconds, targets in (
        ("launch and first result", start_s, {}),
        ("an iteration", iteration_s, ITERATION_TARGETS),
    ):
        samples = {name: Samples(tuple(each)) for name, each in seconds.items()}
        report.figures.append(
            Figure(case, row, samples["Spark"], {"local": samples["local"]}, None, "none is known", 0.0, "", targets)
        )
    more_s = float(np.median(start_s["Spark"]) - np.median(start_s["local"]))
    report.counts.append(FigureCount(case, "launch and first result take longer by", more_s, "s", START_TARGET_S))
