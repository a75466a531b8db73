"""Forces of a layout: all points push each other, exactly or by clusters, and edges pull. Compiled, and threaded.

Positions are float32, (n, k), all finite. Bits of a sum depend on all positions, but neither on the number of threads
nor on who computes which part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.kernels.pairs import Positions

#: Dimensions that `barnes_hut` knows.
TREE_DIMENSIONS = (2, 3)


@dataclass(frozen=True)
class Attraction:
    """Edges from some points, those from the number `first` on, to all points.

    Parameters
    ----------
    first
        The number of the first point that edges lead from.
    starts : (m + 1,) int64
        Where the edges of each point begin, and where the last ones end.
    columns : (e,) int32
        Where each edge leads.
    weights : (e,) float32
    """

    first: int
    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    weights: NDArray[np.float32]


def wholes_per_one(point_count: int) -> float:
    """How many wholes of `repulsion` are a push of one, among so many points: a power of two, at most 2^33."""
    return _native.wholes_per_one(point_count)


def repulsion(all: Positions, share: tuple[int, int], out: NDArray[np.int64], *, threads: int = 1) -> None:
    """Write what each point is pushed by a share of all pairs, in wholes.

    Each pair is computed once. The sums of all shares are, of each point x, those of (x − y)/‖x − y‖² over all points
    y, of which none is taken to be nearer than 0.01.

    Parameters
    ----------
    all : (n, k) float32
    share
        Which share, from 0, and of how many.
    out : (n, k) int64, written
    threads
        Threads to compute with.
    """
    _native.repulsion(all, share, out, threads)


def barnes_hut(
    theta: float, own: tuple[int, int], all: Positions, out: NDArray[np.float64], *, threads: int = 1
) -> int:
    """Write what some points are pushed by all, where those that are far away push as one from their centre.

    Parameters
    ----------
    theta
        Points whose box is narrower than this part of its distance count as one.
    own
        The first of the points, and the one that follows the last.
    all : (n, k) float32
        Of two or three dimensions.
    out : (m, k) float64, written
        Of each of the points x, the sum of (x − y)/‖x − y‖² over all points y, as of `repulsion`.
    threads
        Threads to compute with.

    Returns
    -------
    int
        Pairs of a point, and a cluster or another point, that were computed.
    """
    return _native.barnes_hut(theta, own, all, out, threads)


def attraction(
    springs: Attraction, length: float, all: Positions, out: NDArray[np.float64], *, threads: int = 1
) -> None:
    """Take off the sum of w·‖x − y‖/length·(x − y) over the edges of each point x that edges lead from.

    Parameters
    ----------
    springs
        The edges.
    length
        The distance at which an edge of weight 1 pulls as hard as its points push, where a push is length²/‖x − y‖².
    all : (n, k) float32
    out : (m, k) float64, added to
    threads
        Threads to compute with.
    """
    _native.attraction(springs.first, springs.starts, springs.columns, springs.weights, length, all, out, threads)
