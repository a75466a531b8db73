"""A plugin of pytest: run the tests of scikit-learn with the estimators of Ripieno in place of its own.

The tests import the classes from their packages, so the plugin replaces them there before collection begins.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import ripieno as rp
import sklearn.cluster
import sklearn.decomposition
import sklearn.linear_model

#: The estimators by their packages, each with the parameters of scikit-learn that have no effect on results here.
REPLACED = {
    sklearn.cluster: ((rp.KMeans, ("copy_x",)), (rp.MiniBatchKMeans, ())),
    sklearn.decomposition: ((rp.PCA, ("copy", "tol", "power_iteration_normalizer")),),
    sklearn.linear_model: ((rp.LinearRegression, ("copy_X", "tol", "n_jobs")),),
}


def without(estimator: Any, ignored: tuple[str, ...]) -> Any:
    """Return the estimator, whose constructor then ignores some parameters."""
    init = estimator.__init__

    @functools.wraps(init)
    def __init__(self: Any, *values: Any, **options: Any) -> None:
        init(self, *values, **{name: value for name, value in options.items() if name not in ignored})

    estimator.__init__ = __init__
    return estimator


for package, estimators in REPLACED.items():
    for estimator, ignored in estimators:
        setattr(package, estimator.__name__, without(estimator, ignored))


def pytest_runtest_logreport(report: Any) -> None:
    """Append the outcome of a test to the log that the caller names."""
    if report.when == "call" or report.outcome != "passed":
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        outcome = "passed" if hasattr(report, "wasxfail") else report.outcome
        name = report.nodeid.rpartition("/")[2]
        with Path(os.environ["RIPIENO_PEERS_LOG"]).open("a") as log:
            log.write(json.dumps({"test": name, "outcome": outcome, "text": text}) + "\n")
