"""Relocations of single points out of poor local minima.

Local minima of the stress often differ in the positions of a few points. So each point tries the positions of some
random other points. From each position, majorization moves the point to a minimum while all other points stay fixed.
The point keeps the new position if its stress is lower. A rank tries only its own points, so ranks exchange only the
chosen positions. Majorization of one point equals out-of-sample majorization, as in Bae, Choi, Qiu and Fox, "Dimension
reduction and visualization of large high-dimensional data via interpolation", HPDC 2010, section 3.2, with all points
as neighbors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels.pairs as pairs
from ripieno.algorithms.mds.dissimilarities import RowBlock

Reals = NDArray[np.float64]

#: Number of positions that each point tries, and number of majorization steps from each position.
TRIAL_COUNT, STEP_COUNT = 3, 8
#: Minimum relative decrease of the point's stress by a relocation.
MIN_GAIN = 1e-3
#: Offset of a trial position from the other point, relative to the largest dissimilarity. Points must not coincide.
OFFSET = 1e-3


class Relocations:
    """Tries other positions for this rank's points.

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
        self._positions = at.astype(np.float32)
        self._threads = threads
        own = slice(rows.first, rows.first + len(rows))
        self._own = at[own]
        self._out = np.empty((len(rows), at.shape[1] + 2))
        if rows.weights is None:
            self._self_weight = np.ones((len(rows), 1))
            self._weight = np.full((len(rows), 1), rows.total - 1.0)
            self._pull: Reals = at.sum(axis=0) - self._own
        else:
            numbers = np.arange(len(rows))
            self._self_weight = rows.weights[numbers, rows.first + numbers].astype(np.float64)[:, None]
            self._weight = rows.weights.sum(axis=1, dtype=np.float64)[:, None] - self._self_weight
            differences = np.empty_like(self._own)
            pairs.weighted_differences(
                rows.weights, self._positions[own], self._positions, differences, threads=threads
            )
            self._pull = self._own * self._weight - differences

    def improved(self, targets: Reals) -> Reals:
        """Return this rank's points, (m, k), at their current positions or at relocations with less stress.

        `targets` are (tries, m, k).
        """
        best, lowest = self._own.copy(), self._measure(self._own)[0]
        for target in targets:
            at = target
            for _ in range(STEP_COUNT):
                at = self._measure(at)[1]
            errors = self._measure(at)[0]
            relocations = errors < (1 - MIN_GAIN) * lowest
            best[relocations], lowest[relocations] = at[relocations], errors[relocations]
        return best

    def _measure(self, at: Reals) -> tuple[Reals, Reals]:
        """Return each point's errors if only that point moved to `at`, and its position after a majorization step."""
        rows = self._rows
        pairs.guttman(
            rows.dissimilarities, rows.weights, at.astype(np.float32), self._positions, self._out, threads=self._threads
        )
        # Subtract the pair of the moved point and its old position.
        errors = self._out[:, -2] - (self._self_weight * (at - self._own) ** 2).sum(axis=1)
        return errors, (self._pull + self._out[:, :-2]) / self._weight


def targets(rows: RowBlock, at: Reals, random: np.random.Generator) -> Reals:
    """Return trial positions for this rank's points, (tries, m, k); `random` is the same on all ranks."""
    own = slice(rows.first, rows.first + len(rows))
    # Every rank draws for all points, so the positions do not depend on the number of ranks.
    drawn = [
        at[random.permutation(rows.total)] + OFFSET * rows.largest * random.normal(size=at.shape)
        for _ in range(TRIAL_COUNT)
    ]
    return np.stack([each[own] for each in drawn])
