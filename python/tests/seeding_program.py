"""A program of the seeding tests, in a module of its own: workers import it without what the tests import."""

from __future__ import annotations

from ripieno.algorithms import seeding
from ripieno.algorithms.rows import load


def first_centroids(comm, points, weights, init, n_clusters, seed):
    rows = load(comm, points, weights)
    return seeding.seed_centroids(comm, rows, init=init, n_clusters=n_clusters, seed=seed, threads=1)
