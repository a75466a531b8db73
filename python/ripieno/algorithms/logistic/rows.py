"""The rows of one worker, dense or sparse, with their contributions to loss, gradient and Hessian-vector products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import ripieno.kernels as kernels

if TYPE_CHECKING:
    from ripieno.kernels import SparseRows as NativeSparseRows

#: Maximum and minimum number of sampled rows per column: more rows cost too much, fewer are not representative.
MAX_ROWS_PER_COLUMN, MIN_ROWS_PER_COLUMN = 16, 4
#: Maximum cost of a sample's Hessian, in operations per entry of all rows: about the cost of a few passes.
MAX_SAMPLE_OPERATIONS = 64
#: Maximum number of columns with a stored Hessian.
MAX_SAMPLE_COLUMNS = 512
#: Number of values per block of dense rows. A block fits in cache, so both products read it from memory only once.
BLOCK_VALUES = 1 << 16

Reals = NDArray[np.float64]


class LogisticRows(Protocol):
    """Rows, each with a class and a weight: the weight of the sample, times the factor of its class if there is one.

    `loss` stores the class probabilities of all rows in `probabilities`, (n, k). `curvature` uses them.
    """

    points: Any
    classes: NDArray[Any]
    sample_weight: Reals
    column_count: int
    entry_count: int
    probabilities: Reals

    def loss(self, coef: Reals, gradient: Reals) -> float:
        """Return the weighted sum of the losses at the coefficients, (d + 1, k), and write its gradient."""

    def curvature(self, direction: Reals, product: Reals) -> None:
        """Write the product of a direction and the Hessian at the coefficients of the last `loss` call."""

    def column_sums(self) -> Reals:
        """Return the weighted sums of the columns."""

    def sample(self, stride: int, center: Reals, constant: float) -> HessianSample:
        """Return every `stride`-th row minus the center, with a constant appended for the intercept."""

    def scored(self, positions: NDArray[np.int64], coef: Reals) -> tuple[NDArray[np.int64], Reals]:
        """Return the class numbers, (m,), and the scores, (m, k), of some rows."""


class HessianSample:
    """A sample of dense rows, each followed by a constant: 1, or 0 without intercept.

    Its probabilities are a view of the probabilities of all rows, so they stay up to date.
    """

    def __init__(self, points: NDArray[Any], weights: Reals, probabilities: Reals, constant: float) -> None:
        self.points: Reals = np.hstack([points, np.full((len(points), 1), constant)])
        self._weights = weights
        self._chances = probabilities

    def second_derivatives(self) -> Reals:
        """Return the diagonal blocks of the Hessian of the summed losses, (k, d + 1, d + 1), one per class."""
        roots = np.sqrt(self._weights[:, None] * self._chances * (1 - self._chances))
        scaled = (self.points * each[:, None] for each in roots.T)
        return np.stack([each.T @ each for each in scaled])


def sample_stride(row_count: int, entry_count: int, column_count: int, k: int) -> int | None:
    """Return the stride of the sample for the Hessian, or None if a sample would cost more time than it saves."""
    affordable = MAX_SAMPLE_OPERATIONS * entry_count // (k * column_count**2)
    row_limit = min(affordable, MAX_ROWS_PER_COLUMN * column_count)
    if column_count > MAX_SAMPLE_COLUMNS or row_limit < MIN_ROWS_PER_COLUMN * column_count:
        return None
    return max(1, row_count // row_limit)


class SparseLogisticRows:
    """Rows of a CSR matrix."""

    def __init__(
        self,
        matrix: csr_matrix,
        classes: NDArray[np.int64],
        sample_weight: Reals,
        factors: Reals | None,
        k: int,
        threads: int,
    ) -> None:
        weights = _weights(sample_weight, factors, classes)
        self.points, self.sample_weight = matrix, sample_weight
        self.column_count = int(matrix.shape[1])
        self._rows: NativeSparseRows = kernels.SparseRows(
            starts=matrix.indptr.astype(np.int64, copy=False),
            columns=matrix.indices.astype(np.int32, copy=False),
            values=matrix.data.astype(np.float64, copy=False),
            column_count=self.column_count,
            weights=weights,
        )
        self._weights = weights
        self.classes = classes.astype(np.int32)
        self.entry_count = int(matrix.nnz)
        self.probabilities = np.empty((len(classes), k))
        self._threads = threads

    def loss(self, coef: Reals, gradient: Reals) -> float:
        """Return the loss and write its gradient, as described in `LogisticRows`."""
        return kernels.logistic_loss(
            self._rows, self.classes, coef, self.probabilities, gradient, threads=self._threads
        )

    def curvature(self, direction: Reals, product: Reals) -> None:
        """Write the Hessian-vector product, as described in `LogisticRows`."""
        kernels.logistic_curvature(self._rows, self.probabilities, direction, product, threads=self._threads)

    def column_sums(self) -> Reals:
        """Return the weighted sums of the columns."""
        return np.asarray(self._weights @ self.points)

    def sample(self, stride: int, center: Reals, constant: float) -> HessianSample:
        """Return every `stride`-th row, as described in `LogisticRows`."""
        points = self.points[::stride].toarray() - center
        return HessianSample(points, self._weights[::stride], self.probabilities[::stride], constant)

    def scored(self, positions: NDArray[np.int64], coef: Reals) -> tuple[NDArray[np.int64], Reals]:
        """Return the class numbers and scores of some rows, as described in `LogisticRows`."""
        return self.classes[positions].astype(np.int64), np.asarray(self.points[positions] @ coef[:-1]) + coef[-1]


class DenseLogisticRows:
    """Rows of an array."""

    def __init__(
        self, points: NDArray[Any], classes: NDArray[np.int64], sample_weight: Reals, factors: Reals | None, k: int
    ) -> None:
        self.column_count = int(points.shape[1])
        self.points, self.sample_weight = points, sample_weight
        self._weights = _weights(sample_weight, factors, classes)
        # Target probabilities of each row.
        self._targets = (classes[:, None] == (np.arange(k) if k > 1 else 1)).astype(np.float64)
        self.classes = classes
        self.entry_count = points.size
        self.probabilities = np.empty((len(classes), k))

    def loss(self, coef: Reals, gradient: Reals) -> float:
        """Return the loss and write its gradient, as described in `LogisticRows`."""
        total = 0.0
        gradient[:] = 0
        for rows, block in self._blocks():
            scores = block @ coef[:-1] + coef[-1]
            losses, probabilities = _losses_and_probabilities(scores, self._targets[rows], self.classes[rows])
            total += float(self._weights[rows] @ losses)
            self.probabilities[rows] = probabilities
            errors = (probabilities - self._targets[rows]) * self._weights[rows, None]
            gradient[:-1] += block.T @ errors
            gradient[-1] += errors.sum(axis=0)
        return total

    def curvature(self, direction: Reals, product: Reals) -> None:
        """Write the Hessian-vector product, as described in `LogisticRows`."""
        product[:] = 0
        for rows, block in self._blocks():
            change, probabilities = block @ direction[:-1] + direction[-1], self.probabilities[rows]
            mean = (change * probabilities).sum(axis=1, keepdims=True)
            change = self._weights[rows, None] * probabilities * (change - mean)
            product[:-1] += block.T @ change
            product[-1] += change.sum(axis=0)

    def column_sums(self) -> Reals:
        """Return the weighted sums of the columns."""
        sums = (self._weights[rows] @ block for rows, block in self._blocks())
        return np.sum(list(sums), axis=0) if len(self.points) else np.zeros(self.column_count)

    def sample(self, stride: int, center: Reals, constant: float) -> HessianSample:
        """Return every `stride`-th row, as described in `LogisticRows`."""
        points = self.points[::stride] - center
        return HessianSample(points, self._weights[::stride], self.probabilities[::stride], constant)

    def scored(self, positions: NDArray[np.int64], coef: Reals) -> tuple[NDArray[np.int64], Reals]:
        """Return the class numbers and scores of some rows, as described in `LogisticRows`."""
        return self.classes[positions], self.points[positions] @ coef[:-1] + coef[-1]

    def _blocks(self) -> Iterator[tuple[slice, Reals]]:
        step = max(1, BLOCK_VALUES // self.column_count)
        for begin in range(0, len(self.points), step):
            rows = slice(begin, begin + step)
            yield rows, self.points[rows].astype(np.float64, copy=False)


def _weights(sample_weight: Reals, factors: Reals | None, classes: NDArray[np.int64]) -> Reals:
    return sample_weight if factors is None else sample_weight * factors[classes]


def _losses_and_probabilities(scores: Reals, targets: Reals, classes: NDArray[np.int64]) -> tuple[Reals, Reals]:
    if scores.shape[1] == 1:
        # exp(-|score|) cannot overflow.
        small = np.exp(-np.abs(scores))
        losses = np.log1p(small) + np.maximum(np.where(targets > 0, -scores, scores), 0)
        return losses[:, 0], np.where(scores > 0, 1.0, small) / (1 + small)
    scores = scores - scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores)
    totals = probabilities.sum(axis=1, keepdims=True)
    return np.log(totals[:, 0]) - scores[np.arange(len(classes)), classes], probabilities / totals
