"""Initial centroids of K-means on distributed rows: `random`, `k-means++` and `k-means||`.

A counter-based generator gives every row's random numbers from its global number. The rows with the lowest
`sampling_keys` are drawn. So no worker needs another worker's numbers, and any number of workers chooses the same rows,
except for the rounding of sums of distances.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.kmeans.rows import WeightedRows, lowest, sampling_keys, take
from ripieno.algorithms.kmeans.seeding_cells import seed_in_cells
from ripieno.input.shares import even_range

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Rounds and oversampling factor of k-means||; by section 5 of the paper, 5 and 2k suffice.
ROUND_COUNT = 5
OVERSAMPLING = 2

#: With more clusters, k-means|| runs in cells, because the time of k-means++ among its candidates grows quadratically
#: with their number.
CELL_SEEDING_MIN_CLUSTERS = 1000
#: Number of centroids between two events of k-means++.
EVENT_CENTROIDS = 500

PLUS_PLUS_STREAM = 1 << 32


def seed_centroids(
    comm: Communicator,
    rows: WeightedRows,
    *,
    init: str,
    n_clusters: int,
    seed: int,
    on_progress: Callable[[int], None],
) -> NDArray[Any]:
    """Return initial centroids by the method `init`: (k, d) in the centroids' type, equal on every rank.

    `on_progress` occasionally receives the approximate number of chosen centroids.
    """
    numbers = seed_rows(comm, rows, init=init, n_clusters=n_clusters, seed=seed, on_progress=on_progress)
    if numbers is not None:
        return take(comm, rows, numbers)
    if init == "k-means++":
        return plus_plus(comm, rows, n_clusters, seed, on_progress=on_progress)
    return scalable_plus_plus(comm, rows, n_clusters, seed, on_progress=on_progress)


def seed_rows(
    comm: Communicator,
    rows: WeightedRows,
    *,
    init: str,
    n_clusters: int,
    seed: int,
    on_progress: Callable[[int], None],
) -> NDArray[np.int64] | None:
    """Return the global numbers of the rows that `seed_centroids` would choose; None if it does not choose rows."""
    if init == "random":
        # Distinct rows, each with a probability proportional to its weight.
        return lowest(comm, rows, sampling_keys(rows.draw(seed, 0), rows.row_weights), n_clusters)
    if (
        init == "k-means||"
        and n_clusters > CELL_SEEDING_MIN_CLUSTERS
        and not isinstance(rows.points, kernels.SparsePoints)
    ):
        return seed_in_cells(comm, rows, n_clusters, seed, on_progress=on_progress)
    return None


def plus_plus(
    comm: Communicator,
    rows: WeightedRows,
    n_clusters: int,
    seed: int,
    *,
    on_progress: Callable[[int], None],
) -> NDArray[Any]:
    """Run greedy k-means++: each next centroid is the best of some rows drawn in proportion to their cost.

    Cost: `n_clusters` times one pass over the points and three small collectives.
    Source: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007, sections 2.2 and 7;
    the number of trials is scikit-learn's.
    """
    row_weights, trial_count = rows.row_weights, 2 + int(np.log(n_clusters))
    nearest = np.full(len(rows), np.inf)
    centroids = take(comm, rows, lowest(comm, rows, sampling_keys(rows.draw(seed, PLUS_PLUS_STREAM), row_weights), 1))
    kernels.update_min_distances(rows.points, centroids, nearest, threads=comm.threads)
    chosen = [centroids]
    for step in range(1, n_clusters):
        keys = sampling_keys(rows.draw(seed, PLUS_PLUS_STREAM + step), nearest * row_weights)
        trials = take(comm, rows, lowest(comm, rows, keys, trial_count))
        lowered = np.square(kernels.distances(rows.points, trials, threads=comm.threads), dtype=np.float64)
        np.minimum(lowered, nearest[:, None], out=lowered)
        best = np.argmin(comm.allreduce(row_weights @ lowered))
        nearest = lowered[:, best]
        chosen.append(trials[[best]])
        if (step + 1) % EVENT_CENTROIDS == 0:
            on_progress(step + 1)
    return np.concatenate(chosen)


def scalable_plus_plus(
    comm: Communicator,
    rows: WeightedRows,
    n_clusters: int,
    seed: int,
    *,
    on_progress: Callable[[int], None],
) -> NDArray[Any]:
    """Run k-means||: a few rounds draw many candidates each; weighted k-means++ then selects the centroids.

    The selection also divides the candidates among the workers.
    Cost: passes over the points worth 10 iterations, and two collectives per round.
    Source: Bahmani et al., "Scalable k-means++", PVLDB 5(7), 2012, algorithm 2.
    """
    row_weights = rows.row_weights
    nearest, nearest_index = np.full(len(rows), np.inf), np.zeros(len(rows), np.int32)
    new = take(comm, rows, lowest(comm, rows, sampling_keys(rows.draw(seed, 0), row_weights), 1))
    candidates = new
    kernels.update_min_distances(rows.points, new, nearest, nearest_index, threads=comm.threads)
    for round_number in range(1, ROUND_COUNT + 1):
        costs = nearest * row_weights
        total = comm.allreduce(float(costs.sum()))
        drawn = rows.draw(seed, round_number) * total < OVERSAMPLING * n_clusters * costs
        own = np.flatnonzero(drawn)
        gathered = comm.allgather((rows.numbers(own), rows.points[own].astype(candidates.dtype)))
        numbers, new = (np.concatenate(part) for part in zip(*gathered, strict=True))
        # Ranks that read splits may have non-consecutive rows.
        new = new[np.argsort(numbers)]
        kernels.update_min_distances(
            rows.points, new, nearest, nearest_index, first_index=len(candidates), threads=comm.threads
        )
        candidates = np.concatenate([candidates, new])
    if len(candidates) <= n_clusters:
        # With few distinct rows, k-means++ on all rows is cheap.
        return plus_plus(comm, rows, n_clusters, seed, on_progress=on_progress)
    # Without rows, bincount returns integers even for float weights.
    weights = comm.allreduce(np.bincount(nearest_index, row_weights, len(candidates)).astype(np.float64, copy=False))
    first, last = even_range(len(candidates), comm.rank, comm.world_size)
    share = WeightedRows(candidates[first:last], weights[first:last], first, len(candidates))
    return plus_plus(comm, share, n_clusters, seed, on_progress=on_progress)
