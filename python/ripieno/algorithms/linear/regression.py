"""Linear regression as scikit-learn estimators, on one machine's cores or many workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ripieno.algorithms.checks import checked_weights
from ripieno.algorithms.column_choice import TargetChoice, chosen, fitted_columns
from ripieno.algorithms.inputs import (
    POINT_DTYPES,
    Input,
    is_in_files,
    open_for_prediction,
    open_rows,
    open_rows_or_sparse,
    open_with_target,
    rows_in_memory,
    target_column,
)
from ripieno.algorithms.iteration_log import RunReport
from ripieno.algorithms.linear import regression_program as program
from ripieno.algorithms.linear.parameters import LinearParameters, RidgeParameters
from ripieno.algorithms.linear.regression_program import RegressionOptions
from ripieno.algorithms.metrics import r_squared
from ripieno.algorithms.own_rows import agreed, opening, own_points, own_weights
from ripieno.algorithms.parameters import parameters_of
from ripieno.algorithms.reported import joined, report_warning, reported
from ripieno.algorithms.result_folder import ResultFolder
from ripieno.algorithms.split_rows import apply_to_splits, splits_in, takes_splits
from ripieno.algorithms.worker_estimator import ObservedEstimator
from ripieno.errors import InputError
from ripieno.files.frames import NO_NUMBERS
from ripieno.input.matrix import Dataset, InMemorySparse, LocalRows, RowsInMemory, open_source
from ripieno.wire.arrays import check_complete

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator


class LeastSquares(MultiOutputMixin, RegressorMixin, LinearParameters, ObservedEstimator):
    """Base class of the linear regressions, which differ in the penalty."""

    # Whether the model has the singular values of the columns.
    _has_singular = False
    _private_results = ("_target_name",)

    _target_name: str | None
    coef_: NDArray[np.float64]
    intercept_: float | NDArray[np.float64]
    n_features_in_: int
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
    ) -> LeastSquares:
        """Fit the weights of the columns of X that approximate y best.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), path, glob or list of paths
            Each worker reads its own share of files: .npy, .npz, .csv, .parquet. For splits or a partition file, it
            reads its assigned splits.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), or str
            Targets. For files with named columns, the name of the target column.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in row order; must not be negative.
        """
        options = self._worker_options(RegressionOptions, alpha=self._penalty(), has_singular=self._has_singular)
        source, targets, weights = (
            self._open_own(X, y, sample_weight, comm)
            if rows == "own" and comm is not None
            else self._open_shared(X, y, sample_weight)
        )
        is_flat = isinstance(targets, int) or targets.ndim == 1
        target_columns = targets[:, None] if not isinstance(targets, int) and targets.ndim == 1 else targets
        target_count = 1 if isinstance(target_columns, int) else target_columns.shape[1]
        if len(options.alpha) not in (1, target_count):
            raise InputError(f"alpha has {len(options.alpha)} entries: expected one number, or one for each target")
        parts = self._run_fit(program.fit, source, target_columns, weights, options, comm=comm)
        solution = parts[0].solution
        self.coef_ = solution.coef[:, 0].copy() if is_flat else solution.coef.T.copy()
        self.intercept_ = (
            (float(solution.intercept[0]) if is_flat else solution.intercept) if self.fit_intercept else 0.0
        )
        self._store_solution(solution)
        self._drawn = joined([part.drawn for part in parts])
        with report_warning():
            self.report_ = RunReport.of(
                [part.record for part in parts],
                row_count=parts[0].row_count,
                column_count=self.n_features_in_,
                dtype="float64",
            )
        return self

    @takes_splits
    def predict(self, X: Input) -> NDArray[np.float64]:
        """Return the predicted targets of the rows, (n_samples,) or (n_samples, n_targets)."""
        check_is_fitted(self)
        coef = self.coef_.reshape(-1, self.n_features_in_).T
        intercept = np.broadcast_to(self.intercept_, coef.shape[1:]).copy()
        source: Dataset | RowsInMemory | InMemorySparse
        if issparse(X):
            source, target = open_rows_or_sparse(self, X, reset=False), None
        else:
            source, target = open_for_prediction(self, X, self._target_name)
        found = np.concatenate(self._apply(program.predict, source, coef, intercept, target))
        return found if self.coef_.ndim == 2 else found[:, 0]

    def score(self, X: Input, y: ArrayLike | str | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination, R²; y may be the name of a column of files."""
        splits = splits_in(X)
        if splits is not None and isinstance(y, str):
            predicted, targets = apply_to_splits(self, "predict", splits, y)
            return r_squared(targets, np.concatenate(predicted), sample_weight)
        X, y = chosen(X, y, {})
        if isinstance(y, str):
            if not is_in_files(X):
                raise InputError(f"y={y!r}: only frames and files have columns with names")
            source = open_source(fitted_columns(self, X), required=(y,))
            target = target_column(source, y)
            y = np.concatenate(self._run(program.column, source.leaving_missing(target), target, comm=None))
        return r_squared(y, self.predict(X), sample_weight)

    def __sklearn_tags__(self) -> Any:
        """Return the input types that scikit-learn may pass."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _store_solution(self, solution: program.Solution) -> None:
        """Store the attributes that only this estimator has."""

    def _penalty(self) -> tuple[float, ...]:
        return (0.0,)

    def _open_own(
        self, X: Any, y: ArrayLike | str | None, sample_weight: ArrayLike | None, comm: Communicator
    ) -> tuple[LocalRows, NDArray[np.float64] | int, None]:
        """Return this rank's own rows, which include their weights, and their targets."""
        source, targets, name = None, None, None
        with opening(comm):
            if X is not None:
                source, targets = self._open(X, y)
                name = self._target_name
            weights = own_weights(sample_weight, source)
        rows = own_points(self, comm, source, weights)
        shape: tuple[int | None, tuple[int, ...]] | None = None
        if targets is not None:
            shape = (targets, ()) if isinstance(targets, int) else (None, targets.shape[1:])
        # `agreed` ignores None, so the name, which is None for arrays, is wrapped in a tuple.
        column, width = agreed(comm, shape, "targets")
        self._target_name = agreed(comm, None if targets is None else (name,), "y")[0]
        if targets is None:
            targets = column if column is not None else np.empty((0, *width))
        return rows, targets, None

    def _open_shared(
        self, X: Input, y: ArrayLike | str | None, sample_weight: ArrayLike | None
    ) -> tuple[Dataset | RowsInMemory | InMemorySparse, NDArray[np.float64] | int, NDArray[np.float64] | None]:
        source, targets = self._open(X, y)
        return source, targets, checked_weights(sample_weight, source)

    def _open(
        self, X: Input, y: ArrayLike | str | None
    ) -> tuple[Dataset | RowsInMemory | InMemorySparse, NDArray[np.float64] | int]:
        if y is None:
            raise InputError("y=None: this estimator requires y to be passed, but the target y is None")
        self._target_name = y if isinstance(y, str) else None
        if isinstance(y, str) and is_in_files(X):
            return open_with_target(self, X, y, reset=True)
        check_complete(y, "y")
        if is_in_files(X):
            return open_rows(self, X, reset=True), checked_targets(y)
        sparse = issparse(X)
        array, targets = validate_data(
            self,
            X if sparse else rows_in_memory(X),
            y,
            dtype=POINT_DTYPES[:2] if sparse else POINT_DTYPES,
            order="C",
            multi_output=True,
            y_numeric=True,
            ensure_all_finite=False,
            accept_sparse="csr",
            # 64-bit indices are converted to 32 bits, which the number of columns must fit.
            accept_large_sparse=True,
        )
        source = InMemorySparse.of(array) if sparse else RowsInMemory(array)
        return source, checked_targets(targets)

    def _restore(self, result: ResultFolder) -> None:
        super()._restore(result)
        if self.coef_.ndim == 1 or not self.fit_intercept:
            self.intercept_ = float(np.ravel(self.intercept_)[0])


class LinearRegression(LeastSquares):
    """Ordinary least squares, with rows divided among workers.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features), float64
        Weights of the columns.
    intercept_ : float or ndarray of shape (n_targets,)
        Intercepts of the predictions.
    rank_ : int
        Rank of the centered columns.
    singular_ : ndarray of shape (min(n_samples, n_features),)
        Singular values of the centered columns.
    report_ : RunReport
        Seconds per stage and rank.

    References
    ----------
    Demmel et al., "Communication-optimal parallel and sequential QR and LU factorizations", SIAM J. Sci. Comput. 34(1),
    2012, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import LinearRegression
    >>> X = np.array([[1.0, 1], [1, 2], [2, 2], [2, 3]])
    >>> LinearRegression().fit(X, X @ [1, 2] + 3).predict([[3, 5]]).round(6)
    array([16.])
    """

    rank_: int
    singular_: NDArray[np.float64]
    solver_: str

    _has_singular = True

    def _store_solution(self, solution: program.Solution) -> None:
        assert solution.singular is not None, "requested"
        self.rank_, self.singular_, self.solver_ = solution.rank, solution.singular, solution.solver


class Ridge(RidgeParameters, LeastSquares):
    """Ridge regression: least squares with an L2 penalty, with rows divided among workers.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features), float64
        Weights of the columns.
    intercept_ : float or ndarray of shape (n_targets,)
        Intercepts of the predictions.
    report_ : RunReport
        Seconds per stage and rank.

    References
    ----------
    Hoerl and Kennard, "Ridge regression: biased estimation for nonorthogonal problems", Technometrics 12(1), 1970.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import Ridge
    >>> Ridge(alpha=1.0).fit(np.array([[0.0], [1], [2]]), [0, 1, 2]).coef_.round(6)
    array([0.666667])
    """

    _command = "ridge"

    solver_: str

    def _store_solution(self, solution: program.Solution) -> None:
        self.solver_ = solution.solver

    def _penalty(self) -> tuple[float, ...]:
        penalties: tuple[float, ...] = parameters_of(Ridge)["alpha"].domain.plain(self.alpha)
        return penalties


def checked_targets(y: ArrayLike) -> NDArray[np.float64]:
    """Return targets as (n,) or (n, t) float64.

    Raises
    ------
    InputError
        The targets are not finite numbers, or have more dimensions.
    """
    dtype = np.asarray(y).dtype
    if dtype.kind in NO_NUMBERS:
        raise InputError(f"y: the type of the values is {dtype}, expected real numbers")
    try:
        targets = np.ascontiguousarray(y, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"y: expected numbers: {error}") from error
    if targets.ndim not in (1, 2) or not targets.size:
        raise InputError(f"y has shape {targets.shape}: expected (n_samples,) or (n_samples, n_targets)")
    wrong = np.argwhere(~np.isfinite(targets))
    if len(wrong):
        name = "NaN" if np.isnan(targets[tuple(wrong[0])]) else "infinity"
        raise InputError(f"y, row {wrong[0][0]}: {name} where a finite number is expected")
    return targets
