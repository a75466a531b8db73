"""The worker program of connected components: repeated contraction to the neighbor of least priority.

Every vertex has a name, initially its own number. A worker merges names that its edges connect into groups. Each round
replaces each name by the least name, in a fixed random order, of its groups on all workers. The rounds end when every
group has one name. The random order removes a constant fraction of each component's names per round, so the
expected number of rounds is O(log n), independent of the path lengths. Groups reduce the number further.

Source: Kiveris et al., "Connected components in MapReduce and beyond", SoCC 2014, section 3 (hashing to the minimum);
Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, sections I.A.2 and III.C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ripieno.algorithms.data_facts import graph_facts
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.graph import Graph, LocalGraph, load
from ripieno.kernels.hashing import mixed
from ripieno.kernels.lookup import columns_of_ids

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "components"
# Shifts and factors of `mixed`, in reverse order.
_INVERSE_STEPS = ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1))


@dataclass(frozen=True)
class ComponentsPart:
    """One worker's part of the result.

    Parameters
    ----------
    ids, labels : (h,) int64
        Vertices that this worker owns, and the smallest vertex of each vertex's component.
    round_count
        Sparse reductions until all components were known.
    resumed_from
        Number of completed reductions in the resumed state, or None.
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    round_count: int
    resumed_from: int | None


def fit(comm: Communicator, graph: Graph, checkpoint_options: CheckpointOptions) -> ComponentsPart:
    """Find the components; resume from saved state if any exists.

    Raises
    ------
    InputError
        On every rank: invalid input, see `ripieno.graph.load`.
    """
    # Components ignore the direction of edges.
    local = load(comm, graph, both_ways=False)
    names = local.vertices.ids
    with IterationCheckpoint(
        comm, NAME, checkpoint_options, shared=False, data=lambda: graph_facts(comm, local)
    ) as checkpoint:
        saved, done = checkpoint.load(), checkpoint.done
        if saved:
            (names,) = columns_of_ids(local.vertices.ids, saved)
        labels, round_count = _components(comm, local, names, done, checkpoint)
    is_owned = local.vertices.is_owned
    return ComponentsPart(local.vertices.ids[is_owned], labels[is_owned], round_count, done or None)


def _components(
    comm: Communicator, graph: LocalGraph, names: NDArray[np.int64], rounds: int, checkpoint: IterationCheckpoint
) -> tuple[NDArray[np.int64], int]:
    """Return the smallest vertex of each vertex's component, and the number of rounds.

    `names` are the vertices' names after `rounds` rounds. Equal names stay equal, so a checkpoint needs no groups.
    """
    is_owned = graph.vertices.is_owned
    vertices, size = graph.vertices.ids, graph.vertices.largest + 1
    group_count, groups = _groups(*graph.ends(), len(vertices))
    while True:
        present, places = np.unique(names, return_inverse=True)
        # Merge groups that share a name.
        group_count, merged = _groups(places, len(present) + groups, len(present) + group_count)
        groups, group_of = merged[len(present) + groups], merged[: len(present)]
        if comm.allreduce(len(present) - group_count) == 0:
            break
        lowest = np.full(group_count, np.iinfo(np.uint64).max)
        np.minimum.at(lowest, group_of, mixed(present))
        names = _inverse_mixed(comm.sparse_reduce(present, lowest[group_of], present, op="min", size=size))[places]
        rounds += 1
        if checkpoint.is_due(rounds):
            checkpoint.save(rounds, (vertices[is_owned], names[is_owned]))
    smallest = np.full(len(present), size)
    np.minimum.at(smallest, places, vertices)
    labels = comm.sparse_reduce(present, smallest, present, op="min", size=size)[places]
    return labels, rounds


def _groups(first: NDArray[np.int64], second: NDArray[np.integer[Any]], count: int) -> tuple[int, NDArray[np.int32]]:
    """Return the component count and each node's component in a graph of `count` nodes and the edges."""
    graph = coo_matrix((np.ones(len(first), bool), (first, second)), shape=(count, count))
    return connected_components(graph, directed=False)


def _inverse_mixed(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the inverse of `mixed`."""
    for shift, factor in _INVERSE_STEPS:
        bits = (bits ^ (bits >> np.uint64(shift)) ^ (bits >> np.uint64(2 * shift))) * np.uint64(
            pow(factor, -1, 1 << 64)
        )
    return (bits - np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
