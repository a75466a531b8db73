"""Initial centroids for very many clusters: k-means++ in cells of nearby rows, all cells in parallel.

Some random rows are pivots. The rows nearest to a pivot form its cell. Each worker owns some cells and receives their
rows, or a sample if there are very many rows. Rows far from their pivot are more frequent in the sample and have less
weight. Each cell draws centers, and a time for each center from the cost of the cell's rows. The earliest centers over
all cells become the centroids. The result equals k-means++, except for rows with their nearest centroid in another
cell.

Cost: a pass over the points with `k / CELL_CENTROIDS` pivots; one transfer per sampled row; then `CELL_CENTROIDS` times
some trials per sampled row. Workers do not wait for each other in these steps, and no worker holds all candidates.
Source: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007; the times: Gillespie,
"Exact stochastic simulation of coupled chemical reactions", J. Phys. Chem. 81(25), 1977; the sample: Bachem, Lucic and
Krause, "Scalable k-means clustering via lightweight coresets", KDD 2018, algorithm 1, with pivots instead of the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.kmeans.rows import WeightedRows, lowest, sampling_keys, take
from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Average number of centroids per cell.
CELL_CENTROIDS = 128
#: Number of sampled rows per centroid.
SAMPLE_ROWS_PER_CENTROID = 10
#: Number of batches in a round. Each batch ends with a progress event.
PROGRESS_BATCHES = 16

PIVOT_STREAM, SAMPLE_STREAM, FILL_STREAM = range(1 << 33, (1 << 33) + 3)


def seed_in_cells(
    comm: Communicator,
    rows: WeightedRows,
    n_clusters: int,
    seed: int,
    *,
    on_progress: Callable[[int], None],
) -> NDArray[np.int64]:
    """Return the global indices of the rows that become centroids; `on_progress` receives their count so far."""
    pivot_count = max(1, n_clusters // CELL_CENTROIDS)
    pivots = take(
        comm, rows, lowest(comm, rows, sampling_keys(rows.draw(seed, PIVOT_STREAM), rows.row_weights), pivot_count)
    )
    labels, distances = np.empty(len(rows), np.int32), np.empty(len(rows))
    kernels.assign(rows.points, pivots, labels, distances, threads=comm.threads)
    sampled, row_weights = _sample(comm, rows, distances, SAMPLE_ROWS_PER_CENTROID * n_clusters, seed)
    cells = _distribute_cells(comm, rows, sampled, row_weights, labels[sampled], pivot_count)
    numbers = _grow(comm, cells, n_clusters, seed, on_progress=on_progress)
    return np.concatenate([numbers, _fill(comm, rows, numbers, n_clusters - len(numbers), seed)])


@dataclass(frozen=True)
class _Cells:
    """The cells of this worker.

    Parameters
    ----------
    first
        Index of the first cell.
    points, row_weights, numbers : (n, d), (n,) float64, (n,) int64
        Rows of the cells with weights and global indices, ordered by cell and then by global index.
    ends : (c,) int64
        End of each cell (exclusive).
    """

    first: int
    points: NDArray[Any]
    row_weights: NDArray[np.float64]
    numbers: NDArray[np.int64]
    ends: NDArray[np.int64]


def _sample(
    comm: Communicator, rows: WeightedRows, distances: NDArray[np.float64], count: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the positions and weights of about `count` sampled rows, or of all rows if there are at most `count`.

    Half of the sampling probability follows the weight, half the squared distance to the pivot.
    """
    row_weights = rows.row_weights
    if rows.total <= count:
        positions = np.flatnonzero(row_weights > 0)
        return positions, row_weights[positions]
    costs = row_weights * distances
    weight_sum, cost_sum = comm.allreduce((float(row_weights.sum()), float(costs.sum())))
    probabilities = (
        count * (row_weights / weight_sum + (costs / cost_sum if cost_sum > 0 else row_weights / weight_sum)) / 2
    )
    positions = np.flatnonzero(rows.draw(seed, SAMPLE_STREAM) < probabilities)
    return positions, row_weights[positions] / np.minimum(probabilities[positions], 1)


def _distribute_cells(
    comm: Communicator,
    rows: WeightedRows,
    positions: NDArray[np.int64],
    row_weights: NDArray[np.float64],
    labels: NDArray[np.int32],
    cell_count: int,
) -> _Cells:
    """Send each rank the rows of consecutive cells, with about equal work per rank."""
    sizes = comm.allreduce(np.bincount(labels, minlength=cell_count))
    # Each center of a cell is compared with all its rows, and larger cells have more centers.
    work = np.cumsum(np.square(sizes, dtype=np.float64))
    shares = work[-1] * np.arange(1, comm.world_size) / comm.world_size
    bounds = np.concatenate([[0], np.searchsorted(work, shares), [cell_count]])

    order = np.argsort(labels, kind="stable")
    cuts = np.searchsorted(labels[order], bounds)
    parts = (order[start:end] for start, end in pairwise(cuts))
    sent = [
        (labels[part], rows.numbers(positions[part]), row_weights[part], rows.points[positions[part]]) for part in parts
    ]
    labels, numbers, row_weights, points = (np.concatenate(column) for column in zip(*comm.alltoall(sent), strict=True))
    order = np.lexsort((numbers, labels))
    mine = sizes[bounds[comm.rank] : bounds[comm.rank + 1]]
    return _Cells(int(bounds[comm.rank]), points[order], row_weights[order], numbers[order], np.cumsum(mine))


def _grow(
    comm: Communicator,
    cells: _Cells,
    count: int,
    seed: int,
    *,
    on_progress: Callable[[int], None],
) -> NDArray[np.int64]:
    """Return the global indices of the first `count` centers by time over all cells; fewer if rows are not distinct.

    Each round adds centers to the cells, until no cell can have another center earlier than the last selected center.
    """
    cell_count = len(cells.ends)
    streams = mixed(np.arange(cells.first, cells.first + cell_count) ^ np.int64(seed) << 32)
    last_times = np.zeros(cell_count)
    owners, chosen, times = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    # Number of trials per centroid as in scikit-learn.
    trial_count = 2 + int(np.log(count))
    limit, until, total = max(2, CELL_CENTROIDS // 8), np.inf, 0
    while comm.allreduce(bool((last_times < until).any()), op="or"):
        new = [(owners, chosen, times)]
        for begin in range(0, cell_count, -(-cell_count // PROGRESS_BATCHES) or 1):
            stop = min(begin + -(-cell_count // PROGRESS_BATCHES), cell_count)
            batch = _grow_batch(
                cells, begin, stop, new[0], last_times, streams, trial_count, limit, until, comm.threads
            )
            new.append(batch)
            on_progress(min(count, total + comm.world_size * sum(len(each[0]) for each in new[1:])))
        owners, chosen, times = (np.concatenate(column) for column in zip(*new, strict=True))
        order = np.argsort(owners, kind="stable")
        owners, chosen, times = owners[order], chosen[order], times[order]
        all_times = np.concatenate(comm.allgather(times))
        total = len(all_times)
        until = np.partition(all_times, count - 1)[count - 1] if total >= count else np.inf
        limit *= 2
    is_in_time = times <= until
    gathered = comm.allgather((times[is_in_time], cells.numbers[chosen[is_in_time]]))
    all_times, numbers = (np.concatenate(column) for column in zip(*gathered, strict=True))
    return numbers[np.lexsort((numbers, all_times))[:count]]


def _grow_batch(
    cells: _Cells,
    begin: int,
    stop: int,
    centers: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
    last_times: NDArray[np.float64],
    streams: NDArray[np.uint64],
    trial_count: int,
    limit: int,
    until: float,
    threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Choose more centers of cells `begin .. stop`; return their cells, rows and times.

    Each cell's last time is written to `last_times`.
    """
    owners, chosen, _ = centers
    start = int(cells.ends[begin - 1]) if begin else 0
    rows = slice(start, int(cells.ends[stop - 1]))
    center_bounds = np.searchsorted(owners, np.arange(begin, stop + 1))
    counts, found, times = kernels.grow_cells(
        cells.points[rows],
        kernels.Cells(
            row_weights=cells.row_weights[rows],
            ends=cells.ends[begin:stop] - start,
            chosen=chosen[center_bounds[0] : center_bounds[-1]] - start,
            chosen_ends=center_bounds[1:] - center_bounds[0],
            times=last_times[begin:stop],
            streams=streams[begin:stop],
        ),
        trial_count=trial_count,
        center_count=limit,
        until=until,
        threads=threads,
    )
    ends = np.cumsum(counts)
    growing = np.flatnonzero(counts)
    last_times[begin + growing] = times[ends[growing] - 1]
    # A cell with fewer centers than the limit cannot have more.
    last_times[begin:stop][np.diff(center_bounds) + counts < limit] = np.inf
    return np.repeat(np.arange(begin, stop), counts), found + start, times


def _fill(
    comm: Communicator, rows: WeightedRows, numbers: NDArray[np.int64], count: int, seed: int
) -> NDArray[np.int64]:
    """Return `count` further rows, for data with too few distinct rows; rows of weight zero are last."""
    if count == 0:
        return numbers[:0]
    keys = np.minimum(sampling_keys(rows.draw(seed, FILL_STREAM), rows.row_weights), np.finfo(np.float64).max)
    _, mine = rows.places(numbers)
    keys[mine] = np.inf
    return lowest(comm, rows, keys, count)
