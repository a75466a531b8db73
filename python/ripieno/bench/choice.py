"""Provide the times of every algorithm over a grid of sizes, to judge the default choice.

python -m ripieno.bench.choice LINKS COLLECTIVE,… BYTES,… TRIALS_S

Run as all ranks; rank 0 prints a line of JSON per cell. Bytes count all chunks together, as the default choice does.
Algorithms with equal plans are timed once. Results are not checked: the other measurements do that.
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

#: Time limit for the calls of one algorithm at one size in one round, and number of rounds; the median round counts.
BUDGET_S = 0.01
ROUND_COUNT = 5
#: Algorithms slower than the best by this factor in the first round are not timed again.
DISCARD_RATIO = 2.0
#: Calls longer than this are steady enough for a single round.
LONG_S = 0.5
#: An algorithm that is slower by this factor at two sizes above `GIVE_UP_MIN_BYTES`, and falls further behind, is not
#: tried at larger sizes.
GIVE_UP_RATIO = 4.0
GIVE_UP_MIN_BYTES = 256 << 10
#: The choice may be slower than the best by this factor.
TOLERANCE = 1.1


@dataclass(frozen=True)
class Cell:
    """Times of one collective at one size.

    Parameters
    ----------
    collective, world_size, size_bytes
        The measured call.
    default
        The default algorithm without trials.
    chosen
        The default algorithm here, after trials if any.
    seconds
        Seconds of each algorithm for this world size, without those given up at smaller sizes. One of several equal
        plans represents them all.
    stands_for
        The measured representative of each algorithm.
    """

    collective: str
    world_size: int
    size_bytes: int
    default: str
    chosen: str
    seconds: dict[str, float]
    stands_for: dict[str, str]

    @property
    def best(self) -> str:
        """Return the fastest algorithm."""
        return min(self.seconds, key=lambda name: self.seconds[name])

    def to_best(self, name: str) -> float:
        """Return the seconds of an algorithm relative to the best; infinite if it was given up at a smaller size."""
        return self.seconds.get(self.stands_for.get(name, name), float("inf")) / self.seconds[self.best]

    @property
    def is_off(self) -> bool:
        """Return whether the default is slower than the tolerance allows."""
        return self.to_best(self.chosen) > TOLERANCE

    def as_json(self) -> dict[str, object]:
        """Return all fields, with the best algorithm."""
        return asdict(self) | {"best": self.best}


def cells(
    world: NativeWorld, collectives: Sequence[str], sizes: Sequence[int], trials_s: float = 0.0
) -> Iterator[Cell]:
    """Time all algorithms, after trials of the given duration. All ranks get the same seconds.

    Times of the trials are not reused: all algorithms are measured again.
    """
    defaults = {
        (collective, size): _native.choice(world.comm._native, collective, size)
        for collective in collectives
        for size in _sizes(world, collective, sizes)
    }
    if trials_s > 0:
        world.comm.try_algorithms(budget_s=trials_s, use_stored=False)
    for collective in collectives:
        given_up: set[str] = set()
        behind: dict[str, float] = {}
        for size in _sizes(world, collective, sizes):
            cell = _cell(world, collective, size, defaults[collective, size], given_up)
            yield cell
            before, behind = behind, {name: cell.to_best(name) for name in cell.seconds}
            if size >= GIVE_UP_MIN_BYTES:
                given_up |= {name for name in behind if behind[name] > before.get(name, behind[name]) > GIVE_UP_RATIO}


def _sizes(world: NativeWorld, collective: str, sizes: Sequence[int]) -> list[int]:
    """Return total bytes in whole elements; a chunk holds at least one."""
    if collective == "barrier":
        return [timing.ELEMENT_BYTES]
    per_rank = timing.ELEMENT_BYTES * world.world_size
    chunked = collective in (*timing.BLOCK_COLLECTIVES, "reduce-scatter", "alltoall")
    return list(dict.fromkeys(max(size // per_rank, 1) * per_rank if chunked else size for size in sizes))


def _cell(world: NativeWorld, collective: str, size_bytes: int, default: str, given_up: set[str]) -> Cell:
    block = size_bytes // world.world_size if collective in timing.BLOCK_COLLECTIVES else size_bytes
    vectors = timing.vectors_of(collective, block, world.world_size)
    vectors.main.fill(0)
    vectors.into.fill(0)
    native = world.comm._native
    classes = _native.distinct_algorithms(native, collective, block)
    stands_for = {name: each[0] for each in classes for name in each}
    chosen = _native.choice(native, collective, size_bytes)
    # Time calls separately for rooted collectives: a root that runs ahead would measure its send rate instead of the
    # time until the last rank has its data.
    separate = collective in timing.ROOTED or size_bytes >= timing.SEPARATE_BYTES
    found: dict[str, list[float]] = {each[0]: [] for each in classes if each[0] not in given_up}
    for _ in range(ROUND_COUNT):
        least = min((statistics.median(samples) for samples in found.values() if samples), default=float("inf"))
        for name, samples in found.items():
            if samples and (statistics.median(samples) > DISCARD_RATIO * least or least > LONG_S):
                continue
            samples.append(statistics.median(world.timed(collective, vectors, name, BUDGET_S, separate=separate)))
    seconds = {name: statistics.median(samples) for name, samples in found.items()}
    return Cell(collective, world.world_size, size_bytes, default, chosen, seconds, stands_for)


def main() -> None:
    """Time the cases of the command line."""
    links, collectives, sizes, trials_s = sys.argv[1:]
    world = NativeWorld(init(links=links, threads=1))
    for cell in cells(world, collectives.split(","), [int(size) for size in sizes.split(",")], float(trials_s)):
        if world.rank == 0:
            print(json.dumps(asdict(cell)), flush=True)


if __name__ == "__main__":
    main()
