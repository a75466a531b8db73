"""Sums over all pairs of points, for multidimensional scaling: compiled, threaded, of one pass each.

Positions are float32, (n, k), of 1 … `MOST_DIMENSIONS` dimensions. What is written is float64. The bits of a row depend
neither on the number of threads nor on which rows are computed beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native

Positions = NDArray[np.float32]
MOST_DIMENSIONS = _native.MOST_DIMENSIONS


def guttman(
    dissimilarities: NDArray[Any],
    weights: NDArray[np.float32] | None,
    own: Positions,
    all: Positions,
    out: NDArray[np.float64],
    *,
    shift: float = 0.0,
    threads: int = 1,
) -> None:
    """Write what a step of majorization needs of each own point.

    Parameters
    ----------
    dissimilarities : (m, n) int16 or float32
        Of each own point to all points.
    weights : (m, n) float32, or None for ones
    own : (m, k) float32
    all : (n, k) float32
    out : (m, k + 2) float64, written
        Of a point x, over all points y: the sums of w·δ/‖x − y‖·(x − y), of w·(‖x − y‖ − δ)², and of w·‖x − y‖².
    shift
        What is taken off each dissimilarity, down to zero.
    threads
        Threads to compute with.
    """
    _native.guttman(dissimilarities, weights, shift, own, all, out, threads)


def weighted_differences(
    weights: NDArray[np.float32], own: Positions, all: Positions, out: NDArray[np.float64], *, threads: int = 1
) -> None:
    """Write, for each own point x, the sums of w·(x − y) over all points: products with the weights' Laplacian matrix.

    Parameters
    ----------
    weights : (m, n) float32
    own : (m, k) float32
    all : (n, k) float32
    out : (m, k) float64, written
    threads
        Threads to compute with.
    """
    _native.weighted_differences(weights, own, all, out, threads)
