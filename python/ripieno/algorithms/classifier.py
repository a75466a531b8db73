"""The base class of classifiers with linear scores."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from ripieno.algorithms.class_scores import Reals, log_probabilities


class LinearClassifier(ClassifierMixin):
    """A classifier that derives probabilities from linear scores; two classes have one score, for the second class."""

    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> Reals:
        """Return the scores of the rows: (n_samples,) for two classes, else (n_samples, n_classes)."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_log_proba(self, X: Any) -> Reals:
        """Return the log probabilities of the classes, (n_samples, n_classes)."""
        return log_probabilities(self._scores(X))

    def predict_proba(self, X: Any) -> Reals:
        """Return the probabilities of the classes, (n_samples, n_classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the best score for each row, (n_samples,)."""
        scores = self._scores(X)
        numbers = (scores[:, 0] > 0).astype(np.intp) if len(self.classes_) == 2 else scores.argmax(axis=1)
        classes: NDArray[Any] = self.classes_[numbers]
        return classes

    @abstractmethod
    def _scores(self, X: Any) -> Reals:
        """Return the scores of the rows, (n_samples, k)."""
