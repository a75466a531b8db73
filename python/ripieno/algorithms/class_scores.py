"""Class scores and their probabilities. Workers import this module, so it does not need scikit-learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


def weight_count(class_count: int) -> int:
    """Return the number of weights per feature: one for two classes, else one per class."""
    return 1 if class_count == 2 else class_count


def log_probabilities(scores: Reals) -> Reals:
    """Return log probabilities of the classes from the scores of each row: logistic for one column, else softmax."""
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    scores = scores - scores.max(axis=1, initial=-np.inf, keepdims=True)
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
