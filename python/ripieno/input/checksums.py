"""Provide checksums that detect changed bytes of files.

A process caches the checksum of each range until the file changes. A checksum costs one more pass over the bytes, at
the speed of SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache

from ripieno.files.sources import READ_BYTES, input_errors, opened, size_bytes, version

#: The maximum number of digests of file ranges that a process caches.
DIGEST_CACHE_COUNT = 1 << 16


@dataclass(frozen=True)
class Checksum:
    """Checksum of a partition at the time of its listing.

    Parameters
    ----------
    ranges : tuple of (int, int)
        The byte ranges `start .. stop` of the stored file with the partition's data.
    sha256 : str
        Digest of these ranges in order, in hexadecimal digits.
    file_bytes : int
        The length of the file.
    """

    ranges: tuple[tuple[int, int], ...]
    sha256: str
    file_bytes: int

    @classmethod
    def of(cls, path: str, *ranges: tuple[int, int]) -> Checksum:
        """Compute the checksum of ranges of a file."""
        return cls(ranges, sha256(path, ranges, version(path)), size_bytes(path))

    def damage(self, path: str) -> str | None:
        """Return the difference between a file and its entry in the partition file as text, or None.

        Raises
        ------
        InputError
            The file cannot be read.
        """
        length = size_bytes(path)
        if length != self.file_bytes:
            return f"{length:,} bytes, expected {self.file_bytes:,}"
        digest = sha256(path, self.ranges, version(path))
        return None if digest == self.sha256 else f"SHA-256 {digest}, expected {self.sha256}"


@lru_cache(DIGEST_CACHE_COUNT)
def sha256(path: str, ranges: tuple[tuple[int, int], ...], version: Hashable) -> str:
    """Return the digest of ranges of a file. `version` changes when the file changes, which invalidates the cache."""
    digest = hashlib.sha256()
    with opened(path) as file, input_errors(path):
        for start, stop in ranges:
            file.seek(start)
            left = stop - start
            while left and (block := file.read(min(left, READ_BYTES))):
                digest.update(block)
                left -= len(block)
    return digest.hexdigest()
