"""Compute the share of each rank in consecutive files, or in the rows of an array, cut evenly by length.

All ranks compute the same cuts without communication, so each byte and row has exactly one reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class FileShare:
    """A rank's share of a file.

    Parameters
    ----------
    begin, end
        The range, as fractions of the file's length, 0 … 1.
    """

    begin: Fraction
    end: Fraction

    def of(self, length: int) -> tuple[int, int]:
        """Return the range of `length` bytes or rows. The ranges of all readers are disjoint and cover everything."""
        return int(self.begin * length), int(self.end * length)


def even_range(length: int, rank: int, rank_count: int) -> tuple[int, int]:
    """Return the range of a rank in 0 … length. The lengths of ranges differ by at most one."""
    return length * rank // rank_count, length * (rank + 1) // rank_count


def file_shares(lengths: Sequence[int], rank: int, rank_count: int) -> Iterator[tuple[int, FileShare]]:
    """Yield the files in which a rank has a share, as indices in `lengths`, and the shares."""
    total, begin = sum(lengths), 0
    for at, length in enumerate(lengths):
        if length:
            cuts = (Fraction(total * i, rank_count) - begin for i in (rank, rank + 1))
            start, stop = (min(max(cut / length, Fraction(0)), Fraction(1)) for cut in cuts)
            if start < stop:
                yield at, FileShare(start, stop)
        begin += length
