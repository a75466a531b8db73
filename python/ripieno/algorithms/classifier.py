"""What classifiers share that score the classes linearly."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

Reals = NDArray[np.float64]


class LinearClassifier(ClassifierMixin):
    """A classifier whose scores, of two classes those of the second one, make the probabilities."""

    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> Reals:
        """Scores of the rows: (n_samples,) of the second of two classes, else (n_samples, n_classes)."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_log_proba(self, X: Any) -> Reals:
        """Logarithms of the probabilities of each class, (n_samples, n_classes)."""
        return log_probabilities(self._scores(X))

    def predict_proba(self, X: Any) -> Reals:
        """Probabilities of each class, (n_samples, n_classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, (n_samples,)."""
        numbers = self.predict_log_proba(X).argmax(axis=1)
        classes: NDArray[Any] = self.classes_[numbers]
        return classes

    @abstractmethod
    def _scores(self, X: Any) -> Reals:
        """Scores of the rows, (n_samples, k)."""


def weight_count(class_count: int) -> int:
    """How many weights a feature has: one for two classes, else one for each."""
    return 1 if class_count == 2 else class_count


def log_probabilities(scores: Reals) -> Reals:
    """Of the classes, given the scores of each row: logistic of a single column, else softmax."""
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    scores = scores - scores.max(axis=1, initial=-np.inf, keepdims=True)
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))
