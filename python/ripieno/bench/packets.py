"""Provide the measurement of `ripieno packets`: throughput against packet size, on ranks started here or by a launcher.

python -m ripieno.bench.packets LINKS BUDGET_S BYTES,…

Run as all ranks; rank 0 prints the result as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ripieno.bench import baselines
from ripieno.bench.baselines import Deployment
from ripieno.launch.script.environment import init
from ripieno.sparse import packets


def started(world_size: int, sizes: Sequence[int], links: str, budget_s: float, timeout_s: float) -> dict[str, Any]:
    """Measure between this number of processes of this machine."""
    words, environment = baselines.module("ripieno.bench.packets")
    words += [links, f"{budget_s:g}", ",".join(str(size) for size in sizes)]
    found: dict[str, Any] = json.loads(Deployment(world_size).ranks(words, timeout_s, environment))
    return found


def joined(sizes: Sequence[int], links: str, budget_s: float) -> dict[str, Any] | None:
    """Measure between the ranks of a launcher. Rank 0 returns the result."""
    with init(links=links, threads=1) as comm:
        curve = comm.measure_packets(sizes, budget_s=budget_s)
        if comm.rank != 0:
            return None
        return {"ranks": comm.world_size, "nodes": len(set(comm.nodes)), **packets.as_json(curve)}


if __name__ == "__main__":
    found = joined([int(size) for size in sys.argv[3].split(",")], sys.argv[1], float(sys.argv[2]))
    if found is not None:
        print(json.dumps(found), flush=True)
