"""Benchmark of principal components and linear regression of tall rows, compared with scikit-learn and oneDAL.

A peer counts only if its variances along the axes, or its predictions, agree with ours. The times are times of whole
fits, including the checks of `fit`, on rows in the memory of this process. Workers, and threads of the peers, have
started before. A remark states the time of our stages alone. The limit is half of the product of the rows with
themselves, which is symmetric.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gemm
import numpy as np
import onedal_peer
from effort import Effort
from kmeans import hog_like
from numpy.typing import DTypeLike, NDArray
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.toolchain import Skipped
from ripieno.report import charts

SHAPE, COMPONENT_COUNT = (60_000, 512), 50
QUICK_SHAPE, QUICK_COMPONENT_COUNT = (600, 24), 3
RUN_COUNT = 5
WORKER_COUNT = 2
# At least 1.5 times as fast.
TARGETS = {"peer": 1 / 1.5}
SAME_F32, SAME_F64 = 2e-3, 1e-8

#: Seconds of a fit, its result, and the seconds of its stages, if known.
Found = tuple[float, NDArray[Any], float]


@dataclass(frozen=True)
class LinearCase:
    """Our fit and the peers' of the same rows, each with its seconds, and the tolerance of the comparison."""

    name: str
    ours: Callable[[], Found]
    peers: dict[str, Callable[[], Found]]
    tolerance: float
    dtype: DTypeLike


def measured(report: Measurements, effort: Effort, *, draw: Path | None = None) -> None:
    """Measure all cases, alternating; stages.svg gets the seconds of the stages of PCA."""
    import ripieno as rp

    shape, count = (QUICK_SHAPE, QUICK_COMPONENT_COUNT) if effort.quick else (SHAPE, COMPONENT_COUNT)
    rows = hog_like(*shape)
    targets = rows[:, :4].sum(axis=1, dtype=np.float64) + np.random.default_rng(1).normal(size=len(rows))
    with rp.launch(workers=WORKER_COUNT) as job:
        cases = [
            *_components(rows, count, job, report),
            *_regression(rows, targets, job, report),
            *_regression(rows.astype(np.float64), targets, job, report),
        ]
        for case in cases:
            report.figures.append(_figure(case, shape, report, effort))
        if draw is not None:
            stages = rp.PCA(count, svd_solver="covariance", engine=job).fit(rows).report_.iterations
            draw.mkdir(parents=True, exist_ok=True)
            (draw / "stages.svg").write_text(charts.standalone(charts.time_chart(stages)), encoding="utf-8")


def _figure(case: LinearCase, shape: tuple[int, int], report: Measurements, effort: Effort) -> Figure:
    operation_count = float(shape[0] * shape[1] ** 2)
    ours: list[float] = []
    stages: list[float] = []
    peers: dict[str, list[float]] = {name: [] for name in case.peers}
    for _ in range(effort.runs(RUN_COUNT)):
        our_s, found, stages_s = effort.turn(case.ours)
        ours.append(our_s)
        stages.append(stages_s)
        for name in list(peers):
            try:
                with onedal_peer.OneDalOnly():
                    peer_s, theirs, _ = effort.turn(case.peers[name])
            except Skipped as skipped:
                report.remark(f"{case.name}: {skipped}")
                del peers[name]
                continue
            peers[name].append(peer_s)
            if not np.allclose(found, theirs, rtol=case.tolerance):
                report.remark(f"{case.name}: {name} is left out: its result differs by more than {case.tolerance}")
                del peers[name]
    report.remark(f"{case.name}: stages of our fit take {statistics.median(stages) * 1e3:.0f} ms")
    return Figure(
        case=f"{shape[0]} × {shape[1]}, {case.name}",
        row=f"{WORKER_COUNT} workers",
        ours=Samples(tuple(ours)),
        peers={name: Samples(tuple(seconds)) for name, seconds in peers.items()},
        limit_s=gemm.square_s(case.dtype, quick=effort.quick) * operation_count,
        limit="gemm of NumPy, all cores, at n·d² operations",
        work=operation_count / 1e9,
        rate_unit="GFLOP/s",
        targets=TARGETS,
    )


def _components(rows: NDArray[np.float32], count: int, job: Any, report: Measurements) -> list[LinearCase]:
    import ripieno as rp
    from sklearn.decomposition import PCA

    def ours() -> Found:
        model = rp.PCA(count, svd_solver="covariance", engine=job)
        return _timed(lambda: model.fit(rows)), model.explained_variance_, model.report_.iterate_s

    def peer(estimator: type[Any]) -> Found:
        model = estimator(count, svd_solver="covariance_eigh")
        return _timed(lambda: model.fit(rows)), model.explained_variance_, 0.0

    peers = {"scikit-learn": PCA} | onedal_peer.optional(report, "decomposition", "PCA")
    return [LinearCase(f"{count} components, float32", ours, _each(peer, peers), SAME_F32, np.float32)]


def _regression(rows: NDArray[Any], targets: NDArray[np.float64], job: Any, report: Measurements) -> list[LinearCase]:
    import ripieno as rp
    from sklearn.linear_model import Ridge

    their_targets = targets.astype(rows.dtype)

    def ours() -> Found:
        model = rp.Ridge(engine=job)
        return _timed(lambda: model.fit(rows, targets)), _predicted(model, rows), model.report_.iterate_s

    def peer(estimator: type[Any]) -> Found:
        model = estimator()
        return _timed(lambda: model.fit(rows, their_targets)), _predicted(model, rows), 0.0

    peers = {"scikit-learn": Ridge} | onedal_peer.optional(report, "linear_model", "Ridge")
    tolerance = SAME_F32 if rows.dtype == np.float32 else SAME_F64
    return [LinearCase(f"ridge, {rows.dtype}", ours, _each(peer, peers), tolerance, rows.dtype)]


def _each(peer: Callable[[type[Any]], Found], estimators: dict[str, type[Any]]) -> dict[str, Callable[[], Found]]:
    return {name: partial(peer, estimator) for name, estimator in estimators.items()}


def _predicted(model: Any, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Return some predictions, without BLAS: its threads would spin during the next fit."""
    return np.asarray(np.einsum("ij,j->i", rows[:1000].astype(np.float64), model.coef_) + model.intercept_)


def _timed(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
