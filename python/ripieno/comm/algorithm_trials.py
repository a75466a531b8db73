"""Provide timed trials that find the fastest algorithm on these ranks, by collective and size.

For each size, every algorithm makes one call. Algorithms much slower than the best are dropped. The others are timed
in alternating rounds. The median decides, and the default stays unless another algorithm is clearly faster. Between
nodes the cost model, with measured costs, selects the candidates. It also replaces the trials of sizes for which the
time budget is too small.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

import ripieno._native as _native
from ripieno.simulation.algorithm_choices import AlgorithmChoices, Trial
from ripieno.simulation.explanation import explain
from ripieno.wire.arrays import ZERO_COPY_BYTES, empty

if TYPE_CHECKING:
    from ripieno.comm.costs import Costs
    from ripieno.simulation.cluster import Cluster

#: The collectives that are tried, in this order.
COLLECTIVES = (
    "allreduce", "broadcast", "reduce", "allgather", "reduce-scatter", "alltoall", "gather", "scatter", "barrier",
)  # fmt: skip
#: Sizes of the whole vector in bytes, all chunks together.
SIZES_BYTES = (*(8**power for power in range(1, 9)), 64 << 20)
ELEMENT_BYTES = 4
#: For these collectives, the cost model takes the bytes of one rank's block.
BLOCKS = ("allgather", "gather", "scatter")
#: These collectives divide the vector into one chunk per rank.
CHUNKED = (*BLOCKS, "reduce-scatter", "alltoall")
#: In these collectives ranks do not wait for each other, so a barrier precedes each timed call.
ROOTED = ("broadcast", "reduce", "gather", "scatter")
#: A barrier also precedes each timed call of vectors of at least this size.
SEPARATE_BYTES = 64 << 10
ROUND_COUNT = 5
#: An algorithm that is slower than the best by this factor, in its first call or by the model, is not tried.
DISCARD_RATIO = 3.0
#: The default stays unless another algorithm saves this share: by trials, and by the model, which is off by 10 %.
MARGIN, MODEL_MARGIN = 0.04, 0.15
#: A size is not tried if its trials would take this many shares of the time budget.
SHARE_COUNT_MAX = 4.0


def measure(comm: Costs, cluster: Cluster | None, budget_s: float) -> AlgorithmChoices:
    """Return the result of `Communicator.try_algorithms`; `cluster` is the model, given if links cost. Collective."""
    # All ranks use the clock of rank 0.
    begin_s = comm.allreduce(time.time() if comm.rank == 0 else 0.0)
    trials: list[Trial] = []
    for place, collective in enumerate(COLLECTIVES):
        used_s = comm.allreduce(time.time() - begin_s if comm.rank == 0 else 0.0)
        share_s = max(0.0, budget_s - used_s) / (len(COLLECTIVES) - place)
        trials += _trials_of(comm, cluster, collective, share_s)
    return AlgorithmChoices(
        hosts=list(comm.hosts), nodes=list(comm.nodes), racks=list(comm.racks), tried_at=begin_s, trials=trials
    )


def prefer(comm: Costs, choices: AlgorithmChoices) -> None:
    """Make `choices` the default for calls that name no algorithm. The choices are the same on all ranks."""
    for collective in COLLECTIVES:
        _native.prefer(comm._native, collective, choices.rows(collective))


def _trials_of(comm: Costs, cluster: Cluster | None, collective: str, budget_s: float) -> list[Trial]:
    """Try all sizes of one collective, in ascending order."""
    trials: list[Trial] = []
    per_rank = ELEMENT_BYTES * comm.world_size
    # A chunk holds at least one element.
    sizes = [max(size // per_rank, 1) * per_rank if collective in CHUNKED else size for size in SIZES_BYTES]
    sizes = [ELEMENT_BYTES] if collective == "barrier" else list(dict.fromkeys(sizes))
    share_s = budget_s / len(sizes)
    for size in sizes:
        block = size // comm.world_size if collective in BLOCKS else size
        names = [each[0] for each in _native.distinct_algorithms(comm._native, collective, block)]
        default = _representative(comm, collective, size, block)
        prices = {} if cluster is None else _prices(cluster, collective, block, names)
        if prices:
            lowest = min(prices.values())
            names = [name for name in names if name == default or prices.get(name, 0.0) <= DISCARD_RATIO * lowest]
        expected_s = _expected(trials, prices, size) * ROUND_COUNT * len(names)
        if expected_s > SHARE_COUNT_MAX * share_s:
            if not prices:
                # The best algorithm of the last size also applies to larger ones.
                break
            best = _clearly_best(prices, default, MODEL_MARGIN)
            trials.append(Trial(collective, size, default, best, prices, is_priced=True))
            continue
        seconds = _timed(comm, collective, size, names, default, share_s)
        best = _clearly_best(seconds, default, MARGIN)
        trials.append(Trial(collective, size, default, best, seconds, is_priced=False))
    return trials


def _clearly_best(seconds: Mapping[str, float], default: str, margin: float) -> str:
    """Return the fastest algorithm, or the default one unless the fastest saves the share `margin`."""
    best = min(seconds, key=lambda name: seconds[name])
    return default if default in seconds and seconds[best] >= (1 - margin) * seconds[default] else best


def _representative(comm: Costs, collective: str, size: int, block: int) -> str:
    """Return the default algorithm, or the algorithm that represents its plans."""
    default = _native.choice(comm._native, collective, size)
    classes = _native.distinct_algorithms(comm._native, collective, block)
    return next((each[0] for each in classes if default in each), default)


def _prices(cluster: Cluster, collective: str, block: int, names: Sequence[str]) -> dict[str, float]:
    candidates = explain(collective, cluster, nbytes=block).candidates
    return {each.algorithm: each.seconds for each in candidates if each.algorithm in names and each.seconds is not None}


def _expected(trials: Sequence[Trial], prices: Mapping[str, float], size: int) -> float:
    """Return the approximate seconds of a call: by the model, or extrapolated from the previous size."""
    if prices:
        return statistics.median(prices.values())
    if not trials:
        return 0.0
    return statistics.median(trials[-1].seconds.values()) * size / trials[-1].size_bytes


def _timed(
    comm: Costs, collective: str, size: int, names: Sequence[str], default: str, budget_s: float
) -> dict[str, float]:
    """Return the seconds of a call by each algorithm that is not much slower than the best; equal on all ranks.

    For long vectors within a node it is the mean of two calls: one with a zero-copy vector, as results of calls are,
    and one with a copied vector, as other arrays are.
    """
    shape = size // ELEMENT_BYTES
    vectors = [np.zeros(shape, np.float32)]
    if size >= ZERO_COPY_BYTES and len(set(comm.nodes)) == 1:
        vectors.append(empty(shape, np.float32))
        vectors[-1].fill(0)
    into = np.zeros_like(vectors[0]) if collective == "alltoall" else None
    separate = collective in ROOTED or size >= SEPARATE_BYTES

    def timed(name: str, budget_s: float) -> float:
        vector_budget_s = budget_s / len(vectors)
        each = (
            _native.measure(
                comm._native, collective, vector, into, budget_s=vector_budget_s, separate=separate, algorithm=name
            )
            for vector in vectors
        )
        return statistics.fmean(statistics.median(found) for found in each)

    first_s = {name: timed(name, 0.0) for name in names}
    lowest = min(first_s.values())
    candidates = [name for name in names if name == default or first_s[name] <= DISCARD_RATIO * lowest]
    if len(candidates) == 1:
        return {candidates[0]: first_s[candidates[0]]}
    share_s = budget_s / (ROUND_COUNT * len(candidates))
    # Alternate the algorithms, so that a temporary disturbance affects all of them.
    rounds = [{name: timed(name, share_s) for name in candidates} for _ in range(ROUND_COUNT)]
    return {name: statistics.median(each[name] for each in rounds) for name in candidates}
