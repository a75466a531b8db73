"""K-means as a scikit-learn estimator, on one machine's cores or many workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ripieno import log
from ripieno.algorithms.column_choice import ColumnChoice
from ripieno.algorithms.inputs import Input, open_rows_or_sparse
from ripieno.algorithms.kmeans import program
from ripieno.algorithms.kmeans.divided_store import whole_centroids
from ripieno.algorithms.kmeans.fit_report import KMeansReport
from ripieno.algorithms.kmeans.parameters import INITS, KMeansParameters
from ripieno.algorithms.kmeans.program import KMeansOptions, KMeansPart
from ripieno.algorithms.own_rows import Source, open_for_fit
from ripieno.algorithms.parameters import options_of
from ripieno.algorithms.reported import joined, report_warning, reported
from ripieno.algorithms.result_folder import ResultFolder
from ripieno.algorithms.split_rows import takes_splits
from ripieno.algorithms.worker_estimator import SEED_LIMIT, IterativeEstimator, ObservedEstimator
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, InMemorySparse, LocalRows
from ripieno.wire.arrays import check_unmasked

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator

RANDOM_RUN_COUNT = 10


class KMeans(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    KMeansParameters,
    IterativeEstimator,
    ObservedEstimator,
):
    """K-means clustering by Lloyd's iteration, with rows divided among workers.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The centroids: float64 for float64 input, float32 for float32 and uint8, sparse or not.
    labels_ : ndarray of shape (n_samples,), int32
        Nearest centroid of each row, in row order (files in the given order, globs sorted).
    inertia_ : float
        Weighted sum of the squared distances of the rows to their centroids.
    assignment_recall_ : float
        Share of sampled rows without a nearer centroid than in `labels_`; 1 for exact assignment.
    inertia_gap_ : float
        Relative excess of the sample's inertia over exact assignment; 0 for exact assignment.
    n_iter_ : int
        Number of iterations of the kept run.
    report_ : KMeansReport
        Inertia and seconds per iteration and rank, cluster sizes, and the rows nearest to the largest clusters.

    Notes
    -----
    An empty cluster is moved to the row that is farthest from its centroid (see
    `ripieno.algorithms.kmeans.lloyd.rows_for_empty_clusters`).

    References
    ----------
    Lloyd, "Least squares quantization in PCM", IEEE Trans. Inf. Theory 28(2), 1982.
    Bahmani et al., "Scalable k-means++", PVLDB 5(7), 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import KMeans
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> model = KMeans(n_clusters=2, init=X[[0, 3]]).fit(X)
    >>> model.labels_
    array([0, 0, 0, 1, 1, 1], dtype=int32)
    >>> model.cluster_centers_
    array([[ 1.,  2.],
           [10.,  2.]])
    """

    _command = "kmeans"
    _row_attributes = ("labels_",)

    cluster_centers_: NDArray[Any]
    labels_: NDArray[np.int32]
    inertia_: float
    assignment_recall_: float
    inertia_gap_: float
    n_iter_: int
    n_features_in_: int
    first_column_: int | None
    feature_names_in_: NDArray[Any]
    report_: KMeansReport

    @property
    def _random_run_count(self) -> int:
        """Return the number of runs of n_init="auto" from random starts."""
        return RANDOM_RUN_COUNT if options_of(self).assign == "exact" else 1

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
    ) -> KMeans:
        """Cluster the rows of X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), path, glob or list of paths
            With `rows="own"`, `labels_` covers the rows of this rank. Types float32, float64 and uint8 are used as they
            are; others are converted to float64. uint8 is some 2.5 times as fast as float32 and gives the same labels.
            Entries of a sparse matrix are converted to float64, and distances to the dense centroids are exact. Each
            worker reads its own share of files: .npy, .npz, .csv, .parquet, and .txt with lines of "picture row col f1
            … fn". Files of sparse rows are read whole and distributed: .npz of scipy.sparse.save_npz, and libsvm text
            named .libsvm, .svmlight or .svm, without its labels. For splits or a partition file, each worker reads its
            assigned splits.
        y : ignored
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, in row order; must not be negative.
        """
        source, weights = open_for_fit(self, X, sample_weight, comm=comm, rows=rows, open=open_rows_or_sparse)
        if options_of(self).assign == "near" and isinstance(getattr(source, "source", source), InMemorySparse):
            raise InputError("assign='near': expected dense rows; a sparse matrix is assigned exactly")
        if source.row_count is not None:
            program.check_cluster_count(self.n_clusters, source.row_count)
        options = self._worker_options(
            KMeansOptions,
            init=self.init if isinstance(self.init, str) else "array",
            starts=self._starts(source, comm),
        )
        parts = self._run_fit(program.fit, source, weights, options, comm=comm, rows=rows)
        own_parts = parts if comm is None or rows != "own" else [parts[comm.rank]]
        self.labels_ = np.concatenate([part.clustering.labels for part in own_parts])
        self._store_result(parts, source)
        return self

    def predict(self, X: Input) -> NDArray[np.int32]:
        """Return the nearest centroid of each row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), path, glob or list of paths
            Libsvm text is accepted only if the estimator was fitted on it, because its first index must be known.

        Returns
        -------
        ndarray of shape (n_samples,), int32
        """
        return self._assign(X)[0]

    def fit_predict(
        self,
        X: Input,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        **choice: Unpack[ColumnChoice],
    ) -> NDArray[np.int32]:
        """Cluster the rows of X and return their labels."""
        return self.fit(X, sample_weight=sample_weight, **choice).labels_

    @takes_splits
    def transform(self, X: Input) -> NDArray[Any]:
        """Return the distance of each row to each centroid: (n_samples, n_clusters)."""
        return np.concatenate(self._apply_centers(program.transform, X))

    def fit_transform(
        self,
        X: Input,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        **choice: Unpack[ColumnChoice],
    ) -> NDArray[Any]:
        """Cluster the rows of X and return their distances to the centroids."""
        return self.fit(X, sample_weight=sample_weight, **choice).transform(X)

    def score(self, X: Input, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the weighted sum of the squared distances of the rows to their nearest centroids."""
        _, squared_distances = self._assign(X)
        if sample_weight is None:
            return -float(squared_distances.sum())
        return -float(squared_distances @ _check_sample_weight(sample_weight, squared_distances[:, None]))

    def __sklearn_tags__(self) -> Any:
        """Return the input types that scikit-learn may pass."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _restore(self, result: ResultFolder) -> None:
        super()._restore(result)
        # The result of a command names the file of its initial centroids.
        if self.init not in INITS:
            self.init = next(iter(INITS))

    @takes_splits
    def _assign(self, X: Input) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        labels, squared_distances = zip(*self._apply_centers(program.predict, X), strict=True)
        return np.concatenate(labels), np.concatenate(squared_distances)

    def _apply_centers(self, run: Callable[..., Any], X: Input) -> list[Any]:
        """Run a program on the rows of X and the centroids, and return its results."""
        check_is_fitted(self)
        return self._apply(run, open_rows_or_sparse(self, X, reset=False), self.cluster_centers_)

    def _on_event(self, event: dict[str, Any]) -> None:
        super()._on_event(event)
        if self.verbose and event["event"] == "iteration":
            print("run {run}, iteration {iteration}: inertia {inertia:.6g}".format(**event))

    def _starts(self, source: Source, comm: Communicator | None) -> list[int | NDArray[Any]]:
        """Return one seed or one array of centroids per run; with `comm`, all ranks use rank 0's."""
        self._check_seeds(comm)
        starts = self._own_starts(source)
        return starts if comm is None else comm.broadcast(starts)

    def _own_starts(self, source: Source) -> list[int | NDArray[Any]]:
        random = check_random_state(self.random_state)
        if isinstance(self.init, str):
            return [int(seed) for seed in random.randint(SEED_LIMIT, size=self._run_count(self.init == "random"))]
        if callable(self.init):
            if isinstance(source, Dataset):
                raise InputError("init is a callable: expected an array as input, not files")
            if isinstance(source, LocalRows):
                raise InputError("init is a callable, which needs all rows in one place: expected rows='shared'")
            calls = range(self._run_count(True))
            return [self._start(self.init(source.array, self.n_clusters, random_state=random), source) for _ in calls]
        if self.n_init not in ("auto", 1):
            log.warn(f"init is an array: the fit makes one run, not n_init={self.n_init}", RuntimeWarning)
        return [self._start(self.init, source)]

    def _run_count(self, repeats: bool) -> int:
        return (self._random_run_count if repeats else 1) if self.n_init == "auto" else self.n_init

    def _start(self, centroids: ArrayLike, source: Source) -> NDArray[Any]:
        check_unmasked(centroids, "init")
        start: NDArray[Any] = check_array(centroids, dtype=[np.float64, np.float32])
        expected = (self.n_clusters, source.column_count)
        if start.shape != expected:
            raise InputError(f"init has shape {start.shape}: expected (n_clusters, n_features), {expected}")
        return start

    def _part_for_other_ranks(self, part: Any) -> Any:
        clustering = replace(part.clustering, labels=part.clustering.labels[:0], squared_distances=np.empty(0))
        return replace(part, clustering=clustering)

    def _store_result(self, parts: list[KMeansPart], source: Source) -> None:
        best = parts[0]
        centroids = whole_centroids([part.clustering for part in parts])
        self.cluster_centers_ = in_input_dtype(centroids, source)
        self.inertia_ = best.clustering.inertia
        self.assignment_recall_ = best.clustering.loss.recall
        self.inertia_gap_ = best.clustering.loss.gap
        self.n_iter_ = best.clustering.iteration_count
        self.resumed_from_ = best.resumed_from
        self._drawn = joined([part.drawn for part in parts])
        with report_warning():
            self.report_ = program.report(parts, source.column_count)
        found = np.count_nonzero(best.cluster_sizes)
        if found < self.n_clusters:
            log.warn(
                f"Number of distinct clusters ({found}) found smaller than n_clusters ({self.n_clusters}): "
                "there may be fewer different rows",
                ConvergenceWarning,
            )


def in_input_dtype(centroids: NDArray[Any], source: Source) -> NDArray[Any]:
    """Return centroids in the type of the input: sparse entries are float64 during the computation."""
    rows = source.source if isinstance(source, LocalRows) else source
    return centroids.astype(rows.given_dtype, copy=False) if isinstance(rows, InMemorySparse) else centroids
