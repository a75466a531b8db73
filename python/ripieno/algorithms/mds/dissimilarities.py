"""A worker's rows of a dissimilarity matrix, read or computed from points, and their checks.

No rank stores the whole matrix, unless the input is in memory. The symmetry check compares the products of the matrix
with a random vector from the left and from the right. It takes one pass over the rows and communicates n numbers.
Source: Freivalds, "Probabilistic machines can use less running time", IFIP 1977.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import ripieno.kernels as kernels
from ripieno.algorithms.kmeans.rows import check_finite, load
from ripieno.algorithms.mds.sequences import Sequences, edit_distances
from ripieno.algorithms.methods import PRECOMPUTED, ROW_METRICS
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.input import matrix
from ripieno.input.columns.arrays import ArrayRows
from ripieno.input.matrix import Dataset, RowShare, RowsInMemory
from ripieno.input.matrix.dataset import FilePiece
from ripieno.input.shares import even_range

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Source = Dataset | RowsInMemory | matrix.LocalRows

BLOCK_ROWS = 256
#: Largest difference between an entry and its mirror image, relative to the largest entry of the row.
SYMMETRY_RTOL = 1e-5
#: Largest relative rounding error of a row sum in float64.
ROW_SUM_RTOL = 1e-11
#: Numbers between these powers of two have squares that neither overflow nor underflow in float32.
MIN_EXPONENT, MAX_EXPONENT = -40, 40


@dataclass(frozen=True)
class RowBlock:
    """This worker's rows of the matrix.

    Parameters
    ----------
    dissimilarities : (m, n) int16 or float32
        Dissimilarities, divided by `scale`.
    weights : (m, n) float32, or None for ones
        Weights, divided by `weight_scale`.
    source
        The rows, as the source of dissimilarities, or the dissimilarities.
    counts
        Rows of each rank.
    first
        Number of the first row.
    scale
        Divisor of the dissimilarities, a power of two.
    largest
        Largest dissimilarity of pairs with non-zero weight, divided by `scale`.
    weight_scale
        Divisor of the weights, a power of two.
    """

    dissimilarities: NDArray[Any]
    weights: NDArray[np.float32] | None
    source: NDArray[Any]
    counts: tuple[int, ...]
    first: int
    scale: float
    largest: float
    weight_scale: float = 1.0

    def __len__(self) -> int:
        return len(self.dissimilarities)

    @property
    def total(self) -> int:
        """Return the number of points."""
        return sum(self.counts)

    @property
    def stress_scale(self) -> float:
        """Return the divisor of the stress."""
        return self.weight_scale * self.scale * self.scale


def load_square(comm: Communicator, source: Source | Sequences, weights: Source | None, metric: str) -> RowBlock:
    """Read this worker's rows, or compute them from rows of points or from sequences.

    Raises
    ------
    InputError
        On every rank, with the same message: a value is not finite or is negative, a diagonal entry is not zero, or the
        matrix is not square or symmetric; the same for the weights. A sequence is invalid.
    """
    points = None
    if isinstance(source, Sequences):
        values, counts, first = edit_distances(comm, source, metric)
    elif metric == PRECOMPUTED:
        share, counts, first = _read_square(comm, source)
    else:
        values, points, counts, first = _compute_distances(comm, source, metric)
    own_weights, weight_scale = (None, 1.0) if weights is None else _read_weights(comm, weights, counts, first)
    if metric == PRECOMPUTED and not isinstance(source, Sequences):
        # Checked after the weights are read, because entries with weight 0 are not checked.
        if own_weights is not None:
            share = replace(share, points=_clear_missing(share.points, own_weights))
        _check_square(comm, share, counts, first)
        values = share.points
    return replace(_scaled(comm, values, own_weights, points, counts, first), weight_scale=weight_scale)


def read_rows(comm: Communicator, source: Source, width: int, name: str) -> RowShare:
    """Read this worker's rows of finite numbers >= 0, as int16 if the input has that type, else float.

    Raises
    ------
    InputError
        On every rank: a value is negative or not finite, or the input has another width.
    """
    with agreement(comm):
        share = _share(source, comm.rank, comm.world_size)
        if source.column_count != width:
            raise InputError(f"{name} has {source.column_count} columns: expected {width}, one for each point")
        _check_values(share, comm.threads)
    return share


def _share(source: Source, rank: int, world_size: int) -> RowShare:
    if isinstance(source, matrix.LocalRows):
        return _share(source.source, 0, 1)
    file = source.files[0] if isinstance(source, Dataset) and len(source.files) == 1 else None
    if isinstance(file, ArrayRows) and file.array.stored.kind == "i" and file.array.stored.itemsize == 2:
        first, last = even_range(file.size, rank, world_size)
        return RowShare(file.read(first, last, np.dtype(np.int16)), (FilePiece(file, first, last - first),))
    return source.read_share(rank, world_size)


def _check_values(share: RowShare, threads: int) -> None:
    values = share.points
    if values.dtype.kind == "f":
        check_finite(share, threads)
    for begin in range(0, len(values), BLOCK_ROWS):
        block = values[begin : begin + BLOCK_ROWS]
        if block.min(initial=0) < 0:
            row, column = (int(index) for index in np.unravel_index(block.argmin(), block.shape))
            where = share.describe(begin + row, column)
            raise InputError(f"{where}: {block[row, column]} where a number >= 0 is expected")


def _read_square(comm: Communicator, source: Source) -> tuple[RowShare, tuple[int, ...], int]:
    """Return the rows of this worker, the row count of each worker, and the number of the first row."""
    with agreement(comm):
        share = _share(source, comm.rank, comm.world_size)
    shapes = comm.allgather((len(share.points), share.points.dtype))
    counts = tuple(count for count, _ in shapes)
    # A rank without rows does not determine the type.
    dtypes = [dtype for count, dtype in shapes if count] or [share.points.dtype]
    share = replace(share, points=share.points.astype(np.result_type(*dtypes), copy=False))
    total, first = sum(counts), sum(counts[: comm.rank])
    if total != source.column_count:
        raise InputError(
            f"X has {total} rows and {source.column_count} columns: expected a square matrix of "
            "dissimilarities, or, for points, a metric other than 'precomputed'"
        )
    return share, counts, first


def _clear_missing(values: NDArray[Any], weights: NDArray[np.float32]) -> NDArray[Any]:
    """Return `values` with zeros where the weight is 0. Such missing entries may have any value, including NaN.

    The array is copied if an entry changes, because it can be the caller's memory or a mapped file.
    """
    cleared = values
    for begin in range(0, len(values), BLOCK_ROWS):
        rows = slice(begin, begin + BLOCK_ROWS)
        missing = (weights[rows] == 0) & (values[rows] != 0)
        if missing.any():
            if cleared is values:
                cleared = np.array(values)
            cleared[rows][missing] = 0
    return cleared


def _check_square(comm: Communicator, share: RowShare, counts: tuple[int, ...], first: int) -> None:
    with agreement(comm):
        # Checked after the shape, because rows of points may have any sign.
        _check_values(share, comm.threads)
        own = np.arange(len(share.points))
        diagonal = share.points[own, first + own]
        if diagonal.any():
            row = int(np.flatnonzero(diagonal)[0])
            where = share.describe(row, first + row)
            raise InputError(f"{where}: {diagonal[row]}: expected 0, the distance of a point to itself")
    _check_symmetric(comm, share.points, counts, "X")


def _compute_distances(
    comm: Communicator, source: Source, metric: str
) -> tuple[NDArray[Any], NDArray[Any], tuple[int, ...], int]:
    rows = load(comm, source)
    counts = tuple(comm.allgather(len(rows)))
    points = rows.points if rows.points.dtype == np.float32 else rows.points.astype(np.float64)
    all_points = comm.allgather(points, counts=counts)
    found = np.empty((len(rows), rows.total), points.dtype)
    distance: Any = metric
    with agreement(comm):
        for begin in range(0, len(rows), BLOCK_ROWS):
            block = points[begin : begin + BLOCK_ROWS]
            if metric == ROW_METRICS[0]:
                found[begin : begin + len(block)] = kernels.distances(block, all_points, threads=comm.threads)
            else:
                found[begin : begin + len(block)] = np.maximum(cdist(block, all_points, distance), 0.0)
        own = np.arange(len(rows))
        found[own, rows.offset + own] = 0.0
        invalid = np.argwhere(~np.isfinite(found))
        if len(invalid):
            row, column = invalid[0].tolist()
            raise InputError(
                f"metric={metric!r}: the distance of the rows {rows.offset + row} and {column} is "
                f"{found[row, column]}, expected a finite number"
            )
    return found, points, counts, rows.offset


def _read_weights(
    comm: Communicator, source: Source, counts: tuple[int, ...], first: int
) -> tuple[NDArray[np.float32], float]:
    """Return this worker's rows of the weights, divided by a power of two, and this divisor."""
    total = sum(counts)
    share = read_rows(comm, source, total, "weights")
    own = tuple(comm.allgather(len(share.points)))
    if own != counts:
        raise InputError(
            f"weights has {sum(own)} rows for {total} points, distributed to the ranks as {own}, but "
            f"the points as {counts}: expected a square matrix, in the same kind of file as the dissimilarities"
        )
    largest = comm.allreduce(float(share.points.max(initial=0)), op="max")
    scale = divisor(largest)
    scaled = share.points if scale == 1 else share.points / scale
    weights = np.ascontiguousarray(scaled, np.float32)
    with agreement(comm):
        # The weight of a point with itself does not affect the result.
        rows = np.arange(len(weights))
        pairs = np.count_nonzero(weights, axis=1) - (weights[rows, first + rows] != 0)
        if total > 1 and not pairs.all():
            row = int(np.flatnonzero(pairs == 0)[0])
            values = np.delete(share.points[row], first + row)
            found = "0" if not values.any() else f"at most {values.max():g}, too small beside the largest, {largest:g}"
            raise InputError(
                f"weights: all of row {first + row} are {found}: the position of the point is undetermined"
            )
    _check_symmetric(comm, share.points, counts, "weights")
    return weights, scale


def divisor(largest: float) -> float:
    """Return 1 if squares of numbers up to `largest` fit float32, or a power of two as their divisor."""
    exponent = int(np.frexp(largest)[1])
    return 1.0 if largest == 0 or MIN_EXPONENT <= exponent <= MAX_EXPONENT else float(np.ldexp(1.0, exponent - 1))


def _check_symmetric(comm: Communicator, own: NDArray[Any], counts: tuple[int, ...], name: str) -> None:
    total, first = sum(counts), sum(counts[: comm.rank])
    vector = np.random.default_rng(0).uniform(1.0, 2.0, total)
    right, left = np.zeros(len(own)), np.zeros(total)
    for begin in range(0, len(own), BLOCK_ROWS):
        block = own[begin : begin + BLOCK_ROWS].astype(np.float64)
        right[begin : begin + len(block)] = block @ vector
        left += vector[first + begin : first + begin + len(block)] @ block
    right_of_all = comm.allgather(right, counts=counts)
    left = comm.allreduce(left)
    differences = np.abs(right_of_all - left)
    worst = int(differences.argmax())
    if differences[worst] <= ROW_SUM_RTOL * float(right_of_all.max()):
        return
    owner = int(np.searchsorted(np.cumsum(counts), worst, side="right"))
    row = comm.broadcast(own[worst - first].astype(np.float64) if comm.rank == owner else None, root=owner)
    column = comm.allgather(np.ascontiguousarray(own[:, worst], np.float64), counts=counts)
    other = int(np.abs(row - column).argmax())
    # Distances computed from both sides may differ in their last bits.
    if abs(row[other] - column[other]) > SYMMETRY_RTOL * float(row.max()):
        raise InputError(
            f"{name}: row {worst}, column {other} is {row[other]:g}, but row {other}, column {worst} is "
            f"{column[other]:g}: expected a symmetric matrix"
        )


def _scaled(
    comm: Communicator,
    values: NDArray[Any],
    weights: NDArray[np.float32] | None,
    source: NDArray[Any] | None,
    counts: tuple[int, ...],
    first: int,
) -> RowBlock:
    largest = comm.allreduce(_largest_weighted(values, weights), op="max")
    scale = 1.0
    if values.dtype != np.int16:
        maximum = comm.allreduce(float(values.max(initial=0)), op="max")
        scale = divisor(maximum)
        values = np.ascontiguousarray(values if scale == 1 else values / scale, np.float32)
    source = values if source is None else source
    return RowBlock(values, weights, source, counts, first, scale, largest / scale)


def _largest_weighted(values: NDArray[Any], weights: NDArray[np.float32] | None) -> float:
    """Return the largest entry with non-zero weight."""
    largest = 0.0
    for begin in range(0, len(values), BLOCK_ROWS):
        block = values[begin : begin + BLOCK_ROWS]
        counted = block if weights is None else np.where(weights[begin : begin + BLOCK_ROWS] > 0, block, 0)
        largest = max(largest, float(counted.max(initial=0)))
    return largest
