"""Benchmark of K-means on all cores: Ripieno's kernel and estimator, its peers, and the limit of sgemm.

Cases are rows of many columns, uniform rows of two columns, and many passes, where later passes use bounds.
All programs start from the same centroids and run the same number of passes. A peer counts only if it ends at centroids
of the same inertia: to 1e-5 for two passes, with two columns to 1e-3. Other peers are left out with a remark. The rate
is nominal: 2·n·k·d operations a pass.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gemm
import numpy as np
import onedal_peer
from effort import Effort, Measured
from numpy.typing import NDArray
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.pages.kmeans import programs_chart
from ripieno.bench.toolchain import Skipped
from ripieno.host import usable_cores

SHAPE, CLUSTER_COUNTS, RUN_COUNT = (60_000, 512), (1_000, 10_000), 5
QUICK_SHAPE, QUICK_CLUSTER_COUNTS = (2_000, 32), (20,)
# With two columns: number of rows, and required speedup over the best peer by clusters.
PLANE_ROW_COUNT, PLANE_TARGETS = 1_000_000, {1_000: 4, 10_000: 15}
QUICK_PLANE_ROW_COUNT, QUICK_PLANE_TARGETS = 60_000, {100: 4}
# Above this many pairs of two columns, scikit-learn and oneDAL take more than ten seconds per pass.
SKLEARN_PLANE_PAIRS = 2e9
# Many passes with bounds: runs and average speedup over the best peer; clusters and passes.
LONG_RUN_COUNT, LONG_TARGET = 3, 3
LONG_CLUSTER_COUNT, LONG_PASS_COUNT = 1_000, 20
MIXTURE_SHAPE, MIXTURE_CLUSTER_COUNT, MIXTURE_PASS_COUNT = (200_000, 64), 5_000, 10
PASS_COUNT = 2
WORKER_COUNT = 2
BLOCK_ROW_COUNT = 8192
INERTIA_TOLERANCE = 1e-5
# Peers compute differences of squares in float32. With many clusters these are thousands of times a distance.
PLANE_INERTIA_TOLERANCE = 1e-3
CHECKED_ROW_COUNT = 200
# Threads of a library keep spinning for a while after a call.
PAUSE_S = 0.2
# At least 75 % of sgemm's rate.
TARGETS = {"peer": 1.0, "limit": 1 / 0.75}

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class KMeansProblem:
    """Rows, and start centroids.

    Parameters
    ----------
    rows : (n, d)
    start : (k, d)
    targets
        Targets as in a figure.
    pass_count
        Number of passes per run.
    is_product
        Whether a matrix product is the lower bound of a pass.
    has_bounds
        Whether our passes skip pairs that the previous pass ruled out.
    peers
        Names of the measured peers.
    inertia_tolerance
        Relative excess allowed for the peers' inertia after `PASS_COUNT` passes.
    """

    rows: Rows
    start: Rows
    targets: dict[str, float]
    peers: tuple[str, ...]
    pass_count: int = PASS_COUNT
    is_product: bool = False
    has_bounds: bool = False
    inertia_tolerance: float = INERTIA_TOLERANCE

    @property
    def operation_count(self) -> float:
        """Return the nominal operations of a pass."""
        return 2.0 * self.rows.size * len(self.start)


@dataclass(frozen=True)
class PassTimes:
    """Seconds per pass, and the centroids after `PASS_COUNT` passes."""

    pass_s: float
    centroids: NDArray[Any]


Candidate = Callable[[KMeansProblem], PassTimes]


def cases(data: Path | None, draw: Path | None) -> dict[str, Measured]:
    """Return the measurements by name. `data` replaces the rows of two cases and excludes the others.

    `draw` is a folder for the pictures of two cases.
    """
    found: dict[str, Measured] = {
        "first": lambda report, effort: _first_passes(report, effort, data, draw),
        "passes": lambda report, effort: _passes(report, effort, data),
    }
    if data is None:
        found |= {"mixture": _mixture, "plane": lambda report, effort: _plane(report, effort, draw)}
    return found


def _first_passes(report: Measurements, effort: Effort, data: Path | None, draw: Path | None) -> None:
    """Measure passes that compare all pairs, for each number of clusters."""
    rows, peers = _rows(effort, data), _peers(report)
    figures = {}
    for cluster_count in QUICK_CLUSTER_COUNTS if effort.quick else CLUSTER_COUNTS:
        problem = KMeansProblem(rows, _distinct_rows(rows, cluster_count), TARGETS, tuple(peers), is_product=True)
        figures[cluster_count] = _figures(problem, peers, report, effort)
    _add(report, figures, rows, draw, "first")


def _passes(report: Measurements, effort: Effort, data: Path | None) -> None:
    """Measure many passes over the same rows."""
    count, peers = QUICK_CLUSTER_COUNTS[0] * 4 if effort.quick else LONG_CLUSTER_COUNT, _peers(report)
    problem = _long(_rows(effort, data), count, LONG_PASS_COUNT, tuple(peers))
    report.figures += _figures(problem, peers, report, effort)


def _mixture(report: Measurements, effort: Effort) -> None:
    """Measure many passes over rows of fewer columns."""
    if not effort.quick:
        peers = _peers(report)
        problem = _long(mixture(*MIXTURE_SHAPE), MIXTURE_CLUSTER_COUNT, MIXTURE_PASS_COUNT, tuple(peers))
        report.figures += _figures(problem, peers, report, effort)


def _plane(report: Measurements, effort: Effort, draw: Path | None) -> None:
    """Measure rows of two columns, for each number of clusters."""
    peers, figures = _peers(report), {}
    rows = np.random.default_rng(0).random((QUICK_PLANE_ROW_COUNT if effort.quick else PLANE_ROW_COUNT, 2), np.float32)
    for cluster_count, factor in (QUICK_PLANE_TARGETS if effort.quick else PLANE_TARGETS).items():
        is_long = len(rows) * cluster_count > SKLEARN_PLANE_PAIRS
        names = tuple(name for name in peers if name not in ("scikit-learn", onedal_peer.NAME) or not is_long)
        start, targets = _distinct_rows(rows, cluster_count), {"peer": 1 / factor}
        problem = KMeansProblem(rows, start, targets, names, inertia_tolerance=PLANE_INERTIA_TOLERANCE)
        figures[cluster_count] = _figures(problem, peers, report, effort)
    _add(report, figures, rows, draw, "plane")


def _add(report: Measurements, figures: dict[int, list[Figure]], rows: Rows, draw: Path | None, name: str) -> None:
    """Add the figures, by the number of clusters, and draw them."""
    report.figures += [figure for found in figures.values() for figure in found]
    if draw is None:
        return
    drawn: dict[str, dict[int, Samples]] = {}
    for cluster_count, found in figures.items():
        for figure in found:
            drawn.setdefault(f"Ripieno, {figure.row}", {})[cluster_count] = figure.ours
        for peer, samples in found[0].peers.items():
            drawn.setdefault(peer, {})[cluster_count] = samples
    draw.mkdir(parents=True, exist_ok=True)
    title = f"K-means, {len(rows):,} × {rows.shape[1]}, {usable_cores()} cores"
    (draw / f"{name}.svg").write_text(programs_chart(title, drawn), encoding="utf-8")


def _rows(effort: Effort, data: Path | None) -> Rows:
    if data is None:
        return hog_like(*(QUICK_SHAPE if effort.quick else SHAPE))
    return np.load(data).astype(np.float32, copy=False)


def hog_like(row_count: int, column_count: int, seed: int = 0) -> Rows:
    """Return rows like histograms of gradients: nonnegative, of length 1, mixtures of a few patterns, with noise."""
    random = np.random.default_rng(seed)
    patterns = random.gamma(0.3, size=(48, column_count)).astype(np.float32)
    shares = random.gamma(0.25, size=(row_count, 48)).astype(np.float32)
    rows = shares @ patterns
    rows += 0.3 * rows.mean() * np.abs(random.standard_normal(rows.shape, dtype=np.float32))
    return np.ascontiguousarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def mixture(row_count: int, column_count: int, seed: int = 0) -> Rows:
    """Return rows around about a thousand centers."""
    random = np.random.default_rng(seed)
    places = random.standard_normal((row_count // 50, column_count), dtype=np.float32)
    rows = places[random.integers(len(places), size=row_count)]
    rows += random.standard_normal(rows.shape, dtype=np.float32)
    return rows


def _long(rows: Rows, cluster_count: int, pass_count: int, peers: tuple[str, ...]) -> KMeansProblem:
    """Return many passes that start from k-means|| and one iteration."""
    import ripieno

    with warnings.catch_warnings(action="ignore"):
        start = ripieno.KMeans(cluster_count, max_iter=1, random_state=0).fit(rows).cluster_centers_
    return KMeansProblem(rows, start, {"peer": 1 / LONG_TARGET}, peers, pass_count, has_bounds=True)


def _figures(
    problem: KMeansProblem, candidates: dict[str, Candidate], report: Measurements, effort: Effort
) -> list[Figure]:
    ours: dict[str, Candidate] = {"kernel": _kernel, f"KMeans, {WORKER_COUNT} workers": _estimator}
    peers = {name: candidates[name] for name in problem.peers}
    seconds: dict[str, list[float]] = {}
    square_s, shaped_s = [], []
    for _ in range(effort.runs(LONG_RUN_COUNT if problem.has_bounds else RUN_COUNT)):
        if problem.is_product:
            square_s.append(gemm.square_s(np.float32, quick=effort.quick) * problem.operation_count)
            shaped_s.append(_shaped_s(problem) * problem.operation_count)
        outcomes: dict[str, PassTimes] = {}
        for name, candidate in {**ours, **peers}.items():
            try:
                outcomes[name] = _after_a_pause(candidate, problem)
            except Skipped as skipped:
                report.remark(str(skipped))
                del peers[name]
        for name, reason in _differing(problem, outcomes, tuple(ours)).items():
            report.remark(f"{len(problem.start)} clusters: {name} is left out: {reason}")
            del peers[name], outcomes[name]
        for name, outcome in outcomes.items():
            seconds.setdefault(name, []).append(outcome.pass_s)
    (n, d), k = problem.rows.shape, len(problem.start)
    limit_s = float(np.median(square_s)) if problem.is_product else None
    if limit_s is not None:
        report.remarks.append(
            f"{k} clusters: sgemm of {BLOCK_ROW_COUNT} × {d} × {k} runs at {limit_s / np.median(shaped_s):.2f} times "
            f"the rate of square matrices, {problem.operation_count / limit_s / 1e9:.0f} GFLOP/s, by OpenBLAS for "
            f"{_blas_core()}"
        )
    return [
        Figure(
            case=f"{n} × {d} into {k}" + (f", {problem.pass_count} passes" if problem.has_bounds else ""),
            row=name,
            ours=Samples(tuple(seconds[name])),
            # A peer is left out completely, even if only one of its runs differs.
            peers={peer: Samples(tuple(seconds[peer])) for peer in peers},
            limit_s=limit_s,
            limit=f"sgemm of NumPy, {gemm.SIDE}³, all cores, at 2·n·k·d operations a pass" if limit_s else "",
            work=problem.operation_count / 1e9,
            rate_unit="GFLOP/s",
            targets=problem.targets,
        )
        for name in ours
    ]


def _peers(report: Measurements) -> dict[str, Candidate]:
    found: dict[str, Candidate] = {}
    for name, candidate, package in (
        ("scikit-learn", _sklearn, "sklearn.cluster"),
        (onedal_peer.NAME, _onedal, "sklearnex.cluster"),
        ("faiss", _faiss, "faiss"),
    ):
        try:
            __import__(package)
            found[name] = candidate
        except ImportError:
            report.remark(f"{name} is not installed: make bench installs it")
    return found


def _after_a_pause(candidate: Candidate, problem: KMeansProblem) -> PassTimes:
    time.sleep(PAUSE_S)
    return candidate(problem)


def _kernel(problem: KMeansProblem) -> PassTimes:
    from ripieno import kernels

    centroids, threads = problem.start.copy(), usable_cores()
    labels = np.empty(len(problem.rows), np.int32)
    bounds = kernels.PassBounds(problem.rows.nbytes) if problem.has_bounds else None
    begin = time.perf_counter()
    for _ in range(problem.pass_count):
        sums, weights, _ = kernels.assign_accumulate(
            problem.rows, centroids, None, labels, None, threads=threads, bounds=bounds
        )
        kernels.recenter(centroids, sums, weights)
    return PassTimes((time.perf_counter() - begin) / problem.pass_count, centroids)


def _estimator(problem: KMeansProblem) -> PassTimes:
    """Measure whole iterations (computation, allreduce, move) on the slowest rank, without the start of the workers."""
    import ripieno

    model = ripieno.KMeans(
        len(problem.start), init=problem.start, max_iter=problem.pass_count, tol=0, workers=WORKER_COUNT
    )
    with warnings.catch_warnings(action="ignore"):
        model.fit(problem.rows)
    return PassTimes(float(np.mean([each.seconds for each in model.report_.iterations])), model.cluster_centers_)


def _sklearn(problem: KMeansProblem) -> PassTimes:
    from sklearn.cluster import KMeans

    return _like_sklearn(KMeans, problem)


def _onedal(problem: KMeansProblem) -> PassTimes:
    with onedal_peer.OneDalOnly():
        return _like_sklearn(onedal_peer.estimator("cluster", "KMeans"), problem)


def _like_sklearn(estimator: type[Any], problem: KMeansProblem) -> PassTimes:
    """Measure scikit-learn or oneDAL. The last pass only assigns, and counts as one."""
    model = estimator(len(problem.start), init=problem.start, n_init=1, tol=0, max_iter=problem.pass_count)
    begin = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        model.fit(problem.rows)
    return PassTimes((time.perf_counter() - begin) / (model.n_iter_ + 1), model.cluster_centers_)


def _faiss(problem: KMeansProblem) -> PassTimes:
    import faiss

    faiss.omp_set_num_threads(usable_cores())
    n, d = problem.rows.shape
    limits = {"max_points_per_centroid": n, "min_points_per_centroid": 1}
    model = faiss.Kmeans(d, len(problem.start), niter=problem.pass_count, **limits)
    begin = time.perf_counter()
    model.train(problem.rows, init_centroids=problem.start)
    return PassTimes((time.perf_counter() - begin) / problem.pass_count, model.centroids)


def _differing(problem: KMeansProblem, outcomes: dict[str, PassTimes], ours: tuple[str, ...]) -> dict[str, str]:
    """Return the peers with another inertia than ours, and the reasons.

    Raises
    ------
    RuntimeError
        Our results differ from each other, or the measure of the inertia is wrong: there is no figure.
    """
    found = {name: _inertia(problem.rows, outcome.centroids) for name, outcome in outcomes.items()}
    sample = np.ascontiguousarray(problem.rows[:: max(1, len(problem.rows) // CHECKED_ROW_COUNT)])
    centroids = outcomes[ours[0]].centroids
    measures = _inertia(sample, centroids), _plain_inertia(sample, centroids)
    # Rounding errors accumulate over passes.
    scale = problem.pass_count / PASS_COUNT
    for first, second in (measures, *((found[ours[0]], found[name]) for name in ours)):
        if abs(first - second) > INERTIA_TOLERANCE * scale * min(first, second):
            raise RuntimeError(f"our inertias differ by more than {INERTIA_TOLERANCE * scale:g}: {first} and {second}")
    tolerance = problem.inertia_tolerance * scale
    return {
        name: f"its inertia differs from ours by {inertia / found[ours[0]] - 1:+.1e}, more than {tolerance:g}"
        for name, inertia in found.items()
        if name not in ours and abs(inertia / found[ours[0]] - 1) > tolerance
    }


def _inertia(rows: Rows, centroids: NDArray[Any]) -> float:
    from ripieno import kernels

    labels = np.empty(len(rows), np.int32)
    centroids = np.ascontiguousarray(centroids, np.float32)
    return kernels.assign_accumulate(rows, centroids, None, labels, None, threads=usable_cores())[2]


def _plain_inertia(rows: Rows, centroids: NDArray[Any]) -> float:
    rows, centroids = rows.astype(np.float64), centroids.astype(np.float64)
    return float(sum(((row - centroids) ** 2).sum(axis=1).min() for row in rows))


def _distinct_rows(rows: Rows, count: int) -> Rows:
    """Return distinct rows to start from: implementations treat empty clusters differently."""
    distinct = np.unique(rows[np.random.default_rng(0).permutation(len(rows))[: 2 * count]], axis=0)
    if len(distinct) < count:
        raise Skipped(f"{count} clusters need {count} different rows, but there are {len(distinct)}")
    chosen = np.random.default_rng(1).permutation(len(distinct))[:count]
    return np.ascontiguousarray(distinct[chosen])


def _blas_core() -> str:
    from threadpoolctl import threadpool_info

    found = [library["architecture"] for library in threadpool_info() if "architecture" in library]
    return found[0] if found else "an unknown processor"


def _shaped_s(problem: KMeansProblem) -> float:
    """Return the seconds per operation of an sgemm with the shape of a blocked pass."""
    return gemm.gemm_s(min(BLOCK_ROW_COUNT, len(problem.rows)), problem.rows.shape[1], len(problem.start), np.float32)
