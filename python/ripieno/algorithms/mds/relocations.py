"""Relocations: moves of single points that annealing left at a poor local minimum.

Local minima of the stress often differ in the positions of a few points. So each point tries the positions of some
random other points. From each, majorization leads it to a minimum while all other points stay fixed. The point moves
there if its stress is lower. A rank tries only its own points, so ranks exchange only the chosen positions.
Majorization of one point equals out-of-sample majorization, as in Bae, Choi, Qiu and Fox, "Dimension reduction and
visualization of large high-dimensional data via interpolation", HPDC 2010, section 3.2, with all points as neighbors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels.pairs as pairs
from ripieno.algorithms.mds.dissimilarities import RowBlock

Reals = NDArray[np.float64]

#: Number of positions that each point tries, and of majorization steps from each.
TRIES, STEPS = 3, 8
#: A point moves if this lowers its stress by at least this share.
LEAST_GAIN = 1e-3
#: Offset of a landing from the other point, relative to the largest dissimilarity, because points must not coincide.
OFFSET = 1e-3


class Relocations:
    """Trial positions of this rank's points.

    Parameters
    ----------
    rows
        Dissimilarities and weights of the points.
    at : (n, k)
        Positions of all points.
    threads
        Number of threads.
    """

    def __init__(self, rows: RowBlock, at: Reals, threads: int) -> None:
        self._rows = rows
        self._all = at.astype(np.float32)
        self._threads = threads
        own = slice(rows.first, rows.first + len(rows))
        self._here = at[own]
        self._out = np.empty((len(rows), at.shape[1] + 2))
        if rows.weights is None:
            self._itself = np.ones((len(rows), 1))
            self._weight = np.full((len(rows), 1), rows.total - 1.0)
            self._middle: Reals = at.sum(axis=0) - self._here
        else:
            numbers = np.arange(len(rows))
            self._itself = rows.weights[numbers, rows.first + numbers].astype(np.float64)[:, None]
            self._weight = rows.weights.sum(axis=1, dtype=np.float64)[:, None] - self._itself
            differences = np.empty_like(self._here)
            pairs.weighted_differences(rows.weights, self._all[own], self._all, differences, threads=threads)
            self._middle = self._here * self._weight - differences

    def better(self, targets: Reals) -> Reals:
        """Return the positions of least stress of this rank's points, (m, k): the current ones or results of landings.

        `targets` are (tries, m, k).
        """
        best, least = self._here.copy(), self._measured(self._here)[0]
        for target in targets:
            at = target
            for _ in range(STEPS):
                at = self._measured(at)[1]
            errors = self._measured(at)[0]
            relocations = errors < (1 - LEAST_GAIN) * least
            best[relocations], least[relocations] = at[relocations], errors[relocations]
        return best

    def _measured(self, at: Reals) -> tuple[Reals, Reals]:
        """Return each point's errors if it alone moved, and its position after a majorization step from there."""
        rows = self._rows
        pairs.guttman(
            rows.dissimilarities, rows.weights, at.astype(np.float32), self._all, self._out, threads=self._threads
        )
        # A moved point is no neighbor of its old position.
        errors = self._out[:, -2] - (self._itself * (at - self._here) ** 2).sum(axis=1)
        return errors, (self._middle + self._out[:, :-2]) / self._weight


def targets(rows: RowBlock, at: Reals, random: np.random.Generator) -> Reals:
    """Return trial positions for this rank's points, (tries, m, k); `random` is the same on all ranks."""
    own = slice(rows.first, rows.first + len(rows))
    # Drawn for all points on every rank, so that they do not depend on the number of ranks.
    drawn = [
        at[random.permutation(rows.total)] + OFFSET * rows.largest * random.normal(size=at.shape) for _ in range(TRIES)
    ]
    return np.stack([each[own] for each in drawn])
