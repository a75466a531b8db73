"""Majorization: the positions that minimise a quadratic function above the stress, again and again.

In each step a rank computes, of its own points, the product of Guttman's matrix B with the positions, and the stress.
All ranks gather the rows of both by one collective. Stress is summed up from the rows without rounding, so positions
and stress are the same bits however many ranks share the rows. With weights the step takes a product with the inverse
of their Laplacian matrix V, which conjugate gradients find from products with V alone.
Sources: De Leeuw, "Applications of convex analysis to multidimensional scaling", 1977; Ruan and Fox, "A robust and
scalable solution for interpolative multidimensional scaling with weighting", e-Science 2013, algorithms 1 and 2; De
Leeuw and Heiser, "Multidimensional scaling with restrictions on the configuration", Multivariate Analysis V, 1980
(steps of twice the length).
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
from ripieno.algorithms.mds.leaps import Leaps, landings

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Reals = NDArray[np.float64]

#: Conjugate gradients end when what is left is this share of the right side, or after so many products.
SOLVED, MOST_PRODUCTS = 1e-6, 100


@dataclass(frozen=True)
class MajorizationStep:
    """What a pass over all pairs has found at some positions.

    Parameters
    ----------
    pulled : (n, k)
        The product of B with the positions.
    errors
        The weighted squares of distances less dissimilarities, over all pairs both ways.
    squares
        Those of the distances.
    """

    pulled: Reals
    errors: float
    squares: float


class Majorization:
    """The stress of positions that all ranks have, and the step to better ones; every rank makes each call.

    Parameters
    ----------
    comm
        The ranks.
    rows
        This rank's rows of the dissimilarities.
    dimensions
        Of the positions.
    clock
        Counts where the time goes.
    """

    def __init__(self, comm: Communicator, rows: RowBlock, dimensions: int, clock: IterationClock) -> None:
        self._comm = comm
        self._rows = rows
        self._own = slice(rows.first, rows.first + len(rows))
        self._clock = clock
        self._sums = np.empty((rows.total, dimensions + 2))
        self._products = np.empty((rows.total, dimensions))

    def step(self, at: Reals, shift: float = 0.0) -> MajorizationStep:
        """Pass over all pairs; `shift` is taken off each dissimilarity."""
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
        """The positions that the pass leads to, or those twice as far: there the stress is not higher than here."""
        if self._rows.weights is None:
            with self._clock.computing():
                to = step.pulled / self._rows.total
        else:
            to = self._solved(step.pulled, at)
        return 2 * to - at if doubled else to

    def leapt(self, at: Reals, random: np.random.Generator) -> Reals:
        """The positions after leaps of points that have less stress elsewhere; all ranks draw the same numbers."""
        with self._clock.computing():
            own = Leaps(self._rows, at, self._comm.threads).better(landings(self._rows, at, random))
        with self._clock.communicating():
            gathered: Reals = self._comm.allgather(own, counts=self._rows.counts)
            return gathered

    def _solved(self, right: Reals, start: Reals) -> Reals:
        """The solution of V·x = right by conjugate gradients, all dimensions as one vector."""
        solution = start.copy()
        left = right - self._product(solution)
        direction = left.copy()
        square, goal = _dot(left, left), SOLVED**2 * _dot(right, right)
        for _ in range(MOST_PRODUCTS):
            if square <= goal:
                break
            product = self._product(direction)
            along = _dot(direction, product)
            if along <= 0.0:
                break
            solution += square / along * direction
            left -= square / along * product
            before, square = square, _dot(left, left)
            direction = left + square / before * direction
        return solution

    def _product(self, vector: Reals) -> Reals:
        """V times a vector."""
        assert self._rows.weights is not None
        with self._clock.computing():
            narrow = vector.astype(np.float32)
            pairs.weighted_differences(
                self._rows.weights,
                narrow[self._own],
                narrow,
                self._products[self._own],
                threads=self._comm.threads,
            )
        with self._clock.communicating():
            self._comm.allgather(out=self._products, counts=self._rows.counts)
        return self._products.copy()


def _dot(a: Reals, b: Reals) -> float:
    # On every host the same bits: all ranks have to take as many products.
    return math.fsum((a * b).ravel())
