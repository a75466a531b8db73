"""Compute the number of splits of each file, and the cuts in a file."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

from ripieno.input.shares import even_range

#: The number of pieces that form a split.
SPLIT_PIECE_COUNT = 64


def even(length: int, count: int) -> list[tuple[int, int]]:
    """Return up to `count` nonempty ranges of 0 … length. Their lengths differ by at most one."""
    count = min(count, length)
    return [even_range(length, i, count) for i in range(count)]


def piece_size(length: int, count: int) -> int:
    """Return a size of pieces that is small enough for even ranges of `grouped`."""
    return max(1, length // (count * SPLIT_PIECE_COUNT))


def grouped(sizes: Iterable[int], length: int, count: int) -> list[tuple[int, int]]:
    """Return at most `count` ranges of 0 … length, as even as consecutive pieces of these sizes allow."""
    cuts, begin, group = [0], 0, 0
    for size in sizes:
        if size and (now := begin * count // length) > group:
            cuts.append(begin)
            group = now
        begin += size
    return [(start, stop) for start, stop in pairwise([*cuts, length]) if start < stop]


def apportioned(sizes: Sequence[int], count: int) -> list[int]:
    """Return the number of pieces of each file, `count` in total. The largest piece is as small as possible.

    Empty files get no piece. All others get at least one, even if this exceeds `count`.
    """
    counts = [int(size > 0) for size in sizes]
    largest: list[tuple[float, int]] = [(-size, at) for at, size in enumerate(sizes) if size]
    heapq.heapify(largest)
    for _ in range(min(count, sum(sizes)) - sum(counts) if largest else 0):
        _, at = largest[0]
        counts[at] += 1
        heapq.heapreplace(largest, (-sizes[at] / counts[at], at))
    return counts
