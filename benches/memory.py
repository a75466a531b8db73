"""Memory of collectives, counted: allocations per call after the first, and what a call needs beside its vector.

As a program (``memory.py LINKS COLLECTIVE=ALGORITHM:BYTES …``) it is a rank, which counts.
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
from ripieno.bench.contestants import Deployment
from ripieno.bench.figures import FigureCount, Measurements
from ripieno.bench.programs import timing
from ripieno.bench.rank import NativeWorld
from ripieno.launch.script.environment import init

KIB, MIB = 1 << 10, 1 << 20
RANKS, TIMEOUT_S = 4, 300.0
# A loop with so much time makes all the calls that it may.
FOREVER_S = 1e6
# What else a process does now and then, such as a thread that hears heartbeats.
ALLOCATIONS_PER_CALL = 0.1
# A segment is 256 KiB at most, and a link between two ranks holds a few.
SEGMENTS_BYTES = 2 * MIB


@dataclass(frozen=True)
class MemoryRow:
    """What is counted, at which size, and how much memory it may need."""

    collective: str
    size_bytes: int
    quick_bytes: int
    extra_bytes: int

    def word(self, quick: bool) -> str:
        """As the program takes it."""
        return f"{self.collective}:{self.quick_bytes if quick else self.size_bytes}"


ROWS = (
    MemoryRow("allreduce", 8, 8, SEGMENTS_BYTES),
    MemoryRow("broadcast=chain", 64 * MIB, MIB, SEGMENTS_BYTES),
    MemoryRow("allreduce=ring", 64 * MIB, MIB, 64 * MIB // RANKS),
    MemoryRow("allgather", 16 * MIB, MIB, SEGMENTS_BYTES),
)


def cases() -> dict[str, Measured]:
    """What can be counted alone, by name."""
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
                FigureCount(case, "memory beside the vector", extra_bytes / MIB, "MiB", row.extra_bytes / MIB)
            )

    return measured


def main() -> None:
    """Be a rank: count the cases of the command line; rank 0 prints the most of any rank."""
    world = NativeWorld(init(links=sys.argv[1], threads=1))
    for case in sys.argv[2:]:
        _, collective, algorithm, size_bytes = timing.parts_of(case)
        vectors = timing.vectors_of(collective, size_bytes, world.world_size)
        vectors.main.fill(0)
        call = world.call(collective, vectors, algorithm)
        extra_bytes = world.slowest(_extra_bytes(call))
        loop = partial(world.timed, collective, vectors, algorithm, FOREVER_S, apart=True)
        allocations = world.slowest(_allocations(loop))
        if world.rank == 0:
            print(allocations, extra_bytes, flush=True)


def _allocations(loop: Callable[[], object]) -> float:
    """Per call of the native loop, with its barrier and its exchange of seconds; all were called before."""
    count = ctypes.CDLL(None).allocation_count
    count.restype = ctypes.c_long
    loop()
    before = count()
    loop()
    return (count() - before) / timing.MOST_CALLS_APART


def _extra_bytes(call: Callable[[], object]) -> int:
    """By how much the process grows at most while it calls, its first call included."""
    # Sets the greatest size back to the present one.
    Path("/proc/self/clear_refs").write_text("5")
    before = _size("VmRSS")
    for _ in range(3):
        call()
    return _size("VmHWM") - before


def _size(name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None, f"Linux tells {name} of every process"
    return int(found[1]) * KIB


if __name__ == "__main__":
    main()
