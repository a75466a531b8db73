"""Initial centroids for very many clusters: k-means++ in cells of nearby rows, all cells in parallel.

Some random rows are pivots. The rows nearest to a pivot form its cell. Every worker takes some cells and gets their
rows. If they are very many, it gets a sample; rows far from their pivot are more frequent in it and have less weight.
A cell draws centers, and a time for each from the cost of its rows. The earliest centers over all cells become the
centroids. The result equals k-means++, except for rows with their nearest centroid in another cell.

Cost: a pass over the points with `k / CELL_CENTROIDS` pivots; one transfer per sampled row; then `CELL_CENTROIDS` times
some trials per sampled row. Workers do not wait for each other in these steps, and no worker holds all candidates.
Source: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007; the times: Gillespie,
"Exact stochastic simulation of coupled chemical reactions", J. Phys. Chem. 81(25), 1977; the sample: Bachem, Lucic and
Krause, "Scalable k-means clustering via lightweight coresets", KDD 2018, algorithm 1, pivots in place of the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.kmeans.rows import WeightedRows, lowest, race, take
from ripieno.kernels.hashing import mixed

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Average number of centroids per cell.
CELL_CENTROIDS = 128
#: Number of rows in a sample per centroid.
SAMPLE_ROWS = 10
#: Number of parts of a round between progress events.
BATCHES = 16

PIVOT_STREAM, SAMPLE_STREAM, REST_STREAM = range(1 << 33, (1 << 33) + 3)


def by_cells(
    comm: Communicator,
    rows: WeightedRows,
    n_clusters: int,
    seed: int,
    *,
    on_progress: Callable[[int], None],
) -> NDArray[np.int64]:
    """Return the global numbers of the rows that become centroids; `on_progress` receives their number so far."""
    pivot_count = max(1, n_clusters // CELL_CENTROIDS)
    pivots = take(comm, rows, lowest(comm, rows, race(rows.draw(seed, PIVOT_STREAM), rows.row_weights), pivot_count))
    labels, distances = np.empty(len(rows), np.int32), np.empty(len(rows))
    kernels.assign(rows.points, pivots, labels, distances, threads=comm.threads)
    sampled, row_weights = _sample(comm, rows, distances, SAMPLE_ROWS * n_clusters, seed)
    cells = _dealt(comm, rows, sampled, row_weights, labels[sampled], pivot_count)
    numbers = _grown(comm, cells, n_clusters, seed, on_progress=on_progress)
    return np.concatenate([numbers, _rest(comm, rows, numbers, n_clusters - len(numbers), seed)])


@dataclass(frozen=True)
class _Cells:
    """The cells of this worker.

    Parameters
    ----------
    first
        Number of the first cell.
    points, row_weights, numbers : (n, d), (n,) float64, (n,) int64
        Rows of the cells with weights and global numbers, ordered by cell and then by global number.
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
    """Return the positions of about `count` sampled rows and their weights; all rows if not more exist.

    Half of the sampling probability follows the weight, half the squared distance to the pivot.
    """
    row_weights = rows.row_weights
    if rows.total <= count:
        places = np.flatnonzero(row_weights > 0)
        return places, row_weights[places]
    costs = row_weights * distances
    weight_sum, cost_sum = comm.allreduce((float(row_weights.sum()), float(costs.sum())))
    chances = count * (row_weights / weight_sum + (costs / cost_sum if cost_sum > 0 else row_weights / weight_sum)) / 2
    places = np.flatnonzero(rows.draw(seed, SAMPLE_STREAM) < chances)
    return places, row_weights[places] / np.minimum(chances[places], 1)


def _dealt(
    comm: Communicator,
    rows: WeightedRows,
    places: NDArray[np.int64],
    row_weights: NDArray[np.float64],
    labels: NDArray[np.int32],
    cell_count: int,
) -> _Cells:
    """Give every rank consecutive cells with about equal work."""
    sizes = comm.allreduce(np.bincount(labels, minlength=cell_count))
    # Each center of a cell is compared with all its rows, and larger cells have more centers.
    work = np.cumsum(np.square(sizes, dtype=np.float64))
    shares = work[-1] * np.arange(1, comm.world_size) / comm.world_size
    bounds = np.concatenate([[0], np.searchsorted(work, shares), [cell_count]])

    order = np.argsort(labels, kind="stable")
    cuts = np.searchsorted(labels[order], bounds)
    parts = (order[start:end] for start, end in pairwise(cuts))
    sent = [(labels[part], rows.numbers(places[part]), row_weights[part], rows.points[places[part]]) for part in parts]
    labels, numbers, row_weights, points = (np.concatenate(column) for column in zip(*comm.alltoall(sent), strict=True))
    order = np.lexsort((numbers, labels))
    mine = sizes[bounds[comm.rank] : bounds[comm.rank + 1]]
    return _Cells(int(bounds[comm.rank]), points[order], row_weights[order], numbers[order], np.cumsum(mine))


def _grown(
    comm: Communicator,
    cells: _Cells,
    count: int,
    seed: int,
    *,
    on_progress: Callable[[int], None],
) -> NDArray[np.int64]:
    """Return the global numbers of the first `count` centers by time over all cells; fewer if rows are not distinct.

    Cells get more centers from round to round, until no cell can have another center before the last needed one.
    """
    cell_count = len(cells.ends)
    streams = mixed(np.arange(cells.first, cells.first + cell_count) ^ np.int64(seed) << 32)
    lasts = np.zeros(cell_count)
    owners, chosen, times = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    # Number of trials per centroid as in scikit-learn.
    trial_count = 2 + int(np.log(count))
    limit, until, total = max(2, CELL_CENTROIDS // 8), np.inf, 0
    while comm.allreduce(bool((lasts < until).any()), op="or"):
        new = [(owners, chosen, times)]
        for begin in range(0, cell_count, -(-cell_count // BATCHES) or 1):
            stop = min(begin + -(-cell_count // BATCHES), cell_count)
            found = _batch(cells, begin, stop, new[0], lasts, streams, trial_count, limit, until, comm.threads)
            new.append(found)
            on_progress(min(count, total + comm.world_size * sum(len(each[0]) for each in new[1:])))
        owners, chosen, times = (np.concatenate(column) for column in zip(*new, strict=True))
        order = np.argsort(owners, kind="stable")
        owners, chosen, times = owners[order], chosen[order], times[order]
        all_times = np.concatenate(comm.allgather(times))
        total = len(all_times)
        until = np.partition(all_times, count - 1)[count - 1] if total >= count else np.inf
        limit *= 2
    in_time = times <= until
    offers = comm.allgather((times[in_time], cells.numbers[chosen[in_time]]))
    all_times, numbers = (np.concatenate(column) for column in zip(*offers, strict=True))
    return numbers[np.lexsort((numbers, all_times))[:count]]


def _batch(
    cells: _Cells,
    begin: int,
    stop: int,
    centers: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
    lasts: NDArray[np.float64],
    streams: NDArray[np.uint64],
    trial_count: int,
    limit: int,
    until: float,
    threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Choose more centers of cells `begin .. stop`; return their cells, rows and times.

    Each cell's last time is written to `lasts`.
    """
    owners, chosen, _ = centers
    start = int(cells.ends[begin - 1]) if begin else 0
    rows = slice(start, int(cells.ends[stop - 1]))
    held = np.searchsorted(owners, np.arange(begin, stop + 1))
    counts, found, times = kernels.grow_cells(
        cells.points[rows],
        kernels.Cells(
            row_weights=cells.row_weights[rows],
            ends=cells.ends[begin:stop] - start,
            chosen=chosen[held[0] : held[-1]] - start,
            chosen_ends=held[1:] - held[0],
            times=lasts[begin:stop],
            streams=streams[begin:stop],
        ),
        trial_count=trial_count,
        center_count=limit,
        until=until,
        threads=threads,
    )
    ends = np.cumsum(counts)
    some = np.flatnonzero(counts)
    lasts[begin + some] = times[ends[some] - 1]
    # A cell with fewer centers than its limit has no further ones.
    lasts[begin:stop][np.diff(held) + counts < limit] = np.inf
    return np.repeat(np.arange(begin, stop), counts), found + start, times


def _rest(
    comm: Communicator, rows: WeightedRows, numbers: NDArray[np.int64], count: int, seed: int
) -> NDArray[np.int64]:
    """Return other rows, if too few distinct ones exist; rows of weight zero are taken last."""
    if count == 0:
        return numbers[:0]
    keys = np.minimum(race(rows.draw(seed, REST_STREAM), rows.row_weights), np.finfo(np.float64).max)
    _, mine = rows.places(numbers)
    keys[mine] = np.inf
    return lowest(comm, rows, keys, count)
