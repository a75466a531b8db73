"""Benchmark of replicated ranks: sparse reductions of power-law sets on emulated hosts, as in Kylix's table I.

The same data are on 8 ranks, on 4, and on 4 logical ranks with 2 replicas each, of which 0 to 3 are dead. As a program
(``replicas.py FOLDER DEAD SHARES SAMPLES``) this file is a rank, which writes its seconds to FOLDER.

Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section VII, table I.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from effort import Effort, Measured
from ripieno.bench.figures import Figure, Measurements, Samples
from ripieno.bench.toolchain import Skipped
from ripieno.comm.communicator import Communicator
from ripieno.lab import Lab, missing_requirement
from ripieno.lab.cluster_spec import bits_per_s
from ripieno.launch.script.environment import init

HOST_COUNT, RATE, TIMEOUT_S = 8, "100mbit", 300.0
REPLICAS = 2
# Includes rank 0; no two are replicas of each other.
VICTIMS = (0, 5, 2)
FEATURE_COUNT, DRAW_COUNT, ALPHA = 400_000, 2_000_000, 1.1
CONFIGURE_COUNT, REDUCE_COUNT = 5, 20
QUICK_DRAW_COUNT = 20_000


@dataclass(frozen=True)
class ReplicaSystem:
    """Number of ranks, of replicas of each, and of dead ranks."""

    ranks: int
    replicas: int = 1
    dead: int = 0

    @property
    def name(self) -> str:
        """Return the name of the row in the table."""
        if self.replicas == 1:
            return f"{self.ranks} ranks without replicas"
        return f"{self.ranks // self.replicas} × {self.replicas} replicas, {self.dead} dead"


#: The second system is the baseline.
SYSTEMS = (
    ReplicaSystem(4),
    ReplicaSystem(HOST_COUNT),
    *(ReplicaSystem(HOST_COUNT, REPLICAS, dead) for dead in range(len(VICTIMS) + 1)),
)


def cases() -> dict[str, Measured]:
    """Return the measurements by name."""
    return {"lab": measured}


def measured(report: Measurements, effort: Effort) -> None:
    """Measure all systems, alternating."""
    cannot = missing_requirement()
    if cannot is not None:
        raise Skipped(f"no emulated hosts: {cannot}")
    found: dict[ReplicaSystem, dict[str, list[float]]] = {system: {} for system in SYSTEMS}
    with Lab(hosts=HOST_COUNT, rate="400mbit" if effort.quick else RATE) as lab:
        for _ in range(effort.runs(3)):
            for system in SYSTEMS:
                for name, values in _run(lab, system, quick=effort.quick).items():
                    found[system].setdefault(name, []).extend(values)
        bytes_per_s = bits_per_s("rate", "400mbit" if effort.quick else RATE) / 8
    for stage in ("configure", "reduce"):
        peer_samples = Samples(tuple(found[SYSTEMS[1]][stage]))
        report.figures.extend(
            Figure(
                case=stage,
                row=system.name,
                ours=Samples(tuple(found[system][stage])),
                peers={} if system == SYSTEMS[1] else {SYSTEMS[1].name: peer_samples},
                limit_s=max(found[system][f"{stage}_bytes"]) / bytes_per_s,
                limit="bytes of the busiest rank, over its link rate",
                work=0.0,
                rate_unit="",
            )
            for system in SYSTEMS
        )


def _run(lab: Lab, system: ReplicaSystem, *, quick: bool) -> dict[str, list[float]]:
    """Return the seconds of the slowest logical rank, and the bytes sent by the busiest rank."""
    draws = QUICK_DRAW_COUNT if quick else DRAW_COUNT
    samples = 1 if quick else REDUCE_COUNT
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, folder, *map(str, (system.dead, draws, samples))]
        environment = {"RIPIENO_REPLICAS": str(system.replicas), "PYTHONPATH": os.pathsep.join(sys.path)}
        lab.run(
            command, first=system.ranks, timeout_s=TIMEOUT_S, environment=environment, prefix=False, keep_going=True
        )
        ranks = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank-*.json"))]
    expected = system.ranks - system.dead
    if len(ranks) != expected:
        raise RuntimeError(f"{system.name}: {len(ranks)} ranks have written their seconds, expected {expected}")
    # The fastest replica of each logical rank counts.
    logical: dict[int, dict[str, Any]] = {}
    for rank in sorted(ranks, key=lambda rank: sum(rank["reduce"])):
        logical.setdefault(rank["rank"], rank)
    found = {}
    for stage in ("configure", "reduce"):
        rounds = zip(*(rank[stage] for rank in logical.values()), strict=True)
        found[stage] = [max(seconds) for seconds in rounds]
        found[f"{stage}_bytes"] = [max(rank[f"{stage}_bytes"] for rank in ranks)]
    return found


def main() -> None:
    """Run as a rank."""
    folder, dead, draw_count, sample_count = Path(sys.argv[1]), *map(int, sys.argv[2:])
    world = init(threads=1, tls=False)
    replicas = int(os.environ["RIPIENO_REPLICAS"])
    comm = world.replicate(replicas) if replicas > 1 else world
    rng = np.random.default_rng([comm.rank, comm.world_size])
    drawn = rng.zipf(ALPHA, 4 * draw_count // comm.world_size)
    indices = np.unique(drawn[drawn <= FEATURE_COUNT][: draw_count // comm.world_size])
    values = rng.random(len(indices))
    first = comm.sparse(indices, indices, size=FEATURE_COUNT + 1)
    first.reduce(values)
    if replicas > 1 and world.rank in VICTIMS[:dead]:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(dead and 2):
        first.reduce(values)

    configure_count = min(CONFIGURE_COUNT, sample_count)
    found: dict[str, object] = {"rank": comm.rank}
    found["configure"], found["configure_bytes"] = _timed(
        comm, configure_count, lambda: comm.sparse(indices, indices, size=FEATURE_COUNT + 1)
    )
    found["reduce"], found["reduce_bytes"] = _timed(comm, sample_count, lambda: first.reduce(values))
    (folder / f"rank-{world.rank}.json").write_text(json.dumps(found))


def _timed(comm: Communicator, count: int, call: Callable[[], object]) -> tuple[list[float], float]:
    """Return the seconds of each call, after a barrier, and the bytes that one call sends."""
    seconds, sent_bytes = [], 0
    for _ in range(count):
        comm.barrier()
        before, start = comm.stats()["bytes_sent"], time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        sent_bytes += comm.stats()["bytes_sent"] - before
    return seconds, sent_bytes / count


if __name__ == "__main__":
    main()
