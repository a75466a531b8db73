"""Memory counts of collectives: allocations per call after the first, and memory of a call in addition to its vector.

As a program (``memory.py LINKS COLLECTIVE=ALGORITHM:BYTES …``) this file is a rank, which counts.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from effort import Effort, Measured
from ripieno.bench import toolchain
from ripieno.bench.baselines import Deployment
from ripieno.bench.figures import FigureCount, Measurements
from ripieno.bench.programs import timing
from ripieno.bench.rank import NativeWorld
from ripieno.launch.script.environment import init

KIB, MIB = 1 << 10, 1 << 20
RANKS, TIMEOUT_S = 4, 300.0
# A time limit that a loop never reaches, so that it makes the maximum number of calls.
FOREVER_S = 1e6
# Allowance for occasional allocations elsewhere, such as in the heartbeat thread.
ALLOCATIONS_PER_CALL = 0.1
# A segment is 256 KiB at most, and a link between two ranks holds a few.
SEGMENTS_BYTES = 2 * MIB


@dataclass(frozen=True)
class MemoryRow:
    """A counted case: collective, size, and upper limit of its memory."""

    collective: str
    size_bytes: int
    quick_bytes: int
    extra_bytes: int

    def word(self, quick: bool) -> str:
        """Return the case in the syntax of the program."""
        return f"{self.collective}:{self.quick_bytes if quick else self.size_bytes}"


ROWS = (
    MemoryRow("allreduce", 8, 8, SEGMENTS_BYTES),
    MemoryRow("broadcast=chain", 64 * MIB, MIB, SEGMENTS_BYTES),
    MemoryRow("allreduce=ring", 64 * MIB, MIB, 64 * MIB // RANKS),
    MemoryRow("allgather", 16 * MIB, MIB, SEGMENTS_BYTES),
)


def cases() -> dict[str, Measured]:
    """Return the counts by name."""
    return {links: _case(links) for links in ("auto", "tcp")}


def _case(links: str) -> Measured:
    def measured(report: Measurements, effort: Effort) -> None:
        counter = toolchain.shared_object(Path(__file__).with_name("count_malloc.c"))
        words = [sys.executable, __file__, links, *(row.word(effort.quick) for row in ROWS)]
        output = Deployment(RANKS).ranks(words, TIMEOUT_S, {"LD_PRELOAD": str(counter)})
        for row, line in zip(ROWS, output.splitlines(), strict=True):
            allocations, extra_bytes = (float(number) for number in line.split())
            case = f"{row.word(effort.quick)}, {RANKS} ranks, links {links}"
            report.counts.append(FigureCount(case, "allocations a call", allocations, "", ALLOCATIONS_PER_CALL))
            report.counts.append(
                FigureCount(case, "memory in addition to the vector", extra_bytes / MIB, "MiB", row.extra_bytes / MIB)
            )

    return measured


def main() -> None:
    """Count the cases of the command line as a rank; rank 0 prints the maximum over the ranks."""
    world = NativeWorld(init(links=sys.argv[1], threads=1))
    for case in sys.argv[2:]:
        _, collective, algorithm, size_bytes = timing.parts_of(case)
        vectors = timing.vectors_of(collective, size_bytes, world.world_size)
        vectors.main.fill(0)
        call = world.call(collective, vectors, algorithm)
        extra_bytes = world.slowest(_extra_bytes(call))
        loop = partial(world.timed, collective, vectors, algorithm, FOREVER_S, separate=True)
        allocations = world.slowest(_allocations(loop))
        if world.rank == 0:
            print(allocations, extra_bytes, flush=True)


def _allocations(loop: Callable[[], object]) -> float:
    """Return allocations per call of the native loop with its barrier and its exchange of seconds, all warmed up."""
    count = ctypes.CDLL(None).allocation_count
    count.restype = ctypes.c_long
    loop()
    before = count()
    loop()
    return (count() - before) / timing.SEPARATE_CALL_COUNT_MAX


def _extra_bytes(call: Callable[[], object]) -> int:
    """Return the maximum growth of the process during calls, including the first call."""
    # Reset the peak size to the current one.
    Path("/proc/self/clear_refs").write_text("5")
    before = _size("VmRSS")
    for _ in range(3):
        call()
    return _size("VmHWM") - before


def _size(name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None, f"Linux reports {name} of every process"
    return int(found[1]) * KIB


if __name__ == "__main__":
    main()
