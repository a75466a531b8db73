"""Whether bytes are still what they were."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ripieno.files import blamed_on, opened

READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Checksum:
    """The SHA-256 of bytes `start .. stop` of a file, as they are stored, in hexadecimal digits."""

    start: int
    stop: int
    sha256: str

    @classmethod
    def of(cls, path: str, start: int, stop: int) -> Checksum:
        """Read them."""
        digest = hashlib.sha256()
        with opened(path) as file, blamed_on(path):
            file.seek(start)
            left = stop - start
            while left and (block := file.read(min(left, READ_BYTES))):
                digest.update(block)
                left -= len(block)
        return cls(start, stop, digest.hexdigest())
