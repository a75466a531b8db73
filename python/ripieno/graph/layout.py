"""Provide `VertexLayout`: the vertices and edges of a graph on a rank, and their owners."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno import log
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.graph.edges import Edges, Redistribution, matrix_edges
from ripieno.graph.owners import VertexOwners, VertexPartitioner
from ripieno.kernels.lookup import positions_of
from ripieno.keyed.groups import offsets_of
from ripieno.wire.operations import description_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

End = Literal["source", "target"]


class VertexLayout:
    """The vertices that this rank of `comm` owns, and their edges.

    Attributes
    ----------
    comm : Communicator
    vertices : (n,) int64
        The vertices that this rank owns, ascending.
    out_degrees, in_degrees : (n,) int64
        Numbers of edges that begin and end at each vertex.
    vertex_count, edge_count, largest : int
        Totals of all ranks: vertices, edges, the largest id.
    by : {"source", "target"}
        The end of an edge that determines its location: the edge lies with the owner of this end.
    weighted : bool
    matrix : (rows, columns, native matrix)
        The edges as in `ripieno.graph.LocalGraph`.
    """

    def __init__(
        self, comm: Communicator, edges: Edges, *, partitioner: VertexPartitioner, by: End, once: bool
    ) -> None:
        if by not in ("source", "target"):
            raise InputError(f"by={by!r}: expected 'source' or 'target'")
        self.comm, self.by = comm, by
        ids = (edges.sources, edges.targets, edges.lone)
        self.largest: int = comm.allreduce(max(int(each.max(initial=-1)) for each in ids), op="max")
        with agreement(
            comm,
            f"a graph, partitioner={description_of(partitioner) if callable(partitioner) else partitioner}, by={by}",
        ):
            self._owners = VertexOwners(partitioner, comm.world_size, self.largest)
            ranks = self._owners(edges.sources if by == "source" else edges.targets)
        edges = edges.sent(comm, ranks)
        self.weighted = edges.weights is not None
        with agreement(comm):
            self.matrix = _native.local_graph(edges.sources, edges.targets, edges.weights, once, comm.threads)
        self._announce_vertices(edges.lone)
        self.vertex_count, self.edge_count = comm.allreduce((len(self.vertices), self.matrix[2].entry_count))
        if not self.vertex_count:
            raise InputError("the graph: no edges and no vertices")

    def _announce_vertices(self, lone: NDArray[np.int64]) -> None:
        """Announce the far ends of edges, and vertices without edges, to their owners."""
        rows, columns, matrix = self.matrix
        offsets, sources, _ = matrix.entries()
        ends = [(columns, np.bincount(sources, minlength=len(columns))), (rows, _lengths(offsets))]
        (near, near_degrees), (far, far_degrees) = ends if self.by == "source" else ends[::-1]
        with agreement(self.comm):
            ranks = self._owners(np.concatenate([far, lone]))
        send = Redistribution(self.comm, ranks)
        named = send(np.concatenate([far, lone]))
        degrees = send(np.concatenate([far_degrees, np.zeros(len(lone), np.int64)]))
        ids = np.sort(np.concatenate([near, named]))
        self.vertices = ids[np.diff(ids, prepend=-1) != 0]
        self.out_degrees, self.in_degrees = (np.zeros(len(self.vertices), np.int64) for _ in range(2))
        of_near, of_far = (self.out_degrees, self.in_degrees)[:: 1 if self.by == "source" else -1]
        of_near[positions_of(near, self.vertices)] = near_degrees
        np.add.at(of_far, positions_of(named, self.vertices), degrees)

    @cached_property
    def edges(self) -> Edges:
        """The edges on this rank, by the end that this rank owns, then by the other end. Computed on first use."""
        return self._some_edges().sorted(self.by)

    def _some_edges(self) -> Edges:
        """Return the edges on this rank, in the order of the matrix."""
        return matrix_edges(*self.matrix)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The first index in `edges` of each vertex, and the end of the last; (n + 1,) int64."""
        degrees = self.out_degrees if self.by == "source" else self.in_degrees
        return offsets_of(degrees)

    def owner_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the owner of each id, existing or not, without communication."""
        return self._owners(np.asarray(ids, np.int64))

    def home_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return `owner_of(ids)`. Deprecated: use `owner_of`."""
        log.warn("home_of is deprecated, use owner_of", DeprecationWarning)
        return self.owner_of(ids)


def _lengths(offsets: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the number of entries between successive offsets."""
    begins: NDArray[np.int64] = offsets.astype(np.int64)
    return np.diff(begins)
