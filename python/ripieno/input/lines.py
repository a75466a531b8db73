"""The lines that begin in bytes `start .. stop` of a file: whatever the cuts, every line has exactly one reader.

A line begins at byte 0 and behind every line feed; the last one may end without. What is given is open at any byte.
A record is a line, or several if a field in quotes holds line ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from ripieno.errors import InputError

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


def record_start(file: IO[bytes], at: int, body: int) -> int:
    """Return the byte at which the first record begins at `at` or behind it, as `line_start`; records begin at `body`.

    All bytes from `body` on are read: only the quotes in front of a line end say whether it is inside quotes.
    """
    file.seek(body)
    if at <= body:
        return body
    left, is_inside = at - 1 - body, False
    while left and (block := file.read(min(left, PIECE_BYTES))):
        is_inside ^= block.count(b'"') % 2 == 1
        left -= len(block)
    while piece := file.readline(PIECE_BYTES):
        is_inside ^= piece.count(b'"') % 2 == 1
        if piece.endswith(b"\n") and not is_inside:
            break
    return file.tell()


def records(path: str, file: IO[bytes], start: int, stop: int, least_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the records of bytes `start .. stop`, from where one begins, in blocks of whole ones, and their begins.

    Raises
    ------
    InputError
        A quote has no end.
    """
    file.seek(start)
    begin = start
    while begin < stop and (text := whole_lines(file, min(least_bytes, stop - begin))):
        parts, is_inside = [text], text.count(b'"') % 2 == 1
        while is_inside:
            line = file.readline()
            if not line:
                raise InputError(
                    f"{path}: a quote in a record from byte {begin:,} on has no end; quotes inside quotes are doubled"
                )
            parts.append(line)
            is_inside ^= line.count(b'"') % 2 == 1
        text = b"".join(parts)
        yield begin, text
        begin += len(text)


def count(text: bytes) -> int:
    """Return how many line ends a text has: line feeds, or CRs if it has no line feed."""
    return text.count(b"\n") or text.count(b"\r")
