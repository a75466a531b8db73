"""Degrees of a sparse reduction by trial: some designs are configured and make reductions, and the fastest stays.

A price from packets alone knows nothing of cores that ranks share, nor of crowded links. So a few designs that differ
make a reduction each. Their times tell what a layer, a packet and a byte really cost here, and with these costs all
designs are priced anew. The best of both then make reductions by turns; the median counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.sparse.design.live import Configured, data_of

if TYPE_CHECKING:
    from ripieno._native import SparseReduce
    from ripieno.comm.costs import Costs

#: What `degrees=` is called for this.
TRIED = "tried"
#: Designs that are tried because they are the cheapest by the fitted costs, and that go by turns in the end.
FITTED_COUNT, LAST_COUNT = 4, 4
#: Reductions of each that is tried, of which the best counts, and then of each of the last, by turns.
FIRST_ROUNDS, ROUND_COUNT = 3, 9
#: Rows are tried, and designed for, as single doubles.
ROW_BYTES = 8


def best(comm: Costs, designed: SparseReduce, configure: Callable[[str], SparseReduce]) -> SparseReduce:
    """The configuration that reduces in the least time; the same degrees on all ranks. Collective.

    `designed` is the one that would be taken without trials, `configure` gives one of other degrees.
    """
    designs = _designs(comm, designed)
    if len(designs) == 1:
        return designed
    values, into = np.zeros(designed.out_count), np.zeros(designed.in_count)
    tried, seconds = {designed.degrees: designed}, dict[str, float]()

    def timed(degrees: str) -> float:
        comm.barrier()
        begin_s = time.perf_counter()
        tried[degrees].reduce(comm._native, values, into, 1, "sum", "")
        return comm.allreduce(time.perf_counter() - begin_s, op="max")

    def attempt(names: Sequence[str]) -> None:
        # Ranks may compute in other last bits: the first one's order counts.
        for degrees in comm.broadcast(list(names)):
            if degrees not in seconds:
                if degrees not in tried:
                    tried[degrees] = configure(degrees)
                # The first reduction plans, and may open connections.
                timed(degrees)
                seconds[degrees] = min(timed(degrees) for _ in range(FIRST_ROUNDS))

    attempt([designed.degrees, *_different(designs)])
    attempt(_fitted(designs, seconds)[:FITTED_COUNT])
    last = sorted(seconds, key=lambda degrees: seconds[degrees])[:LAST_COUNT]
    rounds = [{degrees: timed(degrees) for degrees in last} for _ in range(ROUND_COUNT)]
    return tried[min(last, key=lambda degrees: statistics.median(each[degrees] for each in rounds))]


def _designs(comm: Costs, designed: SparseReduce) -> list[dict[str, Any]]:
    """All designs, priced for what the one at hand holds, the cheapest first."""
    own = [[each["out_rows"], each["in_rows"]] for each in designed.volumes]
    totals = comm.allreduce(np.array(own, np.int64))
    packets = _native.packet_curve(comm._native)
    reduction = Configured(comm.world_size, designed.size, designed.degrees, ROW_BYTES)
    data, *_ = data_of(reduction, totals, packets)
    return _native.design_candidates(comm.world_size, *data.sets, ROW_BYTES, packets)


def _different(designs: Sequence[dict[str, Any]]) -> list[str]:
    """The cheapest of each number of layers; direct only where it is the cheapest of all, for it may take long."""
    by_layers: dict[int, str] = {}
    for each in designs:
        by_layers.setdefault(len(each["layers"]), each["degrees"])
    if by_layers.get(1) != designs[0]["degrees"] and len(by_layers) > 3:
        by_layers.pop(1, None)
    return list(by_layers.values())


def _fitted(designs: Sequence[dict[str, Any]], seconds: dict[str, float]) -> list[str]:
    """All designs, the cheapest first, by what layers, packets and bytes cost in those that were tried."""
    features = {each["degrees"]: _features(each) for each in designs}
    known = [degrees for degrees in seconds if degrees in features]
    # Each trial counts by the part that it is off.
    rows = np.array([features[degrees] / seconds[degrees] for degrees in known])
    costs = _not_negative(rows, np.ones(len(known)))
    return sorted(features, key=lambda degrees: float(features[degrees] @ costs))


def _features(design: dict[str, Any]) -> NDArray[np.float64]:
    """Layers, packets, and bytes of a rank."""
    levels = [*design["layers"], *([design["fold"]] if design["fold"] else [])]
    return np.array([len(levels), sum(each["packet_count"] for each in levels), design["sent_bytes"]], np.float64)


def _not_negative(rows: NDArray[np.float64], of: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with no cost below 0: those that would be are left out, one after the other."""
    kept = list(range(rows.shape[1]))
    while True:
        found = np.zeros(rows.shape[1])
        found[kept] = np.linalg.lstsq(rows[:, kept], of, rcond=None)[0]
        if len(kept) == 1 or (found >= 0).all():
            return np.maximum(found, 0.0)
        kept.remove(int(np.argmin(found)))
