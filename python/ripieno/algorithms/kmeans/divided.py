"""Centroids divided among the ranks; each pass moves them block by block around a ring.

A rank forwards a block while it computes with it. The sums of a block's clusters also travel around the ring to the
owner of the block, and each rank adds its own sums on the way. So a rank needs memory for its share and a few blocks
only. Per-centroid scalars of 4 to 8 bytes are the only data that every rank saves for all centroids.

For near assignment, each group of nearby centroids belongs to one rank, and each rank groups its own centroids.

Cost of a pass: every rank receives `k·d` centroid values and sends `k·d` sums, for any number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.kmeans.rows import WeightedRows
from ripieno.input.shares import even_range

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Maximum bytes of a block's sums. The centroids of a block take the same number of bytes, or half of it.
BLOCK_BYTES = 64 << 20
#: K-means passes that build the first groups. Later passes update them.
FIRST_PASSES = 4


@dataclass(frozen=True)
class ArrivalOrder:
    """The order of arrival of a rank's centroids at the other ranks.

    Parameters
    ----------
    numbers : (m,) uint32
        Numbers of the rank's centroids.
    starts : (g + 1,) int64
        Start of each of its groups, and the end of the last group; a single group if centroids are not grouped.
    """

    numbers: NDArray[np.uint32]
    starts: NDArray[np.int64]

    def cuts(self, count: int) -> NDArray[np.int64]:
        """Return the starts of `count` blocks and the end of the last one.

        Blocks consist of whole groups if the centroids are grouped.
        """
        even = np.arange(count + 1) * len(self.numbers) // count
        return even if len(self.starts) == 2 else self.starts[np.searchsorted(self.starts, even)]


@dataclass(frozen=True)
class CentroidBlock:
    """Some of a rank's centroids.

    Parameters
    ----------
    centroids : (m, d)
        The centroids; must not be changed.
    numbers : (m,) uint32
        Number of each centroid.
    first
        Position of the first centroid in the order of all ranks' centroids.
    groups
        The groups of these centroids, with their range among the groups of all ranks.
    """

    centroids: NDArray[Any]
    numbers: NDArray[np.uint32]
    first: int
    groups: kernels.CentroidGroups


class DividedCentroids:
    """This rank's share of the centroids, and the data about all centroids that every rank has.

    Parameters
    ----------
    comm
        The ranks. All of them make each call.
    own : (m, d)
        Centroids of this rank; `move` updates them.
    orders
        Arrival order of each rank's centroids. This rank's numbers refer to `own`, row by row.
    """

    def __init__(self, comm: Communicator, own: NDArray[Any], orders: list[ArrivalOrder]) -> None:
        self._comm = comm
        self.own = own
        self.own_numbers = orders[comm.rank].numbers
        self.count = sum(len(each.numbers) for each in orders)
        self._arrange(np.arange(len(own)), orders)

    @classmethod
    def by_number(
        cls, comm: Communicator, count: int, rows_of: Callable[[int, int], NDArray[Any]], columns: int, dtype: Any
    ) -> DividedCentroids:
        """Assign a contiguous range of numbers to each rank; all ranks call `rows_of(first, end)` for the centroids."""
        first, end = even_range(count, comm.rank, comm.world_size)
        own = np.empty((end - first, columns), dtype)
        step = max(1, BLOCK_BYTES // (columns * own.itemsize))
        for begin in range(0, count, step):
            block = rows_of(begin, min(begin + step, count))
            low, high = max(begin, first), min(begin + step, end)
            if low < high:
                own[low - first : high - first] = block[low - begin : high - begin]
        runs = (even_range(count, rank, comm.world_size) for rank in range(comm.world_size))
        orders = [ArrivalOrder(np.arange(*run, dtype=np.uint32), np.array([0, run[1] - run[0]])) for run in runs]
        return cls(comm, own, orders)

    def _arrange(self, order: NDArray[np.int64], orders: list[ArrivalOrder]) -> None:
        self._order, self._orders = order, orders
        self._firsts = [0, *accumulate(len(each.numbers) for each in orders)]
        self._first_groups = [0, *accumulate(len(each.starts) - 1 for each in orders)]
        sums_bytes = 8 * self.own.shape[1]
        largest_bytes = max(len(each.numbers) for each in orders) * sums_bytes
        self._block_count = max(1, -(-largest_bytes // BLOCK_BYTES))
        self._cuts = [each.cuts(self._block_count) for each in orders]
        #: Position of each centroid in the order of all ranks' centroids, (k,) int32.
        self.places = np.empty(self.count, np.int32)
        for first, each in zip(self._firsts, orders, strict=False):
            self.places[each.numbers] = np.arange(first, first + len(each.numbers), dtype=np.int32)

    @property
    def blocks_per_pass(self) -> int:
        """Return the number of blocks that `blocks` yields."""
        count: int = self._block_count * self._comm.world_size
        return count

    def blocks(self, clock: IterationClock) -> Iterator[CentroidBlock]:
        """Yield all centroids block by block, this rank's first. Waiting for other ranks counts as communication."""
        comm, world_size, columns = self._comm, self._comm.world_size, self.own.shape[1]
        for number in range(self._block_count):
            block = self.own[self._order[self._slice(comm.rank, number)]]
            for step in range(world_size):
                owner, incoming = ((comm.rank - each) % world_size for each in (step, step + 1))
                handle = None
                if step + 1 < world_size:
                    shape = (self._length(incoming, number), columns)
                    handle = comm.rotate_async(block, out=np.empty(shape, self.own.dtype))
                yield self._block(owner, number, block)
                if handle is not None:
                    with clock.communicating():
                        block = handle.wait()

    def move(
        self,
        rows: WeightedRows,
        labels: NDArray[np.int32],
        weight_sums: NDArray[np.float64],
        correct: Callable[[NDArray[np.float64], NDArray[np.uint32]], None],
        clock: IterationClock,
    ) -> float:
        """Move this rank's centroids to the means of their rows, and return the sum of their squared shifts.

        `correct` receives the sums of some clusters, (m, d), and their numbers.
        """
        places: NDArray[np.int32] = self.places[labels]
        squared_shift = 0.0
        for number in range(self._block_count):
            sums = self._summed(rows, places, number, clock)
            with clock.computing():
                mine = self._slice(self._comm.rank, number)
                numbers = self._orders[self._comm.rank].numbers[mine]
                correct(sums, numbers)
                block = self.own[self._order[mine]]
                squared_shift += kernels.recenter(block, sums, weight_sums[numbers])
                self.own[self._order[mine]] = block
        return squared_shift

    def _summed(
        self, rows: WeightedRows, places: NDArray[np.int32], number: int, clock: IterationClock
    ) -> NDArray[np.float64]:
        """Return the sums of this rank's block with a given number, over all ranks' rows."""
        comm, columns, incoming = self._comm, self.own.shape[1], None
        for step in range(comm.world_size):
            owner = (comm.rank - 1 - step) % comm.world_size
            with clock.computing():
                sums = np.empty((self._length(owner, number), columns))
                first = self._firsts[owner] + int(self._cuts[owner][number])
                weight_sums = np.empty(len(sums))
                kernels.accumulate_run(
                    rows.points, places, rows.weights, first, sums, weight_sums, threads=comm.threads
                )
            if incoming is not None:
                with clock.communicating():
                    incoming_sums = incoming.wait()
                with clock.computing():
                    sums += incoming_sums
            if step + 1 < comm.world_size:
                shape = (self._length((owner - 1) % comm.world_size, number), columns)
                incoming = comm.rotate_async(sums, out=np.empty(shape))
        return sums

    def _slice(self, owner: int, number: int) -> slice:
        return slice(*(int(each) for each in self._cuts[owner][number : number + 2]))

    def _length(self, owner: int, number: int) -> int:
        first, end = self._cuts[owner][number : number + 2]
        return int(end - first)

    def _block(self, owner: int, number: int, centroids: NDArray[Any]) -> CentroidBlock:
        order, rows = self._orders[owner], self._slice(owner, number)
        begin, end = np.searchsorted(order.starts, [rows.start, rows.stop])
        starts = order.starts[begin : end + 1] - rows.start
        numbers = order.numbers[rows]
        groups = kernels.CentroidGroups(self._first_groups[owner] + int(begin), centroids, numbers, starts.tolist())
        return CentroidBlock(centroids, numbers, self._firsts[owner] + rows.start, groups)


class GroupedCentroids(DividedCentroids):
    """`DividedCentroids` with groups of nearby centroids; each group belongs to one rank.

    Parameters
    ----------
    comm, own, orders
        As in `DividedCentroids`.
    means : (g, d)
        Means of this rank's groups.
    points_dtype
        Type of the rows. Centroids are grouped in this type: grouping may be inexact, and bytes are fastest.
    """

    def __init__(
        self, comm: Communicator, own: NDArray[Any], orders: list[ArrivalOrder], means: NDArray[Any], points_dtype: Any
    ) -> None:
        super().__init__(comm, own, orders)
        self._means, self._points_dtype = means, points_dtype

    @classmethod
    def of(cls, divided: DividedCentroids, points_dtype: Any, clock: IterationClock) -> GroupedCentroids:
        """Return the same centroids, redistributed by group."""
        comm, own, count = divided._comm, divided.own, divided.count
        group_count = kernels.NearIndex.group_count(count)
        chosen = np.arange(group_count) * count // group_count
        means = _gathered_centroids(comm, divided, chosen)
        for _ in range(FIRST_PASSES):
            with clock.computing():
                labels, *sums = _group(own, means, points_dtype, comm.threads)
            with clock.communicating():
                kernels.recenter(means, *comm.allreduce(tuple(sums)))
        with clock.communicating():
            all_labels = np.concatenate(comm.allgather(labels))
        # The input is divided by number. Consecutive groups with about equal numbers of centroids go to one rank.
        order = np.argsort(all_labels, kind="stable").astype(np.uint32)
        starts = np.concatenate([[0], np.cumsum(np.bincount(all_labels, minlength=group_count))])
        even = np.arange(1, comm.world_size) * count // comm.world_size
        bounds = np.concatenate([[0], np.searchsorted(starts, even), [group_count]])
        orders = [
            ArrivalOrder(order[starts[begin] : starts[end]], starts[begin : end + 1] - starts[begin])
            for begin, end in pairwise(bounds)
        ]
        mine = orders[comm.rank].numbers
        place = np.full(count, -1, np.int64)
        place[mine] = np.arange(len(mine))
        share = np.empty((len(mine), own.shape[1]), own.dtype)
        for block in divided.blocks(clock):
            with clock.computing():
                places = place[block.numbers]
                share[places[places >= 0]] = block.centroids[places >= 0]
        return cls(comm, share, orders, means[bounds[comm.rank] : bounds[comm.rank + 1]].copy(), points_dtype)

    def regroup(self, clock: IterationClock) -> NDArray[Any]:
        """Group the moved centroids again; return the means of all groups, (g, d). No group is empty."""
        with clock.computing():
            labels, *sums = _group(self.own, self._means, self._points_dtype, self._comm.threads)
            kernels.recenter(self._means, *sums)
            order = np.lexsort((self.own_numbers, labels))
            sizes = np.bincount(labels, minlength=len(self._means))
            starts = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
        with clock.communicating():
            gathered = self._comm.allgather((self.own_numbers[order], starts, self._means[sizes > 0]))
        self._arrange(order, [ArrivalOrder(numbers, starts) for numbers, starts, _ in gathered])
        return np.concatenate([means for _, _, means in gathered])


def _gathered_centroids(comm: Communicator, divided: DividedCentroids, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Return the centroids with the given numbers on all ranks, from centroids divided by number."""
    own = divided.own_numbers
    mine = numbers[(numbers >= own[0]) & (numbers <= own[-1])] - own[0] if len(own) else numbers[:0]
    return np.concatenate(comm.allgather(divided.own[mine]))


def _group(
    own: NDArray[Any], means: NDArray[Any], points_dtype: Any, threads: int
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Return the group of each centroid by nearest mean, and the sums and counts of each group."""
    labels, sums, counts = np.empty(len(own), np.int32), np.zeros(means.shape), np.zeros(len(means))
    step = max(1, BLOCK_BYTES // (own.shape[1] * own.itemsize))
    for begin in range(0, len(own), step):
        block = own[begin : begin + step]
        if points_dtype == np.uint8:
            block = np.rint(np.clip(block, 0, 255)).astype(np.uint8)
        found = labels[begin : begin + step]
        block_sums, block_counts, _ = kernels.assign_accumulate(block, means, None, found, None, threads=threads)
        sums += block_sums
        counts += block_counts
    return labels, sums, counts
