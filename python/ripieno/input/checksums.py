"""Whether bytes are still what they were.

A process reads a range for its checksum once, however often it is asked for, until the file changes.
Cost: one more pass over the bytes, at the speed of SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

from ripieno.files.sources import READ_BYTES, blamed_on, opened, size_bytes, version

#: Files and ranges of them whose digests a process remembers.
REMEMBERED = 1 << 16


@dataclass(frozen=True)
class Checksum:
    """What a partition was when it was listed.

    Parameters
    ----------
    ranges : tuple of (int, int)
        The bytes `start .. stop` of the file, as it is stored, of which reading the partition makes something.
    sha256 : str
        Of these, one after the other, in hexadecimal digits.
    file_bytes : int
        The length of the file.
    """

    ranges: tuple[tuple[int, int], ...]
    sha256: str
    file_bytes: int

    @classmethod
    def of(cls, path: str, *ranges: tuple[int, int]) -> Checksum:
        """Read them."""
        return cls(ranges, sha256(path, ranges, version(path)), size_bytes(path))

    def damage(self, path: str) -> str | None:
        """What is wrong with a file, in words; None if it is what it was.

        Raises
        ------
        InputError
            It cannot be read.
        """
        length = size_bytes(path)
        if length != self.file_bytes:
            return f"{length:,} bytes, expected {self.file_bytes:,}"
        digest = sha256(path, self.ranges, version(path))
        return None if digest == self.sha256 else f"SHA-256 {digest}, expected {self.sha256}"


@lru_cache(REMEMBERED)
def sha256(path: str, ranges: tuple[tuple[int, int], ...], version: Hashable) -> str:
    """The digest of ranges of a file, of which `version` differs when it has changed."""
    digest = hashlib.sha256()
    with opened(path) as file, blamed_on(path):
        for start, stop in ranges:
            file.seek(start)
            left = stop - start
            while left and (block := file.read(min(left, READ_BYTES))):
                digest.update(block)
                left -= len(block)
    return digest.hexdigest()
