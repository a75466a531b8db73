"""Mini-batch K-means as a scikit-learn estimator, for early results and for rows that arrive over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from ripieno._checks import check_count
from ripieno.algorithms.inputs import Input, open_rows_or_sparse
from ripieno.algorithms.kmeans import mini_batch_program as program
from ripieno.algorithms.kmeans.estimator import KMeans, in_input_dtype
from ripieno.algorithms.kmeans.mini_batch_program import MiniBatchOptions, MiniBatchPart, MiniBatchState
from ripieno.algorithms.kmeans.program import check_cluster_count
from ripieno.algorithms.own_rows import Source, open_for_fit
from ripieno.algorithms.reported import PlainReport, reported
from ripieno.algorithms.same_call import same_call
from ripieno.algorithms.worker_estimator import SEED_LIMIT
from ripieno.errors import InputError

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.algorithms.parameters import FitParameters
    from ripieno.comm.communicator import Communicator


class MiniBatchKMeans(KMeans):
    """Mini-batch K-means: each centroid is the mean of all rows assigned to it so far.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    init : {"k-means||", "k-means++", "random"}, array-like of shape (n_clusters, n_features) or callable
        Initial centroids, as in `KMeans`. To continue from another model, pass its `cluster_centers_`.
    n_init : "auto" or int, default="auto"
        Number of starts of `fit`; it continues from the start of least inertia. "auto" means 3 for "random" and
        callables, else 1.
    init_size : int or None, default=None
        Number of rows, drawn at random, from which starts are drawn and on which they are compared. None: all rows.
    max_iter : int, default=100
        Maximum number of passes over all rows: ``max_iter * n_samples // batch_size`` batches.
    batch_size : int, default=1024
        Rows of a batch over all workers, drawn with replacement; at most `n_samples`.
    tol : float, default=0.0
        If above 0, a fit ends when a batch shifts the centroids by a squared Frobenius norm of at most `tol` times the
        mean variance of the features.
    max_no_improvement : int or None, default=10
        A fit ends after this many consecutive batches without a lower smoothed inertia; None disables this rule.
    random_state : int, RandomState instance or None, default=None
        Source of the start and of the batches; an int makes them reproducible for any number of workers.
    on_iteration : callable or None, default=None
        Called in the calling process with a dict for each batch of `fit`: "event" ("step"), "step" (from 1),
        "step_count" (the maximum), "batch_inertia" (of the batch before the move, per weight) and "squared_shift".
    **common : FitParameters
        Where the fit runs and is saved: `workers`, `threads`, `engine`, `on_failure`, `checkpoint` and `every`.

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
    report_ : PlainReport
        Time breakdown of each rank in `fit`; see docs/dashboard.md.
    resumed_from_ : int or None
        Number of completed batches at which the last fit resumed, after a worker failure or from `checkpoint`; None if
        it did not resume.
    n_features_in_ : int
        Number of columns of the input.
    first_column_ : int or None
        Index of the first column in libsvm text, 0 or 1; None for other input.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if the input had them.

    Notes
    -----
    A centroid to which no row of a batch is assigned does not move.

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
    _random_run_count = 3
    report_: PlainReport  # type: ignore[assignment]  # the report of KMeans has iterations

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | ArrayLike | Callable[..., ArrayLike] = "k-means||",
        n_init: Literal["auto"] | int = "auto",
        init_size: int | None = None,
        max_iter: int = 100,
        batch_size: int = 1024,
        tol: float = 0.0,
        max_no_improvement: int | None = 10,
        random_state: int | np.random.RandomState | None = None,
        on_iteration: Callable[[dict[str, Any]], None] | None = None,
        **common: Unpack[FitParameters],
    ) -> None:
        super().__init__(
            n_clusters,
            init=init,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            on_iteration=on_iteration,
            **common,
        )
        self.init_size = init_size
        self.batch_size = batch_size
        self.max_no_improvement = max_no_improvement

    @reported
    def fit(
        self,
        X: Input,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
    ) -> MiniBatchKMeans:
        """Cluster the rows of X in batches drawn from them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path, glob or list of paths
            As in `KMeans.fit`.
        y : ignored
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in row order; must not be negative. They do not affect the drawing of batches.
        comm : Communicator, optional
            Ranks that make this call together, instead of newly started workers. All ranks get the model.
        rows : {"own", "shared"}, optional
            With `comm`: "own" if each rank passes its own rows, concatenated in rank order; "shared" if all ranks pass
            the same rows. Default: ranks compare their rows and raise an error if these differ. With `rows="own"`,
            `labels_` covers the rows of this rank.

        Returns
        -------
        MiniBatchKMeans
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
        source, weights = open_for_fit(self, X, sample_weight, comm=comm, rows=rows, open=open_rows_or_sparse)
        options = self._options(self._starts(source, comm), comm)
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
        X, y, sample_weight, comm, rows
            As in `fit`. On the first call, X must have at least as many rows as clusters.

        Returns
        -------
        MiniBatchKMeans
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
        is_first = not hasattr(self, "cluster_centers_")
        source, weights = open_for_fit(
            self, X, sample_weight, comm=comm, rows=rows, open=open_rows_or_sparse, reset=is_first
        )
        starts: list[int | NDArray[Any]] | MiniBatchState
        starts = self._starts(source, comm)[:1] if is_first else MiniBatchState(self.cluster_centers_, self.counts_)
        parts = self._run_fit(program.fit_batch, source, weights, self._options(starts, comm), comm=comm, rows=rows)
        self._store_model(parts, source, comm if rows == "own" else None)
        self.n_steps_ = 1 if is_first else self.n_steps_ + 1
        self.n_iter_ = 1 if is_first else self.n_iter_
        return self

    def _options(
        self, starts: list[int | NDArray[Any]] | MiniBatchState, comm: Communicator | None
    ) -> MiniBatchOptions:
        seed = int(check_random_state(self.random_state).randint(SEED_LIMIT))
        return MiniBatchOptions(
            n_clusters=self.n_clusters,
            init=self.init if isinstance(self.init, str) else "array",
            starts=starts,
            init_size=self.init_size,
            seed=seed if comm is None else comm.broadcast(seed),
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            tol=self.tol,
            max_no_improvement=self.max_no_improvement,
            checkpoint_options=self._checkpoint_options(),
        )

    def _own_starts(self, source: Source) -> list[int | NDArray[Any]]:
        if source.row_count is not None:
            check_cluster_count(self.n_clusters, source.row_count)
        return super()._own_starts(source)

    def _part_for_other_ranks(self, part: Any) -> Any:
        return replace(part, labels=part.labels[:0])

    def _store_model(self, parts: list[MiniBatchPart], source: Source, own: Communicator | None) -> None:
        """Store the result; with own rows, only the labels of this rank of `own`."""
        self.cluster_centers_ = in_input_dtype(parts[0].state.centroids, source)
        self.counts_ = parts[0].state.weight_sums
        self.labels_ = np.concatenate([part.labels for part in (parts if own is None else [parts[own.rank]])])
        self.inertia_ = parts[0].inertia
        self.resumed_from_ = parts[0].resumed_from

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("batch_size", self.batch_size)
        if self.init_size is not None:
            check_count("init_size", self.init_size)
            if self.init_size < self.n_clusters:
                raise InputError(f"init_size={self.init_size}: expected at least n_clusters={self.n_clusters}")
        if self.max_no_improvement is not None:
            check_count("max_no_improvement", self.max_no_improvement)
