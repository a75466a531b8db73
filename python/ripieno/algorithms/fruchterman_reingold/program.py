"""The worker program of graph layout.

In each iteration, ranks compute forces, move their own vertices, and gather all positions. All vertices repel each
other; edges attract. A vertex moves along the sum of its forces, by a length that decreases with the iterations. Exact
repulsion covers all pairs: each rank computes a share of the pairs for all vertices, and a reduce-scatter returns the
sums to the owners. With Barnes-Hut, distant clusters act as points, and each rank computes the repulsion of its own
vertices. No rank stores a matrix of pairs.
Sources: Fruchterman and Reingold, "Graph drawing by force-directed placement", Software 21(11), 1991; Zhang, Ruan and
Qiu, "Harp: collective communication on Hadoop", IC2E 2015, section V (the allgather of positions); Barnes and Hut, "A
hierarchical O(N log N) force-calculation algorithm", Nature 324, 1986.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix

import ripieno.kernels.forces as forces
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.data_facts import data_facts
from ripieno.algorithms.iteration_log import Emit, IterationLog, WorkerReport
from ripieno.algorithms.methods import BARNES_HUT, EXACT, MAX_COORDINATE, MAX_EXACT_VERTEX_COUNT
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.graph import Edges, Graph
from ripieno.input.shares import even_range

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Reals = NDArray[np.float64]

NAME = "layout"
#: Maximum move in the first iteration, relative to the width of the initial positions.
FIRST_STEP_FRACTION = 0.1
#: Forces below this minimum move a vertex by less than the step length.
MIN_FORCE = 0.01


@dataclass(frozen=True)
class LayoutOptions:
    """Options of the workers.

    Parameters
    ----------
    n_components, k, max_iter, tol, approximation, theta
        As in `FruchtermanReingold`.
    init : (n, n_components), or None
        Initial positions. None: draw them at random.
    known : ids and positions, or None
        Initial positions of some vertices, if not of all.
    fixed
        Ids of vertices that do not move.
    seed
        Seed of the random positions.
    checkpoint_options
        Checkpoint settings.
    """

    n_components: int
    k: float | None
    max_iter: int
    tol: float
    approximation: str
    theta: float
    init: Reals | None
    known: tuple[NDArray[np.int64], Reals] | None
    fixed: NDArray[np.int64]
    seed: int
    checkpoint_options: CheckpointOptions

    @property
    def spread(self) -> float:
        """Return the width of the range of random missing positions, as in networkx."""
        return 1.0 if self.known is None else float(self.known[1].max(initial=0.0)) or 1.0

    def approximation_of(self, count: int) -> str:
        """Return the repulsion method for this number of vertices."""
        if self.approximation != "auto":
            return self.approximation
        return BARNES_HUT if count > MAX_EXACT_VERTEX_COUNT and self.n_components in forces.TREE_DIMENSIONS else EXACT


@dataclass(frozen=True)
class LayoutPart:
    """One worker's part of the result: the shared result, and its own record."""

    ids: NDArray[np.int64]
    positions: Reals
    approximation: str
    iteration_count: int
    resumed_from: int | None
    edge_count: int
    record: WorkerReport


def fit(comm: Communicator, graph: Graph, options: LayoutOptions, emit: Emit | None = None) -> LayoutPart:
    """Move the vertices by their forces.

    Raises
    ------
    InputError
        On every rank: invalid edges, too many vertices, or positions for another number of vertices.
    CheckpointError
        The checkpoint belongs to another fit, is in use, or cannot be written.
    """
    begin = time.perf_counter()
    ids, matrix = _adjacency(comm, graph)
    count = len(ids)
    shares = [even_range(count, rank, comm.world_size) for rank in range(comm.world_size)]
    counts = [stop - start for start, stop in shares]
    first, last = shares[comm.rank]
    own = matrix[first:last]
    edges = forces.Attraction(
        first, own.indptr.astype(np.int64), own.indices.astype(np.int32), own.data.astype(np.float32)
    )
    is_fixed = np.isin(ids, options.fixed)
    current = _checked_initial_positions(options, ids)
    length = options.k
    if length is None:
        length = (options.spread if len(options.fixed) else 1.0) / math.sqrt(count)
    # As in networkx, the first two dimensions determine the width of the positions.
    step = FIRST_STEP_FRACTION * float(np.ptp(current[:, :2], axis=0).max())
    cooling = step / (options.max_iter + 1)
    approximation = options.approximation_of(count)
    repulsion = (
        _ExactRepulsion(comm, counts, options.n_components)
        if approximation == EXACT
        else _BarnesHutRepulsion(options.theta, (first, last), comm.threads)
    )
    iteration_log = IterationLog(comm, emit)
    load_s = time.perf_counter() - begin
    own_forces = np.empty((last - first, options.n_components))
    with IterationCheckpoint(
        comm,
        NAME,
        options.checkpoint_options,
        shared=True,
        data=lambda: data_facts(comm, "vertices", own, ids[first:last]),
    ) as checkpoint:
        for saved in checkpoint.load():
            current, step, cooling = saved
        iteration = iteration_log.iterations_before = checkpoint.done
        iteration_log.clock.lap()
        while iteration < options.max_iter:
            with iteration_log.clock.computing():
                positions = current.astype(np.float32)
            repulsion.write(positions, own_forces, iteration_log.clock)
            with iteration_log.clock.computing():
                own_forces *= length * length
                forces.attraction(edges, length, positions, own_forces, threads=comm.threads)
                force = np.maximum(np.sqrt(np.square(own_forces).sum(axis=1)), MIN_FORCE)
                moves = own_forces * (step / force)[:, None]
                moves[is_fixed[first:last]] = 0.0
                new_positions = np.empty_like(current)
                new_positions[first:last] = current[first:last] + moves
            with iteration_log.clock.communicating():
                comm.allgather(out=new_positions, counts=counts)
            with iteration_log.clock.computing():
                change = math.sqrt(_deterministic_sum(np.square(new_positions - current).ravel())) / count
            current = new_positions
            iteration += 1
            iteration_log.end_iteration(change=change, step=step, approximation=approximation)
            step -= cooling
            if change < options.tol:
                break
            if iteration < options.max_iter and checkpoint.is_due(iteration):
                checkpoint.save(iteration, (current, step, cooling))
    return LayoutPart(
        ids=ids,
        positions=current,
        approximation=approximation,
        iteration_count=iteration,
        resumed_from=checkpoint.done or None,
        # An undirected edge is two entries, a loop is one.
        edge_count=int(matrix.nnz if graph.directed else (matrix.nnz + np.count_nonzero(matrix.diagonal())) // 2),
        record=iteration_log.record(load_s),
    )


class _ExactRepulsion:
    """Exact repulsion: each rank computes a share of the pairs. Sums are integers, so their order is irrelevant."""

    def __init__(self, comm: Communicator, counts: list[int], dim: int) -> None:
        self._comm = comm
        self._counts = counts
        self._fixed_sums = np.empty((sum(counts), dim), np.int64)
        self._own = np.empty((counts[comm.rank], dim), np.int64)

    def write(self, positions: NDArray[np.float32], out: Reals, clock: IterationClock) -> None:
        """Write the repulsion of owned vertices, in units of 1/length²."""
        comm = self._comm
        with clock.computing():
            forces.repulsion(positions, (comm.rank, comm.world_size), self._fixed_sums, threads=comm.threads)
        with clock.communicating():
            comm.reduce_scatter(self._fixed_sums, out=self._own, counts=self._counts)
        with clock.computing():
            np.multiply(self._own, 1 / forces.fixed_point_scale(len(positions)), out=out)


@dataclass(frozen=True)
class _BarnesHutRepulsion:
    """Barnes-Hut repulsion: each rank builds the tree of all vertices and computes forces on its own vertices."""

    theta: float
    own: tuple[int, int]
    threads: int

    def write(self, positions: NDArray[np.float32], out: Reals, clock: IterationClock) -> None:
        """Write the repulsion of owned vertices, in units of 1/length²."""
        with clock.computing():
            forces.barnes_hut(self.theta, self.own, positions, out, threads=self.threads)


def _deterministic_sum(values: Reals) -> float:
    """Return the pairwise sum. It is bitwise equal on all processors, so all ranks stop in the same iteration."""
    while len(values) > 1:
        half = len(values) // 2
        values = np.append(values[:half] + values[half : 2 * half], values[2 * half :])
    return float(values[0])


def _adjacency(comm: Communicator, graph: Graph) -> tuple[NDArray[np.int64], Any]:
    """Return the ids of all vertices, ascending, and the weights of all edges, one row per source."""
    with agreement(comm):
        edges = graph.read_share(comm.rank, comm.world_size)
    # There are far fewer edges than pairs, so each rank can process all edges.
    edges = Edges.joined(comm.allgather(edges), weighted=graph.weighted)
    with agreement(comm):
        if not graph.directed:
            edges = edges.one_way().both_ways()
    known = np.arange(graph.vertex_count or 0, dtype=np.int64)
    ids = np.unique(np.concatenate([edges.sources, edges.targets, edges.lone, known]))
    if not len(ids):
        raise InputError(f"{', '.join(graph.names) or 'the graph'}: no edges and no vertices")
    if len(ids) > np.iinfo(np.int32).max:
        raise InputError(f"the graph has {len(ids)} vertices, more than a layout supports")
    weights = np.ones(len(edges)) if edges.weights is None else edges.weights
    entries = (np.searchsorted(ids, edges.sources), np.searchsorted(ids, edges.targets))
    matrix = coo_matrix((weights, entries), shape=(len(ids), len(ids))).tocsr()
    if graph.duplicates == "once":
        matrix.data[:] = 1.0
    _check_weights(graph, ids, matrix)
    return ids, matrix


def _check_weights(graph: Graph, ids: NDArray[np.int64], matrix: Any) -> None:
    """Raise InputError if a weight is larger than float32, the kernel's weight type."""
    limit = float(np.finfo(np.float32).max)
    magnitudes = np.abs(matrix.data)
    if magnitudes.max(initial=0.0) <= limit:
        return
    entry = int(magnitudes.argmax())
    source, target = ids[np.searchsorted(matrix.indptr, entry, side="right") - 1], ids[matrix.indices[entry]]
    raise InputError(
        f"{', '.join(graph.names) or 'the graph'}: the edge from vertex {source} to {target} has the weight "
        f"{matrix.data[entry]:g}: expected at most {limit:.3g}, the largest float32; scale the weights down"
    )


def _checked_initial_positions(options: LayoutOptions, ids: NDArray[np.int64]) -> Reals:
    current = _initial_positions(options, ids)
    if np.abs(current).max() > MAX_COORDINATE:
        raise InputError(
            f"init: a coordinate of {np.abs(current).max():.3g}: expected at most {MAX_COORDINATE:g}; scale them down"
        )
    return current


def _initial_positions(options: LayoutOptions, ids: NDArray[np.int64]) -> Reals:
    count = len(ids)
    if options.init is None:
        drawn: Reals = np.random.RandomState(options.seed).rand(count, options.n_components) * options.spread
        if options.known is not None:
            vertices, positions = options.known
            unknown = vertices[~np.isin(vertices, ids)]
            if len(unknown):
                raise InputError(f"init: the graph has no vertex {unknown[0]}")
            drawn[np.searchsorted(ids, vertices)] = positions
        return drawn
    if options.init.shape != (count, options.n_components):
        shape = (count, options.n_components)
        raise InputError(f"init has the shape {options.init.shape}: expected {shape}, a position for each vertex")
    return options.init
