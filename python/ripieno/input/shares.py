"""Compute the share of each rank in consecutive files, or in the rows of an array, cut evenly by length.

All ranks compute the same cuts without communication, so each byte and row has exactly one reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def even_range(length: int, rank: int, rank_count: int) -> tuple[int, int]:
    """Return the range of a rank in 0 … length. The lengths of ranges differ by at most one."""
    return length * rank // rank_count, length * (rank + 1) // rank_count


def file_shares(
    lengths: Sequence[int], sizes: Sequence[int], rank: int, rank_count: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the shares of a rank in files: the index of a file, and a range of its size.

    Files are divided by their `lengths`. The `sizes` are in other units, such as rows. The ranges of all ranks are
    disjoint and cover everything.
    """
    total, begin = sum(lengths), 0
    for at, length in enumerate(lengths):
        cuts = [min(max(total * i - begin * rank_count, 0), length * rank_count) for i in (rank, rank + 1)]
        if cuts[0] < cuts[1]:
            start, stop = (sizes[at] * cut // (length * rank_count) for cut in cuts)
            yield at, start, stop
        begin += length
