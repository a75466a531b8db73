"""Benchmark of K-means on own rows, compared with shared rows: seconds of an iteration, and of the start.

Both fits run on the same two workers, in turn, from the same centroids. With own rows (`rows="own"`) each worker opens
a file that holds its rows only. With shared rows all workers open one file, and each reads its share. The start is the
time of `fit` before the first iteration.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from typing import Any

import numpy as np
from effort import Effort
from numpy.typing import NDArray
from ripieno.bench.figures import Figure, Measurements, Samples

SHAPE, CLUSTER_COUNT, RUN_COUNT = (60_000, 512), 1_000, 5
QUICK_SHAPE, QUICK_CLUSTER_COUNT = (2_000, 32), 20
ITERATION_COUNT = 6
WORKER_COUNT = 2
# Limits relative to shared rows: 3 % more time for an iteration, and no more for the start.
TARGETS = {"an iteration": 1.03, "the start": 1.0}


def measured(report: Measurements, effort: Effort) -> None:
    """Measure fits on own rows and on shared rows with the same values."""
    from ripieno.launch import launch

    (row_count, column_count), cluster_count = (
        (QUICK_SHAPE, QUICK_CLUSTER_COUNT) if effort.quick else (SHAPE, CLUSTER_COUNT)
    )
    rows = np.random.default_rng(0).random((row_count, column_count), np.float32)
    start = rows[:: row_count // cluster_count][:cluster_count].copy()
    with tempfile.TemporaryDirectory() as folder, launch(WORKER_COUNT, threads=1) as job:
        np.save(f"{folder}/all.npy", rows)
        for rank, part in enumerate(np.array_split(rows, WORKER_COUNT)):
            np.save(f"{folder}/rows-{rank}.npy", part)
        _fitted(job, folder, start, "own")
        times: dict[str, list[tuple[list[float], float, float]]] = {"own": [], "shared": []}
        for _ in range(effort.runs(RUN_COUNT)):
            for kind in times:
                times[kind].append(_fitted(job, folder, start, kind))
    inertias = {inertia for runs in times.values() for *_, inertia in runs}
    if max(inertias) > min(inertias) * (1 + 1e-6):
        report.remark(f"own and shared rows end at different inertias: {sorted(inertias)}")
    samples = {
        "an iteration": {kind: [s for run in runs for s in run[0]] for kind, runs in times.items()},
        "the start": {kind: [run[1] for run in runs] for kind, runs in times.items()},
    }
    for row, by_kind in samples.items():
        own, shared = (Samples(tuple(by_kind[kind])) for kind in ("own", "shared"))
        report.figures.append(Figure(
            case=f"K-means, {row_count} × {column_count} into {cluster_count}", row=row, ours=own,
            peers={"shared rows": shared}, limit_s=None, limit="none", work=row_count / 1e6, rate_unit="M rows/s",
            targets={"peer": TARGETS[row]},
        ))  # fmt: skip


def _fitted(job: Any, folder: str, start: NDArray[Any], kind: str) -> tuple[list[float], float, float]:
    """Return the seconds of each iteration but the first, the seconds of the start, and the inertia."""
    return job.run(_fit, folder, start, kind)[0]


def _fit(comm: Any, folder: str, start: NDArray[Any], kind: str) -> tuple[list[float], float, float]:
    import ripieno

    path = f"{folder}/all.npy" if kind == "shared" else f"{folder}/rows-{comm.rank}.npy"
    ends: list[float] = []

    def record_end(event: dict[str, Any]) -> None:
        if event["event"] == "iteration":
            ends.append(time.perf_counter())

    model = ripieno.KMeans(len(start), init=start, max_iter=ITERATION_COUNT, tol=0, on_iteration=record_end)
    comm.barrier()
    begin = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        model.fit(path, comm=comm, rows=kind)
    if comm.rank > 0:
        # Only rank 0 gets the events of the iterations.
        return [], 0.0, model.inertia_
    first = model.report_.iterations[0].seconds
    return np.diff(ends).tolist(), ends[0] - begin - first, model.inertia_
