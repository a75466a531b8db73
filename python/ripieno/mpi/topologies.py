"""Communicators with neighbors: grids and graphs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ripieno.errors import InputError
from ripieno.mpi.communicator import Intracomm
from ripieno.mpi.constants import CART, DIST_GRAPH, GRAPH, PROC_NULL, UNWEIGHTED, WEIGHTS_EMPTY
from ripieno.mpi.neighbors import Edge, MpiNeighborCalls


class Topocomm(MpiNeighborCalls, Intracomm):
    """A communicator with neighbors of each rank."""

    #: The arguments of the constructor: `RankGrid`, `Adjacency` or `EdgeLists`.
    _topology: Any

    def __new__(cls, comm: Any = None) -> Any:
        instance = super().__new__(cls, comm)
        if instance and instance.Get_topology() != comm.Get_topology():
            raise TypeError(f"{cls.__name__}: a {type(comm).__name__}: expected a communicator of this topology")
        instance._topology = getattr(comm, "_topology", None)
        return instance

    def Get_topology(self) -> int:
        """Return `CART`, `GRAPH` or `DIST_GRAPH`."""
        raise TypeError("Topocomm: expected Cartcomm, Graphcomm or Distgraphcomm, which are its kinds")

    def _like(self, part: Any) -> Any:
        return type(self)._with(part, self._topology)

    @classmethod
    def _with(cls, part: Any, topology: Any) -> Any:
        instance = cls._of(part)
        instance._topology = topology
        return instance

    @property
    def inoutedges(self) -> tuple[list[int], list[int]]:
        """The ranks that this rank receives from, and the ranks that it sends to."""
        return [edge.peer for edge in self._incoming()], [edge.peer for edge in self._leaving()]

    inedges = property(lambda self: self.inoutedges[0])
    outedges = property(lambda self: self.inoutedges[1])
    indegree = property(lambda self: len(self._incoming()))
    outdegree = property(lambda self: len(self._leaving()))
    degrees = property(lambda self: (self.indegree, self.outdegree))


class RankGrid(NamedTuple):
    """The shape of a grid of ranks in row-major order, and whether each axis is periodic."""

    dims: list[int]
    periods: list[bool]

    def coords(self, rank: int) -> list[int]:
        """Return the coordinates of a rank."""
        if not 0 <= rank < math.prod(self.dims):
            raise InputError(f"Get_coords: rank {rank}: expected 0 … {math.prod(self.dims) - 1}")
        found: list[int] = []
        for count in reversed(self.dims):
            rank, place = divmod(rank, count)
            found.insert(0, place)
        return found

    def rank(self, coords: Sequence[int]) -> int:
        """Return the rank at coordinates, which wrap around on periodic axes; `PROC_NULL` outside of the grid."""
        rank = 0
        for place, count, is_periodic in zip(coords, self.dims, self.periods, strict=True):
            if not is_periodic and not 0 <= place < count:
                return PROC_NULL
            rank = rank * count + place % count
        return rank

    def shifted(self, rank: int, axis: int, distance: int) -> int:
        """Return the rank at a distance along an axis, or `PROC_NULL`."""
        coords = self.coords(rank)
        coords[axis] += distance
        return self.rank(coords)


class Cartcomm(Topocomm):
    """A grid of ranks."""

    _topology: RankGrid

    def Get_topology(self) -> int:
        """Return `CART`."""
        return CART

    def Get_dim(self) -> int:
        """Return the number of axes."""
        return len(self._topology.dims)

    dim = ndim = property(Get_dim)

    def Get_topo(self) -> tuple[list[int], list[bool], list[int]]:
        """Return the number of ranks along each axis, whether it is periodic, and this rank's coordinates."""
        return self.dims, self.periods, self.coords

    topo = property(Get_topo)
    dims = property(lambda self: list(self._topology.dims))
    periods = property(lambda self: list(self._topology.periods))
    coords = property(lambda self: self._topology.coords(self.rank))

    def Get_coords(self, rank: int) -> list[int]:
        """Return the coordinates of a rank."""
        return self._topology.coords(rank)

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        """Return the rank at coordinates, which wrap around on periodic axes."""
        rank = self._topology.rank(coords) if len(coords) == self.dim else PROC_NULL
        if rank == PROC_NULL:
            raise InputError(f"Get_cart_rank: coords={list(coords)}: expected some in a grid of {self.dims}")
        return rank

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """Return the ranks to receive from and to send to, to move data `disp` places along an axis."""
        if not 0 <= direction < self.dim:
            raise InputError(f"Shift: direction={direction}: expected 0 … {self.dim - 1}")
        grid = self._topology
        return grid.shifted(self.rank, direction, -disp), grid.shifted(self.rank, direction, disp)

    def Sub(self, remain_dims: Sequence[bool]) -> Cartcomm:
        """Return the grid of the ranks that differ from this rank only along the axes that remain."""
        if len(remain_dims) != self.dim:
            raise InputError(f"Sub: {len(remain_dims)} axes: expected {self.dim}")
        color, key = 0, 0
        for place, count, remains in zip(self.coords, self.dims, remain_dims, strict=True):
            color, key = (color, key * count + place) if remains else (color * count + place, key)
        part = self._comm.split(color, key)
        axes = [axis for axis, remains in enumerate(remain_dims) if remains]
        grid = RankGrid([self.dims[axis] for axis in axes], [self.periods[axis] for axis in axes])
        instance: Cartcomm = Cartcomm._with(part, grid)
        return instance

    def _leaving(self) -> list[Edge]:
        # A value sent in one direction arrives in the receiver's place of the opposite direction.
        return [edge._replace(number=edge.number ^ 1) for edge in self._incoming()]

    def _incoming(self) -> list[Edge]:
        peers = [self._topology.shifted(self.rank, axis, step) for axis in range(self.dim) for step in (-1, 1)]
        return [Edge(peer, number) for number, peer in enumerate(peers)]


class Adjacency(NamedTuple):
    """The neighbors of every rank; rank ``i`` has ``edges[ends[i - 1]:ends[i]]``."""

    ends: list[int]
    edges: list[int]

    def neighbors(self, rank: int) -> list[int]:
        """Return the neighbors of a rank."""
        if not 0 <= rank < len(self.ends):
            raise InputError(f"Get_neighbors: rank {rank}: expected 0 … {len(self.ends) - 1}")
        return self.edges[self.ends[rank - 1] if rank else 0 : self.ends[rank]]


class Graphcomm(Topocomm):
    """A graph of ranks. Every rank stores the whole graph."""

    _topology: Adjacency

    def Get_topology(self) -> int:
        """Return `GRAPH`."""
        return GRAPH

    def Get_dims(self) -> tuple[int, int]:
        """Return the numbers of nodes and edges."""
        return len(self._topology.ends), len(self._topology.edges)

    def Get_topo(self) -> tuple[list[int], list[int]]:
        """Return the index and the edges of the graph."""
        return list(self._topology.ends), list(self._topology.edges)

    def Get_neighbors(self, rank: int) -> list[int]:
        """Return the neighbors of a rank."""
        return self._topology.neighbors(rank)

    def Get_neighbors_count(self, rank: int) -> int:
        """Return the number of neighbors of a rank."""
        return len(self._topology.neighbors(rank))

    dims, topo = property(Get_dims), property(Get_topo)
    nnodes = property(lambda self: len(self._topology.ends))
    nedges = property(lambda self: len(self._topology.edges))
    index = property(lambda self: list(self._topology.ends))
    edges = property(lambda self: list(self._topology.edges))
    neighbors = property(lambda self: self._topology.neighbors(self.rank))
    nneighbors = property(lambda self: len(self.neighbors))

    def _leaving(self) -> list[Edge]:
        return _numbered(self._topology.neighbors(self.rank))

    _incoming = _leaving


class EdgeLists(NamedTuple):
    """The edges of one rank."""

    sources: list[int]
    destinations: list[int]
    weights: tuple[list[int], list[int]] | None


class Distgraphcomm(Topocomm):
    """A graph of ranks. Each rank knows its own edges."""

    _topology: EdgeLists

    def Get_topology(self) -> int:
        """Return `DIST_GRAPH`."""
        return DIST_GRAPH

    def Get_dist_neighbors_count(self) -> tuple[int, int, bool]:
        """Return the numbers of ranks to receive from and to send to, and whether the edges have weights."""
        sources, destinations, weights = self._topology
        return len(sources), len(destinations), weights is not None

    def Get_dist_neighbors(self) -> tuple[list[int], list[int], tuple[list[int], list[int]] | None]:
        """Return the ranks to receive from and to send to, and the weights of these edges."""
        return tuple(self._topology)  # type: ignore[return-value]

    def _incoming(self) -> list[Edge]:
        return _numbered(self._topology.sources)

    def _leaving(self) -> list[Edge]:
        return _numbered(self._topology.destinations)


def cart(comm: Intracomm, dims: Sequence[int], periods: Sequence[bool] | bool | None) -> Any:
    """Return a grid of the first ranks; COMM_NULL for the others."""
    shape = [int(count) for count in dims]
    wraps = [bool(periods)] * len(shape) if periods is None or isinstance(periods, bool | int) else list(periods)
    if len(wraps) != len(shape):
        raise InputError(f"Create_cart: {len(shape)} dims and {len(wraps)} periods: expected equal numbers")
    if any(count < 1 for count in shape) or math.prod(shape) > comm.size:
        raise InputError(f"Create_cart: dims={shape}: expected numbers whose product is at most {comm.size}")
    grid = RankGrid(shape, [bool(each) for each in wraps])
    return _created(Cartcomm, comm, math.prod(shape), grid)


def graph(comm: Intracomm, index: Sequence[int], edges: Sequence[int]) -> Any:
    """Return a graph of the first ranks; COMM_NULL for the others. An index may begin with 0."""
    ends = list(index)[len(index) - node_count(index) :]
    if len(ends) > comm.size or (ends and ends[-1] != len(edges)):
        raise InputError(
            f"Create_graph: index={list(index)}: expected ends of {len(edges)} edges, on {comm.size} ranks"
        )
    return _created(Graphcomm, comm, len(ends), Adjacency(ends, list(edges)))


def node_count(index: Sequence[int]) -> int:
    """Return the number of nodes of a graph. Its index may begin with 0."""
    return len(index) - (len(index) > 0 and index[0] == 0 and len(index) > 1)


def dist_graph_adjacent(
    comm: Intracomm,
    sources: Sequence[int] | None,
    destinations: Sequence[int] | None,
    sourceweights: Sequence[int] | None,
    destweights: Sequence[int] | None,
) -> Any:
    """Return a graph from the edges that both of their ends name."""
    ends = list(sources or []), list(destinations or [])
    given = [_weights(weights, len(each)) for weights, each in zip((sourceweights, destweights), ends, strict=True)]
    weights = None if given == [None, None] else (given[0] or [], given[1] or [])
    return _created(Distgraphcomm, comm, comm.size, EdgeLists(*ends, weights))


def dist_graph(
    comm: Intracomm,
    sources: Sequence[int],
    degrees: Sequence[int],
    destinations: Sequence[int],
    weights: Sequence[int] | None,
) -> Any:
    """Return a graph of edges that any ranks name."""
    starts = [source for source, degree in zip(sources, degrees, strict=True) for _ in range(degree)]
    if len(starts) != len(destinations):
        raise InputError(f"Create_dist_graph: {len(destinations)} destinations: expected {len(starts)}, as the degrees")
    own = _weights(weights, len(starts))
    named = list(zip(starts, destinations, own or [1] * len(starts), strict=True))
    shared = comm.allgather((named, own is not None))
    edges = [edge for part, _ in shared for edge in part]
    incoming = [(source, weight) for source, target, weight in edges if target == comm.rank]
    leaving = [(target, weight) for source, target, weight in edges if source == comm.rank]
    values = ([weight for _, weight in incoming], [weight for _, weight in leaving])
    is_weighted = any(flag for _, flag in shared)
    topology = EdgeLists([rank for rank, _ in incoming], [rank for rank, _ in leaving], values if is_weighted else None)
    return _created(Distgraphcomm, comm, comm.size, topology)


def Compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
    """Return a shape for a grid of `nnodes` ranks: zeros in `dims`, or `dims` axes, become balanced numbers.

    Balanced numbers minimize the largest number, then the second largest, and so on.
    """
    shape = [0] * dims if isinstance(dims, int) else list(dims)
    fixed = math.prod(count for count in shape if count)
    if nnodes < 1 or any(count < 0 for count in shape) or nnodes % fixed:
        raise InputError(f"Compute_dims: nnodes={nnodes}, dims={shape}: expected a multiple of {fixed} ranks")
    free = shape.count(0)
    if not free:
        if fixed != nnodes:
            raise InputError(f"Compute_dims: dims={shape}: expected numbers whose product is {nnodes}")
        return shape
    balanced = iter(min(_factorizations(nnodes // fixed, free, nnodes)))
    return [count or next(balanced) for count in shape]


def _factorizations(number: int, axes: int, largest: int) -> list[list[int]]:
    """Return all lists of `axes` descending factors up to `largest` with the product `number`."""
    if axes == 1:
        return [[number]] if number <= largest else []
    divisors = [each for each in range(1, min(number, largest) + 1) if number % each == 0]
    return [[first, *rest] for first in divisors for rest in _factorizations(number // first, axes - 1, first)]


def _created(cls: type[Topocomm], comm: Intracomm, count: int, topology: Any) -> Any:
    part = comm._comm.split(0 if comm.rank < count else None, comm.rank)
    return cls._with(part, topology) if part is not None else Intracomm()


def _numbered(peers: list[int]) -> list[Edge]:
    """Return edges. Edges to the same peer are numbered from 0, in the same order on both ends."""
    seen: Counter[int] = Counter()
    edges = []
    for peer in peers:
        edges.append(Edge(peer, seen[peer]))
        seen[peer] += 1
    return edges


def _weights(weights: Sequence[int] | None, count: int) -> list[int] | None:
    if weights is None or weights is UNWEIGHTED:
        return None
    if weights is WEIGHTS_EMPTY and count:
        raise InputError(f"weights: WEIGHTS_EMPTY for {count} edges: expected a weight for each")
    if len(weights) != count:
        raise InputError(f"{len(weights)} weights: expected {count}")
    return list(weights)
