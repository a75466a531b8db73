"""The R factor of rows that lie with many workers: each factors its own, block by block; a tree puts factors together.

Singular values and solutions of least squares lose no digits, as they do by scatter matrices.
Cost: 2·n·d² shared by the workers, then log2(p) rounds; in each d² values are sent, and 4·d³ operations done.
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

#: Rows of a block, in columns: few of the operations are spent on factors that have been made before.
BLOCK_COLUMNS = 8


def block_rows(column_count: int) -> int:
    """How many rows to factor at once, at least."""
    return BLOCK_COLUMNS * column_count


def factor(blocks: Iterable[NDArray[Any]], column_count: int) -> NDArray[np.float64]:
    """The R factor of some rows, (min(n, d), d)."""
    found: NDArray[np.float64] = np.empty((0, column_count))
    for block in blocks:
        found = np.asarray(np.linalg.qr(np.vstack([found, block]), mode="r"))
    return found


def joined(comm: Communicator, own: NDArray[np.float64], clock: IterationClock) -> NDArray[np.float64] | None:
    """The R factor of all ranks' rows, on rank 0; None on the others. `own` is that of this rank's rows."""
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
