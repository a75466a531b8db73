"""Programs of the seeding tests. Workers import this module without the imports of the tests."""

from __future__ import annotations

import numpy as np
from ripieno.algorithms.kmeans import seeding
from ripieno.algorithms.kmeans.rows import load, lowest
from ripieno.input.matrix import RowsInMemory


def first_centroids(comm, points, weights, init, n_clusters, seed):
    rows = load(comm, RowsInMemory(points), weights)
    return seeding.seed_centroids(
        comm, rows, init=init, n_clusters=n_clusters, seed=seed, on_progress=lambda chosen: None
    )


def lowest_of(comm, keys, count):
    rows = load(comm, RowsInMemory(np.zeros((len(keys), 1))))
    return lowest(comm, rows, keys[rows.offset : rows.offset + len(rows)], count)
