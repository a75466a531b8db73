"""Read the lines that begin in bytes `start .. stop` of a file: for any cuts, every line has exactly one reader.

A line begins at byte 0 and after every line feed; the last line may lack one. Files may be open at any position. A
record is one line, or several if a quoted field contains line ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np

from ripieno.errors import InputError
from ripieno.files.sources import EmptyFile

#: Bytes of a line that are searched together for its end.
PIECE_BYTES = 1 << 20
UTF8_BOM = b"\xef\xbb\xbf"
#: The longest line or record. A small compressed file can unpack to a line of any length.
RECORD_BYTES_MAX = 1 << 30
NO_END = "{path}: a quote in a record from byte {begin:,} on has no end; quotes inside quotes are doubled"


def line_start(file: IO[bytes], at: int, body: int = 0) -> int:
    """Return the byte offset of the first line that begins at or after `at`, or the length of the file.

    Lines begin at byte `body` at the earliest. The file is left at the returned offset.
    """
    if at <= body:
        file.seek(body)
        return body
    # The line that begins at or after `at` follows the line with the previous byte.
    file.seek(at - 1)
    while (piece := file.readline(PIECE_BYTES)) and not piece.endswith(b"\n"):
        pass
    return file.tell()


def blocks(
    path: str, file: IO[bytes], start: int, stop: int, block_bytes: int, body: int = 0
) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin in bytes `start .. stop`, in blocks of whole lines, with the offset of each block.

    A block has at least `block_bytes`, except for the last, and ends with the next line end.

    Raises
    ------
    InputError
        A line is longer than `RECORD_BYTES_MAX`.
    """
    begin = line_start(file, start, body)
    while begin < stop and (lines := whole_lines(path, file, min(block_bytes, stop - begin))):
        yield begin, lines
        begin += len(lines)


def whole_lines(path: str, file: IO[bytes], least_bytes: int) -> bytes:
    """Return whole lines of at least `least_bytes`, or the rest. Raise InputError for a line that is too long."""
    lines = file.read(least_bytes)
    return lines if lines.endswith(b"\n") else lines + line(path, file)


def line(path: str, file: IO[bytes], read_bytes: int = 0) -> bytes:
    """Return the next line of a record of which `read_bytes` have been read. Raise InputError if it is too long."""
    found = file.readline(RECORD_BYTES_MAX + 1)
    if len(found) + read_bytes > RECORD_BYTES_MAX:
        raise InputError(f"{path}: a line or record has more than {RECORD_BYTES_MAX:,} bytes, which are read at once")
    return found


def first_line(path: str, file: IO[bytes], limit_bytes: int, comments: tuple[bytes, ...] = ()) -> tuple[int, bytes]:
    """Return the offset and the bytes, up to a limit, of the first line that is neither blank nor a comment.

    A byte order mark is skipped. The file is left behind the line.

    Raises
    ------
    EmptyFile
        There is no such line.
    """
    begin, in_comment = 0, False
    while found := file.readline(limit_bytes):
        mark_bytes = len(UTF8_BOM) if begin == 0 and found.startswith(UTF8_BOM) else 0
        found = found[mark_bytes:]
        in_comment = in_comment or found.lstrip().startswith(comments)
        if found.strip() and not in_comment:
            return begin + mark_bytes, found
        begin += mark_bytes + len(found)
        # A longer line arrives in pieces.
        in_comment = in_comment and not found.endswith(b"\n")
    raise EmptyFile(f"{path} is empty")


def record_start(file: IO[bytes], at: int, body: int) -> int:
    """Return the byte offset of the first record at or after `at`, as `line_start`. Records begin at `body`.

    All bytes from `body` on are read: a line end is inside quotes if the number of quotes before it is odd.
    """
    file.seek(body)
    if at <= body:
        return body
    left, is_inside = at - 1 - body, False
    while left and (block := file.read(min(left, PIECE_BYTES))):
        is_inside ^= has_open_quote(block)
        left -= len(block)
    while piece := file.readline(PIECE_BYTES):
        is_inside ^= has_open_quote(piece)
        if piece.endswith(b"\n") and not is_inside:
            break
    return file.tell()


def records(path: str, file: IO[bytes], start: int, stop: int, least_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the records that begin in bytes `start .. stop`, in blocks of whole records, with the offset of each block.

    Raises
    ------
    InputError
        A quote is not closed, or a record is longer than `RECORD_BYTES_MAX`.
    """
    file.seek(start)
    begin = start
    while begin < stop and (text := whole_lines(path, file, min(least_bytes, stop - begin))):
        parts, is_inside, size = [text], has_open_quote(text), len(text)
        while is_inside:
            more = line(path, file, size)
            if not more:
                raise InputError(NO_END.format(path=path, begin=begin))
            parts.append(more)
            size += len(more)
            is_inside ^= has_open_quote(more)
        text = b"".join(parts)
        yield begin, text
        begin += len(text)


def has_open_quote(text: bytes) -> bool:
    """Return whether the number of quotes in a text is odd. NumPy counts many quotes faster than Python."""
    return b'"' in text and np.count_nonzero(np.frombuffer(text, np.uint8) == ord('"')) % 2 == 1


def count(text: bytes) -> int:
    """Return the number of line ends of a text: line feeds, or CRs if it has no line feed."""
    return text.count(b"\n") or text.count(b"\r")
