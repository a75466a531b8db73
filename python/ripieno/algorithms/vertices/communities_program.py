"""The worker program of community detection: synchronous label propagation.

Each vertex begins with its own number as label. In an iteration each vertex takes the most frequent label of its
neighbors, or the smallest of several such labels. In a directed graph a neighbor counts once for each edge, in either
direction.

Source: Raghavan, Albert and Kumara, "Near linear time algorithm to detect community structures in large-scale
networks", Physical Review E 76, 2007; with the deterministic rule of Iosup et al., "The LDBC Graphalytics benchmark",
arXiv 2011.15028, section 2.3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.data_facts import graph_facts
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.graph import Edges, Graph, PartitionedGraph, most_frequent
from ripieno.graph.edges import matrix_edges
from ripieno.kernels.lookup import columns_of_ids

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "communities"


@dataclass(frozen=True)
class CommunitiesPart:
    """One worker's part of the result.

    Parameters
    ----------
    ids, labels : (h,) int64
        Vertices that this worker owns, and their labels.
    iteration_count
        Number of iterations.
    resumed_from
        Number of completed iterations in the resumed state, or None.
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    iteration_count: int
    resumed_from: int | None


def fit(comm: Communicator, graph: Graph, max_iter: int, checkpoint_options: CheckpointOptions) -> CommunitiesPart:
    """Propagate labels until none changes, at most `max_iter` times; resume from saved state if any exists.

    Raises
    ------
    InputError
        On every rank: invalid input, see `ripieno.graph.Graph.partition`.
    """
    parts = _with_neighbors(comm, graph)
    vertices = labels = parts.vertices
    with IterationCheckpoint(
        comm, NAME, checkpoint_options, shared=False, data=lambda: graph_facts(comm, parts)
    ) as checkpoint:
        saved, done = checkpoint.load(), checkpoint.done
        has_changed = True
        if saved:
            checkpoint.check_iteration_limit(done, max_iter, f"max_iter={max_iter}")
            has_changed = saved[0][0]
            (labels,) = columns_of_ids(vertices, [part for _, part in saved])
        resumed_from = done or None
        while has_changed and done < max_iter:
            received = parts.send_along_edges(labels, "concat")
            assert received.offsets is not None, "messages are separate"
            places, chosen = most_frequent(received.values, received.offsets)
            previous, labels = labels, labels.copy()
            labels[places] = chosen
            has_changed = comm.allreduce(not np.array_equal(labels, previous), op="or")
            done += 1
            if checkpoint.is_due(done):
                checkpoint.save(done, (bool(has_changed), (vertices, labels)))
    return CommunitiesPart(vertices, labels, done, resumed_from)


def _with_neighbors(comm: Communicator, graph: Graph) -> PartitionedGraph:
    """Return a graph with an edge to each vertex for each edge of the vertex, in either direction."""
    parts = graph.partition(comm, by="target")
    if not graph.directed:
        return parts
    edges = matrix_edges(*parts.matrix)
    sources, targets = np.concatenate([edges.sources, edges.targets]), np.concatenate([edges.targets, edges.sources])
    both = Edges(sources, targets, lone=parts.vertices)
    return PartitionedGraph(comm, both, partitioner="hash", by="target", once=False)
