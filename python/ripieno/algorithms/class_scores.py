"""Scores of classes, and the probabilities that they make; workers import this, and need no scikit-learn for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


def weight_count(class_count: int) -> int:
    """How many weights a feature has: one for two classes, else one for each."""
    return 1 if class_count == 2 else class_count


def log_probabilities(scores: Reals) -> Reals:
    """Of the classes, given the scores of each row: logistic of a single column, else softmax."""
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    scores = scores - scores.max(axis=1, initial=-np.inf, keepdims=True)
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
