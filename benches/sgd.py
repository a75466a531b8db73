"""Benchmark of stochastic gradient descent on sparse rows: an epoch, compared with scikit-learn's SGDClassifier.

The time of an epoch is the difference between fits with several epochs and with one, which cancels checks and the
numbering of features. Both minimize the same objective. A figure counts only if our final objective is within 2 % of
theirs. scikit-learn steps after each row, ours after 64.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import logistic
import numpy as np
from effort import Effort
from logistic import Candidate, Rows
from ripieno.bench.figures import Figure, Measurements, Samples

RUN_COUNT = 5
WORKER_COUNT = 2
EPOCHS = 20
ALPHA = 1e-5
ETA0 = 0.3
NEAR = 0.02
#: At most 1.5 times scikit-learn's, with one worker.
TARGETS = {"peer": 1.5}
#: Bytes that a pass reads per entry: value and column.
ENTRY_BYTES = 12


def measured(report: Measurements, effort: Effort, *, data: Path | None = None) -> None:
    """Measure an epoch over libsvm text, an archive of reviews in folders pos and neg, or synthetic rows."""
    import ripieno as rp

    name, rows = logistic.read_rows(data, quick=effort.quick)
    with rp.launch(workers=WORKER_COUNT) as job:
        ours = {
            "this process": _ours(),
            f"{WORKER_COUNT} workers": _ours(engine=job),
        }
        _measured(name, rows, ours, {"SGDClassifier": _peer}, report, effort)


def _ours(**parameters: Any) -> Candidate:
    import ripieno as rp

    return lambda epochs: rp.SparseSGD(
        max_iter=int(epochs), tol=None, alpha=ALPHA, eta0=ETA0, random_state=0, **parameters
    )


def _peer(epochs: float) -> Any:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(loss="log_loss", max_iter=int(epochs), tol=None, alpha=ALPHA, random_state=0)


def _measured(
    name: str,
    rows: Rows,
    ours: Mapping[str, Candidate],
    peers: Mapping[str, Candidate],
    report: Measurements,
    effort: Effort,
) -> None:
    candidates = {**ours, **peers}
    epochs = 2 if effort.quick else EPOCHS
    found = {each: _objective(make(epochs), rows) for each, make in candidates.items()}
    report.remark(
        f"{name}: objective after {epochs} epochs: " + ", ".join(f"{each} {it:.4g}" for each, it in found.items())
    )
    lowest = min(found[peer] for peer in peers)
    if not effort.quick and max(found[each] for each in ours) > (1 + NEAR) * lowest:
        raise RuntimeError(f"{name}: objectives are {found}, so there is no figure")
    seconds: dict[str, list[float]] = {each: [] for each in candidates}
    for _ in range(effort.runs(RUN_COUNT)):
        for each, make in candidates.items():
            seconds[each].append(effort.turn(lambda make=make: _epoch_s(make, rows, epochs)))
    X = rows[0]
    report.figures += [
        Figure(
            case=f"{name}, {X.shape[0]} × {X.shape[1]}, {X.nnz} entries",
            row=f"an epoch, {each}",
            ours=Samples(tuple(seconds[each])),
            peers={peer: Samples(tuple(seconds[peer])) for peer in peers},
            limit_s=logistic.read_s(X.nnz * ENTRY_BYTES),
            limit=f"reading all entries, {ENTRY_BYTES} bytes each, by one core",
            work=X.nnz / 1e6,
            rate_unit="M entries/s",
            targets=TARGETS,
        )
        for each in ours
    ]


def _epoch_s(make: Candidate, rows: Rows, epochs: int) -> float:
    first, all_epochs = (logistic.fit_s(make(count), rows) for count in (1, 1 + epochs))
    # On a busy machine the shorter fit may take longer.
    return max(all_epochs - first, 1e-9) / epochs


def _objective(model: Any, rows: Rows) -> float:
    X, y = rows
    model.fit(X, y)
    margins = model.decision_function(X) * np.where(y == y.max(), 1, -1)
    return float(np.logaddexp(0, -margins).mean() + ALPHA / 2 * (model.coef_**2).sum())
