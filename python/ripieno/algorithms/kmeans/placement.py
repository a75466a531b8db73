"""The decision whether to divide the centroids of K-means among the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ripieno.kernels as kernels
from ripieno import host
from ripieno.algorithms.kmeans.rows import WeightedRows

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: With "auto", each worker holds all centroids if they need at most this share of its available memory.
MAX_MEMORY_SHARE = 0.5


@dataclass(frozen=True)
class CentroidPlacement:
    """The placement of the centroids, the memory for all of them on one worker, and the available memory."""

    divided: bool
    whole_bytes: int
    free_bytes: int


def choose_placement(
    comm: Communicator, rows: WeightedRows, n_clusters: int, *, centroids: str, is_near: bool, saves: bool
) -> CentroidPlacement:
    """Return the placement of the centroids, equal on all ranks."""
    columns, itemsize = rows.points.shape[1], kernels.centroid_dtype(rows.points.dtype).itemsize
    # The centroids, their copies for a checkpoint and in group order, this rank's sums, and the total sums.
    whole_bytes = n_clusters * columns * (itemsize * (1 + saves + 2 * is_near) + 16)
    free_bytes = host.available_bytes() // comm.nodes.count(comm.nodes[comm.rank])
    exceeds_memory = comm.allreduce(whole_bytes > MAX_MEMORY_SHARE * free_bytes, op="or")
    return CentroidPlacement(
        centroids == "divided" or (centroids == "auto" and bool(exceeds_memory)), whole_bytes, free_bytes
    )
