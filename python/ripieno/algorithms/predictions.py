"""Predictions for some rows of a fit, as its report shows them: residuals, or a confusion matrix and ROC curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

#: Maximum number of residuals, points of a curve, and classes that a report shows.
MAX_RESIDUAL_COUNT = 1500
MAX_CURVE_POINTS = 200
MAX_CLASS_COUNT = 20


@dataclass(frozen=True)
class RocCurve:
    """The ROC curve of a class: rates of false and true positives, (m,), and the area below."""

    false_rates: Reals
    true_rates: Reals
    area: float


@dataclass(frozen=True)
class Predictions:
    """Predictions for some of the rows of a fit.

    Parameters
    ----------
    score
        R² of a regression, or the share of rows with a correctly predicted class.
    count, total
        Number of predicted rows and of all rows.
    residuals
        Predictions and residuals of the first target, (m,) each, of a regression.
    target_count
        Number of targets of a regression.
    classes
        Names of the classes.
    confusion
        Rows by class and by predicted class, (k, k), unless there are too many classes.
    curves
        ROC curves by class: for two classes, the curve of the second class. Classes that none or all of the predicted
        rows have are omitted.
    """

    score: float
    count: int
    total: int
    residuals: tuple[Reals, Reals] | None = None
    target_count: int = 1
    classes: Sequence[str] = ()
    confusion: NDArray[np.int64] | None = None
    curves: Mapping[str, RocCurve] = field(default_factory=dict)


def of_targets(actual: Reals, predicted: Reals, total: int) -> Predictions:
    """Return the predictions of a regression, from targets and predictions, (m, t) each."""
    residuals = actual - predicted
    variances = ((actual - actual.mean(axis=0)) ** 2).sum(axis=0)
    errors = (residuals**2).sum(axis=0)
    # scikit-learn's scores for a constant target: 1 if all predictions are exact, else 0.
    shares = np.where(variances > 0, 1 - errors / np.where(variances > 0, variances, 1), errors == 0)
    shown = np.arange(min(len(actual), MAX_RESIDUAL_COUNT)) * len(actual) // min(len(actual), MAX_RESIDUAL_COUNT)
    pairs = predicted[shown, 0].copy(), residuals[shown, 0].copy()
    return Predictions(float(shares.mean()), len(actual), total, residuals=pairs, target_count=actual.shape[1])


def of_classes(numbers: NDArray[np.int64], scores: Reals, classes: NDArray[np.generic], total: int) -> Predictions:
    """Return the predictions of a classifier, from class numbers, (m,), and scores, (m, k), or (m, 1) for two."""
    names = [str(name) for name in classes]
    is_binary = scores.shape[1] == 1
    found = (scores[:, 0] > 0).astype(np.int64) if is_binary else scores.argmax(axis=1)
    confusion, curves = None, {}
    if len(names) <= MAX_CLASS_COUNT:
        count = len(names)
        confusion = np.bincount(numbers * count + found, minlength=count * count).reshape(count, count)
        columns = {1: scores[:, 0]} if is_binary else dict(enumerate(scores.T))
        # Without rows of the class, or of others, there are no rates.
        curves = {
            names[number]: _curve(numbers == number, column)
            for number, column in columns.items()
            if len(np.unique(numbers == number)) == 2
        }
    share = float(np.mean(found == numbers))
    return Predictions(share, len(numbers), total, classes=names, confusion=confusion, curves=curves)


def _curve(is_positive: NDArray[np.bool_], scores: Reals) -> RocCurve:
    order = np.argsort(-scores, kind="stable")
    # Rows with equal scores are accepted together.
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    positives = np.cumsum(is_positive[order])[ends]
    false = np.append(0.0, (ends + 1 - positives) / (~is_positive).sum())
    true = np.append(0.0, positives / is_positive.sum())
    area = float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))
    shown = np.unique(np.linspace(0, len(false) - 1, min(len(false), MAX_CURVE_POINTS)).astype(np.int64))
    return RocCurve(false[shown], true[shown], area)
