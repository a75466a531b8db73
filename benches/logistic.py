"""Benchmark of logistic regression on sparse rows: seconds to a near optimum, compared with its peers.

Each implementation runs with the loosest tolerance that brings its objective within 2e-4 of the optimum. The optimum is
the objective of our most precise fit. Times are whole fits, including the checks of `fit`. Workers run before the timed
fit, as do the threads of other libraries and Spark's session, except in rows that include the start of workers.
"""

from __future__ import annotations

import re
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onedal_peer
import spark_session
from effort import Effort
from numpy.typing import NDArray
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.pages.logistic import descent_chart
from ripieno.bench.toolchain import Skipped
from ripieno.report import charts
from scipy.sparse import csr_matrix

RUN_COUNT = 5
WORKER_COUNT = 2
NEAR = 2e-4
TOLERANCES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)
# At least 3 times as fast.
TARGETS = {"peer": 1 / 3}
STARTED = "newton-cg, {} workers started for it"
# Bytes that a pass must read per entry: value and column.
ENTRY_BYTES = 12
PASSES = 20

Rows = tuple[csr_matrix, NDArray[Any]]
#: Returns an estimator with the given tolerance. After `fit` it has `coef_`.
Candidate = Callable[[float], Any]
#: For each tolerance, the seconds of a fit and the relative distance of its objective from the optimum.
Descent = list[tuple[float, float]]


def measured(report: Measurements, effort: Effort, *, data: Path | None = None, draw: Path | None = None) -> None:
    """Measure one data set: libsvm text, an archive of reviews in the folders pos and neg, or synthetic rows."""
    import ripieno as rp

    name, rows = read_rows(data, quick=effort.quick)
    with rp.launch(workers=WORKER_COUNT) as job:
        ours = _ours(job)
        try:
            if effort.quick:
                raise Skipped("MLlib is skipped in quick runs")
            with _mllib(rows) as mllib:
                paths = _measured(name, rows, ours, _peers(report) | {"MLlib": mllib}, report, effort)
        except Skipped as skipped:
            report.remark(str(skipped))
            paths = _measured(name, rows, ours, _peers(report), report, effort)
        if draw is not None:
            _draw(draw, name, paths, rows, job)


def _ours(job: Any) -> dict[str, Candidate]:
    import ripieno as rp

    def fitter(**parameters: Any) -> Candidate:
        return lambda tol: rp.LogisticRegression(tol=tol, fit_intercept=False, max_iter=10_000, **parameters)

    return {
        f"newton-cg, {WORKER_COUNT} workers": fitter(solver="newton-cg", engine=job),
        f"lbfgs, {WORKER_COUNT} workers": fitter(solver="lbfgs", engine=job),
        "newton-cg, this process": fitter(solver="newton-cg"),
        STARTED.format(WORKER_COUNT): fitter(solver="newton-cg", workers=WORKER_COUNT),
    }


def _peers(report: Measurements) -> dict[str, Candidate]:
    from sklearn.linear_model import LogisticRegression

    def fitter(estimator: type[Any], solver: str) -> Candidate:
        options = {"fit_intercept": False, "max_iter": 10_000, "random_state": 0}
        return lambda tol: estimator(solver=solver, tol=tol, **options)

    found = {solver: fitter(LogisticRegression, solver) for solver in ("lbfgs", "newton-cg", "liblinear", "saga")}
    for name, estimator in onedal_peer.optional(report, "linear_model", "LogisticRegression").items():
        found |= {f"{name} {solver}": fitter(estimator, solver) for solver in ("lbfgs", "newton-cg")}
    return found


class _Mllib:
    """MLlib's logistic regression with the same objective, on rows held by executors."""

    def __init__(self, frame: Any, tol: float) -> None:
        self._frame, self._tol = frame, tol

    def fit(self, X: csr_matrix, y: NDArray[Any]) -> _Mllib:
        """Fit the data frame, which holds the same rows."""
        from pyspark.ml.classification import LogisticRegression

        model = LogisticRegression(
            regParam=1 / X.shape[0], maxIter=10_000, tol=self._tol, fitIntercept=False, standardization=False
        ).fit(self._frame)
        self.coef_ = model.coefficients.toArray()[None]
        return self


@contextmanager
def _mllib(rows: Rows) -> Iterator[Candidate]:
    from sklearn.datasets import dump_svmlight_file

    X, y = rows
    with spark_session.session("local[2]", {}) as spark, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/rows.libsvm"
        dump_svmlight_file(X, (y == y.max()).astype(int), path, zero_based=False)
        frame = spark.read.format("libsvm").option("numFeatures", str(X.shape[1])).load(f"file://{path}")
        frame = frame.repartition(WORKER_COUNT).cache()
        frame.count()
        yield lambda tol: _Mllib(frame, tol)


def _measured(
    name: str,
    rows: Rows,
    ours: Mapping[str, Candidate],
    peers: Mapping[str, Candidate],
    report: Measurements,
    effort: Effort,
) -> dict[str, Descent]:
    """Add a figure for each of our solvers. Return the descent of each implementation."""
    X = rows[0]
    best = _objective(next(iter(ours.values()))(1e-10).fit(*rows).coef_, rows)
    candidates = {**ours, **peers}
    started = STARTED.format(WORKER_COUNT)
    paths: dict[str, Descent] = {}
    for each, make in list(candidates.items()):
        try:
            if each != started:
                with onedal_peer.OneDalOnly():
                    paths[each] = _path(make, rows, best)
        except Skipped as skipped:
            if each in ours:
                raise RuntimeError(f"{each}: {skipped}") from skipped
            report.remark(f"{each}: {skipped}")
            del candidates[each]
            paths.pop(each, None)
    chosen = {each: TOLERANCES[len(path) - 1] for each, path in paths.items()}
    # New workers and running workers use the same tolerance.
    chosen[started] = chosen[next(iter(ours))]
    seconds: dict[str, list[float]] = {each: [] for each in candidates}
    for _ in range(effort.runs(RUN_COUNT)):
        for each, make in candidates.items():
            seconds[each].append(effort.turn(lambda make=make, tol=chosen[each]: fit_s(make(tol), rows)))
    report.remark(f"{name}: tolerances " + ", ".join(f"{each} {tol:g}" for each, tol in chosen.items()))
    limit_s = PASSES * read_s(X.nnz * ENTRY_BYTES)
    report.figures += [
        Figure(
            case=f"{name}, {X.shape[0]} × {X.shape[1]}, {X.nnz} entries",
            row=each,
            ours=Samples(tuple(seconds[each])),
            peers={peer: Samples(tuple(seconds[peer])) for peer in peers if peer in candidates},
            limit_s=limit_s,
            limit=f"{PASSES} times reading all entries, {ENTRY_BYTES} bytes each, by one core",
            work=PASSES * X.nnz * ENTRY_BYTES / 1e9,
            rate_unit="GB/s",
            targets={} if each == started else TARGETS,
        )
        for each in ours
    ]
    return paths


def _draw(folder: Path, name: str, paths: Mapping[str, Descent], rows: Rows, job: Any) -> None:
    """Draw NAME.svg, the descents, and NAME-seconds.svg, the time by stage of each iteration."""
    ours = _ours(job)
    first = next(iter(ours.values()))
    iterations = first(TOLERANCES[len(next(iter(paths.values()))) - 1]).fit(*rows).report_.iterations
    folder.mkdir(parents=True, exist_ok=True)
    named = {f"{'Ripieno' if each in ours else 'peer'}: {each}": descent for each, descent in paths.items()}
    (folder / f"{name}.svg").write_text(descent_chart(name, named, NEAR), encoding="utf-8")
    (folder / f"{name}-seconds.svg").write_text(charts.standalone(charts.time_chart(iterations)), encoding="utf-8")


def _path(make: Candidate, rows: Rows, best: float) -> Descent:
    """Fit with decreasing tolerances until the objective is near the optimum."""
    path: Descent = []
    for tol in TOLERANCES:
        model = make(tol)
        seconds = fit_s(model, rows)
        path.append((seconds, max(_objective(model.coef_, rows) / best - 1, np.finfo(float).eps)))
        if path[-1][1] <= NEAR:
            return path
    raise Skipped(f"not within {NEAR} of {best}, so there is no figure")


def fit_s(model: Any, rows: Rows) -> float:
    """Return the seconds of a fit."""
    begin = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        model.fit(*rows)
    return time.perf_counter() - begin


def _objective(coef: NDArray[np.float64], rows: Rows) -> float:
    X, y = rows
    margins = (X @ coef[0]) * np.where(y == y.max(), 1, -1)
    return float(0.5 * coef[0] @ coef[0] + np.logaddexp(0, -margins).sum())


def read_rows(data: Path | None, *, quick: bool) -> tuple[str, Rows]:
    """Return the name and the rows of the data, or of synthetic data."""
    if data is None:
        return "made up", _synthetic(300 if quick else 30_000, 120)
    if ".tar" in data.name:
        return data.name.partition(".")[0], _reviews(data)
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(data))
    # Some libraries accept only 32-bit indices.
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return data.name, (csr_matrix(X), y)


def _synthetic(row_count: int, column_count: int) -> Rows:
    """Return rows with 14 ones each, and the side of a plane, with noise, as labels."""
    random = np.random.default_rng(0)
    columns = np.sort(random.random((row_count, column_count)).argsort(axis=1)[:, :14], axis=1)
    starts = np.arange(row_count + 1) * 14
    X = csr_matrix((np.ones(columns.size), columns.ravel(), starts), shape=(row_count, column_count))
    scores = X @ random.normal(size=column_count)
    return X, (scores + 2 * random.normal(size=row_count) > 0).astype(int)


def _reviews(path: Path) -> Rows:
    """Return the TF-IDF weights of reviews; the folder of a review determines its class."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, labels = [], []
    with tarfile.open(path) as archive:
        for member in archive:
            found = re.search(r"/(pos|neg)/[^/]+\.txt$", member.name)
            if found and (file := archive.extractfile(member)):
                texts.append(file.read().decode(errors="replace"))
                labels.append(int(found[1] == "pos"))
    return csr_matrix(TfidfVectorizer().fit_transform(texts)), np.array(labels)


def read_s(size_bytes: int) -> float:
    """Return the seconds that a core takes to read this number of bytes."""
    block = np.ones(max(size_bytes // 8, 1))
    begin = time.perf_counter()
    block.sum()
    return time.perf_counter() - begin
