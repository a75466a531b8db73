"""One worker's rows, and statistics and selections over all workers' rows.

Rows have global numbers, by default `offset .. offset + n` on a worker. Random draws and choices depend on these
numbers only, so they do not depend on the number of workers.
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
#: Up to this count, each rank sends its lowest keys without a preceding count, which would cost more.
MAX_UNFILTERED_KEY_COUNT = 4096
PHILOX_WORDS = 4

#: Rows at squared distance 0 count as equal if no value differs by more than this, relative to the value.
SAME_ROWS = 1e-6


@dataclass(frozen=True)
class WeightedRows:
    """This worker's share of all rows.

    Parameters
    ----------
    points : (n, d) float32, float64 or uint8, or `SparsePoints`
    weights : (n,) float64, or None for ones
    offset
        Number of rows on lower ranks. Without `runs`, it is the global number of the first row.
    total
        Number of rows of all workers.
    runs
        Ranges of global row numbers, ascending, as (first number, length); None for one range that starts at `offset`.
    """

    # An array or sparse points; the kernels accept both.
    points: Any
    weights: NDArray[np.float64] | None
    offset: int
    total: int
    runs: tuple[tuple[int, int], ...] | None = None

    def __len__(self) -> int:
        return len(self.points)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges of global row numbers, ascending, as (first number, length)."""
        return ((self.offset, len(self)),) if self.runs is None else self.runs

    def numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the global numbers of some of this worker's rows."""
        if self.runs is None:
            return places + self.offset
        firsts, begins = self._firsts_and_begins()
        run = np.searchsorted(begins, places, side="right") - 1
        return firsts[run] + places - begins[run]

    def places(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the global numbers belong to this worker's rows, and their positions."""
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
        """Return the weight of each row, (n,)."""
        return np.ones(len(self)) if self.weights is None else self.weights

    def draw(self, seed: int, stream: int) -> NDArray[np.float64]:
        """Return a uniform number in [0, 1) per row; it depends only on seed, stream and global row number."""
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
    """Read and check this worker's rows: its share of a dataset, its view of an array, or its own rows.

    `weights` are the weights of all rows, in row order; a worker's own rows include their weights.

    Raises
    ------
    InputError
        On every rank, with the same message: a value is not finite, a file is invalid, or the number of weights differs
        from the number of rows.
    """
    with agreement(comm):
        share = source.read_share(comm.rank, comm.world_size)
        if isinstance(share.points, csr_matrix):
            points: Any = kernels.SparsePoints(share.points)
            share = replace(share, points=points)
        check_finite(share, comm.threads)
    # The type of text is known only after reading; all workers use the widest type.
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


def check_distances(
    comm: Communicator, rows: WeightedRows, labels: NDArray[np.int32], inertia: float, dtype: np.dtype[Any]
) -> None:
    """Raise InputError on all ranks if squared distances are infinite, or zero although rows of a cluster differ.

    `inertia` is the sum of the squared distances of the rows of all ranks, computed in `dtype`.
    """
    place = None if np.isfinite(inertia) else "far apart"
    if inertia == 0 and not isinstance(rows.points, kernels.SparsePoints):
        weighted = np.flatnonzero(rows.row_weights > 0)
        _, first, cluster = np.unique(labels[weighted], return_index=True, return_inverse=True)
        own = rows.points[weighted].astype(np.float64)
        if comm.allreduce(int(np.any(np.abs(own - own[first][cluster]) > SAME_ROWS * np.abs(own)))):
            place = "close together"
    if place is not None:
        raise InputError(f"the rows lie too {place} for squared distances in {dtype}: scale them")


def values_at(
    comm: Communicator, rows: WeightedRows, numbers: NDArray[np.int64], *columns: NDArray[Any]
) -> list[NDArray[Any]]:
    """Return entries of per-row columns by global row number: (m, …), equal on all ranks."""
    places, own = rows.places(numbers)
    found = [np.empty((len(numbers), *column.shape[1:]), column.dtype) for column in columns]
    for positions, *parts in comm.allgather((places, *(column[own] for column in columns))):
        for column, part in zip(found, parts, strict=True):
            column[positions] = part
    return found


def take(comm: Communicator, rows: WeightedRows, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Return rows by global number from any rank: (m, d) in the centroids' type, equal on every rank."""
    (points,) = values_at(comm, rows, numbers, rows.points)
    return points.astype(kernels.centroid_dtype(points.dtype), copy=False)


def sampling_keys(uniform: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return random keys: the probability that a row has the lowest key is proportional to its weight.

    Keys of rows with weight 0 are infinite.

    Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", IPL 2006.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(weights > 0, -np.log1p(-uniform) / weights, np.inf)


def lowest(comm: Communicator, rows: WeightedRows, keys: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the global numbers of the `count` rows with the lowest keys, in that order; ties go to the lower row.

    For many rows, the ranks first count keys by value, so each rank sends few superfluous rows.
    """
    candidates = (
        np.arange(len(keys)) if count <= MAX_UNFILTERED_KEY_COUNT else np.flatnonzero(_candidates(comm, keys, count))
    )
    mine = candidates[_lowest_here(keys[candidates], count)]
    gathered = comm.allgather((keys[mine], rows.numbers(mine)))
    all_keys, numbers = (np.concatenate(part) for part in zip(*gathered, strict=True))
    return numbers[np.lexsort((numbers, all_keys))[:count]]


def _lowest_here(keys: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the positions of the lowest keys; the first for ties."""
    if count >= len(keys):
        return np.arange(len(keys))
    # `np.partition` may keep any of the rows with keys equal to the highest one.
    threshold = np.partition(keys, count - 1)[count - 1]
    below = np.flatnonzero(keys < threshold)
    return np.concatenate([below, np.flatnonzero(keys == threshold)[: count - len(below)]])


def _candidates(comm: Communicator, keys: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    """Return which keys may be among the `count` lowest of all ranks, by the upper half of their bits.

    The ranks count the occurrences of 16-bit values twice, as in a radix sort.
    """
    # Read as integers, non-negative floats keep their order; negative floats are reversed.
    bits = (keys + 0.0).view(np.int64)
    upper = (bits ^ ((bits >> 63) & np.iinfo(np.int64).max)) >> 32
    tops = upper >> 16
    counts = np.cumsum(comm.allreduce(np.bincount(tops + (1 << 15), minlength=1 << 16)))
    bucket = int(np.searchsorted(counts, count))
    if bucket == len(counts):
        return np.ones(len(keys), bool)
    top, rest = bucket - (1 << 15), count - (int(counts[bucket - 1]) if bucket else 0)
    counts = np.cumsum(comm.allreduce(np.bincount(upper[tops == top] & 0xFFFF, minlength=1 << 16)))
    return upper <= (top << 16) + int(np.searchsorted(counts, rest))


def mean_variance(comm: Communicator, rows: WeightedRows) -> float:
    """Return the mean over columns of each column's variance over all rows."""
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
    """Raise InputError with the position if a value is not finite."""
    found = kernels.first_non_finite(share.points, threads=threads)
    if found is not None:
        row, column = found
        is_missing = np.isnan(np.ravel(share.points[[row]])[column])
        name, hint = ("NaN", share.missing_hint) if is_missing else ("infinity", "")
        raise InputError(f"{share.describe(row, column)}: {name} where a finite number is expected{hint}")
