"""Means and scatter matrices of the columns of distributed rows: two passes over the rows and two allreduces.

Rows are centered before multiplication. So columns far from zero lose no digits.
Cost: n·d² shared by the workers, and an allreduce of d² float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import ripieno.kernels as kernels

if TYPE_CHECKING:
    from ripieno.algorithms.iteration_log import IterationLog
    from ripieno.comm.communicator import Communicator

#: Number of values in a block of rows, which fits in cache.
BLOCK_VALUES = 1 << 18
MIN_BLOCK_ROWS = 256
#: Number of values in a dense block of sparse rows for products, which gives work to all threads.
PRODUCT_VALUES = 1 << 22
#: Between these magnitudes, sums of squares neither overflow nor underflow in float32.
FLOAT32_MIN, FLOAT32_MAX = 1e-12, 1e12


@dataclass(frozen=True)
class MomentColumns:
    """The columns of this worker's rows: points followed by targets.

    Parameters
    ----------
    points : (n, d) float64, float32 or uint8; or `SparsePoints`, whose blocks are dense
    targets : (n, t) float64, or None without targets
    weights : (n,) float64, or None for ones
    dtype
        Type of the computation, float32 or float64.
    """

    # An array or sparse points.
    points: Any
    targets: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None
    dtype: np.dtype[Any] = np.dtype(np.float64)  # noqa: RUF009

    @property
    def count(self) -> int:
        """Return the number of columns of points and targets."""
        return int(self.points.shape[1]) + (0 if self.targets is None else int(self.targets.shape[1]))

    def centered_blocks(self, center: NDArray[np.float64], min_rows: int = MIN_BLOCK_ROWS) -> Iterator[NDArray[Any]]:
        """Yield blocks of rows minus the center, times the square roots of their weights."""
        center = center.astype(self.dtype)
        step = max(min_rows, BLOCK_VALUES // self.count)
        for begin in range(0, len(self.points), step):
            rows = slice(begin, begin + step)
            block = self.points[rows]
            if self.targets is not None:
                block = np.hstack([block, self.targets[rows]])
            centered = block.astype(self.dtype, copy=False) - center
            if self.weights is not None:
                centered *= np.sqrt(self.weights[rows]).astype(self.dtype)[:, None]
            yield centered

    def sums(self, threads: int) -> tuple[float, NDArray[np.float64], float]:
        """Return the total weight of the rows, the weighted sums of the columns, and the largest magnitude of points.

        All are in float64.
        """
        sums = np.zeros(self.count)
        width = self.points.shape[1]
        if isinstance(self.points, kernels.SparsePoints):
            largest = np.inf
            sums[:width] = self._sparse_sums(self.points)
        else:
            largest = kernels.column_sums(self.points, self.weights, sums[:width], threads=threads)
        if self.targets is not None:
            kernels.column_sums(self.targets, self.weights, sums[width:], threads=threads)
        weight = float(len(self.points) if self.weights is None else self.weights.sum())
        return weight, sums, largest

    def scatter_matrix(self, center: NDArray[np.float64], threads: int) -> NDArray[np.float64]:
        """Return the scatter matrix of the rows minus the center, (d, d), with products in `dtype`."""
        scatter = np.zeros((self.count, self.count))
        is_sparse = isinstance(self.points, kernels.SparsePoints)
        step = max(MIN_BLOCK_ROWS, PRODUCT_VALUES // self.count) if is_sparse else max(1, len(self.points))
        for begin in range(0, len(self.points), step):
            rows = slice(begin, begin + step)
            targets, weights = (None if each is None else each[rows] for each in (self.targets, self.weights))
            kernels.add_products(
                self.points[rows], targets, weights, center, scatter, dtype=self.dtype, threads=threads
            )
        upper = np.triu(scatter, 1)
        return np.asarray(np.triu(scatter) + upper.T)

    def gradients(self, center: NDArray[np.float64], coef: NDArray[np.float64], threads: int) -> NDArray[np.float64]:
        """Return the weighted products of the centered points with the residuals of the targets, (d, t), in float64."""
        assert self.targets is not None, "residuals need targets"
        sums = np.zeros(coef.T.shape)
        kernels.add_gradients(
            self.points, self.targets, self.weights, center, np.ascontiguousarray(coef.T), sums, threads=threads
        )
        return sums.T

    def _sparse_sums(self, points: kernels.SparsePoints) -> NDArray[np.float64]:
        """Return the weighted sums of the columns of sparse points."""
        if self.weights is None:
            return points.sums()
        step = max(MIN_BLOCK_ROWS, BLOCK_VALUES // self.count)
        parts = [
            self.weights[begin : begin + step] @ points[begin : begin + step] for begin in range(0, len(points), step)
        ]
        return np.sum(parts, axis=0, initial=0.0) if parts else np.zeros(points.shape[1])


def means(
    comm: Communicator, columns: MomentColumns, iteration_log: IterationLog
) -> tuple[MomentColumns, NDArray[np.float64], float]:
    """Return this rank's columns with the fastest suitable type, and the means and total weight of all ranks' rows.

    The type is float32 for float32 points, if their magnitudes have squares within the range of float32, else float64.
    """
    with iteration_log.clock.computing():
        weight, sums, largest = columns.sums(comm.threads)
    with iteration_log.clock.communicating():
        weight, sums = comm.allreduce((weight, sums))
        largest = comm.allreduce(largest, op="max")
    iteration_log.end_iteration(stage="means")
    is_single = columns.points.dtype == np.float32 and (largest == 0 or FLOAT32_MIN < largest < FLOAT32_MAX)
    return replace(columns, dtype=np.dtype(np.float32 if is_single else np.float64)), sums / weight, weight


def single_threaded_blas() -> AbstractContextManager[Any]:
    """Return a context with one BLAS thread, because the bits of results depend on the number of threads."""
    limits: AbstractContextManager[Any] = threadpool_limits(1, "blas")
    return limits
