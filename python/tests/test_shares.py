"""Shares: the division of files and rows among ranks."""

from itertools import pairwise

import pytest
from ripieno.input.shares import even_range, file_shares

WORLD_SIZES = range(1, 34)
LENGTHS = ([], [0], [1], [7, 0, 5], [100], [3, 1, 1, 64, 2], [10**12, 1, 10**12], list(range(40)))


@pytest.mark.parametrize("length", [0, 1, 2, 31, 33, 1000, 2**62])
def test_ranges_are_even_and_complete(length):
    for world_size in WORLD_SIZES:
        ranges = [even_range(length, rank, world_size) for rank in range(world_size)]

        assert (ranges[0][0], ranges[-1][1]) == (0, length)
        assert all(before[1] == after[0] for before, after in pairwise(ranges))
        sizes = [stop - start for start, stop in ranges]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("scale", [1, 3])
def test_ranks_read_every_file_completely_once_and_in_order(lengths, scale):
    """By bytes, or by rows of three bytes each: all of `length // scale` are read."""
    for world_size in WORLD_SIZES:
        found = {at: [] for at in range(len(lengths))}
        for rank in range(world_size):
            for at, *share in file_shares(lengths, [length // scale for length in lengths], rank, world_size):
                found[at].append(share)

        for at, length in enumerate(lengths):
            ranges = found[at]
            cuts = [start for start, _ in ranges] + [stop for _, stop in ranges[-1:]]
            assert cuts == sorted(cuts)
            assert all(before[1] == after[0] for before, after in pairwise(ranges))
            assert (cuts[0], cuts[-1]) == (0, length // scale) if length else not ranges


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_ranks_get_as_many_bytes_as_of_one_file(lengths):
    for world_size in WORLD_SIZES:
        for rank in range(world_size):
            ranges = [share for _, *share in file_shares(lengths, lengths, rank, world_size)]

            start, stop = even_range(sum(lengths), rank, world_size)
            assert sum(last - first for first, last in ranges) == stop - start
