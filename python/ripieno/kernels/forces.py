"""Threaded force kernels of a graph layout: repulsion of all points, exact or by clusters, and attraction along edges.

Positions are float32, (n, k), all finite. The bits of a sum depend on all positions, but not on the number of threads
or on the division of the work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.kernels.pairs import Positions

#: Dimensions that `barnes_hut` supports.
TREE_DIMENSIONS = (2, 3)


@dataclass(frozen=True)
class Attraction:
    """Edges from consecutive points, starting at number `first`, to all points.

    Parameters
    ----------
    first
        Number of the first source point.
    starts : (m + 1,) int64
        Start of each point's edges, and the end of the last.
    columns : (e,) int32
        Target of each edge.
    weights : (e,) float32
    """

    first: int
    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    weights: NDArray[np.float32]


def fixed_point_scale(point_count: int) -> float:
    """Return the fixed-point scale of `repulsion` for this many points: a power of two, at most 2^33."""
    return _native.fixed_point_scale(point_count)


def repulsion(all: Positions, share: tuple[int, int], out: NDArray[np.int64], *, threads: int = 1) -> None:
    """Write the repulsion of each point from a share of all pairs, as fixed-point numbers.

    Each pair is computed once. Summed over all shares, point x gets the sum of (x − y)/‖x − y‖² over all points y, with
    distances clipped to at least 0.01.

    Parameters
    ----------
    all : (n, k) float32
    share
        Number of the share, from 0, and the number of shares.
    out : (n, k) int64, written
    threads
        Number of threads.
    """
    _native.repulsion(all, share, out, threads)


def barnes_hut(
    theta: float, own: tuple[int, int], all: Positions, out: NDArray[np.float64], *, threads: int = 1
) -> int:
    """Write the repulsion of some points from all points; distant clusters act as one point at their center.

    Parameters
    ----------
    theta
        A cluster acts as one point if its box is narrower than this share of its distance.
    own
        First point, and end of the points (exclusive).
    all : (n, k) float32
        Positions in two or three dimensions.
    out : (m, k) float64, written
        For each own point x, the sum of (x − y)/‖x − y‖² over all points y, as in `repulsion`.
    threads
        Number of threads.

    Returns
    -------
    int
        Number of point-point and point-cluster pairs computed.
    """
    return _native.barnes_hut(theta, own, all, out, threads)


def attraction(edges: Attraction, length: float, all: Positions, out: NDArray[np.float64], *, threads: int = 1) -> None:
    """Subtract the sum of w·‖x − y‖/length·(x − y) over the edges of each source point x.

    Parameters
    ----------
    edges
        Edges that attract.
    length
        Distance at which the attraction of an edge of weight 1 equals the repulsion, which is length²/‖x − y‖².
    all : (n, k) float32
    out : (m, k) float64, added to
    threads
        Number of threads.
    """
    _native.attraction(edges.first, edges.starts, edges.columns, edges.weights, length, all, out, threads)
