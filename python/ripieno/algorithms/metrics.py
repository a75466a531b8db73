"""Scores of predictions by scikit-learn, which is imported on first use: its metrics take half a second to import."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike


def accuracy(y: Any, predicted: Any, sample_weight: ArrayLike | None) -> float:
    """Return the weighted share of rows with a correctly predicted class."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(y, predicted, sample_weight=sample_weight))


def r_squared(y: Any, predicted: Any, sample_weight: ArrayLike | None) -> float:
    """Return the coefficient of determination."""
    from sklearn.metrics import r2_score

    return float(r2_score(y, predicted, sample_weight=sample_weight))
