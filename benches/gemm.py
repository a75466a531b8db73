"""The rate of NumPy's matrix product on all cores, the limit for distances between many vectors."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import DTypeLike

SIDE, QUICK_SIDE = 4096, 256


def square_s(dtype: DTypeLike, *, quick: bool) -> float:
    """Return the seconds per operation of the product of two square matrices, small ones if `quick`."""
    side = QUICK_SIDE if quick else SIDE
    return gemm_s(side, side, side, dtype)


def gemm_s(m: int, k: int, n: int, dtype: DTypeLike) -> float:
    """Return the seconds per operation of the product of an m × k and a k × n matrix."""
    random = np.random.default_rng(0)
    a, b = random.random((m, k)).astype(dtype), random.random((k, n)).astype(dtype)
    out = np.empty((m, n), dtype)
    np.dot(a[:64], b, out=out[:64])
    begin = time.perf_counter()
    np.dot(a, b, out=out)
    return (time.perf_counter() - begin) / (2.0 * m * k * n)
