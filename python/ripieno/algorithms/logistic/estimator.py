"""Logistic regression as a scikit-learn estimator, on one machine's cores or many workers."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ripieno import log
from ripieno.algorithms.checks import checked_weights
from ripieno.algorithms.classifier import LinearClassifier
from ripieno.algorithms.column_choice import TargetChoice, chosen, fitted_columns
from ripieno.algorithms.inputs import (
    POINT_DTYPES,
    Input,
    is_in_files,
    open_for_prediction,
    open_rows,
    open_with_classes,
    open_with_target,
    rows_in_memory,
)
from ripieno.algorithms.iteration_log import RunReport
from ripieno.algorithms.logistic import program
from ripieno.algorithms.logistic.parameters import LogisticParameters
from ripieno.algorithms.logistic.program import LogisticOptions, LogisticPart
from ripieno.algorithms.metrics import accuracy
from ripieno.algorithms.own_rows import agreed, check_weights, classes_of_all, opening, own_points, own_weights
from ripieno.algorithms.reported import joined, report_warning, reported
from ripieno.algorithms.split_rows import apply_to_splits, splits_in, takes_splits
from ripieno.algorithms.worker_estimator import IterativeEstimator, ObservedEstimator
from ripieno.errors import InputError
from ripieno.input import TableFiles
from ripieno.input.matrix import BinaryFiles, InMemorySparse, LocalRows, RowsInMemory
from ripieno.input.matrix.sparse_files import LibsvmFiles
from ripieno.wire.arrays import check_complete

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator

Reals = NDArray[np.float64]


class LogisticRegression(LinearClassifier, LogisticParameters, IterativeEstimator, ObservedEstimator):
    """Full-batch logistic regression on dense or sparse rows, divided among workers.

    Minimizes a penalty on the weights plus `C` times the losses of all rows. A row's loss is minus the logarithm of the
    probability of its class. Probabilities are the softmax of the scores or, for two classes, the logistic function of
    a single score.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, ascending.
    coef_ : ndarray of shape (1 or n_classes, n_features), float64
        Weights of the columns; one row for two classes.
    intercept_ : ndarray of shape (1 or n_classes,), float64
        Intercepts of the scores.
    objective_ : float
        Final value of the objective; the sum of the losses if `C` is infinite.
    n_iter_ : int
        Number of iterations, including iterations before a checkpoint.
    first_column_ : int
        Index of the first column: 0, or 1 for libsvm text without an index 0.
    report_ : RunReport
        Objective, gradient and seconds per iteration and rank.

    References
    ----------
    Zaharia et al., "Spark: cluster computing with working sets", HotCloud 2010, section 3.3.
    Lin, Weng and Keerthi, "Trust region Newton method for large-scale logistic regression", JMLR 9, 2008.
    Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", Math. Program. 45, 1989.
    Andrew and Gao, "Scalable training of L1-regularized log-linear models", ICML 2007.
    Schmidt, "Graphical model structure learning with L1-regularization", thesis, University of British Columbia, 2010.
    Zhang and Xiao, "DiSCO: distributed optimization for self-concordant empirical loss", ICML 2015, section 4.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import LogisticRegression
    >>> X = np.array([[0.0], [1], [2], [3]])
    >>> LogisticRegression().fit(X, ["low", "low", "high", "high"]).predict([[-1], [4]])
    array(['low', 'high'], dtype='<U4')
    """

    _command = "logistic"
    _takes_libsvm = True
    _private_results = ("_target_name", "_is_libsvm")

    _target_name: str | None
    _is_libsvm: bool
    coef_: Reals
    intercept_: Reals
    objective_: float
    n_iter_: int
    n_features_in_: int
    first_column_: int
    report_: RunReport

    @reported
    def fit(
        self,
        X: Input,
        y: ArrayLike | str | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
        **choice: Unpack[TargetChoice],
    ) -> LogisticRegression:
        """Fit the weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), path, glob or list of paths
            Each worker reads its own share of files. With y: .npy, .npz, .csv and .parquet. Without y: libsvm text,
            lines of "label index:value …". If no index is 0, the first column has the index 1.
        y : array-like of shape (n_samples,), str or None
            Class of each row, at least two classes. For files with named columns, the name of the class column.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in row order; must not be negative.

        Warns
        -----
        ConvergenceWarning
            `max_iter` iterations did not reach `tol`.
        """
        start = self._start()
        source, labels, classes, weights = (
            self._open(X, y, sample_weight)
            if rows != "own" or comm is None
            else self._open_own(X, y, sample_weight, comm)
        )
        class_numbers = None if classes is None else np.arange(len(classes))
        options = self._worker_options(
            LogisticOptions, strength=float(self.C), class_weight=self._class_weight(classes)
        )
        parts = self._run_fit(program.fit, source, labels, class_numbers, weights, start, options, comm=comm)
        self._store_result(parts, classes)
        return self

    def score(self, X: Input, y: ArrayLike | str | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy. For files, y is the name of the class column, or None for libsvm text."""
        splits = splits_in(X)
        if splits is not None and isinstance(y, str | None):
            predictions, y = apply_to_splits(self, "predict", splits, y)
            return accuracy(y, np.concatenate(predictions), sample_weight)
        X, y = chosen(X, y, {})
        if y is None or isinstance(y, str):
            if not is_in_files(X):
                raise InputError(f"y={y!r}: expected the class of each row; only files include classes")
            scores, labels = self._scores_and_labels(X, y, scored=True)
            predicted: NDArray[Any] = _most_likely(scores)
            if y is None or self.classes_.dtype.kind != "U":
                # Other labels are numbers of classes.
                predicted = self.classes_[predicted]
            return accuracy(labels, predicted, sample_weight)
        return accuracy(y, self.predict(X), sample_weight)

    def __sklearn_tags__(self) -> Any:
        """Return the input types that scikit-learn may pass."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _open(
        self, X: Input, y: ArrayLike | str | None, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray[Any] | int | None, NDArray[Any] | None, Reals | None]:
        """Return the rows, their labels, the classes if known, and the weights."""
        self._target_name = y if isinstance(y, str) else None
        self._is_libsvm = is_in_files(X) and y is None
        if not is_in_files(X):
            return self._open_array(X, y, sample_weight)
        if isinstance(y, str):
            source, target, classes = open_with_classes(self, X, y)
            return source, target, classes, checked_weights(sample_weight, source)
        if y is None:
            rows = _libsvm(X)
            return rows, None, None, checked_weights(sample_weight, rows)
        files = open_rows(self, X, reset=True)
        labels, classes = _class_numbers(y)
        return files, labels[:, None], classes, checked_weights(sample_weight, files)

    def _open_own(
        self, X: Any, y: ArrayLike | str | None, sample_weight: ArrayLike | None, comm: Communicator
    ) -> tuple[Any, NDArray[Any] | int | None, NDArray[Any] | None, Reals | None]:
        """Return this rank's own rows, which include their weights, in the form that `_open` returns."""
        source: Any = None
        found: Any = None
        with opening(comm):
            if X is not None:
                source, found = self._open_rows(X, y)
            weights = own_weights(sample_weight, source)
        kind = None if source is None else (self._is_libsvm, self._target_name, isinstance(found, int))
        self._is_libsvm, self._target_name, has_column = agreed(comm, kind, "classes in files, and their column")
        if self._is_libsvm:
            check_weights(comm, weights)
            return LocalRows(source or LibsvmFiles(), weights, "y"), None, None, None
        points = own_points(self, comm, source, weights)
        if has_column:
            return points, agreed(comm, found, "the column of classes"), None, None
        classes = classes_of_all(comm, found)
        labels = np.empty(0, np.int64) if found is None else np.searchsorted(classes, found)
        if isinstance(points.source, InMemorySparse):
            return LocalRows(InMemorySparse.of(points.source.array, labels), weights, "y"), None, classes, None
        return points, labels[:, None], classes, None

    def _open_rows(self, X: Any, y: Any) -> tuple[Any, NDArray[Any] | int | None]:
        """Return the rows and the class of each, or the class column of files."""
        self._target_name = y if isinstance(y, str) else None
        self._is_libsvm = is_in_files(X) and y is None
        if self._is_libsvm:
            return _libsvm(X), None
        if is_in_files(X) and isinstance(y, str):
            return open_with_target(self, X, y, reset=True)
        if is_in_files(X):
            check_classification_targets(y)
            return open_rows(self, X, reset=True), np.asarray(y)
        X, y = self._checked_arrays(X, y)
        check_classification_targets(y)
        return InMemorySparse.of(X) if issparse(X) else RowsInMemory(X), np.asarray(y)

    def _open_array(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray[Any] | None, NDArray[Any], Reals | None]:
        matrix, y = self._checked_arrays(X, y)
        labels, classes = _class_numbers(y)
        weights = checked_weights(sample_weight, RowsInMemory(matrix))
        if issparse(matrix):
            return InMemorySparse.of(matrix, labels), None, classes, weights
        return RowsInMemory(matrix), labels[:, None], classes, weights

    def _checked_arrays(self, X: Any, y: Any) -> tuple[Any, Any]:
        X = rows_in_memory(X)
        check_complete(y, "y")
        sparse = issparse(X)
        matrix, labels = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=np.float64 if sparse else POINT_DTYPES,
            order=None if sparse else "C",
            ensure_all_finite=sparse,
        )
        return matrix, labels

    def _start(self) -> Reals | None:
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        return np.vstack([self.coef_.T, self.intercept_])

    def _store_result(self, parts: Sequence[LogisticPart], classes: NDArray[Any] | None) -> None:
        first = parts[0]
        self.classes_ = first.classes if classes is None else classes
        self.coef_, self.intercept_ = np.ascontiguousarray(first.coef[:-1].T), first.coef[-1].copy()
        outcome = first.outcome
        self.objective_, self.n_iter_ = first.objective, max(outcome.iteration_count, 1)
        self.resumed_from_ = outcome.resumed_from
        self.first_column_ = first.columns.start
        self._drawn = joined([part.drawn for part in parts])
        self.n_features_in_ = len(first.columns)
        with report_warning():
            self.report_ = RunReport.of(
                [part.record for part in parts],
                row_count=first.row_count,
                column_count=len(first.columns),
                dtype="float64",
            )
        if not outcome.converged:
            log.warn(
                f"after {outcome.iteration_count} iterations (max_iter={self.max_iter}), the gradient is still "
                f"larger than tol={self.tol}: allow more iterations, or scale the columns",
                ConvergenceWarning,
            )

    @takes_splits
    def _scores(self, X: Any) -> Reals:
        check_is_fitted(self, "coef_")
        if is_in_files(X):
            return self._scores_and_labels(X, self._target_name)[0]
        X = rows_in_memory(fitted_columns(self, X))
        matrix = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        return np.asarray(matrix @ self.coef_.T) + self.intercept_

    def _scores_and_labels(
        self, X: Any, target_name: str | None, *, scored: bool = False
    ) -> tuple[Reals, NDArray[Any] | None]:
        """Return the scores of the rows of files, and the classes in the files."""
        check_is_fitted(self, "coef_")
        source, target = (
            (_libsvm(X), None)
            if self._is_libsvm
            else open_for_prediction(self, X, target_name, keeps_missing=scored, classes=self.classes_)
        )
        coef = np.vstack([self.coef_.T, self.intercept_])
        columns = range(self.first_column_, self.first_column_ + self.n_features_in_)
        parts = self._run(program.scores, source, coef, columns, target, comm=None)
        labels = None if parts[0][1] is None else np.concatenate([labels for _, labels in parts])
        return np.concatenate([scores for scores, _ in parts]), labels

    def _class_weight(self, classes: NDArray[Any] | None) -> dict[Any, float] | Literal["balanced"] | None:
        """Return `class_weight` by the labels of the workers: numbers of classes, or labels that they read."""
        weights = self.class_weight
        if not isinstance(weights, dict):
            return weights
        if classes is None:
            unknown = [label for label in weights if not isinstance(label, Real)]
            if unknown:
                raise InputError(f"class_weight: {unknown[0]!r} is not a class of y, which has numbers")
            return {float(label): float(factor) for label, factor in weights.items()}
        labels = classes.tolist()
        unknown = [label for label in weights if label not in labels]
        if unknown:
            raise InputError(f"class_weight: {unknown[0]!r} is not a class of y, {labels}")
        return {labels.index(label): float(factor) for label, factor in weights.items()}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.l1_ratio and self.solver != "lbfgs":
            raise InputError(f"l1_ratio={self.l1_ratio} with solver={self.solver!r}: expected solver='lbfgs'")


def _class_numbers(y: ArrayLike) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the class number of each row, and the classes, ascending."""
    check_classification_targets(y)
    classes, numbers = np.unique(np.asarray(y), return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"y has {len(classes)} class: expected at least 2")
    return numbers.astype(np.int64), classes


def _libsvm(X: Any) -> LibsvmFiles:
    if isinstance(X, BinaryFiles | TableFiles):
        raise InputError("y=None: only libsvm text includes classes: expected the class of each row")
    return LibsvmFiles.open(X)


def _most_likely(scores: Reals) -> NDArray[np.intp]:
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0).astype(np.intp)
    numbers: NDArray[np.intp] = scores.argmax(axis=1)
    return numbers
