"""Logistic regression on sparse rows: how long until the objective is near its optimum, beside scikit-learn's solvers.

For each contestant the loosest tolerance counts that brings it near enough, by 2e-4 of the optimum, which the most
careful run of ours finds. Fits are timed whole, with what `fit` checks; only the workers are there already.
"""

from __future__ import annotations

import re
import tarfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from effort import Effort
from numpy.typing import NDArray
from ripieno.bench.figures import Figure, Measurements, Samples
from scipy.sparse import csr_matrix

RUN_COUNT = 5
WORKER_COUNT = 2
NEAR = 2e-4
TOLERANCES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6)
#: At least 3 times as fast.
TARGETS = {"peer": 1 / 3}
# Bytes that a pass has to read of an entry: value and column.
ENTRY_BYTES = 12
PASSES = 20

Rows = tuple[csr_matrix, NDArray[Any]]
#: Fits with a tolerance, and has `coef_`.
Contestant = Callable[[float], Any]


def measured(report: Measurements, effort: Effort, *, data: Path | None = None) -> None:
    """One case per data set: libsvm text, an archive of reviews in folders pos and neg, or rows that are made up."""
    import ripieno as rp

    name, rows = _rows(data, quick=effort.quick)
    with rp.launch(workers=WORKER_COUNT) as job:
        report.figures += _figures(name, rows, job, report, effort)


def _figures(name: str, rows: Rows, job: Any, report: Measurements, effort: Effort) -> list[Figure]:
    import ripieno as rp
    from sklearn.linear_model import LogisticRegression

    X, y = rows
    shared = {"fit_intercept": False, "max_iter": 10_000}
    best = _objective(rp.LogisticRegression(solver="newton-cg", tol=1e-10, engine=job, **shared).fit(X, y).coef_, rows)
    ours: dict[str, Contestant] = {
        solver: lambda tol, solver=solver: rp.LogisticRegression(solver=solver, tol=tol, engine=job, **shared)
        for solver in ("newton-cg", "lbfgs")
    }
    peers: dict[str, Contestant] = {
        solver: lambda tol, solver=solver: LogisticRegression(solver=solver, tol=tol, random_state=0, **shared)
        for solver in ("lbfgs", "newton-cg", "liblinear", "saga")
    }
    chosen = {("ours", each): _near(make, rows, best) for each, make in ours.items()}
    chosen |= {("peer", each): _near(make, rows, best) for each, make in peers.items()}
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in chosen}
    for _ in range(effort.runs(RUN_COUNT)):
        for (whose, each), tol in chosen.items():
            make = (ours if whose == "ours" else peers)[each]
            seconds[whose, each].append(_fit_s(make(tol), rows))
    report.remarks.append(f"{name}: tolerances " + ", ".join(f"{a} {b} {tol:g}" for (a, b), tol in chosen.items()))
    return [
        Figure(
            case=f"{name}, {X.shape[0]} × {X.shape[1]}, {X.nnz} entries",
            row=f"{each}, {WORKER_COUNT} workers",
            ours=Samples(tuple(seconds["ours", each])),
            peers={peer: Samples(tuple(seconds["peer", peer])) for peer in peers},
            limit_s=PASSES * _read_s(X.nnz * ENTRY_BYTES),
            limit=f"{PASSES} times reading all entries, {ENTRY_BYTES} bytes each, by one core",
            work=PASSES * X.nnz * ENTRY_BYTES / 1e9,
            rate_unit="GB/s",
            targets=TARGETS,
        )
        for each in ours
    ]


def _near(make: Contestant, rows: Rows, best: float) -> float:
    """The loosest tolerance that brings a contestant near the optimum."""
    for tol in TOLERANCES:
        model = make(tol)
        _fit_s(model, rows)
        if _objective(model.coef_, rows) <= best * (1 + NEAR):
            return tol
    raise RuntimeError(f"{model}: not within {NEAR} of {best}, so no figure stands")


def _fit_s(model: Any, rows: Rows) -> float:
    begin = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        model.fit(*rows)
    return time.perf_counter() - begin


def _objective(coef: NDArray[np.float64], rows: Rows) -> float:
    X, y = rows
    margins = (X @ coef[0]) * np.where(y == y.max(), 1, -1)
    return float(0.5 * coef[0] @ coef[0] + np.logaddexp(0, -margins).sum())


def _rows(data: Path | None, *, quick: bool) -> tuple[str, Rows]:
    if data is None:
        return "made up", _made_up(300 if quick else 30_000, 120)
    if ".tar" in data.name:
        return data.name.partition(".")[0], _reviews(data)
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(data))
    # Some peers take no others.
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return data.name, (csr_matrix(X), y)


def _made_up(row_count: int, column_count: int) -> Rows:
    """Rows of 14 ones, and a noisy plane through them."""
    random = np.random.default_rng(0)
    columns = np.sort(random.random((row_count, column_count)).argsort(axis=1)[:, :14], axis=1)
    starts = np.arange(row_count + 1) * 14
    X = csr_matrix((np.ones(columns.size), columns.ravel(), starts), shape=(row_count, column_count))
    scores = X @ random.normal(size=column_count)
    return X, (scores + 2 * random.normal(size=row_count) > 0).astype(int)


def _reviews(path: Path) -> Rows:
    """Words of reviews, as scikit-learn weighs them; the folder says which are positive."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, labels = [], []
    with tarfile.open(path) as archive:
        for member in archive:
            found = re.search(r"/(pos|neg)/[^/]+\.txt$", member.name)
            if found and (file := archive.extractfile(member)):
                texts.append(file.read().decode(errors="replace"))
                labels.append(int(found[1] == "pos"))
    return csr_matrix(TfidfVectorizer().fit_transform(texts)), np.array(labels)


def _read_s(size_bytes: int) -> float:
    block = np.ones(max(size_bytes // 8, 1))
    begin = time.perf_counter()
    block.sum()
    return time.perf_counter() - begin
