"""Functions of map-reduce jobs shared by several tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CLUSTERS = 4


def points(rows: int = 600) -> NDArray[np.float64]:
    """Return four clusters in three dimensions."""
    random = np.random.default_rng(7)
    return random.normal(size=(rows, 3)) + 4 * random.integers(0, CLUSTERS, (rows, 1))


def assign(part, centroids):
    """Return a row (sum, count) of the nearest points for each centroid."""
    nearest = ((part[:, None] - centroids) ** 2).sum(-1).argmin(1)
    sums = np.zeros((len(centroids), part.shape[1] + 1))
    np.add.at(sums[:, :-1], nearest, part)
    sums[:, -1] = np.bincount(nearest, minlength=len(centroids))
    return np.arange(len(centroids)), sums


def recenter(keys, sums):
    """Return the means by centroid number."""
    return keys, sums[:, :-1] / sums[:, -1:]


def by_key(rows):
    """Return the values in the order of the keys."""
    return rows.values[np.argsort(rows.keys)]


def emit_ones(part, _):
    """Return a one for each element."""
    return part, np.ones(len(part), np.int64)


def kmeans(job, iterations=5, tasks=7):
    """Return the centroids after some iterations of a job that assigns and recenters."""
    data = points()
    centroids = job.resume(data[:CLUSTERS])
    job.cache(data, tasks=tasks)
    for _ in job.iterations(iterations):
        job.broadcast(centroids)
        centroids = job.step()
    return centroids
