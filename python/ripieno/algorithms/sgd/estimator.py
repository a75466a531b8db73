"""Linear models of sparse rows by stochastic gradient descent, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ripieno.algorithms.class_scores import Reals, weight_count
from ripieno.algorithms.classifier import LinearClassifier
from ripieno.algorithms.column_choice import TargetChoice, chosen, fitted_columns
from ripieno.algorithms.inputs import is_in_columns, is_in_libsvm, open_for_prediction, rows_in_memory, sparse_files
from ripieno.algorithms.metrics import accuracy
from ripieno.algorithms.own_rows import agreed, classes_of_all, opening, own_points
from ripieno.algorithms.reported import PlainReport, reported
from ripieno.algorithms.result_folder import ResultFolder
from ripieno.algorithms.same_call import same_call
from ripieno.algorithms.sgd import program
from ripieno.algorithms.sgd.parameters import SGDParameters
from ripieno.algorithms.sgd.rows import hashed
from ripieno.algorithms.split_rows import apply_to_splits, splits_in, takes_splits
from ripieno.algorithms.worker_estimator import IterativeEstimator, ObservedEstimator
from ripieno.errors import InputError
from ripieno.files.sources import PathLike
from ripieno.input import Split
from ripieno.input.matrix import InMemorySparse, LocalRows, RowShare
from ripieno.input.matrix.sparse_files import LibsvmFiles
from ripieno.wire.arrays import check_complete

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator

Method = TypeVar("Method", bound=Callable[..., Any])
Input = ArrayLike | csr_matrix | PathLike | Sequence[PathLike] | Sequence[Split]


def _requires_probabilities(method: Method) -> Method:
    """Hide a method from scikit-learn unless the scores define probabilities."""
    found: Method = available_if(lambda model: model._has_probabilities())(method)
    return found


class SparseSGD(LinearClassifier, SGDParameters, IterativeEstimator, ObservedEstimator):
    """A linear classifier by stochastic gradient descent, on sparse rows divided among workers.

    A step processes rows of every worker and updates only the features that occur in them, with a step length per
    feature (AdaGrad). Rows are assigned to steps at random once; every epoch processes the steps in a different order.
    No worker holds the whole model. One worker owns the state of a feature and exchanges it in each step with the
    workers that have rows with this feature.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, ascending.
    coef_ : ndarray of shape (1 or n_classes, n_features), float64
        Weights of the columns, after hashing; one row for two classes.
    intercept_ : ndarray of shape (1 or n_classes,), float64
        Intercepts of the scores.
    loss_ : float
        Mean loss of the rows in the last epoch, each measured before its step. For "log_loss", a row's loss is minus
        the logarithm of the probability of its class.
    n_iter_ : int
        Number of epochs, including epochs before a restart.

    References
    ----------
    Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, sections I.A.1 and III.C.
    Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization", JMLR 12,
    2011, section 1.1.
    Weinberger et al., "Feature hashing for large scale multitask learning", ICML 2009, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from ripieno.algorithms import SparseSGD
    >>> X = csr_matrix([[1.0, 0, 0], [0, 2, 0], [1, 0, 1], [0, 1, 1]])
    >>> SparseSGD(random_state=0).fit(X, ["even", "odd", "even", "odd"]).predict(csr_matrix([[3.0, 0, 1]]))
    array(['even'], dtype='<U4')
    """

    classes_: NDArray[Any]
    coef_: NDArray[np.float64]
    intercept_: NDArray[np.float64]
    loss_: float
    n_iter_: int
    report_: PlainReport
    n_features_in_: int
    _columns: range
    _target_name: str | None
    _weights: NDArray[np.float64]
    _squares: NDArray[np.float64]

    _private_results = ("_target_name", "_squares")
    _optional_results = ("_target_name",)
    _takes_libsvm = True
    _is_libsvm = True

    @reported
    def fit(
        self,
        X: Input,
        y: ArrayLike | None = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
        **choice: Unpack[TargetChoice],
    ) -> SparseSGD:
        """Fit the model, starting from zero.

        Parameters
        ----------
        X : sparse matrix or array-like of shape (n_samples, n_features), path or list of paths
            Each worker reads its own share of libsvm files, with lines of "label index:value …". If no index is 0, the
            first column has the index 1.
        y : array-like of shape (n_samples,), str or None
            Class of each row, at least two classes, or the name of the class column of a frame. None for files, which
            include the classes.
        """
        self._target_name = None
        return self._descend(X, y, None, start=None, epochs=self.max_iter, comm=comm, rows=rows)

    @same_call
    def partial_fit(
        self,
        X: Input,
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
    ) -> SparseSGD:
        """Continue for one epoch, possibly on other rows.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes : array-like of shape (n_classes,), default=None
            All classes, on the first call; default: the classes in y. Later calls may pass only the same classes.
        """
        if not hasattr(self, "classes_"):
            return self._descend(X, y, classes, start=None, epochs=1, comm=comm, rows=rows)
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise InputError(f"classes={classes!r}: the first call had {self.classes_}")
        return self._descend(X, y, self.classes_, start=(self._weights, self._squares), epochs=1, comm=comm, rows=rows)

    def score(self, X: Input, y: ArrayLike | str | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy; y is None for files, which include the classes, or the class column of splits."""
        splits = splits_in(X)
        if splits is not None and isinstance(y, str | None):
            predictions, y = apply_to_splits(self, "predict", splits, y)
            return accuracy(y, np.concatenate(predictions), sample_weight)
        X, y = chosen(X, y, {})
        if y is None:
            if is_in_columns(X) or not is_in_libsvm(X):
                raise InputError("y=None: expected the class of each row; only files of libsvm text contain classes")
            y = self._read(X).labels
        return accuracy(y, self.predict(X), sample_weight)

    def __sklearn_tags__(self) -> Any:
        """Return the input types that scikit-learn may pass."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _descend(
        self,
        X: Input,
        y: ArrayLike | None,
        classes: ArrayLike | None,
        *,
        start: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
        epochs: int,
        comm: Communicator | None,
        rows: Rows | None,
    ) -> SparseSGD:
        """Run the workers on X from `start`, and store the results; `classes` are all classes, if known."""
        options = self._worker_options(
            program.SgdOptions, max_iter=epochs, no_improvement_epochs=self.n_iter_no_change, seed=self._seed(comm)
        )
        run = partial(self._run_fit, program.fit, comm=comm)
        known = None if classes is None else np.unique(classes)
        source: InMemorySparse | LibsvmFiles | LocalRows
        if rows == "own" and comm is not None:
            source, known = self._open_own(X, y, known, comm, reset=start is None)
        else:
            source, known = self._open(X, y, known, reset=start is None)
        files = source.source if isinstance(source, LocalRows) else source
        if isinstance(files, LibsvmFiles):
            columns = None if start is None else self._columns
            parts = run(source, columns, known, start, options)
            known, self._columns = parts[0].classes, parts[0].columns
            self.n_features_in_ = len(self._columns)
        else:
            assert known is not None, "the classes of rows in memory are known"
            self._columns = range(self.n_features_in_)
            parts = run(source, self._columns, np.arange(len(known)), start, options)
        self._store_result(parts, known, start)
        return self

    def _open(
        self, X: Any, y: Any, known: NDArray[Any] | None, *, reset: bool
    ) -> tuple[InMemorySparse | LibsvmFiles, NDArray[Any] | None]:
        """Return the rows, and the classes if they are known before the workers read."""
        if is_in_libsvm(X):
            if y is not None:
                raise InputError("y: expected None, because files contain the class of each row")
            return LibsvmFiles.open(X), known
        matrix, y = self._checked_arrays(X, y, reset=reset)
        known = np.unique(y) if known is None else known
        _check_known(y, known)
        return InMemorySparse.of(matrix, np.searchsorted(known, y)), known

    def _open_own(
        self, X: Any, y: Any, known: NDArray[Any] | None, comm: Communicator, *, reset: bool
    ) -> tuple[LocalRows, NDArray[Any] | None]:
        """Return this rank's own rows and the classes, as `_open` does."""
        matrix = None
        with opening(comm):
            if is_in_libsvm(X):
                files, _ = self._open(X, y, known, reset=reset)
            elif X is not None:
                matrix, y = self._checked_arrays(X, y, reset=reset)
        if agreed(comm, None if X is None else is_in_libsvm(X), "rows in files of libsvm text"):
            return LocalRows(LibsvmFiles() if X is None else files, None, "y"), known
        source = None if matrix is None else InMemorySparse.of(matrix)
        points = own_points(self, comm, source, None, reset=reset)
        known = classes_of_all(comm, None if matrix is None else y, known)
        labels = np.empty(0, np.int64) if matrix is None else np.searchsorted(known, y)
        return LocalRows(InMemorySparse.of(points.source.array, labels), None, "y"), known

    def _checked_arrays(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        X = rows_in_memory(X)
        check_complete(y, "y")
        matrix, y = validate_data(self, X, y, reset=reset, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        return matrix, y

    def _store_result(self, parts: Sequence[program.SgdPart], classes: NDArray[Any], start: Any) -> None:
        shape = (parts[0].feature_count, weight_count(len(classes)))
        start = start or (np.zeros(shape), np.zeros(shape))
        self._weights, self._squares = (array.copy() for array in start)
        for part in parts:
            self._weights[part.state.features] = part.state.weights
            self._squares[part.state.features] = part.state.squares
        self.classes_ = classes
        self.coef_, self.intercept_ = self._weights[:-1].T, self._weights[-1]
        self.loss_, self.n_iter_ = parts[0].losses[-1], len(parts[0].losses)
        self.resumed_from_ = parts[0].resumed_from

    def _saved_entries(self) -> dict[str, Any]:
        return super()._saved_entries() | {"first_column": self._columns.start}

    def _restore(self, result: ResultFolder) -> None:
        super()._restore(result)
        first = result.entry("first_column", int)
        self._columns = range(first, first + self.n_features_in_)
        self._weights = np.vstack([self.coef_.T, self.intercept_])

    @takes_splits
    def _scores(self, X: Input) -> NDArray[np.float64]:
        check_is_fitted(self, "coef_")
        matrix = self._read(X).points
        scores: NDArray[np.float64] = np.asarray(matrix @ self.coef_.T) + self.intercept_
        return scores

    def _read(self, X: Any) -> RowShare:
        """Return all rows with the columns of the fit; only libsvm text has labels."""
        if is_in_columns(X):
            rows = RowShare(self._read_columns(X), ())
        elif is_in_libsvm(X):
            rows = LibsvmFiles.open(X).read_share(0, 1)
            # Ignore columns that were absent from the fit.
            rows = replace(rows, points=rows.points[:, self._columns.start : self._columns.stop])
        else:
            X = rows_in_memory(fitted_columns(self, X))
            matrix = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
            rows = RowShare(csr_matrix(matrix), ())
        return rows if self.n_features is None else replace(rows, points=hashed(rows.points, self.n_features))

    def _read_columns(self, X: Any) -> csr_matrix:
        """Return the rows of files of tables, arrays or sparse matrices, without the target column of the fit."""
        sparse = sparse_files(X)
        if sparse is not None:
            matrix = validate_data(self, sparse.read()[0], reset=False, accept_sparse="csr", dtype=np.float64)
            return csr_matrix(matrix)
        source, target = open_for_prediction(self, X, getattr(self, "_target_name", None), classes=self.classes_)
        points = source.read_share(0, 1).points
        return csr_matrix(points if target is None else np.delete(points, target, axis=1), dtype=np.float64)

    def _has_probabilities(self) -> bool:
        """Return True if the scores define probabilities, else raise AttributeError, as `available_if` expects."""
        if self.loss != "log_loss":
            raise AttributeError(f"probabilities need loss='log_loss', not {self.loss!r}")
        return True

    @_requires_probabilities
    def predict_log_proba(self, X: Input) -> Reals:
        """Return log probabilities of the classes, (n_samples, n_classes); for loss="log_loss" only."""
        return super().predict_log_proba(X)

    @_requires_probabilities
    def predict_proba(self, X: Input) -> Reals:
        """Return probabilities of the classes, (n_samples, n_classes); for loss="log_loss" only."""
        return super().predict_proba(X)


def _check_known(y: NDArray[Any], classes: NDArray[Any]) -> None:
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise InputError(f"y has {unknown[0]!r}, which is not among the classes {classes}")
