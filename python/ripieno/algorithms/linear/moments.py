"""Means and scatter matrices of the columns of distributed rows: one pass over the rows and one allreduce.

Rows are centered before multiplication. So columns far from zero lose no digits.
Cost: n·d² shared by the workers, and an allreduce of d² float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Number of values in a block of rows, which fits in cache.
BLOCK_VALUES = 1 << 18
MIN_BLOCK_ROWS = 256
#: Number of values in a block for products, which gives work to all threads.
PRODUCT_VALUES = 1 << 22
#: Between these magnitudes, sums of squares neither overflow nor underflow in float32.
FLOAT32_MIN, FLOAT32_MAX = 1e-12, 1e12


@dataclass(frozen=True)
class MomentColumns:
    """The columns of this worker's rows: points followed by targets.

    Parameters
    ----------
    points : (n, d), or `SparsePoints`, whose blocks are dense
    targets : (n, t) float64, or None without targets
    weights : (n,) float64, or None for ones
    dtype
        Type of the computation, float32 or float64.
    """

    # An array or sparse points.
    points: Any
    targets: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None
    dtype: np.dtype[Any]

    @property
    def count(self) -> int:
        """Return the number of columns of points and targets."""
        return int(self.points.shape[1]) + (0 if self.targets is None else int(self.targets.shape[1]))

    def blocks(self, min_rows: int = MIN_BLOCK_ROWS) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield blocks of rows, which may be views of the points, and their weights."""
        step = max(min_rows, BLOCK_VALUES // self.count)
        for begin in range(0, len(self.points), step):
            rows = slice(begin, begin + step)
            block = self.points[rows]
            if self.targets is not None:
                block = np.hstack([block, self.targets[rows]])
            weights = np.ones(len(block)) if self.weights is None else self.weights[rows]
            yield block.astype(self.dtype, copy=False), weights.astype(self.dtype, copy=False)

    def centered_blocks(self, center: NDArray[np.float64], min_rows: int = MIN_BLOCK_ROWS) -> Iterator[NDArray[Any]]:
        """Yield blocks of rows minus the center, times the square roots of their weights."""
        center = center.astype(self.dtype)
        for block, weights in self.blocks(min_rows):
            centered = block - center
            if self.weights is not None:
                centered *= np.sqrt(weights)[:, None]
            yield centered


def product_dtype(comm: Communicator, points: NDArray[Any] | kernels.SparsePoints) -> np.dtype[Any]:
    """Return float32 if all ranks' points have this type and moderate magnitudes, else float64."""
    if isinstance(points, kernels.SparsePoints) or points.dtype != np.float32:
        return np.dtype(np.float64)
    largest = max(float(points.max(initial=0)), -float(points.min(initial=0)))
    largest = comm.allreduce(largest, op="max")
    return np.dtype(np.float32 if largest == 0 or FLOAT32_MIN < largest < FLOAT32_MAX else np.float64)


def weight_and_sums(columns: MomentColumns) -> tuple[float, NDArray[np.float64]]:
    """Return the total weight of this worker's rows, and the weighted sums of their columns."""
    if isinstance(columns.points, kernels.SparsePoints) and columns.targets is None and columns.weights is None:
        return float(len(columns.points)), columns.points.sums()
    total, sums = 0.0, np.zeros(columns.count)
    for block, weights in columns.blocks():
        total += float(weights.sum(dtype=np.float64))
        # For a block of one column, float32 would round the sum of 2^18 values after each addition.
        sums += weights.astype(np.float64) @ block
    return total, sums


def scatter_matrix(columns: MomentColumns, center: NDArray[np.float64], *, threads: int) -> NDArray[np.float64]:
    """Return the scatter matrix of this worker's rows minus the center: (d, d)."""
    scatter = np.zeros((columns.count, columns.count))
    for rows, weights in columns.blocks(PRODUCT_VALUES // columns.count):
        kernels.add_products(rows, center, None if columns.weights is None else weights, scatter, threads=threads)
    upper = np.triu(scatter, 1)
    return np.asarray(np.triu(scatter) + upper.T)


def means(comm: Communicator, weight: float, sums: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Return the weight of all rows and the means of their columns."""
    weight, sums = comm.allreduce((weight, sums))
    return weight, sums / weight
