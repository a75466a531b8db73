"""Principal components as a scikit-learn estimator, on one machine's cores or many workers."""

from __future__ import annotations

from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from ripieno.algorithms.column_choice import ColumnChoice
from ripieno.algorithms.inputs import Input, open_rows_or_sparse
from ripieno.algorithms.iteration_log import RunReport
from ripieno.algorithms.own_rows import Source, open_for_fit
from ripieno.algorithms.pca import program
from ripieno.algorithms.pca.parameters import PCAParameters
from ripieno.algorithms.pca.program import Components, PCAOptions, PCAPart
from ripieno.algorithms.reported import joined, report_warning, reported
from ripieno.algorithms.split_rows import takes_splits
from ripieno.algorithms.worker_estimator import IterativeEstimator, ObservedEstimator
from ripieno.errors import InputError
from ripieno.input.matrix import InMemorySparse, LocalRows

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator

FLOATS = [np.float64, np.float32]
#: Solver names of scikit-learn, and the corresponding solvers.
SCIKIT_LEARN_SOLVERS = {"covariance_eigh": "covariance", "full": "tsqr"}


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PCAParameters, IterativeEstimator, ObservedEstimator):
    """Principal component analysis: the axes of largest variance, with rows divided among workers.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features)
        Axes, by descending variance; the largest entry of each is positive. float32 for float32 input, else float64.
    explained_variance_, explained_variance_ratio_, singular_values_ : ndarray of shape (n_components_,)
        Variance along each axis, its share of the total variance, and the singular values of the centered rows.
    mean_ : ndarray of shape (n_features,)
        Mean of the rows.
    noise_variance_ : float
        Mean variance along the omitted axes.
    n_components_, n_samples_ : int
        Number of axes, and of rows.
    report_ : RunReport
        Seconds per stage and rank.

    References
    ----------
    Demmel et al., "Communication-optimal parallel and sequential QR and LU factorizations", SIAM J. Sci. Comput. 34(1),
    2012, section 2.
    Halko, Martinsson and Tropp, "Finding structure with randomness", SIAM Review 53(2), 2011, algorithms 4.4 and 5.1.
    Minka, "Automatic choice of dimensionality for PCA", NIPS 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import PCA
    >>> X = np.array([[-1.0, -1], [-2, -1], [-3, -2], [1, 1], [2, 1], [3, 2]])
    >>> PCA(n_components=1).fit(X).explained_variance_ratio_.round(4)
    array([0.9924])
    """

    _command = "pca"

    components_: NDArray[Any]
    explained_variance_: NDArray[Any]
    explained_variance_ratio_: NDArray[Any]
    singular_values_: NDArray[Any]
    mean_: NDArray[Any]
    noise_variance_: float
    n_components_: int
    n_samples_: int
    first_column_: int | None
    n_features_in_: int
    solver_: str
    report_: RunReport

    @reported
    def fit(
        self,
        X: Input,
        y: object = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
        **choice: Unpack[ColumnChoice],
    ) -> PCA:
        """Fit the axes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), path, glob or list of paths
            float32 is used as it is; other types are converted to float64. Each worker reads its own share of files:
            .npy, .npz, .csv, .parquet. For splits or a partition file, it reads its assigned splits.
        y : ignored
        """
        # With own rows, a single row per rank is valid.
        open_source = open_rows_or_sparse if rows == "own" else partial(open_rows_or_sparse, min_rows=2)
        source, _ = open_for_fit(self, X, None, comm=comm, rows=rows, open=open_source)
        options = self._worker_options(
            PCAOptions,
            n_components=self._component_parameter(),
            solver=SCIKIT_LEARN_SOLVERS.get(self.svd_solver, self.svd_solver),
            oversamples=int(self.n_oversamples),
            max_iter=None if isinstance(self.iterated_power, str) else int(self.iterated_power),
            seed=self._seed(comm),
        )
        parts = self._run_fit(program.fit, source, options, comm=comm)
        self._store_result(parts, _result_dtype(source, parts[0].dtype))
        return self

    @takes_splits
    def transform(self, X: Input) -> NDArray[Any]:
        """Project the rows onto the axes: (n_samples, n_components_)."""
        check_is_fitted(self)
        source = open_rows_or_sparse(self, X, reset=False)
        found = np.concatenate(self._apply(program.transform, source, self.mean_, self._scaled_components()))
        return found.astype(_result_dtype(source, found.dtype), copy=False)

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Reconstruct rows, (n_samples, n_features), from projections X, (n_samples, n_components_)."""
        check_is_fitted(self)
        projections = check_array(X, dtype=FLOATS)
        scale = np.sqrt(self.explained_variance_) if self.whiten else 1.0
        return np.asarray((projections * scale) @ self.components_ + self.mean_)

    def get_covariance(self) -> NDArray[Any]:
        """Return the model's covariance of the columns, with `noise_variance_` along the omitted axes."""
        check_is_fitted(self)
        excess = np.maximum(self.explained_variance_ - self.noise_variance_, 0.0)
        covariance = (self.components_.T * excess) @ self.components_
        covariance.flat[:: len(covariance) + 1] += self.noise_variance_
        return np.asarray(covariance)

    def get_precision(self) -> NDArray[Any]:
        """Return the inverse of the model's covariance."""
        check_is_fitted(self)
        if self.noise_variance_ == 0:
            return np.asarray(np.linalg.inv(self.get_covariance()))
        excess = 1 / np.maximum(self.explained_variance_, self.noise_variance_) - 1 / self.noise_variance_
        precision = (self.components_.T * excess) @ self.components_
        precision.flat[:: len(precision) + 1] += 1 / self.noise_variance_
        return np.asarray(precision)

    @takes_splits
    def score_samples(self, X: Input) -> NDArray[np.float64]:
        """Return the log-likelihood of each row under the model's normal distribution: (n_samples,)."""
        check_is_fitted(self)
        source = open_rows_or_sparse(self, X, reset=False)
        precision = self.get_precision().astype(np.float64)
        return np.concatenate(self._apply(program.log_likelihoods, source, self.mean_, precision))

    def score(self, X: Input, y: object = None) -> float:
        """Return the mean log-likelihood of the rows under the model's normal distribution."""
        return float(self.score_samples(X).mean())

    def __sklearn_tags__(self) -> Any:
        """Return the input types that scikit-learn may pass."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _scaled_components(self) -> NDArray[Any]:
        """Return the axes, divided by the standard deviation along each if `whiten` is set."""
        if not self.whiten:
            return self.components_
        # An axis without variance contains only rounding errors.
        deviations = np.sqrt(self.explained_variance_)
        return np.asarray(self.components_ / np.maximum(deviations, np.finfo(deviations.dtype).eps)[:, None])

    def _component_parameter(self) -> Components:
        if self.n_components is None or self.n_components == "mle":
            return self.n_components
        return int(self.n_components) if isinstance(self.n_components, Integral) else float(self.n_components)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.svd_solver in ("randomized", "arpack") and not isinstance(self.n_components, Integral | None):
            raise InputError(
                f"n_components={self.n_components!r}: expected a whole number >= 1, or None, for "
                f"svd_solver={self.svd_solver!r}"
            )

    def _store_result(self, parts: list[PCAPart], dtype: np.dtype[Any]) -> None:
        first = parts[0]
        axes = first.axes
        self.components_ = axes.components.astype(dtype)
        self.explained_variance_ = axes.variances.astype(dtype)
        self.explained_variance_ratio_ = (axes.variances / (axes.total or 1.0)).astype(dtype)
        self.singular_values_ = np.sqrt(axes.variances * (first.row_count - 1)).astype(dtype)
        self.mean_ = first.mean.astype(dtype)
        self.noise_variance_ = axes.noise
        self.n_components_ = len(self.components_)
        self.n_samples_ = first.row_count
        self.solver_, self.resumed_from_ = first.solver, first.resumed_from
        self._drawn = joined([None if part.drawn is None else (part.drawn,) for part in parts])
        with report_warning():
            self.report_ = RunReport.of(
                [part.record for part in parts],
                row_count=first.row_count,
                column_count=self.n_features_in_,
                dtype=first.dtype,
            )


def _result_dtype(source: Source, dtype: Any) -> np.dtype[Any]:
    """Return the type of results. The entries of sparse rows are float64 during the computation only."""
    rows = source.source if isinstance(source, LocalRows) else source
    return np.dtype(rows.given_dtype if isinstance(rows, InMemorySparse) else dtype)
