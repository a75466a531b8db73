"""The ratings of a rank's users and items, distributed so that all ranks have about equal work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from ripieno.algorithms.als.table import NumberedRatings, OwnRatings, RatingFiles
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.graph.edges import Redistribution

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class RatingSide:
    """The users or the items, with the ratings of the rows that this rank owns.

    Parameters
    ----------
    counts : (n,) int64
        Number of ratings of each row, over all ranks.
    cuts : (p + 1,) int64
        Start of each rank's range of rows, and the end of the last range.
    own
        Range of this rank's rows.
    starts, columns, values
        Ratings of this rank's rows in CSR form, as in `ripieno.kernels.solve_factors`. Columns are row numbers of the
        other side.
    """

    counts: NDArray[np.int64]
    cuts: NDArray[np.int64]
    own: range
    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: NDArray[np.float32]

    @property
    def own_counts(self) -> NDArray[np.int64]:
        """Return the number of ratings of each of this rank's rows."""
        return self.counts[self.own.start : self.own.stop]


@dataclass(frozen=True)
class PartitionedRatings:
    """The ratings of a rank; ids cover all users and items, if they come from files."""

    users: RatingSide
    items: RatingSide
    rating_count: int
    user_ids: NDArray[Any] | None = None
    item_ids: NDArray[Any] | None = None


def load(
    comm: Communicator, source: NumberedRatings | RatingFiles | OwnRatings, rank: int, *, implicit: bool
) -> PartitionedRatings:
    """Read this rank's share, and redistribute all ranks' ratings by user and by item.

    Raises
    ------
    InputError
        On every rank: invalid or no ratings, or several explicit ratings for the same user and item.
    """
    if isinstance(source, RatingFiles | OwnRatings):
        share, user_ids, item_ids = source.read_share(comm, implicit=implicit)
    else:
        share, user_ids, item_ids = source.read_share(comm, implicit=implicit), None, None
    users = _rating_side(
        comm, share.users, share.items, share.values, (share.user_count, share.item_count), rank, implicit
    )
    items = _rating_side(
        comm, share.items, share.users, share.values, (share.item_count, share.user_count), rank, implicit
    )
    total = int(comm.allreduce(len(users.values)))
    if not total:
        where = f"{source.name}: " if isinstance(source, RatingFiles) else ""
        raise InputError(f"{where}there are no ratings: expected at least one")
    return PartitionedRatings(users, items, total, user_ids, item_ids)


def _rating_side(
    comm: Communicator,
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
    shape: tuple[int, int],
    rank: int,
    implicit: bool,
) -> RatingSide:
    counts = comm.allreduce(np.bincount(rows, minlength=shape[0]))
    cuts = even_cuts(counts, rank, comm.world_size)
    own = range(int(cuts[comm.rank]), int(cuts[comm.rank + 1]))
    if comm.world_size > 1:
        owners = np.repeat(np.arange(comm.world_size, dtype=np.uint32), np.diff(cuts))
        redistribute = Redistribution(comm, owners[rows])
        rows, columns, values = redistribute(rows), redistribute(columns), redistribute(values)
    with agreement(comm):
        matrix = _matrix(rows - own.start, columns, values, (len(own), shape[1]), implicit)
    own_counts = comm.allgather(np.diff(matrix.indptr))
    return RatingSide(
        counts=np.concatenate(own_counts).astype(np.int64),
        cuts=cuts,
        own=own,
        starts=matrix.indptr.astype(np.int64),
        columns=matrix.indices.astype(np.int32, copy=False),
        values=matrix.data,
    )


def even_cuts(counts: NDArray[np.int64], rank: int, world_size: int) -> NDArray[np.int64]:
    """Return the bounds of row ranges of about equal cost: `rank²` per rating and `rank³` per row with ratings."""
    ends = np.cumsum(counts + rank * (counts > 0))
    total = int(ends[-1]) if len(ends) else 0
    inner = np.searchsorted(ends, total * np.arange(1, world_size) / world_size, side="left") + (total > 0)
    return np.concatenate([[0], np.minimum(inner, len(counts)), [len(counts)]]).astype(np.int64)


def _matrix(
    rows: NDArray[np.int32],
    columns: NDArray[np.int32],
    values: NDArray[np.float32],
    shape: tuple[int, int],
    implicit: bool,
) -> csr_matrix:
    """Return rows with ascending columns; implicit ratings of the same pair are summed."""
    matrix = csr_matrix((values, (rows, columns)), shape)
    if matrix.nnz == len(values):
        return matrix
    # Sum equal pairs in the order of their values, independent of the rank that read them.
    order = np.lexsort((values, columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    first = np.flatnonzero(np.append(True, (np.diff(rows) != 0) | (np.diff(columns) != 0)))
    if not implicit:
        raise InputError(
            f"{len(values) - len(first)} ratings repeat a pair of user and item: expected one rating "
            "per pair with implicit=False: keep the last, or the mean"
        )
    sums = np.add.reduceat(values.astype(np.float64), first).astype(np.float32)
    return csr_matrix((sums, (rows[first], columns[first])), shape)
