"""Every algorithm over a grid of sizes: what the default choice should be held against.

python -m ripieno.bench.choice LINKS COLLECTIVE,… BYTES,…

Run as all ranks; rank 0 prints a line of JSON per cell. Here bytes are those of all chunks together, as the default
choice counts them. Results are not checked: the other measurements do that.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import ripieno._native as _native
from ripieno.bench.programs import timing
from ripieno.bench.rank import NativeWorld, times
from ripieno.launch.script.environment import init

#: Seconds for the calls of one algorithm at one size, in each of so many rounds.
BUDGET_S = 0.01
ROUND_COUNT = 3
#: After the first round, who is slower than the best by this factor is not timed again.
HOPELESS = 2.0
#: Calls that take longer than this are steady enough for one round.
LONG_S = 0.5
#: Who is slower by this factor at two sizes from so many bytes on, and falls further behind, is not tried with more.
LOST = 4.0
LOST_BYTES = 256 << 10
#: The default may be off the best by this factor.
TOLERANCE = 1.15


@dataclass(frozen=True)
class Cell:
    """One collective at one size.

    Parameters
    ----------
    collective, world_size, size_bytes
        What was timed.
    chosen
        The algorithm that the default choice takes.
    seconds
        Of each algorithm for such a world, the best round's median; without those given up at fewer bytes.
    """

    collective: str
    world_size: int
    size_bytes: int
    chosen: str
    seconds: dict[str, float]

    @property
    def best(self) -> str:
        """The fastest algorithm."""
        return min(self.seconds, key=lambda name: self.seconds[name])

    def to_best(self, name: str) -> float:
        """Seconds of an algorithm over those of the best; infinite if it was given up at fewer bytes."""
        return self.seconds.get(name, float("inf")) / self.seconds[self.best]

    @property
    def is_off(self) -> bool:
        """Whether the default is further off than it may be."""
        return self.to_best(self.chosen) > TOLERANCE

    def as_json(self) -> dict[str, object]:
        """All of it, with the best."""
        return asdict(self) | {"best": self.best}


def cells(world: NativeWorld, collectives: Sequence[str], sizes: Sequence[int]) -> Iterator[Cell]:
    """Time all algorithms; every rank sees the same seconds, and so takes the same turns."""
    for collective in collectives:
        names = [name for name in _native.algorithms(collective) if _is_for(world, collective, name)]
        behind = dict.fromkeys(names, 0.0)
        per_rank = timing.ELEMENT_BYTES * world.world_size
        chunked = collective in (*timing.BLOCK_COLLECTIVES, "reduce-scatter", "alltoall")
        # Chunks hold an element at least.
        all_sizes = dict.fromkeys(max(size // per_rank, 1) * per_rank if chunked else size for size in sizes)
        for size in (timing.ELEMENT_BYTES,) if collective == "barrier" else all_sizes:
            cell = _cell(world, collective, size, names)
            yield cell
            before, behind = behind, {name: cell.to_best(name) for name in names}
            lost = {name for name in names if behind[name] > before[name] > LOST and size >= LOST_BYTES}
            names = [name for name in names if name not in lost]


def _is_for(world: NativeWorld, collective: str, name: str) -> bool:
    """Whether such a world has this algorithm."""
    return not isinstance(times(world, f"{collective}={name}:{timing.ELEMENT_BYTES}", 0.0), str)


def _cell(world: NativeWorld, collective: str, size_bytes: int, names: Sequence[str]) -> Cell:
    block = size_bytes // world.world_size if collective in timing.BLOCK_COLLECTIVES else size_bytes
    vectors = timing.vectors_of(collective, block, world.world_size)
    vectors.main.fill(0)
    vectors.into.fill(0)
    chosen = _native.choice(world.comm._native, collective, size_bytes)
    # A root that runs ahead would time how fast it sends, and not when the last rank has what it is to have.
    apart = collective in timing.ROOTED or size_bytes >= timing.APART_BYTES
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUND_COUNT):
        least = min((min(some) for some in found.values() if some), default=float("inf"))
        for name, some in found.items():
            if some and (min(some) > HOPELESS * least or least > LONG_S):
                continue
            some.append(statistics.median(world.timed(collective, vectors, name, BUDGET_S, apart=apart)))
    return Cell(collective, world.world_size, size_bytes, chosen, {k: min(v) for k, v in found.items()})


def main() -> None:
    """Time what the command line says."""
    links, collectives, sizes = sys.argv[1:]
    world = NativeWorld(init(links=links, threads=1))
    for cell in cells(world, collectives.split(","), [int(size) for size in sizes.split(",")]):
        if world.rank == 0:
            print(json.dumps(asdict(cell)), flush=True)


if __name__ == "__main__":
    main()
