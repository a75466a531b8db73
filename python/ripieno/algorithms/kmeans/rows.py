"""One worker's rows, and what the workers have to agree on about all rows.

Rows are numbered globally: a worker's are `offset .. offset + n`, and what is drawn or chosen is tied to these numbers,
so that it does not depend on how many workers there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import ripieno.kernels as kernels
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, InMemorySparse, LocalRows, RowShare, RowsInMemory

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

BLOCK_ROWS = 4096
#: Of so few keys every rank offers as many; to count first would cost more.
FEW_KEYS = 4096
PHILOX_WORDS = 4


@dataclass(frozen=True)
class WeightedRows:
    """This worker's part of all rows.

    Parameters
    ----------
    points : (n, d) float32, float64 or uint8, or of few entries
    weights : (n,) float64, or None for ones
    offset
        Rows of lower ranks; the global number of the first row, if there are no `runs`.
    total
        Rows of all workers.
    runs
        Runs of global numbers of the rows, ascending, as first number and length; None for one run from `offset` on.
    """

    # An array, or rows of few entries, of which kernels take either.
    points: Any
    weights: NDArray[np.float64] | None
    offset: int
    total: int
    runs: tuple[tuple[int, int], ...] | None = None

    def __len__(self) -> int:
        return len(self.points)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The runs of global numbers that the rows have, ascending: first number and length of each."""
        return ((self.offset, len(self)),) if self.runs is None else self.runs

    def numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Global numbers of some of this worker's rows."""
        if self.runs is None:
            return places + self.offset
        firsts, begins = self._firsts_and_begins()
        run = np.searchsorted(begins, places, side="right") - 1
        return firsts[run] + places - begins[run]

    def places(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which of some global numbers are those of this worker's rows, and the places of these."""
        which, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        begin = 0
        for first, count in self.spans:
            found = np.flatnonzero((numbers >= first) & (numbers < first + count))
            which.append(found)
            places.append(numbers[found] - first + begin)
            begin += count
        return np.concatenate(which), np.concatenate(places)

    def _firsts_and_begins(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        firsts, counts = np.array(self.spans, np.int64).reshape(-1, 2).T
        return firsts, np.cumsum(counts) - counts

    @property
    def row_weights(self) -> NDArray[np.float64]:
        """The weight of each row, (n,)."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def draw(self, seed: int, stream: int) -> NDArray[np.float64]:
        """A uniform number of [0, 1) for each row, which depends on nothing but seed, stream and global row number."""
        return np.concatenate([np.empty(0), *(_drawn(seed, stream, first, count) for first, count in self.spans)])


def _drawn(seed: int, stream: int, first: int, count: int) -> NDArray[np.float64]:
    bits = np.random.Philox(key=[seed, stream])
    bits.advance(first // PHILOX_WORDS)
    surplus = first % PHILOX_WORDS
    return np.random.Generator(bits).random(surplus + count)[surplus:]


def load(
    comm: Communicator,
    source: Dataset | RowsInMemory | InMemorySparse | LocalRows,
    weights: NDArray[np.float64] | None = None,
) -> WeightedRows:
    """Read this worker's share of a dataset, or take its view of an array or what it has already, and check it.

    `weights` are those of all rows, in their order; rows that a worker has already bring their own.

    Raises
    ------
    InputError
        On every rank, with the same message: a value is not finite, a file is not what it should be, or there are not
        as many weights as rows.
    """
    with agreement(comm):
        share = source.read_share(comm.rank, comm.world_size)
        if isinstance(share.points, csr_matrix):
            points: Any = kernels.SparsePoints(share.points)
            share = replace(share, points=points)
        check_finite(share, comm.threads)
    # Text shows only when read whether its values are bytes; the widest type that any worker met holds for all.
    shapes = comm.allgather((len(share.points), share.points.dtype.str))
    points = share.points
    if not isinstance(points, kernels.SparsePoints):
        points = points.astype(np.result_type(*(dtype for _, dtype in shapes)), copy=False)
    counts = [count for count, _ in shapes]
    offset, total = sum(counts[: comm.rank]), sum(counts)
    if weights is not None and len(weights) != total:
        raise InputError(f"sample_weight has {len(weights)} entries for {total} rows")
    own = share.weights if weights is None else weights[offset : offset + len(points)]
    return WeightedRows(points, own, offset, total, share.runs)


def values_at(
    comm: Communicator, rows: WeightedRows, numbers: NDArray[np.int64], *columns: NDArray[Any]
) -> list[NDArray[Any]]:
    """Entries of columns, which have one for each row of this worker, by row number: (m, …), equal on all ranks."""
    places, own = rows.places(numbers)
    found = [np.empty((len(numbers), *column.shape[1:]), column.dtype) for column in columns]
    for there, *parts in comm.allgather((places, *(column[own] for column in columns))):
        for column, part in zip(found, parts, strict=True):
            column[there] = part
    return found


def take(comm: Communicator, rows: WeightedRows, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Rows by global number, wherever they are: (m, d) of the centroids' type, equal on every rank."""
    (points,) = values_at(comm, rows, numbers, rows.points)
    return points.astype(kernels.centroid_dtype(points.dtype), copy=False)


def race(uniform: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keys of which the lowest belongs to each row with a chance in proportion to its weight; infinite without one.

    Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", IPL 2006.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weights > 0, -np.log1p(-uniform) / weights, np.inf)


def lowest(comm: Communicator, rows: WeightedRows, keys: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Global numbers of the `count` rows with the lowest keys, in that order; of equal keys the lower row is first.

    Of many rows a rank offers hardly more than it has among them, for all ranks count first which keys are too high.
    """
    offered = np.arange(len(keys)) if count <= FEW_KEYS else np.flatnonzero(_may_be_among(comm, keys, count))
    mine = offered[_lowest_here(keys[offered], count)]
    gathered = comm.allgather((keys[mine], rows.numbers(mine)))
    all_keys, numbers = (np.concatenate(part) for part in zip(*gathered, strict=True))
    return numbers[np.lexsort((numbers, all_keys))[:count]]


def _lowest_here(keys: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Places of the lowest keys; of equal ones the first."""
    if count >= len(keys):
        return np.arange(len(keys))
    # A partition may keep any of the rows whose keys equal the highest one.
    edge = np.partition(keys, count - 1)[count - 1]
    below = np.flatnonzero(keys < edge)
    return np.concatenate([below, np.flatnonzero(keys == edge)[: count - len(below)]])


def _may_be_among(comm: Communicator, keys: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Which keys may be among the `count` lowest of all ranks, by the upper half of their bits.

    The ranks count twice how often each value of 16 bits occurs, as in a radix sort.
    """
    # Read as integers, floats stand in order but for the negative ones, which stand in reverse.
    bits = (keys + 0.0).view(np.int64)
    upper = (bits ^ ((bits >> 63) & np.iinfo(np.int64).max)) >> 32
    tops = upper >> 16
    counts = np.cumsum(comm.allreduce(np.bincount(tops + (1 << 15), minlength=1 << 16)))
    edge = int(np.searchsorted(counts, count))
    if edge == len(counts):
        return np.ones(len(keys), bool)
    top, rest = edge - (1 << 15), count - (int(counts[edge - 1]) if edge else 0)
    counts = np.cumsum(comm.allreduce(np.bincount(upper[tops == top] & 0xFFFF, minlength=1 << 16)))
    return upper <= (top << 16) + int(np.searchsorted(counts, rest))


def mean_variance(comm: Communicator, rows: WeightedRows) -> float:
    """Mean over the columns of the variance of each over all rows."""
    if isinstance(rows.points, kernels.SparsePoints):
        mean = comm.allreduce(rows.points.sums()) / rows.total
        return float(np.mean(comm.allreduce(rows.points.squared_deviations(mean)) / rows.total))
    mean = comm.allreduce(rows.points.sum(axis=0, dtype=np.float64)) / rows.total
    squares = np.zeros_like(mean)
    with np.errstate(over="ignore"):
        for begin in range(0, len(rows), BLOCK_ROWS):
            squares += np.square(rows.points[begin : begin + BLOCK_ROWS] - mean).sum(axis=0)
    return float(np.mean(comm.allreduce(squares) / rows.total))


def check_finite(share: RowShare, threads: int) -> None:
    """Raise InputError, naming the place, if a value is not finite."""
    found = kernels.first_non_finite(share.points, threads=threads)
    if found is not None:
        row, column = found
        what = "NaN" if np.isnan(np.ravel(share.points[[row]])[column]) else "infinity"
        raise InputError(f"{share.describe(row, column)}: {what} where a finite number is expected")
