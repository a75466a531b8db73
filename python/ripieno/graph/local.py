"""Provide `LocalGraph`: one rank's share of a graph, with edges sorted for products, and its vertices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._types import Op
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.graph.edges import Edges, Redistribution, matrix_edges
from ripieno.graph.graph import Graph
from ripieno.kernels.hashing import mixed
from ripieno.kernels.lookup import positions_of
from ripieno.wire.operations import named

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class Vertices:
    """The vertices at the ends of a rank's edges, and its vertices without edges.

    Parameters
    ----------
    ids : (k,) int64
        The sources of its edges, in column order, then all others, ascending.
    is_owned : (k,) bool
        Whether this rank owns the vertex. Exactly one of the ranks with the vertex owns it. If any rank has out-edges
        of the vertex, its owner has some.
    total : int
        The number of vertices of the graph.
    largest : int
        The largest id.
    """

    ids: NDArray[np.int64]
    is_owned: NDArray[np.bool_]
    total: int
    largest: int


@dataclass(frozen=True)
class LocalGraph:
    """One rank's edges as a sparse matrix, with a row per target and a column per source.

    Parameters
    ----------
    rows : (r,) int64
        The distinct targets, by descending number of edges: the out-indices of a sparse reduction of products.
    columns : (c,) int64
        The distinct sources, by descending number of edges: its in-indices.
    matrix
        The entries, in the native module.
    vertices : Vertices
    edge_count : int
        Edges of all ranks, after the handling of duplicates.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    matrix: _native.EdgeMatrix
    vertices: Vertices
    edge_count: int

    @property
    def edges(self) -> Edges:
        """The edges of this rank, in the order of the matrix."""
        return matrix_edges(self.rows, self.columns, self.matrix)

    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return both ends of each edge of this rank, as positions in `vertices.ids`."""
        offsets, sources, _ = self.matrix.entries()
        rows = positions_of(self.rows, self.vertices.ids).astype(np.int64)
        begins: NDArray[np.int64] = offsets.astype(np.int64)
        return sources.astype(np.int64), np.repeat(rows, np.diff(begins))

    def product(
        self, x: NDArray[Any], op: Op = "sum", *, out: NDArray[Any] | None = None, threads: int = 1
    ) -> NDArray[Any]:
        """Combine the values of its columns for each row.

        Parameters
        ----------
        x : (c,) or (c, width), C-contiguous; float32, float64, int32, int64 or uint64
        op : {"sum", "min", "max", "or"}
            "or" applies to the bits of integers. A sum is weighted by the edges. If they have weights, `x` has floats.
        out : (r,) or (r, width), of the type of `x`, optional
        threads
            Number of threads. It does not change the result.

        Returns
        -------
        ndarray
            `out`, or a new array like it.
        """
        if out is None:
            out = np.empty((len(self.rows), *x.shape[1:]), x.dtype)
        self.matrix.product(x, out, named(op), threads)
        return out


def load(
    comm: Communicator, graph: Graph, *, both_ways: bool | None = None, loops: bool = True, pairs: bool = False
) -> LocalGraph:
    """Read this rank's share, distribute the edges over the ranks pseudo-randomly, and sort the received ones.

    Parameters
    ----------
    graph : Graph
        The same on every rank.
    both_ways : bool, optional
        Whether each edge leads both ways. The default is true for undirected graphs.
    loops
        Whether self-loops count.
    pairs
        Whether an edge and its reverse have to lie on one rank, as they do if edges lead both ways.

    Raises
    ------
    InputError
        On every rank, with the same message: a line or row is not an edge, there are no edges, or the two directions of
        an undirected edge have different weights.
    """
    both_ways = not graph.directed if both_ways is None else both_ways
    with agreement(comm):
        edges = graph.read_share(comm.rank, comm.world_size)
    edges = edges.redistributed(comm, directed=not (both_ways or pairs))
    if not loops:
        edges = edges.without_loops()
    if graph.weighted and not graph.directed:
        with agreement(comm):
            edges = edges.one_way()
    if both_ways:
        edges = edges.both_ways()
    with agreement(comm):
        once = graph.duplicates == "once"
        rows, columns, matrix = _native.local_graph(edges.sources, edges.targets, edges.weights, once, comm.threads)
    edge_count, announced = comm.allreduce((matrix.entry_count, len(edges.lone)))
    if edge_count + announced == 0:
        raise InputError(f"{', '.join(graph.names) or 'the graph'}: no edges and no vertices")
    return LocalGraph(rows, columns, matrix, _assign_owners(comm, rows, columns, edges), edge_count)


def _assign_owners(comm: Communicator, rows: NDArray[np.int64], columns: NDArray[np.int64], edges: Edges) -> Vertices:
    """Choose the owner of each vertex: a rank given by a hash collects the ranks with the vertex, and chooses one."""
    named = np.concatenate([rows, edges.lone])
    others = np.sort(named[positions_of(named, columns) < 0])
    others = others[np.diff(others, prepend=-1) != 0]
    ids = np.concatenate([columns, others])
    largest = comm.allreduce(int(ids.max(initial=-1)), op="max")
    if comm.world_size == 1:
        return Vertices(ids, np.ones(len(ids), np.bool_), len(ids), largest)
    send = Redistribution(comm, mixed(ids) % np.uint64(comm.world_size))
    # Ids have 62 bits. A spare bit marks ranks without out-edges of the vertex.
    is_other = np.arange(len(ids)) >= len(columns)
    claims = send(2 * ids + is_other)
    claimants = np.repeat(np.arange(comm.world_size), send.out_counts)
    # By vertex, then ranks with out-edges first, then pseudo-random.
    order = np.lexsort((mixed((claims >> 1) + mixed(claimants).view(np.int64)), claims))
    known = claims[order] >> 1
    chosen = np.empty(len(claims), np.bool_)
    chosen[order] = np.diff(known, prepend=-1) != 0
    total = comm.allreduce(int(np.count_nonzero(chosen)))
    return Vertices(ids, send.back(chosen), total, largest)
