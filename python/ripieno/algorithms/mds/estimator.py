"""Multidimensional scaling as a scikit-learn estimator, on one machine's cores or many workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ripieno._checks import check_count, number, whole_number
from ripieno.algorithms.column_choice import ColumnChoice
from ripieno.algorithms.inputs import Input, check_columns, is_in_files, open_rows, rows_in_memory
from ripieno.algorithms.iteration_log import RunReport
from ripieno.algorithms.mds import program
from ripieno.algorithms.mds.dissimilarities import Source
from ripieno.algorithms.mds.program import MDSOptions, MDSPart
from ripieno.algorithms.mds.sequences import Sequences
from ripieno.algorithms.methods import (
    ANNEALED_STARTS,
    DA_SMACOF,
    MDS_METHODS,
    PRECOMPUTED,
    ROW_METRICS,
    SEQUENCE_METRICS,
)
from ripieno.algorithms.own_rows import agreed, opening, own_points, rows_of
from ripieno.algorithms.reported import report_warning, reported
from ripieno.algorithms.thread_model import check_thread_model
from ripieno.algorithms.worker_estimator import IterativeEstimator, ObservedEstimator
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, LocalRows, RowsInMemory, open_source
from ripieno.kernels.pairs import MOST_DIMENSIONS
from ripieno.wire.arrays import check_unmasked

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows, ThreadModel
    from ripieno.algorithms.parameters import FitParameters
    from ripieno.comm.communicator import Communicator

Reals = NDArray[np.float64]

#: Accepted types of dissimilarities; others are converted to the first.
DISSIMILARITY_DTYPES = [np.float64, np.float32, np.int16]


class MDS(IterativeEstimator, ObservedEstimator):
    """Multidimensional scaling: positions with distances close to dissimilarities, by majorization of the stress.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions of the positions, at most 64.
    method : {"smacof", "da-smacof"}, default="smacof"
        Descent method. "smacof" uses majorization alone. "da-smacof" adds deterministic annealing, and then moves
        single points to positions of less stress. It takes longer, usually finds lower minima, and hardly depends on
        the start.
    weights : array of shape (n_samples, n_samples) or path, default=None
        Weights of the pairs: symmetric numbers >= 0, with 0 for missing dissimilarities. None: equal weights.
    metric : str, default="precomputed"
        "precomputed": `fit` receives the dissimilarities. Otherwise it receives rows, and each worker computes the
        distances of its own rows: "euclidean", "cityblock", "chebyshev", "cosine", "correlation", "canberra",
        "braycurtis" or "sqeuclidean". For sequences of letters, "levenshtein" counts insertions, deletions and
        substitutions, and "normalized-levenshtein" divides this by the length of the longer sequence. These two require
        the extra ``ripieno[sequences]``.
    init : "random" or array of shape (n_samples, n_components), default="random"
        Initial positions. Random positions equal scikit-learn's for the same integer seed.
    n_init : int or "auto", default="auto"
        Number of random starts; the result of least stress is kept. With annealing, every second start begins colder.
        "auto" means 4 with annealing from random positions, otherwise 1.
    max_iter : int, default=300
        Maximum number of iterations per start and per temperature.
    eps : float, default=1e-6
        A start or temperature ends when the stress falls by less than this share of the squared distances, as in
        scikit-learn. With annealing, the share refers to the squared dissimilarities.
    cooling : float, default=0.95
        Ratio of consecutive temperatures for "da-smacof".
    random_state : int, RandomState instance or None, default=None
        Source of the random positions and of the small moves of annealing.
    thread_model : {"fork-join", "bsp"}, default="fork-join"
        How a worker's threads execute the fit; the result is the same. With "fork-join" each pass over the pairs is a
        task of the threads, which sleep between distant tasks. With "bsp" the threads enter once and are busy until the
        fit ends: they spin while the worker communicates, and each prepares its own copy of the positions.
    on_iteration : callable or None, default=None
        Called in the calling process after each iteration with a dict of "event" ("iteration"), "iteration" (from 1),
        "stress", "normalized_stress", "start" (from 1, with several starts), "temperature" (with annealing), and rank
        0's "compute_s" and "communication_s".
    **common : FitParameters
        Where the fit runs and is saved: `workers`, `threads`, `engine`, `on_failure`, `checkpoint` and `every`.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components), float64
        Positions of the points.
    stress_ : float
        Weighted sum over all pairs of (distance - dissimilarity)².
    normalized_stress_ : float
        Kruskal's "Stress-1": the square root of the stress divided by the sum of the weighted squared distances.
    n_iter_ : int
        Number of iterations of the kept start.
    converged_ : bool
        Whether the kept start ended by `eps` instead of `max_iter`.
    resumed_from_ : int or None
        Number of completed iterations of all starts at which the fit resumed from a checkpoint; None if it did not
        resume.
    n_features_in_ : int
        Number of columns of the input.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if the input had them.
    report_ : RunReport
        Stress and seconds per iteration and rank.

    Notes
    -----
    Dissimilarities are stored as int16 or float32, weights as float32. The result is bitwise equal for any number of
    workers and threads, on processors with the same vector instructions.

    References
    ----------
    De Leeuw, "Applications of convex analysis to multidimensional scaling", Recent developments in statistics, 1977.
    Ruan and Fox, "A robust and scalable solution for interpolative multidimensional scaling with weighting",
    e-Science 2013.
    Zhang, Ruan and Qiu, "Harp: collective communication on Hadoop", IC2E 2015, section V.

    Examples
    --------
    >>> import numpy as np
    >>> from ripieno.algorithms import MDS
    >>> D = np.array([[0.0, 3, 4], [3, 0, 5], [4, 5, 0]])
    >>> model = MDS(2, random_state=0, eps=1e-9).fit(D)
    >>> bool(model.normalized_stress_ < 1e-3)
    True
    """

    _row_parameters = ("init", "weights")
    _row_attributes = ("embedding_",)
    _needs_order = True

    embedding_: Reals
    stress_: float
    normalized_stress_: float
    n_iter_: int
    converged_: bool
    resumed_from_: int | None
    n_features_in_: int
    report_: RunReport

    def __init__(
        self,
        n_components: int = 2,
        *,
        method: str = "smacof",
        weights: ArrayLike | str | os.PathLike[str] | None = None,
        metric: str = PRECOMPUTED,
        init: str | ArrayLike = "random",
        n_init: int | str = "auto",
        max_iter: int = 300,
        eps: float = 1e-6,
        cooling: float = 0.95,
        random_state: int | np.random.RandomState | None = None,
        thread_model: ThreadModel = "fork-join",
        on_iteration: Callable[[dict[str, Any]], None] | None = None,
        **common: Unpack[FitParameters],
    ) -> None:
        super().__init__(**common)
        self.n_components = n_components
        self.method = method
        self.weights = weights
        self.metric = metric
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.eps = eps
        self.cooling = cooling
        self.random_state = random_state
        self.thread_model = thread_model
        self.on_iteration = on_iteration

    @reported
    def fit(
        self,
        X: Input | Sequences,
        y: object = None,
        *,
        comm: Communicator | None = None,
        rows: Rows | None = None,
        **choice: Unpack[ColumnChoice],
    ) -> MDS:
        """Find the positions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_samples) or (n_samples, n_features), path, glob or list of paths
            Dissimilarities of all pairs: symmetric numbers >= 0 with a zero diagonal; or rows, depending on `metric`.
            Each worker reads its own rows of files; .npy files of int16 or float32 are memory-mapped. Sequences are two
            or more strings, or a path, glob or URL of FASTA files, compressed or not.
        y : ignored
        comm : Communicator, optional
            Ranks that make this call together, instead of newly started workers. All ranks get the model.
        rows : {"own", "shared"}, optional
            With `comm`: "own" if each rank passes its own rows, concatenated in rank order; "shared" if all ranks pass
            the same rows. Default: ranks compare their rows and raise an error if these differ. With `rows="own"`,
            `init`, `weights` and `embedding_` cover the rows of this rank.
        **choice : ColumnChoice
            Columns of frames and of tables in files, by name: `columns` to read, by default all; `ignore`, those to
            leave out; `id`, the names of the rows, which are no values.

        Returns
        -------
        MDS
            The estimator itself.

        Raises
        ------
        InputError
            Invalid input or parameter. InputError is a ValueError; its message names the problem.
        CheckpointError
            The checkpoint belongs to another fit, is in use, or cannot be written.
        CollectiveMismatch
            The ranks of `comm` make different calls, have different parameters, or pass different rows without `rows`.
        RankFailed
            A worker died.
        """
        begin = time.perf_counter()
        source: Source | Sequences
        weights: Source | None
        if rows == "own" and comm is not None:
            source, weights, options = self._open_own(X, comm)
        else:
            options = self._options(comm, self._init())
            source, weights = self._open(X), self._open_weights()
        parts = self._run_fit(program.fit, source, weights, options, comm=comm, rows=rows)
        own = slice(None) if comm is None or rows != "own" else parts[comm.rank].own_points
        self._store_result(parts, own, time.perf_counter() - begin)
        return self

    def fit_transform(self, X: Input, y: object = None, **choice: Unpack[ColumnChoice]) -> Reals:
        """Find the positions, and return them: (n_samples, n_components)."""
        return self.fit(X, **choice).embedding_

    def interpolate(self, X: Input, *, n_neighbors: int = 10, max_iter: int = 300, eps: float = 1e-6) -> Reals:
        """Embed further points by majorization, with the fitted points fixed.

        Parameters
        ----------
        X : array-like of shape (n_new, n_samples), path, glob or list of paths
            Dissimilarities of the new points to the fitted points. All workers read their share of files.
        n_neighbors : int, default=10
            Number of nearest fitted points that each new point's stress includes.
        max_iter : int, default=300
            Maximum number of iterations.
        eps : float, default=1e-6
            The iteration ends when no point moves by more than this share of the size of the embedding.

        Returns
        -------
        ndarray of shape (n_new, n_components), float64

        Raises
        ------
        InputError
            Invalid dissimilarities or parameter.
        """
        check_is_fitted(self)
        check_count("n_neighbors", n_neighbors)
        check_count("max_iter", max_iter)
        source: Dataset | RowsInMemory
        if is_in_files(X):
            source = open_source(X)
        else:
            X = rows_in_memory(X)
            source = RowsInMemory(
                check_array(_as_int16(X), dtype=DISSIMILARITY_DTYPES, order="C", ensure_all_finite=False)
            )
        count = min(n_neighbors, len(self.embedding_))
        parts = self._apply(program.interpolate, source, self.embedding_, count, max_iter, _non_negative("eps", eps))
        return np.concatenate(parts)

    def __sklearn_tags__(self) -> Any:
        """Return the input types that scikit-learn may pass."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == PRECOMPUTED
        tags.input_tags.positive_only = tags.input_tags.pairwise
        tags.input_tags.string = self.metric in SEQUENCE_METRICS
        tags.input_tags.two_d_array = not tags.input_tags.string
        return tags

    def _options(self, comm: Communicator | None, init: Reals | None) -> MDSOptions:
        self._check_workers()
        whole_number("n_components", self.n_components, 1, MOST_DIMENSIONS)
        check_count("max_iter", self.max_iter)
        if self.method not in MDS_METHODS:
            raise InputError(f"method={self.method!r}: expected one of {', '.join(MDS_METHODS)}")
        if self.metric not in (PRECOMPUTED, *ROW_METRICS, *SEQUENCE_METRICS):
            known = ", ".join((PRECOMPUTED, *ROW_METRICS, *SEQUENCE_METRICS))
            raise InputError(f"metric={self.metric!r}: expected one of {known}")
        check_thread_model(self.thread_model)
        cooling = number("cooling", self.cooling, "expected a number between 0 and 1")
        if not 0 < cooling < 1:
            raise InputError(f"cooling={self.cooling!r}: expected a number between 0 and 1")
        return MDSOptions(
            n_components=int(self.n_components),
            method=self.method,
            metric=self.metric,
            init=init,
            n_init=self._start_count(init),
            max_iter=self.max_iter,
            eps=_non_negative("eps", self.eps),
            cooling=cooling,
            seed=self._own_seed(comm),
            checkpoint_options=self._checkpoint_options(),
            thread_model=self.thread_model,
        )

    def _open_own(self, X: Any, comm: Communicator) -> tuple[LocalRows, LocalRows | None, MDSOptions]:
        """Return this rank's rows, weights and options; `init` and `weights` have the same rows as X."""
        source: Any = None
        weights: Any = None
        init = None
        with opening(comm):
            if self.metric in SEQUENCE_METRICS:
                raise InputError(f"metric={self.metric!r}: rank 0 reads all sequences: expected rows='shared'")
            order = getattr(self, "_row_order", None)
            if X is not None:
                X = X if order is None or self.metric != PRECOMPUTED else _in_order(X, order)
                source, weights, init = self._open(X), self._open_weights(), self._init()
                if order is not None:
                    weights, init = self._select_own_rows(weights, init, order)
                if init is not None and source.row_count not in (None, len(init)):
                    raise InputError(f"rank {comm.rank}: init has {len(init)} rows for {source.row_count} points")
        own_rows = own_points(self, comm, source, None)
        inits = [each for each in comm.allgather(init) if each is not None]
        # Every rank needs the positions of all points.
        options = replace(self._options(comm, np.concatenate(inits) if inits else None), order=order)
        width = None if weights is None else weights.column_count
        (width,) = agreed(comm, None if source is None else (width,), "columns of weights")
        if width is None:
            return own_rows, None, options
        own_weights = LocalRows(
            weights or RowsInMemory(np.empty((0, width), np.float32)), None, f"weights of rank {comm.rank}"
        )
        return own_rows, own_weights, options

    def _select_own_rows(
        self, weights: Any, init: Reals | None, order: NDArray[np.int64]
    ) -> tuple[RowsInMemory | None, Reals | None]:
        """Return the rows of this rank's splits, from weights and positions of all points."""
        own = rows_of(self._row_runs)
        if isinstance(weights, Dataset):
            raise InputError("weights in files, and X in splits: expected an array of weights")
        for name, array in (("weights", None if weights is None else weights.array), ("init", init)):
            if array is not None and len(array) != len(order):
                raise InputError(f"{name} has {len(array)} rows for {len(order)} points")
        rows = None if weights is None else RowsInMemory(np.ascontiguousarray(_in_order(weights.array[own], order)))
        return rows, None if init is None else init[own]

    def _init(self) -> Reals | None:
        if isinstance(self.init, str):
            if self.init != "random":
                raise InputError(f"init={self.init!r}: expected 'random' or positions")
            return None
        check_unmasked(self.init, "init")
        init: Reals = check_array(self.init, dtype=np.float64, input_name="init")
        if init.shape[1] != self.n_components:
            raise InputError(f"init has {init.shape[1]} columns: expected n_components={self.n_components}")
        return init

    def _start_count(self, init: Reals | None) -> int:
        if isinstance(self.n_init, str):
            if self.n_init != "auto":
                raise InputError(f"n_init={self.n_init!r}: expected a whole number, or 'auto'")
            return ANNEALED_STARTS if init is None and self.method == DA_SMACOF else 1
        check_count("n_init", self.n_init)
        if init is not None and self.n_init != 1:
            raise InputError(f"n_init={self.n_init}: expected 1, because init sets the initial positions")
        return self.n_init

    def _own_seed(self, comm: Communicator | None) -> int:
        if not isinstance(self.random_state, Integral):
            return self._seed(comm)
        check_random_state(self.random_state)
        return int(self.random_state) if comm is None else comm.broadcast(int(self.random_state))

    def _open(self, X: Input | Sequences) -> Dataset | RowsInMemory | Sequences:
        if self.metric in SEQUENCE_METRICS:
            self.n_features_in_ = 1
            return _sequences(X)
        if isinstance(X, Sequences):
            raise InputError(f"metric={self.metric!r}: sequences require one of {', '.join(SEQUENCE_METRICS)}")
        if self.metric != PRECOMPUTED:
            return open_rows(self, X, reset=True)
        if is_in_files(X):
            source = open_source(X)
            check_columns(self, source, reset=True)
            return source
        X = rows_in_memory(X)
        array = validate_data(self, _as_int16(X), dtype=DISSIMILARITY_DTYPES, order="C", ensure_all_finite=False)
        return RowsInMemory(array)

    def _open_weights(self) -> Dataset | RowsInMemory | None:
        if self.weights is None:
            return None
        if is_in_files(self.weights):
            return open_source(self.weights)
        check_unmasked(self.weights, "weights")
        array = check_array(
            _as_int16(self.weights),
            dtype=DISSIMILARITY_DTYPES,
            order="C",
            ensure_all_finite=False,
            input_name="weights",
        )
        return RowsInMemory(array)

    def _store_result(self, parts: list[MDSPart], own: slice, total_s: float) -> None:
        first = parts[0]
        self.embedding_, self.stress_ = first.embedding[own], first.stress
        self.normalized_stress_ = first.normalized_stress
        self.n_iter_, self.converged_ = first.iteration_count, first.converged
        self.resumed_from_ = first.resumed_from
        with report_warning():
            self.report_ = RunReport.of(
                [part.record for part in parts],
                row_count=first.point_count,
                column_count=self.n_features_in_,
                dtype=first.dtype,
                total_s=total_s,
            )


def _in_order(X: Any, order: NDArray[np.int64]) -> NDArray[Any]:
    """Return rows of a square matrix with its columns in the order of the ranks' rows."""
    rows: NDArray[Any] = np.column_stack([each.to_numpy() for each in X.columns]) if isinstance(X, pa.Table) else X
    if rows.ndim != 2 or rows.shape[1] != len(order):
        raise InputError(f"X has {len(order)} rows and shape (…, {rows.shape[-1]}): expected a square matrix")
    return np.ascontiguousarray(rows[:, order])


def _sequences(X: Any) -> Sequences:
    """Return sequences from strings; a single string, or paths, are opened as FASTA files."""
    if isinstance(X, Sequences):
        return X
    if isinstance(X, str | os.PathLike):
        return Sequences.open(X)
    if not isinstance(X, Iterable) or getattr(X, "ndim", 1) != 1:
        raise InputError(f"X is a {type(X).__name__}: expected a list of strings, or a path of FASTA files")
    values = list(X)
    if values and all(isinstance(value, os.PathLike) for value in values):
        return Sequences.open(values)
    return Sequences.of(values)


def _as_int16(X: Any) -> Any:
    """Return integers that fit in int16, a type of the kernels, as int16; return other input unchanged."""
    is_small = isinstance(X, np.ndarray) and X.dtype.kind in "iu" and np.can_cast(X.dtype, np.int16)
    return X.astype(np.int16, copy=False) if is_small else X


def _non_negative(name: str, value: Any) -> float:
    expected = "expected a number >= 0"
    found = number(name, value, expected)
    if not 0 <= found < np.inf:
        raise InputError(f"{name}={value!r}: {expected}")
    return found
