"""Samples of the rows of a fit for its report. Their size does not grow with the number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.kernels import SparsePoints

#: Maximum number of rows of all ranks that a report predicts, and that it draws.
MAX_PREDICTED_COUNT = 10_000
MAX_DRAWN_COUNT = 1500
#: Maximum bytes of the drawn rows of all ranks.
MAX_DRAWN_BYTES = 1 << 20


def sample_positions(count: int, world_size: int, limit: int = MAX_PREDICTED_COUNT) -> NDArray[np.int64]:
    """Return evenly spaced positions among `count` rows of one rank, as this rank's part of `limit` rows."""
    taken = min(count, max(limit // world_size, 1))
    return np.arange(taken) * count // max(taken, 1)


def drawn_positions(points: Any, world_size: int) -> NDArray[np.int64]:
    """Return the positions of one rank's rows that a report draws; sparse rows have none."""
    if isinstance(points, SparsePoints) or not len(points):
        return np.empty(0, np.int64)
    limit = min(MAX_DRAWN_COUNT, MAX_DRAWN_BYTES // max(points.shape[1] * points.itemsize, 1))
    return sample_positions(len(points), world_size, limit)
