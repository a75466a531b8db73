"""How many splits each file gets, and where in a file the cuts are."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ripieno.input.shares import even_range

#: Pieces that are found one after the other are so small that as many of them make a split.
PIECES = 64


def even(length: int, count: int) -> list[tuple[int, int]]:
    """`count` ranges of 0 … length, none longer than another by more than one, at most one for each."""
    count = min(count, length)
    return [even_range(length, i, count) for i in range(count)]


def piece_size(length: int, count: int) -> int:
    """How large the pieces are of which `grouped` makes even groups."""
    return max(1, length // (count * PIECES))


def grouped(sizes: Iterable[int], length: int, count: int) -> list[tuple[int, int]]:
    """At most `count` ranges of 0 … length, as even as pieces of these sizes, one after the other, make it."""
    cuts, begin, group = [0], 0, 0
    for size in sizes:
        if size and (now := begin * count // length) > group:
            cuts.append(begin)
            group = now
        begin += size
    return [(start, stop) for start, stop in pairwise([*cuts, length]) if start < stop]


def apportioned(sizes: Sequence[int], count: int) -> list[int]:
    """How many of `count` pieces each file is cut into, so that the largest piece is as small as it can be.

    Files without anything get none, all others at least one, even if these are more than `count`.
    """
    counts = [int(size > 0) for size in sizes]
    largest: list[tuple[float, int]] = [(-size, at) for at, size in enumerate(sizes) if size]
    heapq.heapify(largest)
    for _ in range(min(count, sum(sizes)) - sum(counts) if largest else 0):
        _, at = largest[0]
        counts[at] += 1
        heapq.heapreplace(largest, (-sizes[at] / counts[at], at))
    return counts
