"""The worker program of PageRank.

Each worker stores some of the edges. It needs the PageRank of their sources and of the vertices that it owns. An
iteration multiplies the edges by each source's contribution, sums the products by a sparse reduction, and computes the
next ranks from the sums. Two additional indices of the reduction sum the total change and the rank mass of dangling
vertices. So an iteration needs no other message. In exchange, the fit computes one product after the last iteration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.data_facts import graph_facts
from ripieno.algorithms.vertices.values import check_weights
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.graph import Graph, LocalGraph, load
from ripieno.kernels.lookup import columns_of_ids, positions_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Vertex ids, and a weight >= 0 for each. At least one weight is positive.
VertexWeights = tuple[NDArray[np.int64], NDArray[np.float64]]

NAME = "pagerank"
NO_POSITION = np.iinfo(np.uint32).max


@dataclass(frozen=True)
class PageRankOptions:
    """Options of the workers, see `ripieno.PageRank`. Vertices are identified by their ids."""

    damping: float
    tol: float
    max_iter: int
    personalization: VertexWeights | None
    dangling: VertexWeights | None
    checkpoint_options: CheckpointOptions


@dataclass(frozen=True)
class PageRankPart:
    """One worker's part of the result: the vertices it owns and their ranks."""

    ids: NDArray[np.int64]
    ranks: NDArray[np.float64]
    iteration_count: int
    converged: bool
    resumed_from: int | None
    errors: list[float]
    laps: list[tuple[float, float]]
    vertex_count: int
    edge_count: int
    own_edge_count: int
    degrees: str | None
    host: str
    threads: int
    load_s: float
    configure_s: float


def fit(
    comm: Communicator, graph: Graph, options: PageRankOptions, emit: Callable[[dict[str, Any]], None] | None = None
) -> PageRankPart:
    """Compute the ranks of a graph by power iteration; `emit`, by default `comm.emit`, receives rank 0's events.

    Raises
    ------
    InputError
        On every rank: invalid input (see `ripieno.graph.load`), a negative weight, or a vertex in `personalization` or
        `dangling` that is not in the graph.
    """
    begin = time.perf_counter()
    local = load(comm, graph)
    with agreement(comm):
        check_weights(local, "PageRank")
    load_s = time.perf_counter() - begin

    begin = time.perf_counter()
    power = _PowerIteration(comm, local, options)
    exchange = _SingleRankExchange(local, power.ids) if comm.world_size == 1 else _RankExchange(comm, local, power.ids)
    configure_s = time.perf_counter() - begin

    laps: list[tuple[float, float]] = []
    errors: list[float] = []

    def on_iteration(error: float, lap: tuple[float, float]) -> None:
        laps.append(lap)
        errors.append(error)
        if comm.rank == 0:
            (emit or comm.emit)(
                {
                    "event": "iteration",
                    "iteration": len(errors),
                    "error": error,
                    "goal": local.vertices.total * options.tol,
                    "edges_per_s": local.edge_count / max(sum(lap), 1e-9),
                    "compute_s": lap[0],
                    "communication_s": lap[1],
                }
            )

    def save(dangling: float) -> None:
        if checkpoint.is_due(len(errors)):
            checkpoint.save(len(errors), (errors, dangling, power.ids[power.owned], power.ranks[power.owned]))

    with IterationCheckpoint(
        comm, NAME, options.checkpoint_options, shared=False, data=lambda: graph_facts(comm, local)
    ) as checkpoint:
        saved, resume_at = checkpoint.load(), None
        if saved:
            errors, dangling, _, _ = saved[0]
            checkpoint.check_iteration_limit(len(errors), options.max_iter - 1, f"max_iter={options.max_iter}")
            power.resume_from(*columns_of_ids(power.ids, [(ids, ranks) for _, _, ids, ranks in saved]))
            resume_at = len(errors), dangling
        resumed_from = len(errors) or None
        converged = _iterate(comm, local, power, exchange, options, on_iteration, save, resume_at)
    return PageRankPart(
        ids=power.ids[power.owned],
        ranks=power.ranks[power.owned],
        iteration_count=len(errors),
        converged=converged,
        resumed_from=resumed_from,
        errors=errors,
        laps=laps,
        vertex_count=local.vertices.total,
        edge_count=local.edge_count,
        own_edge_count=local.matrix.entry_count,
        degrees=exchange.degrees,
        host=comm.hosts[comm.rank],
        threads=comm.threads,
        load_s=load_s,
        configure_s=configure_s,
    )


def _iterate(
    comm: Communicator,
    local: LocalGraph,
    power: _PowerIteration,
    exchange: _SingleRankExchange | _RankExchange,
    options: PageRankOptions,
    on_iteration: Callable[[float, tuple[float, float]], None],
    save: Callable[[float], None],
    resume_at: tuple[int, float] | None,
) -> bool:
    """Iterate until the ranks change by less than the tolerance, or not at all; return whether they converged.

    After each iteration except the last, `save` receives the rank mass of dangling vertices. A resumed fit starts with
    `resume_at`: its iteration count and that mass.
    """
    clock = IterationClock()
    for done in count(0 if resume_at is None else resume_at[0]):
        with clock.computing():
            local.product(power.contributions, out=exchange.products, threads=comm.threads)
        with clock.communicating():
            sums, error, dangling = exchange.reduce(power.error, power.dangling)
        if resume_at is not None and done == resume_at[0]:
            # The earlier fit already reported this iteration and saved the mass.
            dangling = resume_at[1]
        elif done > 0:
            on_iteration(error, clock.lap())
            if error == 0 or error < local.vertices.total * options.tol:
                return True
            if done == options.max_iter:
                return False
            save(dangling)
        with clock.computing():
            power.step(sums, exchange.positions, dangling)
    raise AssertionError("itertools.count is infinite")


class _PowerIteration:
    """Power iteration on the vertices that this worker needs.

    Attributes
    ----------
    ids : (w,) int64
        Sources of this worker's edges, in the order of the columns, followed by the other vertices that it owns.
    owned : (w,) bool
        Whether this worker owns the vertex.
    ranks : (w,) float64
    contributions : (c,) float64
        Contribution of each source along an edge of weight one.
    error, dangling : float
        Over owned vertices: total change of their ranks in the last step, and rank mass of dangling vertices.
    """

    def __init__(self, comm: Communicator, local: LocalGraph, options: PageRankOptions) -> None:
        vertices = local.vertices
        is_needed = vertices.is_owned.copy()
        is_needed[: len(local.columns)] = True
        self.ids = vertices.ids[is_needed]
        self.owned = vertices.is_owned[is_needed]
        self._threads = comm.threads
        self._damping = options.damping
        self._uniform = 1 / vertices.total
        self._inverse_out = self._inverse(comm, local)
        self._teleport = self._vertex_shares(comm, options.personalization, "personalization")
        self._share = (
            self._teleport if options.dangling is None else self._vertex_shares(comm, options.dangling, "dangling")
        )
        self.ranks = np.full(len(self.ids), self._uniform)
        self._all_contributions = self.ranks * self._inverse_out
        self.contributions = self._all_contributions[: len(local.columns)]
        self.error = 0.0
        self.dangling = float(self.ranks[self.owned & (self._inverse_out == 0)].sum())

    def resume_from(self, ranks: NDArray[np.float64]) -> None:
        """Resume from the ranks, (w,), of an earlier fit, in the order of `ids`."""
        self.ranks[:] = ranks
        np.multiply(self.ranks, self._inverse_out, out=self._all_contributions)

    def step(self, sums: NDArray[np.float64], positions: NDArray[np.uint32] | None, dangling: float) -> None:
        """Compute the next ranks from the sums over edges and the rank mass of dangling vertices."""
        self.error, self.dangling = _native.pagerank_step(
            sums,
            positions,
            self._inverse_out,
            None if self.owned.all() else self.owned,
            self._teleport,
            self._share,
            self._uniform,
            self._damping,
            dangling,
            self.ranks,
            self._all_contributions,
            self._threads,
        )

    def _inverse(self, comm: Communicator, local: LocalGraph) -> NDArray[np.float64]:
        """Return 1 / total weight of the out-edges of each vertex over all ranks; 0 for dangling vertices."""
        out = local.matrix.column_sums()
        if comm.world_size > 1:
            size = local.vertices.largest + 1
            out = comm.sparse_reduce(local.columns, out, self.ids, size=size, missing="zero")
        inverse = np.zeros(len(self.ids))
        np.divide(1, out, out=inverse[: len(out)], where=out > 0)
        return inverse

    def _vertex_shares(
        self, comm: Communicator, weights: VertexWeights | None, name: str
    ) -> NDArray[np.float64] | None:
        """Return each vertex's share of a distribution, or None for the uniform distribution."""
        if weights is None:
            return None
        ids, values = weights
        positions = positions_of(self.ids, ids)
        found = positions >= 0
        found_count = comm.allreduce(int(np.count_nonzero(found & self.owned)))
        if found_count < len(ids):
            raise InputError(f"{name}: {len(ids) - found_count} of its {len(ids)} vertices are not in the graph")
        shares: NDArray[np.float64] = np.where(found, values[positions], 0.0) / values.sum()
        return shares


class _SingleRankExchange:
    """The reduction of a single rank: its products are the sums, in row order."""

    degrees = None

    def __init__(self, local: LocalGraph, ids: NDArray[np.int64]) -> None:
        self.products = np.empty(len(local.rows))
        positions = positions_of(ids, local.rows)
        self.positions = np.where(positions < 0, NO_POSITION, positions).astype(np.uint32)

    def reduce(self, error: float, dangling: float) -> tuple[NDArray[np.float64], float, float]:
        """Return the sums, in row order, and the totals over all ranks."""
        return self.products, error, dangling


class _RankExchange:
    """The sparse reduction over ranks: each rank gets the sums of the vertices that it needs."""

    positions = None

    def __init__(self, comm: Communicator, local: LocalGraph, ids: NDArray[np.int64]) -> None:
        totals = local.vertices.largest + np.array([1, 2])
        self._sparse = comm.sparse(
            np.concatenate([local.rows, totals]),
            np.concatenate([ids, totals]),
            size=local.vertices.largest + 3,
            missing="zero",
        )
        self.degrees = self._sparse.degrees
        self._values = np.empty(len(local.rows) + len(totals))
        self._sums = np.empty(len(ids) + len(totals))
        self.products = self._values[: len(local.rows)]

    def reduce(self, error: float, dangling: float) -> tuple[NDArray[np.float64], float, float]:
        """Return the sums, in the order of the needed vertices, and the totals over all ranks."""
        self._values[-2:] = error, dangling
        self._sparse.reduce(self._values, out=self._sums)
        error, dangling = self._sums[-2:].tolist()
        return self._sums[:-2], error, dangling
