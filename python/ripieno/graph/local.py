"""One rank's share of a graph: its edges sorted for products, its vertices, and which of them are at home here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._types import Op
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.graph.edges import Dealer, Edges
from ripieno.graph.graph import Graph
from ripieno.kernels.hashing import mixed
from ripieno.kernels.lookup import places_of
from ripieno.wire.operations import named

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class Vertices:
    """The vertices that a rank knows of.

    Parameters
    ----------
    ids : (k,) int64
        The sources of its edges, in the order of the columns, then all others, ascending.
    home : (k,) bool
        Whether it is this rank where a vertex counts: of all ranks that know of it just one, and one with edges out of
        it if there is such a rank.
    total : int
        Vertices of the graph.
    largest : int
        Their largest id.
    """

    ids: NDArray[np.int64]
    home: NDArray[np.bool_]
    total: int
    largest: int


@dataclass(frozen=True)
class LocalGraph:
    """One rank's edges as a sparse matrix: a row per target, a column per source.

    Parameters
    ----------
    rows : (r,) int64
        The distinct targets, those of most edges first: the out-indices of a sparse reduction of products.
    columns : (c,) int64
        The distinct sources, those of most edges first: its in-indices.
    matrix
        The entries, of the native module.
    vertices : Vertices
    edge_count : int
        Edges of all ranks, after duplicates.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    matrix: _native.Matrix
    vertices: Vertices
    edge_count: int

    def product(
        self, x: NDArray[Any], op: Op = "sum", *, out: NDArray[Any] | None = None, threads: int = 1
    ) -> NDArray[Any]:
        """For each row, the values of its columns put together.

        Parameters
        ----------
        x : (c,) or (c, width), C-contiguous; float32, float64, int32, int64 or uint64
        op : {"sum", "min", "max", "or"}
            "or" works on the bits of integers. A sum takes the weights of the edges; where there are any, `x` is of
            floats.
        out : (r,) or (r, width), of the type of `x`, optional
        threads
            Threads to compute with; they do not change the result.

        Returns
        -------
        ndarray
            `out`, or a new array like it.
        """
        if out is None:
            out = np.empty((len(self.rows), *x.shape[1:]), x.dtype)
        self.matrix.product(x, out, named(op), threads)
        return out


def load(comm: Communicator, graph: Graph, *, both_ways: bool | None = None, loops: bool = True) -> LocalGraph:
    """Read this rank's share, deal the edges over the ranks at random, and sort those that come.

    Parameters
    ----------
    graph : Graph
        The same on every rank.
    both_ways : bool, optional
        Whether each edge leads both ways; by default where the graph is not directed.
    loops
        Whether edges from a vertex to itself count.

    Raises
    ------
    InputError
        On every rank, with the same message: a line or row is no edge, there are none at all, or the two directions of
        edges without a direction weigh differently.
    """
    both_ways = not graph.directed if both_ways is None else both_ways
    with agreement(comm):
        edges = graph.read_share(comm.rank, comm.world_size)
    edges = edges.dealt(comm, directed=not both_ways)
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
        raise InputError(f"{', '.join(graph.names) or 'the graph'}: neither an edge nor a vertex")
    return LocalGraph(rows, columns, matrix, _settled(comm, rows, columns, edges), edge_count)


def _settled(comm: Communicator, rows: NDArray[np.int64], columns: NDArray[np.int64], edges: Edges) -> Vertices:
    """Find each vertex a home: its registrar, a rank by hash, hears who knows of it and chooses one of them."""
    named = np.concatenate([rows, edges.lone])
    others = np.sort(named[places_of(named, columns) < 0])
    others = others[np.diff(others, prepend=-1) != 0]
    ids = np.concatenate([columns, others])
    largest = comm.allreduce(int(ids.max(initial=-1)), op="max")
    if comm.world_size == 1:
        return Vertices(ids, np.ones(len(ids), np.bool_), len(ids), largest)
    send = Dealer(comm, mixed(ids) % np.uint64(comm.world_size))
    # Ids have 62 bits: there is room to say whether a rank has no edges out of a vertex.
    is_other = np.arange(len(ids)) >= len(columns)
    claims = send(2 * ids + is_other)
    claimants = np.repeat(np.arange(comm.world_size), send.out_counts)
    # By vertex, then those with edges out first, then at random.
    order = np.lexsort((mixed((claims >> 1) + mixed(claimants).view(np.int64)), claims))
    known = claims[order] >> 1
    chosen = np.empty(len(claims), np.bool_)
    chosen[order] = np.diff(known, prepend=-1) != 0
    total = comm.allreduce(int(np.count_nonzero(chosen)))
    return Vertices(ids, send.back(chosen), total, largest)
