"""Provide the choice of sparse-reduction degrees by trials: time several designs and keep the fastest.

The packet model ignores shared cores and congested links. So `best` first times a few different designs. From these
times it fits the costs of a layer, a packet and a byte, and ranks all designs by these costs. The best designs of both
rankings then run in alternating rounds. The design with the smallest median wins.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.sparse.design.live import ConfiguredReduction, data_of

if TYPE_CHECKING:
    from ripieno._native import SparseReduce
    from ripieno.comm.costs import Costs

#: The value of `degrees=` that selects trials.
TRIED = "tried"
#: Number of designs with the lowest fitted costs that are tried, and number of designs in the final rounds.
FITTED_COUNT, LAST_COUNT = 4, 4
#: Reductions per tried design (the best counts), and reductions of each final design in alternating rounds.
FIRST_ROUNDS, ROUND_COUNT = 3, 9
#: Trials and designs assume rows of a single double.
ROW_BYTES = 8


def best(comm: Costs, designed: SparseReduce, configure: Callable[[str], SparseReduce]) -> SparseReduce:
    """Return the configuration with the fastest reductions. All ranks get the same degrees. Collective.

    `designed` is the default configuration. `configure` returns a configuration for other degrees.
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
        # Costs may differ in their last bits between ranks, so all ranks use the order of rank 0.
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
    """Return all designs, cheapest first, with costs for the index sets of `designed`."""
    own = [[each["out_rows"], each["in_rows"]] for each in designed.volumes]
    totals = comm.allreduce(np.array(own, np.int64))
    packets = _native.packet_curve(comm._native)
    reduction = ConfiguredReduction(comm.world_size, designed.size, designed.degrees, ROW_BYTES)
    data, *_ = data_of(reduction, totals, packets)
    return _native.design_candidates(comm.world_size, *data.sets, ROW_BYTES, packets)


def _different(designs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the cheapest design per number of layers. Direct exchange is included only if it is the cheapest."""
    by_layers: dict[int, str] = {}
    for each in designs:
        by_layers.setdefault(len(each["layers"]), each["degrees"])
    if by_layers.get(1) != designs[0]["degrees"] and len(by_layers) > 3:
        by_layers.pop(1, None)
    return list(by_layers.values())


def _fitted(designs: Sequence[dict[str, Any]], seconds: dict[str, float]) -> list[str]:
    """Return all designs, cheapest first, by the costs per layer, packet and byte that fit the trials."""
    features = {each["degrees"]: _features(each) for each in designs}
    known = [degrees for degrees in seconds if degrees in features]
    # Minimize the relative errors of the trials.
    rows = np.array([features[degrees] / seconds[degrees] for degrees in known])
    costs = _non_negative_least_squares(rows, np.ones(len(known)))
    return sorted(features, key=lambda degrees: float(features[degrees] @ costs))


def _features(design: dict[str, Any]) -> NDArray[np.float64]:
    """Return the layers, packets and bytes of a rank."""
    levels = [*design["layers"], *([design["fold"]] if design["fold"] else [])]
    return np.array([len(levels), sum(each["packet_count"] for each in levels), design["sent_bytes"]], np.float64)


def _non_negative_least_squares(rows: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least-squares solution without negative costs: drop the most negative column and repeat."""
    columns = list(range(rows.shape[1]))
    while True:
        found = np.zeros(rows.shape[1])
        found[columns] = np.linalg.lstsq(rows[:, columns], targets, rcond=None)[0]
        if len(columns) == 1 or (found >= 0).all():
            return np.maximum(found, 0.0)
        columns.remove(int(np.argmin(found)))
