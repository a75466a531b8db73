"""The lines that begin in bytes `start .. stop` of a file: whatever the cuts, every line has exactly one reader.

A line begins at byte 0 and behind every line feed; the last one may end without. What is given is open at any byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

#: How much of a line is looked at together on the way to its end.
PIECE_BYTES = 1 << 20


def line_start(file: IO[bytes], at: int, body: int = 0) -> int:
    """The byte at which the first line that begins at `at` or behind it does; the file's length if none does.

    Lines are counted from byte `body` on. The file is left at the byte that is returned.
    """
    if at <= body:
        file.seek(body)
        return body
    # The line that begins at `at` is the one after the end of the line that holds the byte before.
    file.seek(at - 1)
    while (piece := file.readline(PIECE_BYTES)) and not piece.endswith(b"\n"):
        pass
    return file.tell()


def blocks(file: IO[bytes], start: int, stop: int, block_bytes: int, body: int = 0) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in bytes `start .. stop`, and where they do, in blocks of whole lines.

    A block has at least `block_bytes` if more is to come, and ends with the first line end from there on.
    """
    begin = line_start(file, start, body)
    while begin < stop and (lines := whole_lines(file, min(block_bytes, stop - begin))):
        yield begin, lines
        begin += len(lines)


def whole_lines(file: IO[bytes], least_bytes: int) -> bytes:
    """As many lines as hold so many bytes, or what is left."""
    lines = file.read(least_bytes)
    return lines if lines.endswith(b"\n") else lines + file.readline()
