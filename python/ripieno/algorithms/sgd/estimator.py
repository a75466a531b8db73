"""Linear models of sparse rows by stochastic gradient descent, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import ripieno.kernels.sgd as kernels
from ripieno._checks import check_count
from ripieno.algorithms.class_scores import Reals, weight_count
from ripieno.algorithms.classifier import LinearClassifier
from ripieno.algorithms.column_choice import TargetChoice, chosen, fitted_columns
from ripieno.algorithms.inputs import is_in_libsvm, rows_in_memory
from ripieno.algorithms.metrics import accuracy
from ripieno.algorithms.own_rows import agreed, classes_of_all, opening, own_points
from ripieno.algorithms.reported import PlainReport, reported
from ripieno.algorithms.same_call import same_call
from ripieno.algorithms.sgd import program
from ripieno.algorithms.sgd.rows import hashed
from ripieno.algorithms.split_rows import apply_to_splits, splits_in, takes_splits
from ripieno.algorithms.worker_estimator import IterativeEstimator, ObservedEstimator
from ripieno.errors import InputError
from ripieno.files.sources import PathLike
from ripieno.input import Split
from ripieno.input.matrix import InMemorySparse, LocalRows, RowShare
from ripieno.input.matrix.sparse_files import LibsvmFiles
from ripieno.wire.arrays import check_unmasked

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.algorithms.parameters import FitParameters
    from ripieno.comm.communicator import Communicator

Method = TypeVar("Method", bound=Callable[..., Any])
Input = ArrayLike | csr_matrix | PathLike | Sequence[PathLike] | Sequence[Split]


def _requires_probabilities(method: Method) -> Method:
    """Hide a method from scikit-learn unless the scores define probabilities."""
    found: Method = available_if(lambda model: model._has_probabilities())(method)
    return found


class SparseSGD(LinearClassifier, IterativeEstimator, ObservedEstimator):
    """A linear classifier by stochastic gradient descent, on sparse rows divided among workers.

    A step processes rows of every worker and updates only the features that occur in them, with a step length per
    feature (AdaGrad). Rows are assigned to steps at random once; every epoch processes the steps in another order. No
    worker holds the whole model. One worker owns the state of a feature and exchanges it in each step with the workers
    that have rows with this feature.

    Parameters
    ----------
    n_features : int or None, default=None
        Number of features to which columns are hashed, with signs; None disables hashing.
    loss : {"log_loss", "hinge", "squared_error"}, default="log_loss"
        "log_loss" is logistic regression. "hinge" is a linear support vector machine. "squared_error" fits scores to 1
        for a class and to -1 for the others. With more than two classes, the latter two train one model per class
        against the rest. Neither of them gives probabilities.
    alpha : float, default=1e-5
        Factor of the penalty, half the squared weights without the intercept.
    fit_intercept : bool, default=True
        Whether scores have an intercept.
    eta0 : float, default=0.1
        Length of a feature's first step. Later steps are divided by the square root of the sum of its squared
        gradients.
    batch_size : int, default=64
        Rows per step, over all workers.
    max_iter : int, default=20
        Maximum number of epochs.
    tol : float or None, default=1e-4
        The fit ends after `n_iter_no_change` consecutive epochs that do not lower the best earlier mean loss by this
        amount. With None, it ends after `max_iter` epochs.
    n_iter_no_change : int, default=5
        Number of epochs without improvement, see `tol`.
    random_state : int, RandomState instance or None, default=None
        Source of the rows of each step and of the order of steps. With an int, every run with the same number of
        workers gives bitwise equal results.
    on_iteration : callable or None, default=None
        Called in the calling process after each epoch with a dict of "event" ("epoch"), "epoch", from 1, and "loss".
    **common : FitParameters
        Where the fit runs and is saved: `workers`, `threads`, `engine`, `on_failure`, `checkpoint` and `every`.

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
    report_ : PlainReport
        Time breakdown of each rank; see docs/dashboard.md.
    resumed_from_ : int or None
        Number of completed epochs at which the fit resumed, after a worker failure or from `checkpoint`; None if it did
        not resume.
    n_features_in_ : int
        Number of columns of the input.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if the input had them.

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
    resumed_from_: int | None
    n_features_in_: int
    _columns: range

    _takes_libsvm = True
    _is_libsvm = True

    def __init__(
        self,
        n_features: int | None = None,
        *,
        loss: str = "log_loss",
        alpha: float = 1e-5,
        fit_intercept: bool = True,
        eta0: float = 0.1,
        batch_size: int = 64,
        max_iter: int = 20,
        tol: float | None = 1e-4,
        n_iter_no_change: int = 5,
        random_state: int | np.random.RandomState | None = None,
        on_iteration: Callable[[dict[str, Any]], None] | None = None,
        **common: Unpack[FitParameters],
    ) -> None:
        super().__init__(**common)
        self.n_features = n_features
        self.loss = loss
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.eta0 = eta0
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.on_iteration = on_iteration

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
        y : array-like of shape (n_samples,)
            Class of each row, at least two classes; None for files, which include the classes.
        comm : Communicator, optional
            Ranks that make this call together, instead of newly started workers. All ranks get the result.
        rows : {"own", "shared"}, optional
            With `comm`: "own" if each rank passes its own rows, concatenated in rank order; "shared" if all ranks pass
            the same rows. Default: ranks compare their rows and raise an error if these differ.
        **choice : TargetChoice
            Columns of frames and of tables in files, by name: `columns` to read, by default all; `ignore`, those to
            leave out; `id`, the names of the rows, which are no values; `target`, the same as a name as y.

        Returns
        -------
        SparseSGD
            The estimator itself.

        Raises
        ------
        InputError
            Invalid input or parameter. InputError is a ValueError; its message names the problem.
        CollectiveMismatch
            The ranks of `comm` make different calls, have different parameters, or pass different rows without `rows`.
        RankFailed
            A worker died.
        """
        self._check_parameters()
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
        X, y, comm, rows
            As in `fit`.
        classes : array-like of shape (n_classes,), default=None
            All classes, on the first call; default: the classes in y. Later calls may pass only the same classes.

        Returns
        -------
        SparseSGD
            The estimator itself.

        Raises
        ------
        InputError
            Invalid input or parameter.
        CollectiveMismatch
            The ranks of `comm` make different calls, have different parameters, or pass different rows without `rows`.
        RankFailed
            A worker died.
        """
        self._check_parameters()
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
            if not is_in_libsvm(X):
                raise InputError("y=None: expected the class of each row; only files contain classes")
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
        options = program.SgdOptions(
            n_features=self.n_features,
            fit_intercept=self.fit_intercept,
            loss=self.loss,
            alpha=self.alpha,
            eta0=self.eta0,
            batch_size=self.batch_size,
            max_iter=epochs,
            tol=self.tol,
            no_improvement_epochs=self.n_iter_no_change,
            seed=self._seed(comm),
            checkpoint_options=self._checkpoint_options(),
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
        check_unmasked(y, "y")
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

    @takes_splits
    def _scores(self, X: Input) -> NDArray[np.float64]:
        check_is_fitted(self, "coef_")
        matrix = self._read(X).points
        scores: NDArray[np.float64] = np.asarray(matrix @ self.coef_.T) + self.intercept_
        return scores

    def _read(self, X: Any) -> RowShare:
        """Return all rows with the columns of the fit; arrays have no labels."""
        if is_in_libsvm(X):
            rows = LibsvmFiles.open(X).read_share(0, 1)
            # Ignore columns that were absent from the fit.
            rows = replace(rows, points=rows.points[:, self._columns.start : self._columns.stop])
        else:
            X = rows_in_memory(fitted_columns(self, X))
            matrix = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
            rows = RowShare(csr_matrix(matrix), ())
        return rows if self.n_features is None else replace(rows, points=hashed(rows.points, self.n_features))

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

    def _check_parameters(self) -> None:
        if self.loss not in kernels.LOSSES:
            raise InputError(f"loss={self.loss!r}: expected one of {', '.join(kernels.LOSSES)}")
        for name in ("batch_size", "max_iter", "n_iter_no_change"):
            check_count(name, getattr(self, name))
        if self.n_features is not None:
            check_count("n_features", self.n_features)
        for name in ("alpha", "tol", "eta0"):
            value = getattr(self, name)
            if name == "tol" and value is None:
                continue
            if not isinstance(value, Real) or not 0 <= float(value) < np.inf or (name == "eta0" and not value):
                raise InputError(f"{name}={value!r}: expected a number {'>' if name == 'eta0' else '>='} 0")


def _check_known(y: NDArray[Any], classes: NDArray[Any]) -> None:
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise InputError(f"y has {unknown[0]!r}, which is not among the classes {classes}")
