"""Majorization: repeated minimization of a quadratic upper bound of the stress.

In each step, a rank computes its own points' rows of the product of Guttman's matrix B with the positions, and their
stress. One collective gathers both on all ranks. The sum of the rows' stress is exactly rounded, so positions and
stress are bitwise equal for any number of ranks. With weights, the step multiplies by the inverse of their Laplacian
matrix V. Conjugate gradients compute the result from products with V alone. Sources: De Leeuw, "Applications of convex
analysis to multidimensional scaling", 1977; Ruan and Fox, "A robust and scalable solution for interpolative
multidimensional scaling with weighting", e-Science 2013, algorithms 1 and 2; De Leeuw and Heiser, "Multidimensional
scaling with restrictions on the configuration", Multivariate Analysis V, 1980 (steps of twice the length).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels.pairs as pairs
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.mds.dissimilarities import RowBlock
from ripieno.algorithms.mds.relocations import Relocations, targets

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Reals = NDArray[np.float64]

#: Conjugate gradients stop at this relative residual, or after this number of products.
RESIDUAL_RTOL, MAX_PRODUCT_COUNT = 1e-6, 100


@dataclass(frozen=True)
class MajorizationStep:
    """The result of a pass over all pairs at some positions.

    Parameters
    ----------
    guttman_product : (n, k)
        Product of Guttman's matrix B with the positions.
    errors
        Weighted squared differences of distances and dissimilarities, over all pairs in both directions.
    squares
        Weighted squared distances.
    """

    guttman_product: Reals
    errors: float
    squares: float


class Majorization:
    """Computes stress and majorization steps of positions that all ranks have; every rank makes each call.

    Parameters
    ----------
    comm
        The ranks.
    rows
        This rank's rows of the dissimilarities.
    dimensions
        Number of dimensions of the positions.
    clock
        Clock that separates computation from communication.
    """

    def __init__(self, comm: Communicator, rows: RowBlock, dimensions: int, clock: IterationClock) -> None:
        self._comm = comm
        self._rows = rows
        self._own = slice(rows.first, rows.first + len(rows))
        self._clock = clock
        self._sums = np.empty((rows.total, dimensions + 2))
        self._products = np.empty((rows.total, dimensions))

    def step(self, at: Reals, shift: float = 0.0) -> MajorizationStep:
        """Pass over all pairs; `shift` is subtracted from each dissimilarity."""
        with self._clock.computing():
            positions = at.astype(np.float32)
            pairs.guttman(
                self._rows.dissimilarities,
                self._rows.weights,
                positions[self._own],
                positions,
                self._sums[self._own],
                shift=shift,
                threads=self._comm.threads,
            )
        with self._clock.communicating():
            self._comm.allgather(out=self._sums, counts=self._rows.counts)
        with self._clock.computing():
            errors, squares = (math.fsum(column) for column in self._sums[:, -2:].T)
            return MajorizationStep(self._sums[:, :-2].copy(), errors, squares)

    def transform(self, step: MajorizationStep, at: Reals, *, doubled: bool = False) -> Reals:
        """Return the positions after the step, or after a step of twice the length; neither increases the stress."""
        if self._rows.weights is None:
            with self._clock.computing():
                positions = step.guttman_product / self._rows.total
        else:
            positions = self._solve(step.guttman_product, at)
        return 2 * positions - at if doubled else positions

    def relocate(self, at: Reals, random: np.random.Generator) -> Reals:
        """Return the positions after relocations to lower stress; all ranks draw the same numbers."""
        with self._clock.computing():
            own = Relocations(self._rows, at, self._comm.threads).improved(targets(self._rows, at, random))
        with self._clock.communicating():
            gathered: Reals = self._comm.allgather(own, counts=self._rows.counts)
            return gathered

    def _solve(self, right: Reals, start: Reals) -> Reals:
        """Solve V·x = right by conjugate gradients, with all dimensions as one vector.

        V does not depend on the center of the positions. So all vectors are centered, because steps would amplify the
        rounding errors of their means. The solution with the least residual is returned for the same reason: weights
        of separate groups have one such mean for each group.
        """
        best = solution = _centered(start)
        residual = _centered(right - self._product(solution))
        direction = residual
        lowest = square = _dot(residual, residual)
        goal = RESIDUAL_RTOL**2 * _dot(right, right)
        for _ in range(MAX_PRODUCT_COUNT):
            if square <= goal:
                break
            product = _centered(self._product(direction))
            along = _dot(direction, product)
            if along <= 0.0:
                break
            solution = solution + square / along * direction
            residual = residual - square / along * product
            previous, square = square, _dot(residual, residual)
            if square < lowest:
                best, lowest = solution, square
            direction = residual + square / previous * direction
        return best

    def _product(self, vector: Reals) -> Reals:
        """Return V times a vector."""
        assert self._rows.weights is not None
        with self._clock.computing():
            vector32 = vector.astype(np.float32)
            pairs.weighted_differences(
                self._rows.weights,
                vector32[self._own],
                vector32,
                self._products[self._own],
                threads=self._comm.threads,
            )
        with self._clock.communicating():
            self._comm.allgather(out=self._products, counts=self._rows.counts)
        return self._products.copy()


def _centered(positions: Reals) -> Reals:
    return np.asarray(positions - positions.mean(axis=0))


def _dot(a: Reals, b: Reals) -> float:
    # The result is bitwise equal on every host, so all ranks compute the same number of products.
    return math.fsum((a * b).ravel())
