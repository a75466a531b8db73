"""A plugin of pytest: run the tests of scikit-learn with the estimators of Ripieno in place of its own.

The tests import the classes from their packages, so the plugin replaces them there before collection begins.
"""

from __future__ import annotations

import functools
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
