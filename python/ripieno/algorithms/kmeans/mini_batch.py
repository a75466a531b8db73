"""Mini-batch K-means as a scikit-learn estimator, for early results and for rows that arrive over time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from ripieno.algorithms.column_choice import ColumnChoice
from ripieno.algorithms.inputs import Input, open_rows_or_sparse
from ripieno.algorithms.kmeans import mini_batch_program as program
from ripieno.algorithms.kmeans.estimator import KMeans, in_input_dtype
from ripieno.algorithms.kmeans.mini_batch_program import MiniBatchOptions, MiniBatchPart, MiniBatchState
from ripieno.algorithms.kmeans.parameters import MiniBatchParameters
from ripieno.algorithms.kmeans.program import check_cluster_count
from ripieno.algorithms.own_rows import Source, open_for_fit
from ripieno.algorithms.reported import PlainReport, joined, reported
from ripieno.algorithms.same_call import same_call
from ripieno.algorithms.worker_estimator import SEED_LIMIT
from ripieno.errors import InputError

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator


class MiniBatchKMeans(MiniBatchParameters, KMeans):
    """Mini-batch K-means: each centroid is the mean of all rows assigned to it so far.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The centroids: float64 for float64 input, float32 for float32 and uint8, sparse or not.
    counts_ : ndarray of shape (n_clusters,), float64
        Weight of the rows assigned to each centroid, over all batches.
    labels_ : ndarray of shape (n_samples,), int32
        Nearest centroid of each row of the last call.
    inertia_ : float
        Weighted sum of the squared distances of these rows to their centroids.
    n_iter_ : int
        Number of passes over all rows that `fit` has begun.
    n_steps_ : int
        Number of batches so far.

    Notes
    -----
    A centroid without rows in a batch does not move.

    References
    ----------
    Sculley, "Web-scale k-means clustering", WWW 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import MiniBatchKMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = MiniBatchKMeans(n_clusters=2, init=X[[0, 3]])
    >>> model.partial_fit(X[:3]).partial_fit(X[3:]).cluster_centers_
    array([[ 1.,  2.],
           [10.,  2.]])
    """

    counts_: NDArray[np.float64]
    n_steps_: int
    _means: NDArray[np.float64]
    _random_run_count = 3
    _private_results = ("_means",)
    _optional_results = ("_means", "assignment_recall_", "inertia_gap_")
    report_: PlainReport  # type: ignore[assignment]  # the report of KMeans has iterations

    @reported
    def fit(
        self,
        X: Input,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
        **choice: Unpack[ColumnChoice],
    ) -> MiniBatchKMeans:
        """Cluster the rows of X in batches drawn from them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path, glob or list of paths
            As in `KMeans.fit`.
        y : ignored
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in row order; must not be negative. They do not affect the drawing of batches.
        """
        source, weights = open_for_fit(self, X, sample_weight, comm=comm, rows=rows, open=open_rows_or_sparse)
        options = self._options_of(self._starts(source, comm), comm)
        parts = self._run_fit(program.fit, source, weights, options, comm=comm, rows=rows)
        self._store_model(parts, source, comm if rows == "own" else None)
        self.n_steps_ = parts[0].step_count
        row_count = parts[0].row_count
        self.n_iter_ = -(-self.n_steps_ * min(self.batch_size, row_count) // row_count)
        return self

    @same_call
    def partial_fit(
        self,
        X: Input,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
    ) -> MiniBatchKMeans:
        """Update the model with the rows of X as one batch; the first call chooses the start.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`. On the first call, X must have at least as many rows as clusters.
        """
        is_first = not hasattr(self, "cluster_centers_")
        source, weights = open_for_fit(
            self, X, sample_weight, comm=comm, rows=rows, open=open_rows_or_sparse, reset=is_first
        )
        starts: list[int | NDArray[Any]] | MiniBatchState
        starts = self._starts(source, comm)[:1] if is_first else self._state()
        parts = self._run_fit(program.fit_batch, source, weights, self._options_of(starts, comm), comm=comm, rows=rows)
        self._store_model(parts, source, comm if rows == "own" else None)
        self.n_steps_ = 1 if is_first else self.n_steps_ + 1
        self.n_iter_ = 1 if is_first else self.n_iter_
        return self

    def _options_of(
        self, starts: list[int | NDArray[Any]] | MiniBatchState, comm: Communicator | None
    ) -> MiniBatchOptions:
        seed = int(check_random_state(self.random_state).randint(SEED_LIMIT))
        return self._worker_options(
            MiniBatchOptions,
            init=self.init if isinstance(self.init, str) else "array",
            starts=starts,
            seed=seed if comm is None else comm.broadcast(seed),
        )

    def _state(self) -> MiniBatchState:
        """Return the state to continue from; assigned centroids replace the means."""
        centroids = self.cluster_centers_
        means = getattr(self, "_means", None)
        if means is None or not np.array_equal(means.astype(centroids.dtype), centroids):
            means = centroids.astype(np.float64)
        return MiniBatchState(means, self.counts_, centroids)

    def _own_starts(self, source: Source) -> list[int | NDArray[Any]]:
        if source.row_count is not None:
            check_cluster_count(self.n_clusters, source.row_count)
        return super()._own_starts(source)

    def _part_for_other_ranks(self, part: Any) -> Any:
        return replace(part, labels=part.labels[:0])

    def _store_model(self, parts: list[MiniBatchPart], source: Source, own: Communicator | None) -> None:
        """Store the result; with own rows, only the labels of this rank of `own`."""
        self.cluster_centers_ = in_input_dtype(parts[0].state.centroids, source)
        self._means = parts[0].state.means
        self.counts_ = parts[0].state.weight_sums
        self.labels_ = np.concatenate([part.labels for part in (parts if own is None else [parts[own.rank]])])
        self.inertia_ = parts[0].inertia
        self.resumed_from_ = parts[0].resumed_from
        if self._is_fitting:
            self._drawn = joined([part.drawn for part in parts])

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.init_size is not None and self.init_size < self.n_clusters:
            raise InputError(f"init_size={self.init_size}: expected at least n_clusters={self.n_clusters}")
