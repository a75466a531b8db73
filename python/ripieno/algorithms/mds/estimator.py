"""Multidimensional scaling as a scikit-learn estimator, on one machine's cores or many workers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from ripieno._checks import check_count, number
from ripieno.algorithms.column_choice import ColumnChoice
from ripieno.algorithms.inputs import Input, check_columns, is_in_files, open_rows, rows_in_memory
from ripieno.algorithms.iteration_log import RunReport
from ripieno.algorithms.mds import program
from ripieno.algorithms.mds.dissimilarities import Source
from ripieno.algorithms.mds.parameters import MDSParameters
from ripieno.algorithms.mds.program import MDSOptions, MDSPart
from ripieno.algorithms.mds.sequences import Sequences
from ripieno.algorithms.methods import (
    ANNEALED_STARTS,
    DA_SMACOF,
    PRECOMPUTED,
    SEQUENCE_METRICS,
)
from ripieno.algorithms.own_rows import agreed, opening, own_points, rows_of
from ripieno.algorithms.parameters import with_current_names
from ripieno.algorithms.reported import report_warning, reported
from ripieno.algorithms.worker_estimator import IterativeEstimator, ObservedEstimator
from ripieno.errors import InputError
from ripieno.files.frames import as_numbers
from ripieno.input.matrix import Dataset, LocalRows, RowsInMemory, open_source
from ripieno.wire.arrays import check_unmasked

if TYPE_CHECKING:
    from typing import Unpack

    from ripieno._types import Rows
    from ripieno.comm.communicator import Communicator

Reals = NDArray[np.float64]

#: Accepted types of dissimilarities; others are converted to the first.
DISSIMILARITY_DTYPES = [np.float64, np.float32, np.int16]


class MDS(MDSParameters, IterativeEstimator, ObservedEstimator):
    """Multidimensional scaling: positions with distances close to dissimilarities, by majorization of the stress.

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
        Whether the kept start ended by `tol` instead of `max_iter`.
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
    >>> model = MDS(2, random_state=0, tol=1e-9).fit(D)
    >>> bool(model.normalized_stress_ < 1e-3)
    True
    """

    _command = "mds"
    _row_parameters = ("init", "weights")
    _row_attributes = ("embedding_",)
    _needs_order = True

    embedding_: Reals
    stress_: float
    normalized_stress_: float
    n_iter_: int
    converged_: bool
    n_features_in_: int
    report_: RunReport

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
            or more strings, or a path, glob or URL of FASTA files, compressed or not. With `rows="own"`, `init`,
            `weights` and `embedding_` cover the rows of this rank.
        y : ignored
        """
        source: Source | Sequences
        weights: Source | None
        if rows == "own" and comm is not None:
            source, weights, options = self._open_own(X, comm)
        else:
            options = self._options(comm, self._init())
            source, weights = self._open(X), self._open_weights()
        parts = self._run_fit(program.fit, source, weights, options, comm=comm, rows=rows)
        own = slice(None) if comm is None or rows != "own" else parts[comm.rank].own_points
        self._store_result(parts, own)
        return self

    def fit_transform(self, X: Input, y: object = None, **choice: Unpack[ColumnChoice]) -> Reals:
        """Find the positions, and return them: (n_samples, n_components)."""
        return self.fit(X, **choice).embedding_

    def interpolate(
        self, X: Input, *, n_neighbors: int = 10, max_iter: int = 300, tol: float = 1e-6, eps: float | None = None
    ) -> Reals:
        """Embed further points by majorization, with the fitted points fixed.

        Parameters
        ----------
        X : array-like of shape (n_new, n_samples), path, glob or list of paths
            Dissimilarities of the new points to the fitted points. All workers read their share of files.
        n_neighbors : int, default=10
            Number of nearest fitted points that each new point's stress includes.
        max_iter : int, default=300
            Maximum number of iterations.
        tol : float, default=1e-6
            The iteration ends when no point moves by more than this share of the size of the embedding.
        eps : float
            The former name of `tol`. Deprecated.

        Returns
        -------
        ndarray of shape (n_new, n_components), float64

        Raises
        ------
        InputError
            Invalid dissimilarities or parameter.
        """
        check_is_fitted(self)
        if eps is not None:
            tol = with_current_names(type(self), {"eps": eps})["tol"]
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
        parts = self._apply(program.interpolate, source, self.embedding_, count, max_iter, _non_negative("tol", tol))
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
        return self._worker_options(MDSOptions, init=init, n_init=self._start_count(init), seed=self._own_seed(comm))

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
            return None
        check_unmasked(self.init, "init")
        init: Reals = check_array(self.init, dtype=np.float64, input_name="init")
        if init.shape[1] != self.n_components:
            raise InputError(f"init has {init.shape[1]} columns: expected n_components={self.n_components}")
        return init

    def _start_count(self, init: Reals | None) -> int:
        if isinstance(self.n_init, str):
            return ANNEALED_STARTS if init is None and self.method == DA_SMACOF else 1
        if init is not None and self.n_init != 1:
            raise InputError(f"n_init={self.n_init}: expected 1, because init sets the initial positions")
        return int(self.n_init)

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

    def _store_result(self, parts: list[MDSPart], own: slice) -> None:
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
            )


def _in_order(X: Any, order: NDArray[np.int64]) -> NDArray[Any]:
    """Return rows of a square matrix with its columns in the order of the ranks' rows."""
    rows: NDArray[Any] = (
        np.column_stack([as_numbers(each).to_numpy() for each in X.columns]) if isinstance(X, pa.Table) else X
    )
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
