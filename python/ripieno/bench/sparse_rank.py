"""Provide a rank of sparse reductions by direct, designed and binary networks, on emulated hosts.

python -m ripieno.bench.sparse_rank CASE_JSON FILE

Run as all ranks; rank 0 writes the seconds and bytes of each network to FILE.

Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section VII.A.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ripieno._native import DensityCurve
from ripieno.files import disk
from ripieno.launch.script.environment import init

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class SparseCase:
    """Features of power-law data, the density of a rank's set, and the number of timed reductions of each network."""

    features: int
    density: float
    exponent: float
    repetitions: int


def measured(comm: Communicator, case: SparseCase, budget_s: float = 2.0) -> dict[str, Any]:
    """Return the degrees, median seconds and bytes of each network, and the seconds of a message; equal on all ranks.

    The measurement of messages takes at most `budget_s`.
    """
    law = DensityCurve.power_law(case.features, case.exponent, case.density)
    assert law.lambda_0 is not None, "power laws have a lambda_0"
    probabilities = -np.expm1(-law.lambda_0 * np.arange(1, case.features + 1, dtype=np.float64) ** -case.exponent)
    indices = np.flatnonzero(np.random.default_rng(comm.rank).random(case.features) < probabilities)
    costs = comm.measure_packets(budget_s=budget_s)
    names = {
        "direct": [comm.world_size],
        "designed": None,
        "binary": [2] * (comm.world_size.bit_length() - 1),
    }
    networks = {
        name: comm.sparse(indices, indices, size=case.features, degrees=degrees) for name, degrees in names.items()
    }
    values = np.ones(len(indices), np.float32)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    sent_bytes = {}
    for repetition in range(case.repetitions + 1):
        for name, network in networks.items():
            found_s, sent_bytes[name] = _reduction(comm, network, values)
            # The first reduction sets up connections, and does not count.
            if repetition:
                seconds[name].append(found_s)
    found = {
        name: {
            "degrees": networks[name].degrees,
            "seconds": statistics.median(seconds[name]),
            "sent_bytes": sent_bytes[name],
        }
        for name in names
    }
    return {"networks": found, "alpha_s": costs.alpha_s}


def _reduction(comm: Communicator, network: Any, values: Any) -> tuple[float, float]:
    """Return the slowest rank's seconds of a reduction, and the bytes that the busiest rank sent."""
    comm.barrier()
    before = comm.stats()["bytes_sent"]
    begin_s = time.perf_counter()
    network.reduce(values)
    seconds = time.perf_counter() - begin_s
    sent_bytes = comm.stats()["bytes_sent"] - before
    return comm.allreduce(seconds, op="max"), float(comm.allreduce(sent_bytes, op="max"))


def main(case: SparseCase, target: Path) -> None:
    """Run as one rank."""
    # Encryption is off: the network links are measured, not the processors.
    comm = init(threads=1, tls=False)
    found = measured(comm, case)
    if comm.rank == 0:
        disk.write_text(target, json.dumps(found))
    comm.close()


if __name__ == "__main__":
    main(SparseCase(**json.loads(sys.argv[1])), Path(sys.argv[2]))
