"""The worker program of local clustering coefficients: every triangle is found once, by its vertex of least degree.

An edge leads from its end of smaller degree to the other one, so that no vertex has many outgoing edges. The rank that
owns u has all edges u→v. It finds the triangles u→v→w, u→w in the lists of all v. Ranks exchange these lists in blocks,
so that each has only one block of foreign lists at a time.

Cost: the sum over all edges u→v of the list of v, at most m^1.5 steps for m edges; each rank receives all edges once.
Source: Latapy, "Main-memory triangle computations for very large (sparse (power-law)) graphs", Theoretical Computer
Science 407, 2008, section 3. Iosup et al., "The LDBC Graphalytics benchmark", arXiv 2011.15028, section 2.3.2, define
the coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.algorithms.data_facts import graph_facts
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.graph import Edges, Graph, LocalGraph, load
from ripieno.kernels.hashing import mixed
from ripieno.kernels.lookup import positions_of
from ripieno.keyed.groups import offsets_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

NAME = "clustering"
#: Edges of a block of lists, on all ranks.
BLOCK_EDGES = 1 << 22


@dataclass(frozen=True)
class ClusteringPart:
    """One worker's part of the result.

    Parameters
    ----------
    ids : (h,) int64
        Vertices that this worker owns.
    degrees, triangles, links : (h,) int64
        Their neighbors, their triangles, and the edges between their neighbors.
    block_count
        Number of blocks.
    resumed_from
        Number of completed blocks in the resumed state, or None.
    """

    ids: NDArray[np.int64]
    degrees: NDArray[np.int64]
    triangles: NDArray[np.int64]
    links: NDArray[np.int64]
    block_count: int
    resumed_from: int | None


def fit(comm: Communicator, graph: Graph, block_edges: int, checkpoint_options: CheckpointOptions) -> ClusteringPart:
    """Count the triangles and links of each vertex; resume from saved state if any exists.

    Ranks exchange blocks of about `block_edges` edges.

    Raises
    ------
    InputError
        On every rank: invalid input, see `ripieno.graph.load`.
    """
    local = load(comm, graph, loops=False, pairs=True)
    is_owned, size = local.vertices.is_owned, local.vertices.largest + 1
    ids = local.vertices.ids[is_owned]
    edges, degrees = _oriented(comm, local)
    block_count = 1 + comm.allreduce(len(edges)) // block_edges
    edges = edges.sent(comm, mixed(edges.sources) % np.uint64(comm.world_size))
    lists = _Lists.of(edges, _distinct(np.concatenate([edges.sources, edges.targets])))
    # Triangles and links, by vertex.
    found = np.zeros((len(lists.ids), 2), np.int64)
    with IterationCheckpoint(
        comm, NAME, checkpoint_options, shared=False, data=lambda: {"blocks": block_count} | graph_facts(comm, local)
    ) as checkpoint:
        saved, done = checkpoint.load(), checkpoint.done
        earlier = np.zeros((len(ids), 2), np.int64)
        if saved:
            saved_ids, saved_rows = (np.concatenate(each) for each in zip(*saved, strict=True))
            earlier = saved_rows[positions_of(ids, saved_ids)]

        def totals() -> NDArray[np.int64]:
            return earlier + comm.sparse_reduce(lists.ids, found, ids, size=size, missing="zero")

        blocks = mixed(mixed(lists.ids[lists.sources]).view(np.int64)) % np.uint64(block_count)
        for block in range(done, block_count):
            others = lists.part(blocks == block)
            if comm.world_size > 1:
                others = _Lists.of(_gathered(comm, others.edges()), lists.ids)
            found += lists.triangles_with(others, comm.threads)
            if checkpoint.is_due(block + 1):
                checkpoint.save(block + 1, (ids, totals()))
        triangles, links = totals().T
    return ClusteringPart(ids, degrees[is_owned], triangles, links, block_count, done or None)


def _oriented(comm: Communicator, graph: LocalGraph) -> tuple[Edges, NDArray[np.int64]]:
    """Return an edge for each pair of neighbors on this rank, and the degree of each vertex of `graph.vertices`.

    The edge leads to the vertex of larger degree, or to the larger one; its weight is the number of directions.
    """
    ids = graph.vertices.ids
    sources, targets = graph.ends()
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    directed = _distinct(2 * (low * len(ids) + high) + (sources > targets)) >> 1
    firsts = np.flatnonzero(np.diff(directed, prepend=-1))
    directions = np.diff(np.append(firsts, len(directed)))
    low, high = np.divmod(directed[firsts], max(len(ids), 1))
    degrees = np.bincount(low, minlength=len(ids)) + np.bincount(high, minlength=len(ids))
    degrees = comm.sparse_reduce(ids, degrees, ids, size=graph.vertices.largest + 1)
    is_low_first = (degrees[low] < degrees[high]) | ((degrees[low] == degrees[high]) & (ids[low] < ids[high]))
    first, second = np.where(is_low_first, (low, high), (high, low))
    return Edges(ids[first], ids[second], directions.astype(np.float64)), degrees


def _distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct numbers, all at least 0, ascending. The sort is faster than the hash table of `np.unique`."""
    numbers = np.sort(numbers)
    distinct: NDArray[np.int64] = numbers[np.diff(numbers, prepend=-1) != 0]
    return distinct


def _gathered(comm: Communicator, edges: Edges) -> Edges:
    """Return the edges of all ranks."""
    assert edges.weights is not None, "edges have numbers of directions"
    counts = comm.allgather(len(edges))
    columns = (edges.sources, edges.targets, edges.weights)
    return Edges(*(comm.allgather(column, counts=counts) for column in columns))  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Lists:
    """Lists of the targets of each source, ascending, with vertices as positions in `ids`.

    Parameters
    ----------
    ids : (n,) int64
        Vertices, ascending.
    sources, targets, directions : (m,) int64
        The edges, by source, then by target, and the number of directions of each.
    offsets : (n + 1,) int64
        The list of each vertex.
    """

    ids: NDArray[np.int64]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    directions: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, edges: Edges, ids: NDArray[np.int64]) -> _Lists:
        """Create the lists of edges between vertices of `ids`; other edges are left out."""
        sources, targets = (positions_of(each, ids).astype(np.int64) for each in (edges.sources, edges.targets))
        order = np.argsort(sources * len(ids) + targets)
        order = order[(sources[order] >= 0) & (targets[order] >= 0)]
        assert edges.weights is not None, "edges have numbers of directions"
        sources, targets = sources[order], targets[order]
        offsets = offsets_of(np.bincount(sources, minlength=len(ids)))
        return cls(ids, sources, targets, edges.weights[order].astype(np.int64), offsets)

    def part(self, where: NDArray[np.bool_]) -> _Lists:
        """Return the lists of some of the edges."""
        sources, targets, directions = (each[where] for each in (self.sources, self.targets, self.directions))
        offsets = offsets_of(np.bincount(sources, minlength=len(self.ids)))
        return _Lists(self.ids, sources, targets, directions, offsets)

    def edges(self) -> Edges:
        """Return the edges, by id."""
        return Edges(self.ids[self.sources], self.ids[self.targets], self.directions.astype(np.float64))

    def triangles_with(self, others: _Lists, threads: int) -> NDArray[np.int64]:
        """Return the triangles and links of each vertex, (n, 2), of u→v→w, u→w with v→w in `others`."""
        own, other = ((lists.offsets, lists.targets, lists.directions) for lists in (self, others))
        return _native.count_triangles(own, other, threads)
