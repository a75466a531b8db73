"""Provide threaded kernels of sums over all pairs of points, for multidimensional scaling.

Positions are float32, (n, k), with 1 … `MAX_DIMENSIONS` dimensions. Outputs are float64. A row of the result is
bitwise equal for any number of threads and any other rows in the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native

Positions = NDArray[np.float32]
MAX_DIMENSIONS = _native.MAX_DIMENSIONS


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
    """Write the sums for each own point in a majorization step.

    Parameters
    ----------
    dissimilarities : (m, n) int16 or float32
        Dissimilarities of each own point to all points.
    weights : (m, n) float32, or None for ones
    own : (m, k) float32
    all : (n, k) float32
    out : (m, k + 2) float64, written
        For a point x, over all points y: the sums of w·δ/‖x − y‖·(x − y), w·(‖x − y‖ − δ)² and w·‖x − y‖².
    shift
        The number to subtract from each dissimilarity; differences are clipped at zero.
    threads
        Number of threads.
    """
    _native.guttman(dissimilarities, weights, shift, own, all, out, threads)


def weighted_differences(
    weights: NDArray[np.float32], own: Positions, all: Positions, out: NDArray[np.float64], *, threads: int = 1
) -> None:
    """Write the sums of w·(x − y) over all points for each own point x: products with the weights' Laplacian matrix.

    Parameters
    ----------
    weights : (m, n) float32
    own : (m, k) float32
    all : (n, k) float32
    out : (m, k) float64, written
    threads
        Number of threads.
    """
    _native.weighted_differences(weights, own, all, out, threads)
