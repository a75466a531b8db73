"""The worker program of alternating least squares.

The factors of all users and the factors of all items alternately solve their normal equations, exactly or by a few
conjugate gradient steps. Each rank solves for its own users and items. Before each half step, it receives the factors
that its ratings refer to. Implicit ratings also need the scatter matrix of all factors. Its products are rounded,
which makes their sums exact. The ratings of a row are processed in a fixed order. So the factors are bitwise equal on
any number of ranks.

Cost per iteration, shared by the ranks: `2·r²` operations per rating and `r³/3` per user and item, or `32·r` per rating
and `16·r²` per user and item. Communication: factors as described in `exchange`; for implicit ratings, two allreduces
of `r²` float64.
Source: Zhou, Wilkinson, Schreiber and Pan, AAIM 2008, section 3; Hu, Koren and Volinsky, ICDM 2008, eq. 3 to 5.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno.kernels as kernels
from ripieno.algorithms.als.exchange import FactorExchange, FactorTransfer
from ripieno.algorithms.als.ratings import PartitionedRatings, RatingSide, load
from ripieno.algorithms.als.table import NumberedRatings, OwnRatings, RatingFiles
from ripieno.algorithms.clock import IterationClock
from ripieno.algorithms.data_facts import data_facts
from ripieno.algorithms.iteration_log import Emit, IterationLog, WorkerReport
from ripieno.checkpoints.iterations import CheckpointOptions, IterationCheckpoint
from ripieno.errors import InputError

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

Factors = NDArray[np.float32]

NAME = "als"
#: Number of rows that share one random generator for their initial factors.
SEED_BLOCK_ROWS = 1024
#: Conjugate gradient steps in each half of an iteration.
CG_STEPS = 3


@dataclass(frozen=True)
class ALSOptions:
    """Options of the workers, see `ripieno.ALS`."""

    rank: int
    implicit: bool
    reg: float
    alpha: float
    solver: str
    max_iter: int
    seed: int
    exchange: str | None
    checkpoint_options: CheckpointOptions


@dataclass(frozen=True)
class ALSPart:
    """One worker's part of the result: its factors and ratings, and the data that all workers share."""

    users: Factors
    items: Factors
    user_counts: NDArray[np.int64]
    item_counts: NDArray[np.int64]
    rated: NDArray[np.int32]
    user_ids: NDArray[Any] | None
    item_ids: NDArray[Any] | None
    rating_count: int
    resumed_from: int | None
    exchanges: tuple[FactorExchange, ...]
    record: WorkerReport


def fit(
    comm: Communicator,
    source: NumberedRatings | RatingFiles | OwnRatings,
    options: ALSOptions,
    emit: Emit | None = None,
) -> ALSPart:
    """Alternate, starting from random item factors or from a checkpoint.

    Raises
    ------
    InputError
        On every rank: invalid ratings, or factors that are not finite.
    CheckpointError
        The checkpoint belongs to another fit, or cannot be read or written.
    """
    begin = time.perf_counter()
    ratings = load(comm, source, options.rank, implicit=options.implicit)
    iteration_log = IterationLog(comm, emit)
    alternation = _Alternation(comm, ratings, options, iteration_log.clock)
    with IterationCheckpoint(
        comm,
        NAME,
        options.checkpoint_options,
        shared=False,
        data=lambda: _facts(comm, ratings.users),
    ) as checkpoint:
        saved, done = checkpoint.load(), checkpoint.done
        checkpoint.check_iteration_limit(done, options.max_iter - 1, f"max_iter={options.max_iter}")
        users, items = own_factors(ratings, saved) if saved else initial_factors(options, ratings)
        iteration_log.iterations_before = done
        load_s = time.perf_counter() - begin
        iteration_log.clock.lap()
        for iteration in range(done + 1, options.max_iter + 1):
            users, _, penalty = alternation.solved("users", items, users)
            items, loss, item_penalty = alternation.solved("items", users, items)
            iteration_log.end_iteration(**alternation.measures(loss, penalty + item_penalty))
            if iteration < options.max_iter and checkpoint.is_due(iteration):
                checkpoint.save(iteration, (users, items))
    return ALSPart(
        users=users,
        items=items,
        user_counts=ratings.users.own_counts,
        item_counts=ratings.items.own_counts,
        rated=ratings.users.columns,
        user_ids=ratings.user_ids if comm.rank == 0 else None,
        item_ids=ratings.item_ids if comm.rank == 0 else None,
        rating_count=ratings.rating_count,
        resumed_from=done or None,
        exchanges=alternation.exchanges,
        record=iteration_log.record(load_s),
    )


def _facts(comm: Communicator, users: RatingSide) -> dict[str, Any]:
    """Return values that identify the ratings of all ranks."""
    numbers = np.repeat(np.arange(users.own.start, users.own.stop), np.diff(users.starts))
    return data_facts(comm, "ratings", np.column_stack([numbers, users.columns]), users.values)


def own_factors(ratings: PartitionedRatings, saved: list[tuple[Factors, Factors]]) -> tuple[Factors, Factors]:
    """Return saved factors of a rank's users and items, from the factors of consecutive users and items."""
    users, items = (np.concatenate(each) for each in zip(*saved, strict=True))
    own_users, own_items = ratings.users.own, ratings.items.own
    return users[own_users.start : own_users.stop], items[own_items.start : own_items.stop]


def initial_factors(options: ALSOptions, ratings: PartitionedRatings) -> tuple[Factors, Factors]:
    """Return initial factors of a rank's users (zeros) and items (random)."""
    return np.zeros((len(ratings.users.own), options.rank), np.float32), initial_item_factors(options, ratings.items)


def initial_item_factors(options: ALSOptions, items: RatingSide) -> Factors:
    """Return random initial factors of a rank's items; they depend only on the item numbers and the seed.

    The factors are absolute values of normal numbers, scaled to rows of length 1 on average. Items without ratings are
    zero.
    """
    first, last = items.own.start // SEED_BLOCK_ROWS, -(-items.own.stop // SEED_BLOCK_ROWS)
    blocks = [np.empty((0, options.rank))]
    for block in range(first, last):
        blocks.append(np.random.default_rng([options.seed, block]).normal(size=(SEED_BLOCK_ROWS, options.rank)))
    drawn = np.concatenate(blocks)[items.own.start - first * SEED_BLOCK_ROWS :][: len(items.own)]
    rated = (items.own_counts > 0)[:, None]
    return np.ascontiguousarray(np.abs(drawn) / math.sqrt(options.rank) * rated, np.float32)


class _Alternation:
    """The two half steps of a rank, and statistics of the resulting factors."""

    def __init__(
        self, comm: Communicator, ratings: PartitionedRatings, options: ALSOptions, clock: IterationClock
    ) -> None:
        self._comm, self._ratings, self._options, self._clock = comm, ratings, options, clock
        self._sides = {"users": ratings.users, "items": ratings.items}
        # A half step needs the factors of the other side.
        self._transfers = {
            "users": FactorTransfer(
                comm, "items", ratings.items.cuts, ratings.users.columns, options.rank, options.exchange
            ),
            "items": FactorTransfer(
                comm, "users", ratings.users.cuts, ratings.items.columns, options.rank, options.exchange
            ),
        }

    @property
    def exchanges(self) -> tuple[FactorExchange, ...]:
        """Return the exchange of the factors of items, and of users."""
        return tuple(transfer.exchange for transfer in self._transfers.values())

    def solved(self, name: str, other_factors: Factors, own: Factors) -> tuple[Factors, float, float]:
        """Return new factors of this rank's rows of a side, their squared errors and their penalty."""
        side, transfer, options = self._sides[name], self._transfers[name], self._options
        gram = self._gram(other_factors, transfer.exchange.row_count) if options.implicit else None
        with self._clock.communicating():
            table = transfer(other_factors)
        with self._clock.computing():
            return kernels.solve_factors(
                side.starts,
                transfer.columns,
                side.values,
                table,
                reg=options.reg,
                alpha=options.alpha if options.implicit else None,
                gram=gram,
                start=own if options.solver == "cg" else None,
                steps=CG_STEPS,
                threads=self._comm.threads,
            )

    def measures(self, loss: float, penalty: float) -> dict[str, float]:
        """Return the objective and, for explicit ratings, the root mean square error."""
        options, ratings = self._options, self._ratings
        with self._clock.communicating():
            loss, penalty = self._comm.allreduce(np.array([loss, penalty])).tolist()
        if not math.isfinite(loss + penalty):
            raise InputError(f"the factors are not finite in float32: scale the ratings, or raise reg={options.reg:g}")
        if options.implicit:
            return {"objective": loss + penalty}
        return {"objective": loss + penalty, "rmse": math.sqrt(max(loss, 0.0) / ratings.rating_count)}

    def _gram(self, own: Factors, row_count: int) -> Factors:
        """Return the scatter matrix of all ranks' factors, bitwise equal on any number of ranks."""
        comm = self._comm
        with self._clock.communicating():
            peak = float(comm.allreduce(float(np.abs(own).max(initial=0)), op="max"))
        if not math.isfinite(peak):
            raise InputError(f"the factors are not finite: scale the ratings, or raise reg={self._options.reg:g}")
        # Choose 1.5 times a power of two above any sum of products.
        anchor = math.ldexp(1.5, math.frexp(row_count * peak * peak)[1])
        with self._clock.computing():
            own_sums = kernels.scatter(own, anchor, threads=comm.threads)
        with self._clock.communicating():
            return comm.allreduce(own_sums).astype(np.float32)
