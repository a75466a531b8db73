"""Leaps of single points: what annealing has left on the wrong side of others finds its place.

Local minima of the stress often differ in where a few points lie. So each point tries some places, those of other
points that are drawn at random: from there majorization leads it to a minimum, while all others stay where they are. It
leaps if it has less stress there. A rank tries for its own points, so only the places that were chosen travel.
Majorization of one point is that of points out of sample, as in Bae, Choi, Qiu and Fox, "Dimension reduction and
visualization of large high-dimensional data via interpolation", HPDC 2010, section 3.2, with all points as neighbours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels.pairs as pairs
from ripieno.algorithms.mds.dissimilarities import RowBlock

Reals = NDArray[np.float64]

#: Places that each point tries, and steps of majorization from each.
TRIES, STEPS = 3, 8
#: A point leaps if it loses at least this share of its stress.
LEAST_GAIN = 1e-3
#: By so much of the largest dissimilarity it lands beside the other point: there no pair may coincide.
ASIDE = 1e-3


class Leaps:
    """Tries for the points of this rank.

    Parameters
    ----------
    rows
        Dissimilarities and weights of the points.
    at : (n, k)
        Where all points are.
    threads
        Threads to compute with.
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

    def better(self, landings: Reals) -> Reals:
        """Where the points of this rank have the least stress, (m, k): here, or where one of the landings leads.

        `landings` are (tries, m, k).
        """
        best, least = self._here.copy(), self._measured(self._here)[0]
        for landing in landings:
            at = landing
            for _ in range(STEPS):
                at = self._measured(at)[1]
            errors = self._measured(at)[0]
            leaps = errors < (1 - LEAST_GAIN) * least
            best[leaps], least[leaps] = at[leaps], errors[leaps]
        return best

    def _measured(self, at: Reals) -> tuple[Reals, Reals]:
        """The errors of each point if it alone were elsewhere, and where a step of majorization leads from there."""
        rows = self._rows
        pairs.guttman(
            rows.dissimilarities, rows.weights, at.astype(np.float32), self._all, self._out, threads=self._threads
        )
        # A point that is elsewhere is no neighbour of where it was.
        errors = self._out[:, -2] - (self._itself * (at - self._here) ** 2).sum(axis=1)
        return errors, (self._middle + self._out[:, :-2]) / self._weight


def landings(rows: RowBlock, at: Reals, random: np.random.Generator) -> Reals:
    """Places for the points of this rank to try, (tries, m, k); `random` is the same on all ranks."""
    own = slice(rows.first, rows.first + len(rows))
    # Of all points on every rank, so that they do not depend on the number of ranks.
    drawn = [
        at[random.permutation(rows.total)] + ASIDE * rows.largest * random.normal(size=at.shape) for _ in range(TRIES)
    ]
    return np.stack([each[own] for each in drawn])
