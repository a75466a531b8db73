"""Which rank has which share: files one after the other, or the rows of an array, as one length that is cut evenly.

All ranks compute the same cuts, so everything has exactly one reader, and nothing is sent.
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
        Of the file's length, 0 … 1.
    reader, reader_count
        The place of the rank among those that have a share of this file, and how many these are.
    """

    begin: Fraction = Fraction(0)
    end: Fraction = Fraction(1)
    reader: int = 0
    reader_count: int = 1

    def of(self, length: int) -> tuple[int, int]:
        """The range of `length` bytes or rows; the ranges of all readers are everything, each once."""
        return int(self.begin * length), int(self.end * length)


def even_range(length: int, rank: int, rank_count: int) -> tuple[int, int]:
    """The range of 0 … length that is a rank's; none is longer than another by more than one."""
    return length * rank // rank_count, length * (rank + 1) // rank_count


def file_shares(lengths: Sequence[int], rank: int, rank_count: int) -> Iterator[tuple[int, FileShare]]:
    """The files that a rank has a share of, by their places in `lengths`, and the shares."""
    total, begin = sum(lengths), 0
    for place, length in enumerate(lengths):
        if length:
            first, last = begin * rank_count // total, -(-(begin + length) * rank_count // total)
            if first <= rank < last:
                cuts = (Fraction(total * i, rank_count) - begin for i in (rank, rank + 1))
                start, stop = (min(max(cut, Fraction(0)), Fraction(length)) / length for cut in cuts)
                yield place, FileShare(start, stop, rank - first, last - first)
        begin += length
