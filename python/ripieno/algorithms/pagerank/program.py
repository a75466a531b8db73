"""What every worker runs for PageRank.

A worker has some of the edges, and wants the ranks of their sources and of the vertices at home with it. An iteration
is a product of its edges with what each source gives, a sparse reduction of the products, and a step from the sums to
the next ranks. By how much ranks changed, and what lies on vertices without edges out, goes along as two more indices
of the reduction: no other message is needed, and the end is noticed one product late.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.fit_checkpoint import FitStates, Keeping, of_ids
from ripieno.algorithms.vertices.facts import facts
from ripieno.algorithms.vertices.values import check_weights
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.graph import Graph, LocalGraph, load
from ripieno.kernels.lookup import places_of

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Ids, and a number >= 0 for each, not all of them 0.
Given = tuple[NDArray[np.int64], NDArray[np.float64]]

NAME = "pagerank"
NOWHERE = np.iinfo(np.uint32).max


@dataclass(frozen=True)
class PageRankOptions:
    """What the workers are told, see `ripieno.PageRank`; vertices are ids."""

    damping: float
    tol: float
    max_iter: int
    personalization: Given | None
    dangling: Given | None
    keeping: Keeping

    def facts(self) -> dict[str, Any]:
        """What a checkpoint is of, beside the graph."""
        given = {name: getattr(self, name) for name in ("personalization", "dangling")}
        lists = {name: pair and [each.tolist() for each in pair] for name, pair in given.items()}
        return {"damping": self.damping, **lists}


@dataclass(frozen=True)
class PageRankPart:
    """One worker's part of the result: the vertices at home with it and their ranks."""

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
    traffic: dict[str, Any]


def fit(
    comm: Communicator, graph: Graph, options: PageRankOptions, emit: Callable[[dict[str, Any]], None] | None = None
) -> PageRankPart:
    """Compute the ranks of a graph by power iteration; `emit`, by default the communicator's, gets rank 0's events.

    Raises
    ------
    InputError
        On every rank: bad input (see `ripieno.graph.load`), a negative weight, or a vertex in `personalization`
        or `dangling` that the graph has not.
    """
    begin = time.perf_counter()
    local = load(comm, graph)
    with agreement(comm):
        check_weights(local, "PageRank")
    load_s = time.perf_counter() - begin

    begin = time.perf_counter()
    walk = _Walk(comm, local, options)
    exchange = _Alone(local, walk.ids) if comm.world_size == 1 else _Together(comm, local, walk.ids)
    configure_s = time.perf_counter() - begin

    kind = {} if options.keeping.folder is None else facts(comm, local, **options.facts())
    states = FitStates(comm, NAME, shared=False, keeping=options.keeping, facts=kind)
    kept = states.load()
    laps: list[tuple[float, float]] = []
    errors: list[float] = []
    if kept:
        errors, _, _, _ = kept[0]
        states.refuse_beyond(len(errors), options.max_iter - 1, f"max_iter={options.max_iter}")
    resumed_from = len(errors) or None

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

    def keep(dangling: float) -> None:
        if states.used:
            states.save(len(errors), (errors, dangling, walk.ids[walk.counted], walk.ranks[walk.counted]))

    if kept:
        walk.go_on_from(*of_ids(walk.ids, [(ids, ranks) for _, _, ids, ranks in kept]))
    begin_at = None if not kept else (len(errors), kept[0][1])
    with closing(states):
        converged = _iterate(comm, local, walk, exchange, options, on_iteration, keep, begin_at)
    return PageRankPart(
        ids=walk.ids[walk.counted],
        ranks=walk.ranks[walk.counted],
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
        traffic=comm.stats(),
    )


def _iterate(
    comm: Communicator,
    local: LocalGraph,
    walk: _Walk,
    exchange: _Alone | _Together,
    options: PageRankOptions,
    on_iteration: Callable[[float, tuple[float, float]], None],
    keep: Callable[[float], None],
    reached: tuple[int, float] | None,
) -> bool:
    """Walk until the ranks change by less than wanted, or not at all; whether they did.

    After each iteration that others follow `keep` is called with what lay on vertices without edges out. A walk that
    goes on has `reached` so many iterations, and that lay there.
    """
    clock = IterationClock()
    for done in count(0 if reached is None else reached[0]):
        with clock.computing():
            local.product(walk.contributions, out=exchange.products, threads=comm.threads)
        with clock.communicating():
            sums, error, dangling = exchange.reduce(walk.error, walk.dangling)
        if reached is not None and done == reached[0]:
            # It has been told of, and added up where it was kept.
            dangling = reached[1]
        elif done > 0:
            on_iteration(error, clock.lap())
            if error == 0 or error < local.vertices.total * options.tol:
                return True
            if done == options.max_iter:
                return False
            keep(dangling)
        with clock.computing():
            walk.step(sums, exchange.places, dangling)
    raise AssertionError("a count does not end")


class _Walk:
    """The vertices that this worker wants, and where the walk stands with them.

    Attributes
    ----------
    ids : (w,) int64
        Sources of its edges, in the order of the columns, then others that are at home here.
    counted : (w,) bool
        Those at home.
    ranks : (w,) float64
    contributions : (c,) float64
        What each source gives along an edge of weight one.
    error, dangling : float
        Of the vertices at home: by how much the last step changed their ranks; what lies on those without edges out.
    """

    def __init__(self, comm: Communicator, local: LocalGraph, options: PageRankOptions) -> None:
        vertices = local.vertices
        wanted = vertices.home.copy()
        wanted[: len(local.columns)] = True
        self.ids = vertices.ids[wanted]
        self.counted = vertices.home[wanted]
        self._threads = comm.threads
        self._damping = options.damping
        self._uniform = 1 / vertices.total
        self._inverse_out = self._inverse(comm, local)
        self._teleport = self._aligned(comm, options.personalization, "personalization")
        self._share = self._teleport if options.dangling is None else self._aligned(comm, options.dangling, "dangling")
        self.ranks = np.full(len(self.ids), self._uniform)
        self._given = self.ranks * self._inverse_out
        self.contributions = self._given[: len(local.columns)]
        self.error = 0.0
        self.dangling = float(self.ranks[self.counted & (self._inverse_out == 0)].sum())

    def go_on_from(self, ranks: NDArray[np.float64]) -> None:
        """Stand where an earlier walk has stood: its ranks, (w,), in the order of `ids`."""
        self.ranks[:] = ranks
        np.multiply(self.ranks, self._inverse_out, out=self._given)

    def step(self, sums: NDArray[np.float64], places: NDArray[np.uint32] | None, dangling: float) -> None:
        """Make the next ranks of what came along the edges and what lay on vertices without edges out."""
        self.error, self.dangling = _native.pagerank_step(
            sums,
            places,
            self._inverse_out,
            None if self.counted.all() else self.counted,
            self._teleport,
            self._share,
            self._uniform,
            self._damping,
            dangling,
            self.ranks,
            self._given,
            self._threads,
        )

    def _inverse(self, comm: Communicator, local: LocalGraph) -> NDArray[np.float64]:
        """One over the weight of the edges out of each vertex, of all ranks; 0 where there are none."""
        out = local.matrix.column_sums()
        if comm.world_size > 1:
            size = local.vertices.largest + 1
            out = comm.sparse_reduce(local.columns, out, self.ids, size=size, missing="zero")
        inverse = np.zeros(len(self.ids))
        np.divide(1, out, out=inverse[: len(out)], where=out > 0)
        return inverse

    def _aligned(self, comm: Communicator, given: Given | None, name: str) -> NDArray[np.float64] | None:
        """The part of the sum that is given to each vertex."""
        if given is None:
            return None
        ids, values = given
        at = places_of(self.ids, ids)
        found = at >= 0
        here = comm.allreduce(int(np.count_nonzero(found & self.counted)))
        if here < len(ids):
            raise InputError(f"{name}: {len(ids) - here} of its {len(ids)} vertices are not in the graph")
        shares: NDArray[np.float64] = np.where(found, values[at], 0.0) / values.sum()
        return shares


class _Alone:
    """All edges are here: products are sums already, only in another order."""

    degrees = None

    def __init__(self, local: LocalGraph, ids: NDArray[np.int64]) -> None:
        self.products = np.empty(len(local.rows))
        at = places_of(ids, local.rows)
        self.places = np.where(at < 0, NOWHERE, at).astype(np.uint32)

    def reduce(self, error: float, dangling: float) -> tuple[NDArray[np.float64], float, float]:
        """The sums, in the order of the rows, and the totals of all ranks."""
        return self.products, error, dangling


class _Together:
    """Products are summed over the ranks, and each gets the sums of the vertices it wants, in their order."""

    places = None

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
        """The sums, in the order of the wanted vertices, and the totals of all ranks."""
        self._values[-2:] = error, dangling
        self._sparse.reduce(self._values, out=self._sums)
        error, dangling = self._sums[-2:].tolist()
        return self._sums[:-2], error, dangling
