"""Every algorithm over a grid of sizes: what the default choice should be held against.

python -m ripieno.bench.choice LINKS COLLECTIVE,… BYTES,… TRIALS_S

Run as all ranks; rank 0 prints a line of JSON per cell. Here bytes are those of all chunks together, as the default
choice counts them. Algorithms of equal plans are timed once. Results are not checked: the other measurements do that.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import ripieno._native as _native
from ripieno.bench.programs import timing
from ripieno.bench.rank import NativeWorld
from ripieno.launch.script.environment import init

#: Seconds for the calls of one algorithm at one size, in each of so many rounds, of which the median counts.
BUDGET_S = 0.01
ROUND_COUNT = 5
#: After the first round, who is slower than the best by this factor is not timed again.
HOPELESS = 2.0
#: Calls that take longer than this are steady enough for one round.
LONG_S = 0.5
#: Who is slower by this factor at two sizes from so many bytes on, and falls further behind, is not tried with more.
LOST = 4.0
LOST_BYTES = 256 << 10
#: The choice may be off the best by this factor.
TOLERANCE = 1.1


@dataclass(frozen=True)
class Cell:
    """One collective at one size.

    Parameters
    ----------
    collective, world_size, size_bytes
        What was timed.
    usual
        The algorithm that the default choice takes where nothing was tried.
    chosen
        The one that it takes here, after trials if there were any.
    seconds
        Of each algorithm for such a world; without those given up at fewer bytes. Of equal plans one stands for all.
    stands_for
        Which algorithm stands for each.
    """

    collective: str
    world_size: int
    size_bytes: int
    usual: str
    chosen: str
    seconds: dict[str, float]
    stands_for: dict[str, str]

    @property
    def best(self) -> str:
        """The fastest algorithm."""
        return min(self.seconds, key=lambda name: self.seconds[name])

    def to_best(self, name: str) -> float:
        """Seconds of an algorithm over those of the best; infinite if it was given up at fewer bytes."""
        return self.seconds.get(self.stands_for.get(name, name), float("inf")) / self.seconds[self.best]

    @property
    def is_off(self) -> bool:
        """Whether the default is further off than it may be."""
        return self.to_best(self.chosen) > TOLERANCE

    def as_json(self) -> dict[str, object]:
        """All of it, with the best."""
        return asdict(self) | {"best": self.best}


def cells(
    world: NativeWorld, collectives: Sequence[str], sizes: Sequence[int], trials_s: float = 0.0
) -> Iterator[Cell]:
    """Time all algorithms, after trials of so many seconds; every rank sees the same seconds, and takes the same turns.

    The trials tell nothing of the seconds here: these are measured anew.
    """
    usual = {
        (collective, size): _native.choice(world.comm._native, collective, size)
        for collective in collectives
        for size in _sizes(world, collective, sizes)
    }
    if trials_s > 0:
        world.comm.try_algorithms(budget_s=trials_s, kept=False)
    for collective in collectives:
        lost: set[str] = set()
        behind: dict[str, float] = {}
        for size in _sizes(world, collective, sizes):
            cell = _cell(world, collective, size, usual[collective, size], lost)
            yield cell
            before, behind = behind, {name: cell.to_best(name) for name in cell.seconds}
            if size >= LOST_BYTES:
                lost |= {name for name in behind if behind[name] > before.get(name, behind[name]) > LOST}


def _sizes(world: NativeWorld, collective: str, sizes: Sequence[int]) -> list[int]:
    """Bytes in all, in whole elements; chunks hold one at least."""
    if collective == "barrier":
        return [timing.ELEMENT_BYTES]
    per_rank = timing.ELEMENT_BYTES * world.world_size
    chunked = collective in (*timing.BLOCK_COLLECTIVES, "reduce-scatter", "alltoall")
    return list(dict.fromkeys(max(size // per_rank, 1) * per_rank if chunked else size for size in sizes))


def _cell(world: NativeWorld, collective: str, size_bytes: int, usual: str, lost: set[str]) -> Cell:
    block = size_bytes // world.world_size if collective in timing.BLOCK_COLLECTIVES else size_bytes
    vectors = timing.vectors_of(collective, block, world.world_size)
    vectors.main.fill(0)
    vectors.into.fill(0)
    native = world.comm._native
    classes = _native.distinct_algorithms(native, collective, block)
    stands_for = {name: each[0] for each in classes for name in each}
    chosen = _native.choice(native, collective, size_bytes)
    # A root that runs ahead would time how fast it sends, and not when the last rank has what it is to have.
    apart = collective in timing.ROOTED or size_bytes >= timing.APART_BYTES
    found: dict[str, list[float]] = {each[0]: [] for each in classes if each[0] not in lost}
    for _ in range(ROUND_COUNT):
        least = min((statistics.median(some) for some in found.values() if some), default=float("inf"))
        for name, some in found.items():
            if some and (statistics.median(some) > HOPELESS * least or least > LONG_S):
                continue
            some.append(statistics.median(world.timed(collective, vectors, name, BUDGET_S, apart=apart)))
    seconds = {name: statistics.median(some) for name, some in found.items()}
    return Cell(collective, world.world_size, size_bytes, usual, chosen, seconds, stands_for)


def main() -> None:
    """Time what the command line says."""
    links, collectives, sizes, trials_s = sys.argv[1:]
    world = NativeWorld(init(links=links, threads=1))
    for cell in cells(world, collectives.split(","), [int(size) for size in sizes.split(",")], float(trials_s)):
        if world.rank == 0:
            print(json.dumps(asdict(cell)), flush=True)


if __name__ == "__main__":
    main()
