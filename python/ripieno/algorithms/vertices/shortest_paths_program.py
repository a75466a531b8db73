"""The worker program of weighted shortest paths: delta-stepping, with messages to the owners of vertices.

Each rank has the outgoing edges of its vertices. A step follows the edges of all open vertices within `delta` of the
least open distance, on all ranks at once. A vertex is open if its distance has decreased since its edges were followed.
A rank sends a distance to the owner of a vertex only if it is below all distances that it has sent there before.

Cost: a step takes one allreduce, and one exchange of the decreased distances. With a small `delta`, few edges are
followed more than once; with a large `delta`, there are few steps. Source: Meyer and Sanders, "Delta-stepping: a
parallelizable shortest path algorithm", Journal of Algorithms 49, 2003, section 2, without the separation of light and
heavy edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ripieno.algorithms.data_facts import graph_facts
from ripieno.algorithms.vertices.values import check_edge_weights
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.graph import Graph, PartitionedGraph
from ripieno.graph.edges import Redistribution
from ripieno.kernels.lookup import columns_of_ids, positions_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "shortest-paths"
NO_PARENT = -1


@dataclass(frozen=True)
class PathsPart:
    """One worker's part of the result.

    Parameters
    ----------
    ids : (h,) int64
        Vertices that this worker owns.
    distances : (h,) float64
        Their distances; infinite for unreachable vertices.
    parents : (h,) int64
        The vertices before them on a shortest path, or -1.
    step_count
        Number of steps.
    resumed_from
        Number of completed steps in the resumed state, or None.
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.float64]
    parents: NDArray[np.int64]
    step_count: int
    resumed_from: int | None


@dataclass(frozen=True)
class _Candidates:
    """Proposed distances of vertices, which may be below the known distances.

    Parameters
    ----------
    places : (k,) int64
        Positions of the vertices.
    distances : (k,) float64
    parents : (k,) int64
        The vertex before each on this path.
    """

    places: NDArray[np.int64]
    distances: NDArray[np.float64]
    parents: NDArray[np.int64]

    def select(self, where: NDArray[np.bool_]) -> _Candidates:
        """Return some of the candidates."""
        return _Candidates(self.places[where], self.distances[where], self.parents[where])

    def decrease(self, distances: NDArray[np.float64], parents: NDArray[np.int64]) -> _Candidates:
        """Decrease the distances, (n,), and update the parents, (n,). Return the accepted candidates.

        Among candidates of equal distance, the candidate with the smallest parent is accepted.
        """
        less = self.select(self.distances < distances[self.places])
        np.minimum.at(distances, less.places, less.distances)
        shortest = less.select(less.distances == distances[less.places])
        # NumPy keeps the last of several assignments to a place.
        order = np.argsort(-shortest.parents, kind="stable")
        parents[shortest.places[order]] = shortest.parents[order]
        return shortest.select(parents[shortest.places] == shortest.parents)


def fit(
    comm: Communicator, graph: Graph, source: int, delta: float | None, checkpoint_options: CheckpointOptions
) -> PathsPart:
    """Find the distances from `source`, or resume from saved state. By default `delta` is about the mean weight.

    Raises
    ------
    InputError
        On every rank: invalid input (see `ripieno.graph.Graph.partition`), a negative weight, or the graph does not
        have the vertex `source`.
    """
    parts = graph.partition(comm)
    _, columns, weights = parts.matrix[2].entries()
    with agreement(comm):
        if weights is not None:
            check_edge_weights(parts.matrix[1][columns], weights, "ShortestPaths")
    vertices = parts.vertices
    distances = np.where(vertices == source, 0.0, np.inf)
    parents = np.full(len(vertices), NO_PARENT)
    is_open = vertices == source
    if not comm.allreduce(bool(is_open.any()), op="or"):
        raise InputError(f"source={source}: the graph has no such vertex")
    delta = _default_delta(comm, weights, len(columns)) if delta is None else delta
    out_edges = _OutEdges(comm, parts)
    with IterationCheckpoint(
        comm, NAME, checkpoint_options, shared=False, data=lambda: graph_facts(comm, parts)
    ) as checkpoint:
        saved, steps = checkpoint.load(), checkpoint.done
        if saved:
            distances, parents, is_open = columns_of_ids(vertices, saved)
        resumed_from = steps or None
        while True:
            places = np.flatnonzero(is_open)
            nearest = comm.allreduce(float(distances[places].min(initial=np.inf)), op="min")
            if nearest == np.inf:
                return PathsPart(vertices, distances, parents, steps, resumed_from)
            places = places[distances[places] <= nearest + delta]
            is_open[places] = False
            decreased = out_edges.follow(places, distances).decrease(distances, parents)
            is_open[decreased.places] = True
            steps += 1
            if checkpoint.is_due(steps):
                checkpoint.save(steps, (vertices, distances, parents, is_open))


def _default_delta(comm: Communicator, weights: NDArray[np.float64] | None, edge_count: int) -> float:
    """Return about the mean weight: a power of two, so that the order of summation does not matter."""
    if not comm.allreduce(weights is not None, op="or"):
        return 1.0
    total, count = comm.allreduce((0.0 if weights is None else float(weights.sum()), edge_count))
    return float(2.0 ** np.round(np.log2(total / count))) if total else 1.0


class _OutEdges:
    """The outgoing edges of this rank's vertices, and the places of their targets at their owners."""

    def __init__(self, comm: Communicator, graph: PartitionedGraph) -> None:
        self._comm, self._vertices = comm, graph.vertices
        targets, sources, matrix = graph.matrix
        offsets, columns, weights = matrix.entries()
        begins: NDArray[np.int64] = offsets.astype(np.int64)
        # SciPy orders the edges by source with a counting sort.
        rows = csr_array((np.arange(len(columns)), columns, begins), shape=(len(targets), len(sources))).tocsc()
        self._targets = np.repeat(np.arange(len(targets)), np.diff(begins))[rows.data]
        self._weights = np.ones(len(columns)) if weights is None else weights[rows.data]
        # The edges of each vertex.
        self._begins, self._lengths = (np.zeros(len(graph.vertices), np.int64) for _ in range(2))
        places = positions_of(sources, graph.vertices)
        self._begins[places], self._lengths[places] = rows.indptr[:-1], np.diff(rows.indptr)
        self._owners = graph.owner_of(targets)
        send = Redistribution(comm, self._owners)
        self._places = send.back(positions_of(send(targets), graph.vertices).astype(np.int64))
        #: The least distance sent to each target, and the parent.
        self._distances = np.full(len(targets), np.inf)
        self._parents = np.full(len(targets), NO_PARENT)

    def follow(self, places: NDArray[np.int64], distances: NDArray[np.float64]) -> _Candidates:
        """Follow the edges of the vertices at `places`. Return the distances that all ranks found for own vertices."""
        begins, lengths = self._begins[places], self._lengths[places]
        ends = np.cumsum(lengths)
        entries = np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - ends + lengths, lengths)
        found = _Candidates(
            self._targets[entries],
            np.repeat(distances[places], lengths) + self._weights[entries],
            np.repeat(self._vertices[places], lengths),
        ).decrease(self._distances, self._parents)
        return self._sent(found)

    def _sent(self, candidates: _Candidates) -> _Candidates:
        """Send candidates for targets to the owners, and return the received ones."""
        columns = (self._places[candidates.places], candidates.distances.view(np.int64), candidates.parents)
        if self._comm.world_size == 1:
            return _Candidates(columns[0], candidates.distances, candidates.parents)
        rows = Redistribution(self._comm, self._owners[candidates.places])(np.column_stack(columns))
        return _Candidates(rows[:, 0], np.ascontiguousarray(rows[:, 1]).view(np.float64), rows[:, 2])
