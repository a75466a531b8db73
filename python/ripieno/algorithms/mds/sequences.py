"""Sequences of letters, from lists or FASTA files, and the edit distances of all pairs: each rank gets its rows.

Of a pair of ranks each computes half of what both need, and hands it to the other. So every distance is computed once,
and all ranks compute equally much. rapidfuzz computes them, by Myers' bit vectors, on all threads of a rank.
Sources: Ruan et al., "DACIDR: deterministic annealed clustering with interpolative dimension reduction using a large
collection of 16S rRNA sequences", BCB 2012 (the pipeline); Myers, "A fast bit-vector algorithm for approximate string
matching based on dynamic programming", JACM 46(3), 1999.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.comm.agreement import agreement
from ripieno.errors import InputError
from ripieno.files.sources import File, PathLike, blamed_on, found, opened
from ripieno.input.shares import even_range

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: Insertions, deletions and substitutions between two sequences; and divided by the length of the longer one.
LEVENSHTEIN, NORMALIZED = SEQUENCE_METRICS = ("levenshtein", "normalized-levenshtein")


@dataclass(frozen=True)
class Sequences:
    """Where sequences are: here, or in FASTA files. It travels to the workers in place of what is in files.

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
        """Strings, checked.

        Raises
        ------
        InputError
            Something is no string, or empty, or there are fewer than two.
        """
        letters = []
        for place, value in enumerate(values):
            if not isinstance(value, str):
                raise InputError(f"X[{place}] is {value!r}: expected a string, a sequence of letters")
            if not value:
                raise InputError(f"X[{place}] is an empty string: expected a sequence of letters")
            letters.append(str(value))
        return cls(_enough(tuple(letters), "X"))

    @classmethod
    def open(cls, source: PathLike | Sequence[PathLike]) -> Sequences:
        """FASTA files, by path, glob, folder or URL; they may be compressed.

        Raises
        ------
        InputError
            Nothing matches, or a file is missing.
        """
        return cls(None, tuple(found(source)))

    @property
    def names(self) -> list[str]:
        """Paths of the files."""
        return [file.path for file in self.files]

    def read(self) -> tuple[str, ...]:
        """All sequences, those of files in capital letters.

        Raises
        ------
        InputError
            A file is no FASTA, a sequence is empty, or there are fewer than two.
        """
        if self.letters is not None:
            return self.letters
        letters: list[str] = []
        for file in self.files:
            with opened(file.path, file.compression) as stream, blamed_on(file.path):
                letters.extend(_records(stream, file.path))
        return _enough(tuple(letters), ", ".join(self.names))


def edit_distances(comm: Communicator, source: Sequences, metric: str) -> tuple[NDArray[Any], tuple[int, ...], int]:
    """This rank's rows of the distances, (m, n) int16, or float32 where that is too small; rows of each; its first.

    Raises
    ------
    InputError
        On every rank: bad sequences, or rapidfuzz is not installed.
    """
    with agreement(comm):
        here = source.read() if comm.rank == 0 else None
        cdist, scorer = _by_rapidfuzz(metric)
    letters: tuple[str, ...] = comm.broadcast(here)
    is_small = metric == LEVENSHTEIN and max(map(len, letters)) <= np.iinfo(np.int16).max
    dtype = np.dtype(np.int16 if is_small else np.float32)

    def distances(some: Sequence[str], others: Sequence[str]) -> NDArray[Any]:
        return cdist(some, others, scorer=scorer, dtype=dtype, workers=comm.threads)

    ranges = [even_range(len(letters), rank, comm.world_size) for rank in range(comm.world_size)]
    first, last = ranges[comm.rank]
    own = letters[first:last]
    rows = np.empty((len(own), len(letters)), dtype)
    # One argument twice: half of the distances are computed, and mirrored.
    rows[:, first:last] = distances(own, own)
    given = []
    for other in range(comm.world_size):
        mine, theirs = _half(ranges, comm.rank, other)
        given.append(distances(letters[mine], letters[theirs]))
        rows[mine.start - first : mine.stop - first, theirs] = given[-1]
    for other, block in enumerate(comm.alltoall(given)):
        theirs, mine = _half(ranges, other, comm.rank)
        rows[mine.start - first : mine.stop - first, theirs] = block.T
    return rows, tuple(end - begin for begin, end in ranges), first


def _half(ranges: Sequence[tuple[int, int]], rank: int, other: int) -> tuple[slice, slice]:
    """The rows and columns of what a rank computes for itself and another one; nothing for itself alone."""
    (first, last), (begin, end) = ranges[rank], ranges[other]
    if rank == other:
        return slice(first, first), slice(begin, begin)
    if rank < other:
        return slice(first, last), slice(begin, (begin + end) // 2)
    return slice((first + last) // 2, last), slice(begin, end)


def _by_rapidfuzz(metric: str) -> tuple[Callable[..., NDArray[Any]], Callable[..., float]]:
    """What computes the distances of all pairs, and of one."""
    try:
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist
    except ImportError:
        raise InputError(
            f"metric={metric!r} needs rapidfuzz, which is not installed: pip install 'ripieno[sequences]'"
        ) from None
    return cdist, Levenshtein.distance if metric == LEVENSHTEIN else Levenshtein.normalized_distance


def _records(stream: IO[bytes], path: str) -> Iterator[str]:
    """The sequence of each record, whose lines follow one that begins with ">"."""
    parts: list[bytes] = []
    header, begin = None, 0
    for number, line in enumerate(stream, 1):
        text = line.strip()
        if text.startswith(b">"):
            if header is not None:
                yield _sequence(parts, path, begin)
            header, begin, parts = text, number, []
        elif text and header is None:
            raise InputError(f"{path}, line {number}: expected FASTA, whose records begin with a line >NAME")
        elif text:
            parts.append(text)
    if header is not None:
        yield _sequence(parts, path, begin)


def _sequence(parts: Sequence[bytes], path: str, line: int) -> str:
    letters = b"".join(parts).upper()
    if not letters:
        raise InputError(f"{path}, line {line}: a record without letters")
    if not letters.isascii():
        raise InputError(f"{path}, line {line}: a record with other bytes than letters")
    return letters.decode("ascii")


def _enough(letters: tuple[str, ...], where: str) -> tuple[str, ...]:
    if len(letters) < 2:
        raise InputError(f"{where}: {len(letters)} sequences, where two or more have distances")
    return letters
