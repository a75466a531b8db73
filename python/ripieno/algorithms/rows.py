"""One worker's rows, and what the workers have to agree on about all rows.

Rows are numbered globally: a worker's are `offset .. offset + n`, and what is drawn or chosen is tied to these numbers,
so that it does not depend on how many workers there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno import kernels
from ripieno.data import Dataset, InMemory, OwnRows, Share
from ripieno.data.agreement import agreement
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.comm import Communicator

BLOCK_ROWS = 4096
PHILOX_WORDS = 4


@dataclass(frozen=True)
class Rows:
    """This worker's part of all rows.

    Parameters
    ----------
    points : (n, d) float32, float64 or uint8
    weights : (n,) float64, or None for ones
    offset
        Global number of the first row.
    total
        Rows of all workers.
    """

    points: NDArray[Any]
    weights: NDArray[np.float64] | None
    offset: int
    total: int

    def __len__(self) -> int:
        return len(self.points)

    @property
    def mass(self) -> NDArray[np.float64]:
        """The weight of each row, (n,)."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def draw(self, seed: int, stream: int) -> NDArray[np.float64]:
        """A uniform number of [0, 1) for each row, which depends on nothing but seed, stream and global row number."""
        bits = np.random.Philox(key=[seed, stream])
        bits.advance(self.offset // PHILOX_WORDS)
        surplus = self.offset % PHILOX_WORDS
        return np.random.Generator(bits).random(surplus + len(self))[surplus:]


def load(
    comm: Communicator, source: Dataset | OwnRows | NDArray[Any], weights: NDArray[np.float64] | None = None
) -> Rows:
    """Read this worker's share of a dataset, or take its view of an array or what it has already, and check it.

    `weights` are those of all rows, in their order; rows that a worker has already bring their own.

    Raises
    ------
    InputError
        On every rank, with the same message: a value is not finite, a file is not what it should be, or there are not
        as many weights as rows.
    """
    source = InMemory(source) if isinstance(source, np.ndarray) else source
    with agreement(comm):
        share = source.read_share(comm.rank, comm.world_size)
        _check_finite(share, comm.threads)
    # Text shows only when read whether its values are bytes; the widest type that any worker met holds for all.
    shapes = comm.allgather((len(share.points), share.points.dtype.str))
    points = share.points.astype(np.result_type(*(dtype for _, dtype in shapes)), copy=False)
    counts = [count for count, _ in shapes]
    offset, total = sum(counts[: comm.rank]), sum(counts)
    if weights is not None and len(weights) != total:
        raise InputError(f"sample_weight has {len(weights)} entries for {total} rows")
    own = share.weights if weights is None else weights[offset : offset + len(points)]
    return Rows(points, own, offset, total)


def take(comm: Communicator, rows: Rows, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Rows by global number, wherever they are: (m, d) of the centroids' type, equal on every rank."""
    taken = np.zeros((len(numbers), rows.points.shape[1]), kernels.centroid_dtype(rows.points.dtype))
    mine = np.flatnonzero((numbers >= rows.offset) & (numbers < rows.offset + len(rows)))
    taken[mine] = rows.points[numbers[mine] - rows.offset]
    return comm.allreduce(taken)


def lowest(comm: Communicator, rows: Rows, keys: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Global numbers of the `count` rows with the lowest keys, in that order; of equal keys the lower row is first."""
    mine = np.argpartition(keys, count)[:count] if count < len(keys) else np.arange(len(keys))
    if count < len(keys):
        # The partition may have kept any of the rows whose keys equal the highest one: keep the first.
        edge = keys[mine].max()
        below = np.flatnonzero(keys < edge)
        mine = np.concatenate([below, np.flatnonzero(keys == edge)[: count - len(below)]])
    gathered = comm.allgather((keys[mine], mine + rows.offset))
    all_keys, numbers = (np.concatenate(part) for part in zip(*gathered, strict=True))
    return numbers[np.lexsort((numbers, all_keys))[:count]]


def mean_variance(comm: Communicator, rows: Rows) -> float:
    """Mean over the columns of the variance of each over all rows."""
    mean = comm.allreduce(rows.points.sum(axis=0, dtype=np.float64)) / rows.total
    squares = np.zeros_like(mean)
    with np.errstate(over="ignore"):
        for begin in range(0, len(rows), BLOCK_ROWS):
            squares += np.square(rows.points[begin : begin + BLOCK_ROWS] - mean).sum(axis=0)
    return float(np.mean(comm.allreduce(squares) / rows.total))


def _check_finite(share: Share, threads: int) -> None:
    found = kernels.first_non_finite(share.points, threads=threads)
    if found is not None:
        row, column = found
        what = "NaN" if np.isnan(share.points[found]) else "infinity"
        raise InputError(f"{share.describe(row)}, column {column}: {what} where a finite number is expected")
