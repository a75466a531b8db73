"""Who made the others wait: the waits of all ranks, and a verdict.

A rank that is late makes its neighbours wait, they make theirs wait, and so on. What a rank j was waited for counts
against j only as far as j did not itself wait; the rest is passed on to those that j waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# A rank stands out if it made others wait so many times longer than any other did.
DISTINCT = 2.0


@dataclass(frozen=True)
class Waiting:
    """Who waited for whom.

    Attributes
    ----------
    seconds : (world_size, world_size) float64 ndarray
        In row i and column j, how long rank i waited for rank j.
    caused_s : (world_size,) float64 ndarray
        How long each rank made others wait, directly and through ranks that waited themselves.
    verdict : str
        The same in a sentence.
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
    """How long each rank made others wait."""
    own = seconds.sum(axis=1)
    # To whom a rank passes on what it was waited for while it waited itself.
    passed_to = np.divide(seconds, own[:, None], out=np.zeros_like(seconds), where=own[:, None] > 0)
    found = np.zeros(len(own))
    # Per rank that waited and rank that is held responsible so far; each round passes blame one rank on.
    blamed = seconds.copy()
    for _ in range(len(own)):
        passed = np.minimum(blamed, own)
        # What comes back to the rank that waited stays with the peer that it waited for.
        returned = passed * passed_to.T
        found += (blamed - passed + returned).sum(axis=0)
        blamed = passed @ passed_to
        np.fill_diagonal(blamed, 0.0)
    left: NDArray[np.float64] = blamed.sum(axis=0)
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
