"""Determine the causes of waits: the ranks that other ranks waited for.

A late rank delays its neighbors, and they delay their neighbors. A wait for rank j is attributed to j only for the part
of the time that j did not wait itself. The rest is attributed to the peers that j waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# A rank stands out if it caused this many times as much waiting as any other rank.
DISTINCT = 2.0


@dataclass(frozen=True)
class Waiting:
    """Waits between ranks, and their causes.

    Attributes
    ----------
    seconds : (world_size, world_size) float64 ndarray
        Entry (i, j) is the time that rank i waited for rank j.
    caused_s : (world_size,) float64 ndarray
        Waiting caused by each rank, directly and through ranks that waited themselves.
    verdict : str
        A summary in one sentence.
    """

    seconds: NDArray[np.float64]
    caused_s: NDArray[np.float64] = field(init=False)
    verdict: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "caused_s", caused(self.seconds))
        object.__setattr__(self, "verdict", _verdict(self.caused_s))

    def __str__(self) -> str:
        ranks = [f"rank {rank}" for rank in range(len(self.seconds))]
        rows = [["seconds waited by", *(f"for {rank}" for rank in ranks)]]
        rows += [[rank, *map(_seconds, row)] for rank, row in zip(ranks, self.seconds, strict=True)]
        rows.append(["caused", *map(_seconds, self.caused_s)])
        return "\n".join([*_aligned(rows), self.verdict])


def caused(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the waiting caused by each rank."""
    own = seconds.sum(axis=1)
    # Row j: shares of the waits for rank j that belong to the ranks that j waited for.
    passed_to = np.divide(seconds, own[:, None], out=np.zeros_like(seconds), where=own[:, None] > 0)
    found = np.zeros(len(own))
    # Entry (i, j): waiting of rank i attributed to rank j so far. Each round moves shares by one rank.
    attributed = seconds.copy()
    for _ in range(len(own)):
        passed = np.minimum(attributed, own)
        # A share that returns to the waiting rank stays with the peer that it waited for.
        returned = passed * passed_to.T
        found += (attributed - passed + returned).sum(axis=0)
        attributed = passed @ passed_to
        np.fill_diagonal(attributed, 0.0)
    left: NDArray[np.float64] = attributed.sum(axis=0)
    return found + left


def _verdict(caused_s: NDArray[np.float64]) -> str:
    order = np.argsort(-caused_s)
    worst = int(order[0])
    if caused_s[worst] == 0:
        return "no rank has waited"
    if len(order) > 1 and caused_s[worst] < DISTINCT * caused_s[order[1]]:
        return f"no rank stands out: rank {worst} made the others wait {_seconds(caused_s[worst])} s, as others did"
    return f"rank {worst} made the others wait {_seconds(caused_s[worst])} s"


def _seconds(value: float) -> str:
    return f"{value:.2g}" if value < 0.1 else f"{value:.1f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
