"""The R factor of distributed rows: each rank factors its own rows block by block, and a tree combines the factors.

Unlike scatter matrices, QR factors keep all digits of singular values and least squares solutions.
Cost: 2·n·d² shared by the workers, then log2(p) rounds, each with d² values sent and 4·d³ operations.
Source: Demmel, Grigori, Hoemmen and Langou, "Communication-optimal parallel and sequential QR and LU factorizations",
SIAM J. Sci. Comput. 34(1), 2012, sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ripieno.algorithms.clock import IterationClock
    from ripieno.comm.communicator import Communicator

#: Rows per block and column. Each block refactors the d rows of the last factor, so large blocks repeat less work.
BLOCK_ROWS_PER_COLUMN = 8


def block_rows(column_count: int) -> int:
    """Return the minimum number of rows to factor at once."""
    return BLOCK_ROWS_PER_COLUMN * column_count


def factor(blocks: Iterable[NDArray[Any]], column_count: int) -> NDArray[np.float64]:
    """Return the R factor of some rows, (min(n, d), d)."""
    found: NDArray[np.float64] = np.empty((0, column_count))
    for block in blocks:
        found = np.asarray(np.linalg.qr(np.vstack([found, block]), mode="r"))
    return found


def combined_factor(comm: Communicator, own: NDArray[np.float64], clock: IterationClock) -> NDArray[np.float64] | None:
    """Return the R factor of all ranks' rows on rank 0, None on other ranks; `own` is this rank's R factor."""
    distance = 1
    while distance < comm.world_size:
        if comm.rank % (2 * distance):
            with clock.communicating():
                comm.send(own, comm.rank - distance)
            return None
        if comm.rank + distance < comm.world_size:
            with clock.communicating():
                other = comm.recv(comm.rank + distance)
            with clock.computing():
                own = factor([own, other], own.shape[1])
        distance *= 2
    return own
