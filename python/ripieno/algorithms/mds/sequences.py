"""Sequences of letters from lists or FASTA files, and their edit distances, distributed by rows.

The two ranks of each pair compute half of the distances each, and send their half to the other rank. So every distance
is computed once, and the work is balanced. rapidfuzz computes the distances with Myers' bit vectors, on all threads of
a rank. Sources: Ruan et al., "DACIDR: deterministic annealed clustering with interpolative dimension reduction using a
large collection of 16S rRNA sequences", BCB 2012 (the pipeline); Myers, "A fast bit-vector algorithm for approximate
string matching based on dynamic programming", JACM 46(3), 1999.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.algorithms.methods import LEVENSHTEIN
from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.files.sources import File, PathLike, find_files
from ripieno.input.formats import fasta
from ripieno.input.shares import even_range

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


@dataclass(frozen=True)
class Sequences:
    """Sequences in memory or in FASTA files. Workers receive the paths of files, not their contents.

    Parameters
    ----------
    letters
        The sequences, or None if they are in files.
    files
        FASTA files, which rank 0 reads.
    """

    letters: tuple[str, ...] | None
    files: tuple[File, ...] = ()

    @classmethod
    def of(cls, values: Iterable[object]) -> Sequences:
        """Return sequences from strings, after checks.

        Raises
        ------
        InputError
            A value is not a string or is empty, or there are fewer than two.
        """
        letters = []
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise InputError(f"X[{index}] is {value!r}: expected a string, a sequence of letters")
            if not value:
                raise InputError(f"X[{index}] is an empty string: expected a sequence of letters")
            letters.append(str(value))
        return cls(_check_count(tuple(letters), "X"))

    @classmethod
    def open(cls, source: PathLike | Sequence[PathLike]) -> Sequences:
        """Open FASTA files by path, glob, folder or URL; they may be compressed.

        Raises
        ------
        InputError
            No file matches, or a file is missing.
        """
        return cls(None, tuple(find_files(source)))

    @property
    def names(self) -> list[str]:
        """Return the paths of the files."""
        return [file.path for file in self.files]

    def read(self) -> tuple[str, ...]:
        """Return all sequences; sequences from files are converted to capital letters.

        Raises
        ------
        InputError
            A file is not FASTA, a sequence is empty, or there are fewer than two.
        """
        if self.letters is not None:
            return self.letters
        return _check_count(
            tuple(letters for file in self.files for letters in fasta.sequences(file)), ", ".join(self.names)
        )


def edit_distances(comm: Communicator, source: Sequences, metric: str) -> tuple[NDArray[Any], tuple[int, ...], int]:
    """Return this rank's rows of distances, (m, n) int16 or float32; the row count of each rank; its first row.

    Raises
    ------
    InputError
        On every rank: invalid sequences, or rapidfuzz is not installed.
    """
    with agreement(comm):
        sequences = source.read() if comm.rank == 0 else None
        cdist, scorer = _rapidfuzz_functions(metric)
    letters: tuple[str, ...] = comm.broadcast(sequences)
    is_small = metric == LEVENSHTEIN and max(map(len, letters)) <= np.iinfo(np.int16).max
    dtype = np.dtype(np.int16 if is_small else np.float32)

    def distances(rows: Sequence[str], columns: Sequence[str]) -> NDArray[Any]:
        return cdist(rows, columns, scorer=scorer, dtype=dtype, workers=comm.threads)

    ranges = [even_range(len(letters), rank, comm.world_size) for rank in range(comm.world_size)]
    first, last = ranges[comm.rank]
    own = letters[first:last]
    rows = np.empty((len(own), len(letters)), dtype)
    # Passing one argument twice computes half of the distances and mirrors them.
    rows[:, first:last] = distances(own, own)
    own_blocks = []
    for other in range(comm.world_size):
        mine, theirs = _own_half(ranges, comm.rank, other)
        own_blocks.append(distances(letters[mine], letters[theirs]))
        rows[mine.start - first : mine.stop - first, theirs] = own_blocks[-1]
    for other, block in enumerate(comm.alltoall(own_blocks)):
        theirs, mine = _own_half(ranges, other, comm.rank)
        rows[mine.start - first : mine.stop - first, theirs] = block.T
    return rows, tuple(end - begin for begin, end in ranges), first


def _own_half(ranges: Sequence[tuple[int, int]], rank: int, other: int) -> tuple[slice, slice]:
    """Return the rows and columns that `rank` computes in the block of `rank` and `other`; empty if both are equal."""
    (first, last), (begin, end) = ranges[rank], ranges[other]
    if rank == other:
        return slice(first, first), slice(begin, begin)
    if rank < other:
        return slice(first, last), slice(begin, (begin + end) // 2)
    return slice((first + last) // 2, last), slice(begin, end)


def _rapidfuzz_functions(metric: str) -> tuple[Callable[..., NDArray[Any]], Callable[..., float]]:
    """Return functions that compute the distances of all pairs, and of one pair."""
    try:
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist
    except ImportError:
        raise InputError(
            f"metric={metric!r} needs rapidfuzz, which is not installed: pip install 'ripieno[sequences]'"
        ) from None
    return cdist, Levenshtein.distance if metric == LEVENSHTEIN else Levenshtein.normalized_distance


def _check_count(letters: tuple[str, ...], where: str) -> tuple[str, ...]:
    if len(letters) < 2:
        raise InputError(f"{where}: {len(letters)} sequences: expected at least two")
    return letters
