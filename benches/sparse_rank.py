"""A rank of the sparse benchmark: makes power-law data, reduces it by several methods, and checks the results.

benches/sparse_rank.py CASE_JSON FILE

Run as all ranks; rank 0 writes the results to FILE.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ripieno._native import DensityCurve, PacketCurve
from ripieno.comm.communicator import Communicator
from ripieno.launch.script.environment import init
from ripieno.sparse import design, packets

ROW_BYTES = 4
#: Methods without a network: gather all indices and values on all ranks, or reduce the dense vector.
GATHER, DENSE = "gather", "dense"
#: Maximum number of timed rounds, after one warm-up.
MAX_ROUNDS = 25


@dataclass(frozen=True)
class SparseMethods:
    """The data of a reduction, and the methods to reduce it.

    Parameters
    ----------
    features, density, alpha
        Each rank has feature r with probability 1 - exp(-lambda·r^-alpha), with lambda such that `density` is its
        share.
    methods
        "designed" (from measured packets), "direct", "binary", degrees such as "8x4x2"; "gather" and "dense".
    budget_s
        Seconds for the rounds of each method, and for measuring packets.
    seed
        Seed of the data.
    edges
        A file of edges, an array of shape (m, 2), instead of a power law: each rank has the vertices of its share,
        which is random.
    """

    features: int
    density: float
    alpha: float
    methods: tuple[str, ...]
    budget_s: float
    seed: int = 0
    edges: str | None = None

    @property
    def curve(self) -> DensityCurve:
        """Return the densities of unions."""
        return DensityCurve.power_law(self.features, self.alpha, self.density)

    def indices(self, rank: int, world_size: int) -> NDArray[np.int64]:
        """Return the features of a rank of `world_size`."""
        if self.edges is not None:
            edges = np.load(self.edges, mmap_mode="r")
            is_own = np.random.default_rng(self.seed).integers(0, world_size, len(edges)) == rank
            return np.unique(edges[is_own])
        curve = self.curve
        ranks = np.arange(1, self.features + 1, dtype=np.float64)
        probabilities = -np.expm1(-curve.lambda_0 * ranks**-self.alpha)
        return np.flatnonzero(np.random.default_rng([self.seed, rank]).random(self.features) < probabilities)


def measured(comm: Communicator, case: SparseMethods) -> dict[str, Any]:
    """Measure one case; results are equal on every rank."""
    own = case.indices(comm.rank, comm.world_size)
    # Small integers: their sums are exact in any order, so all methods must agree bitwise.
    values = (own % 7 + comm.rank % 5 + 1).astype(np.float32)
    dense = np.zeros(case.features, np.float32)
    dense[own] = values
    expected = comm.allreduce(dense)[own]
    curve = comm.measure_packets(budget_s=case.budget_s)
    results = [_method(comm, case, name, own, values, expected, curve) for name in case.methods]
    rows = comm.allreduce(len(own))
    return {
        **asdict(case),
        "ranks": comm.world_size,
        "rows": rows / comm.world_size,
        "row_bytes": ROW_BYTES,
        "packets": packets.as_json(curve),
        "results": results,
    }


def _method(
    comm: Communicator, case: SparseMethods, name: str, own: NDArray[np.int64], values: NDArray[np.float32],
    expected: NDArray[np.float32], curve: PacketCurve,
) -> dict[str, Any]:  # fmt: skip
    """Time and check one method."""
    found: dict[str, Any] = {"method": name, "configure_s": 0.0, "degrees": None, "volumes": None, "predicted_s": None}
    reduce: Callable[[], NDArray[np.float32]]
    if name == GATHER:
        reduce = lambda: _gathered(comm, case.features, own, values)  # noqa: E731
    elif name == DENSE:
        reduce = lambda: _dense(comm, case.features, own, values)  # noqa: E731
    else:
        degrees = None if name == "designed" else name
        # The first call opens the connections, which all methods share.
        comm.sparse(own, own, size=case.features, degrees=degrees).reduce(values)
        seconds, configured = _timed(comm, lambda: comm.sparse(own, own, size=case.features, degrees=degrees))
        held = comm.allreduce(np.array([[each["out_rows"], each["in_rows"]] for each in configured.volumes]))
        found |= {
            "configure_s": seconds,
            "degrees": configured.degrees,
            "volumes": (held * ROW_BYTES).tolist(),
        }
        if case.edges is None:
            data = design.DataDistribution(comm.world_size, case.features, case.curve, ROW_BYTES)
            found["predicted_s"] = design.price(data, curve, configured.degrees)["seconds"]
        reduce = lambda: configured.reduce(values)  # noqa: E731
    right = np.array_equal(reduce(), expected)
    if not comm.allreduce(int(right), op="min"):
        raise AssertionError(f"{name}: the sums differ from the sums of a dense allreduce")
    before = comm.stats()["bytes_sent"]
    seconds, rounds = [], 0
    while rounds == 0 or (rounds < MAX_ROUNDS and sum(seconds) < case.budget_s):
        seconds.append(_timed(comm, reduce)[0])
        rounds += 1
    # The barriers and maxima between rounds are a few bytes.
    sent = (comm.stats()["bytes_sent"] - before) / rounds
    sent_bytes = comm.allreduce(np.array([sent]))[0], comm.allreduce(np.array([sent]), op="max")[0]
    return found | {
        "reduce_s": statistics.median(seconds),
        "rounds_s": seconds,
        "sent_bytes": float(sent_bytes[0]),
        "busiest_sent_bytes": float(sent_bytes[1]),
    }


def _timed(comm: Communicator, call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the slowest rank's seconds of a call that all ranks begin together, and the result of the call."""
    comm.barrier()
    start = time.perf_counter()
    result = call()
    return comm.allreduce(time.perf_counter() - start, op="max"), result


def _gathered(
    comm: Communicator, features: int, own: NDArray[np.int64], values: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Gather all indices and values, and add up the rows that this rank needs."""
    counts = comm.allgather(np.array([len(own)]), counts=[1] * comm.world_size).tolist()
    # Use 32-bit indices where they suffice: half the bytes.
    narrow = own.astype(np.uint32) if features <= 1 << 32 else own
    indices = comm.allgather(narrow, counts=counts)
    rows = comm.allgather(values, counts=counts)
    dense, ends = np.zeros(features, np.float32), np.cumsum(counts)
    for start, end in zip(ends - counts, ends, strict=True):
        # A rank names an index only once.
        dense[indices[start:end]] += rows[start:end]
    return dense[own]


def _dense(
    comm: Communicator, features: int, own: NDArray[np.int64], values: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Reduce the whole dense vector."""
    dense = np.zeros(features, np.float32)
    dense[own] = values
    return comm.allreduce(dense, out=dense)[own]


def main() -> None:
    """Measure the case of the command line."""
    fields = json.loads(sys.argv[1])
    case = SparseMethods(**fields | {"methods": tuple(fields["methods"])})
    comm = init(threads=1, tls=False)
    found = measured(comm, case)
    if comm.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
