"""Benchmark of one host with shared memory, compared with Open MPI in both modes, MPICH and mpi4py.

"shared" are native programs, too, on arrays of `ripieno.empty`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from effort import Effort, Measured
from ripieno.bench import baselines
from ripieno.bench.baselines import Deployment
from ripieno.bench.cases import BenchCase, cases_of
from ripieno.bench.comparison import compare
from ripieno.bench.figures import Measurements
from ripieno.bench.limits import MachineLimit

COLLECTIVES = ("broadcast", "allreduce", "allgather", "barrier")
SIZES_BYTES = (8, 64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 1 << 20, 8 << 20, 64 << 20)
QUICK_SIZES_BYTES = (8, 64 << 10)
REPETITION_COUNT, BUDGET_S, TIMEOUT_S = 7, 0.05, 600.0
QUICK_BUDGET_S, QUICK_TIMEOUT_S = 0.002, 60.0
PEERS = ("openmpi", "mpich")

#: Upper limits relative to the best peer, or in seconds; elsewhere no slower than the best peer.
TARGETS: dict[tuple[str, int, str], dict[str, float]] = {
    ("native", 2, "allreduce:1048576"): {"peer": 1 / 1.3},
    ("native", 2, "allreduce:67108864"): {"peer": 1 / 2.5},
    ("native", 4, "allreduce:8"): {"peer": 1.0, "seconds": 10e-6},
    ("shared", 2, "allreduce:67108864"): {"peer": 1 / 2.5, "seconds": 18e-3},
}


def cases() -> dict[str, Measured]:
    """Return the measurements by name."""
    shapes = [(through, ranks) for ranks in (2, 4) for through in ("native", "python")]
    found = {f"{through}-{ranks}": _case(through, ranks, COLLECTIVES, SIZES_BYTES) for through, ranks in shapes}
    return found | {"shared-2": _case("shared", 2, ("allreduce",), SIZES_BYTES[-1:])}


def _case(through: str, ranks: int, collectives: Sequence[str], sizes_bytes: Sequence[int]) -> Measured:
    def measured(report: Measurements, effort: Effort) -> None:
        place = Deployment(ranks)
        ours = baselines.ripieno(place, through=through)
        peers, remarks = baselines.peers(PEERS, place, python=through == "python", gloo_python=None)
        for remark in remarks:
            report.remark(remark)
        compare(
            [ours, *peers],
            cases_of(collectives, QUICK_SIZES_BYTES if effort.quick else sizes_bytes),
            MachineLimit(ranks),
            report,
            title=lambda case: f"{case.name}, {ranks} ranks, {through}",
            repetitions=effort.runs(REPETITION_COUNT),
            budget_s=QUICK_BUDGET_S if effort.quick else BUDGET_S,
            timeout_s=QUICK_TIMEOUT_S if effort.quick else TIMEOUT_S,
            targets=_targets(through, ranks),
        )

    return measured


def _targets(through: str, ranks: int) -> Callable[[BenchCase], Mapping[str, float]]:
    return lambda case: TARGETS.get((through, ranks, case.word), {"peer": 1.0})
