"""Sparse points for the K-means kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import ripieno._native as _native


@dataclass(frozen=True)
class SparseRows:
    """Sparse rows.

    Parameters
    ----------
    starts : (n + 1,) int64
        Start of each row's entries, and the end of the last.
    columns : (e,) int32
    values : (e,) float64
    column_count
        Number of columns.
    weights : (n,) float64
        Weight of each row.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]
    column_count: int
    weights: NDArray[np.float64]


class SparsePoints:
    """Sparse rows as K-means points; centroids and extracted rows are dense.

    Parameters
    ----------
    matrix : (n, d) csr_matrix
        In canonical format: no duplicate entries, columns sorted.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, matrix: csr_matrix) -> None:
        self.matrix = matrix
        self.shape = (int(matrix.shape[0]), int(matrix.shape[1]))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[np.float64]:
        dense: NDArray[np.float64] = self.matrix[rows].toarray().astype(np.float64, copy=False)
        return dense

    @cached_property
    def _ones(self) -> NDArray[np.float64]:
        return np.ones(len(self))

    def _rows(self, weights: NDArray[np.float64] | None) -> SparseRows:
        return SparseRows(
            starts=self.matrix.indptr.astype(np.int64, copy=False),
            columns=self.matrix.indices.astype(np.int32, copy=False),
            values=self.matrix.data.astype(np.float64, copy=False),
            column_count=self.shape[1],
            weights=self._ones if weights is None else weights,
        )

    def first_non_finite(self) -> tuple[int, int] | None:
        """Return row and column of the first NaN or infinity, or None."""
        found = np.flatnonzero(~np.isfinite(self.matrix.data))
        if not len(found):
            return None
        row = int(np.searchsorted(self.matrix.indptr, found[0], side="right")) - 1
        return row, int(self.matrix.indices[found[0]])

    def products(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of the rows with vectors (d, k): (n, k)."""
        found: NDArray[np.float64] = self.matrix @ vectors
        return found

    def combinations(self, factors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums of the rows times factors (n, k): (d, k)."""
        found: NDArray[np.float64] = self.matrix.T @ factors
        return found

    def sums(self) -> NDArray[np.float64]:
        """Return the sum of each column, (d,)."""
        return np.bincount(self.matrix.indices, self.matrix.data, self.shape[1]).astype(np.float64, copy=False)

    def squared_deviations(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the squared deviations of each column from its mean, (d,)."""
        columns, values = self.matrix.indices, self.matrix.data
        # The sum assumes that all entries are zero; correct it for stored entries.
        corrections = np.square(values - mean[columns]) - np.square(mean[columns])
        sums: NDArray[np.float64] = np.bincount(columns, corrections, self.shape[1]) + len(self) * np.square(mean)
        return sums

    def update_nearest(
        self,
        centroids: NDArray[np.float64],
        labels: NDArray[np.int32],
        squared_distances: NDArray[np.float64],
        first_index: int,
        threads: int,
    ) -> None:
        """Update points with their nearest centroid; ties go to the lower number."""
        _native.assign_sparse(self._rows(None), centroids, first_index, labels, squared_distances, threads)

    def accumulate(
        self,
        labels: NDArray[np.int32],
        weights: NDArray[np.float64] | None,
        first: int,
        sums: NDArray[np.float64],
        weight_sums: NDArray[np.float64],
        threads: int,
    ) -> None:
        """Sum the points of consecutive clusters, starting at `first`."""
        _native.accumulate_sparse(self._rows(weights), labels, first, sums, weight_sums, threads)

    def distances(self, centroids: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the distance of every point to every centroid, (n, k)."""
        norms = np.bincount(
            np.repeat(np.arange(len(self)), np.diff(self.matrix.indptr)), np.square(self.matrix.data), len(self)
        )
        squares = norms[:, None] - 2 * (self.matrix @ centroids.T) + np.square(centroids).sum(axis=1)
        distances: NDArray[np.float64] = np.sqrt(np.maximum(squares, 0))
        return distances
