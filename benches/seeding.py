"""Benchmark of K-means initialization: seconds and inertia of k-means|| compared with greedy k-means++ of scikit-learn.

Inertia is measured at the first centroids, and after some iterations of Lloyd from them, both relative to the peer's.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from effort import Effort
from numpy.typing import NDArray
from ripieno.bench.figures import Figure, FigureCount, Measurements, Samples
from ripieno.host import usable_cores

CLUSTER_COUNTS, QUICK_CLUSTER_COUNTS = (10, 100, 1_000, 5_000, 20_000), (10, 1_100)
ROW_COUNT, QUICK_ROW_COUNT = 30_000, 1_500
ITERATION_COUNT = 5
# Beyond this, the peer's k passes over the rows take minutes.
PEER_LIMIT = 2e8
# With fewer rows per cluster, initialization would have no choice.
ROWS_PER_CLUSTER = 1.3
# Upper limits of our relative inertia at the start, and after the iterations.
START_TARGET, END_TARGET = 1.1, 1.03

Rows = NDArray[Any]


def measured(report: Measurements, effort: Effort) -> None:
    """Measure one case per data set and number of clusters."""
    for name, make in DATA.items():
        rows = make(effort.quick)
        for cluster_count in QUICK_CLUSTER_COUNTS if effort.quick else CLUSTER_COUNTS:
            if len(rows) >= ROWS_PER_CLUSTER * cluster_count:
                _measure(f"{name}, {len(rows)} × {rows.shape[1]}", rows, cluster_count, report, effort)


def _measure(name: str, rows: Rows, cluster_count: int, report: Measurements, effort: Effort) -> None:
    candidates: dict[str, Callable[[Rows, int, int], Rows]] = {"ours": _ours}
    if len(rows) * cluster_count <= PEER_LIMIT:
        candidates["k-means++ of scikit-learn"] = _peer
    candidates["random rows"] = _random
    seconds: dict[str, list[float]] = {each: [] for each in candidates}
    inertias: dict[str, list[tuple[float, float]]] = {each: [] for each in candidates}
    for seed in range(effort.runs(3)):
        for each, start in candidates.items():
            begin = time.perf_counter()
            centroids = start(rows, cluster_count, seed)
            seconds[each].append(time.perf_counter() - begin)
            inertias[each].append(_inertias(rows, centroids))
    row = f"into {cluster_count}"
    peers = {each: Samples(tuple(seconds[each])) for each in candidates if each != "ours"}
    report.figures.append(Figure(
        case=name, row=row, ours=Samples(tuple(seconds["ours"])), peers=peers, limit_s=None, limit="none",
        work=len(rows) / 1e6, rate_unit="M rows/s", targets={},
    ))  # fmt: skip
    base = "k-means++ of scikit-learn" if "k-means++ of scikit-learn" in candidates else "random rows"
    medians = {each: np.median(inertias[each], axis=0) for each in candidates}
    for at, (moment, target) in enumerate([("at the start", START_TARGET), ("after Lloyd", END_TARGET)]):
        ratio = float(medians["ours"][at] / medians[base][at])
        report.counts.append(FigureCount(f"{name} {row}", f"inertia {moment}", ratio, f"of {base}", target))


def _ours(rows: Rows, cluster_count: int, seed: int) -> Rows:
    from ripieno.launch import launch

    with launch(1, threads=usable_cores()) as job:
        return job.run(_first_centroids, rows, cluster_count, seed)[0]


def _first_centroids(comm: Any, rows: Rows, cluster_count: int, seed: int) -> Rows:
    from ripieno.algorithms.kmeans.rows import load
    from ripieno.algorithms.kmeans.seeding import seed_centroids
    from ripieno.input.matrix import RowsInMemory

    return seed_centroids(
        comm, load(comm, RowsInMemory(rows)), init="k-means||", n_clusters=cluster_count, seed=seed,
        on_progress=lambda chosen: None,
    )  # fmt: skip


def _peer(rows: Rows, cluster_count: int, seed: int) -> Rows:
    from sklearn.cluster import kmeans_plusplus

    return kmeans_plusplus(rows, cluster_count, random_state=seed)[0]


def _random(rows: Rows, cluster_count: int, seed: int) -> Rows:
    return rows[np.random.default_rng(seed).choice(len(rows), cluster_count, replace=False)]


def _inertias(rows: Rows, centroids: Rows) -> tuple[float, float]:
    """Return the inertia of the first centroids, and after the iterations."""
    import ripieno

    model = ripieno.KMeans(len(centroids), init=centroids, max_iter=ITERATION_COUNT, tol=0, threads=usable_cores())
    with warnings.catch_warnings(action="ignore"):
        model.fit(rows)
    return model.report_.iterations[0].inertia, model.inertia_


def _blobs(quick: bool) -> Rows:
    from sklearn.datasets import make_blobs

    return make_blobs(QUICK_ROW_COUNT if quick else ROW_COUNT, 4, centers=100, random_state=0)[0]


def _uniform(quick: bool) -> Rows:
    return np.random.default_rng(0).random((QUICK_ROW_COUNT if quick else ROW_COUNT, 2))


def _digits(quick: bool) -> Rows:
    from sklearn.datasets import load_digits

    return load_digits().data[: QUICK_ROW_COUNT if quick else None]


def _patches(quick: bool) -> Rows:
    """Return HOG vectors of the photographs that come with scikit-learn and scikit-image; of only one if `quick`."""
    from ripieno.features import HogOptions, demo_images, hog_vectors

    options = HogOptions(stride=16)
    found = demo_images()[: 1 if quick else None]
    pictures = [(picture.gray(), options.corners(picture.height, picture.width)) for picture in found]
    return np.concatenate([hog_vectors(image, corners, options) for image, corners in pictures])


DATA: dict[str, Callable[[bool], Rows]] = {"blobs": _blobs, "uniform": _uniform, "digits": _digits, "HOG": _patches}
