"""Provide readers of the lines that begin in bytes `start .. stop` of a file, so that each line has one reader.

A line begins at byte 0 and after every line feed; the last line may lack one. Files may be open at any position. A
record is one line, or several if a quoted field contains line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

import numpy as np

from ripieno.errors import InputError
from ripieno.files.sources import EmptyFile

#: Number of bytes of a line that are read at once in the search for its end.
PIECE_BYTES = 1 << 20
UTF8_BOM = b"\xef\xbb\xbf"
#: The longest line or record. A small compressed file can unpack to a line of any length.
RECORD_BYTES_MAX = 1 << 30
#: The rest of a quoted field, with its closing quote.
_QUOTED_REST = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')
NO_END = "{path}: a quoted field is not closed in the records from byte {begin:,} on; inside quotes, double each quote"


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


def whole_lines(path: str, file: IO[bytes], min_bytes: int) -> bytes:
    """Return whole lines of at least `min_bytes`, or the rest. Raise InputError for a line that is too long."""
    lines = file.read(min_bytes)
    return lines if lines.endswith(b"\n") else lines + line(path, file)


def line(path: str, file: IO[bytes], read_bytes: int = 0) -> bytes:
    """Return the next line of a record after `read_bytes` of it. Raise InputError if the record is too long."""
    found = file.readline(RECORD_BYTES_MAX + 1)
    if len(found) + read_bytes > RECORD_BYTES_MAX:
        raise InputError(f"{path}: a line or record has more than {RECORD_BYTES_MAX:,} bytes, the limit")
    return found


def first_line(path: str, file: IO[bytes], limit_bytes: int, comments: tuple[bytes, ...] = ()) -> tuple[int, bytes]:
    """Return the offset and the bytes, up to a limit, of the first line that is neither blank nor a comment.

    A byte order mark is skipped. The file is left at the end of the line.

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


def record_start(file: IO[bytes], at: int, body: int, delimiter: str) -> int:
    """Return the byte offset of the first record at or after `at`, as `line_start`. Records begin at `body`.

    All bytes from `body` on are read, to find which line ends are inside quotes.
    """
    file.seek(body)
    if at <= body:
        return body
    left, quotes = at - 1 - body, QuoteState(delimiter)
    while left and (block := file.read(min(left, PIECE_BYTES))):
        quotes.add(block)
        left -= len(block)
    while piece := file.readline(PIECE_BYTES):
        quotes.add(piece)
        if piece.endswith(b"\n") and not quotes.is_open:
            break
    return file.tell()


def records(
    path: str, file: IO[bytes], start: int, stop: int, min_bytes: int, delimiter: str
) -> Iterator[tuple[int, bytes]]:
    """Yield the records that begin in bytes `start .. stop`, in blocks of whole records, with the offset of each block.

    Raises
    ------
    InputError
        A quote is not closed, or a record is longer than `RECORD_BYTES_MAX`.
    """
    file.seek(start)
    begin = start
    while begin < stop and (text := whole_lines(path, file, min(min_bytes, stop - begin))):
        parts, quotes, size = [text], QuoteState(delimiter), len(text)
        quotes.add(text)
        while quotes.is_open:
            more = line(path, file, size)
            if not more:
                raise InputError(NO_END.format(path=path, begin=begin))
            parts.append(more)
            size += len(more)
            quotes.add(more)
        text = b"".join(parts)
        yield begin, text
        begin += len(text)


class QuoteState:
    """The state of quotes after the text added so far: inside or outside a quoted field. The text starts with a record.

    A quote opens a field only at its beginning, and is an ordinary character elsewhere, as in `5" pipe`. Inside a
    quoted field two quotes stand for one.
    """

    def __init__(self, delimiter: str) -> None:
        self.is_open = False
        self._begins = b"\r\n" + delimiter.encode()
        self._is_begin = np.zeros(256, bool)
        self._is_begin[list(self._begins + b'"')] = True
        self._last = b"\n"
        # A quote that follows a closing quote belongs to the field.
        self._has_closed = False

    def add(self, text: bytes) -> None:
        """Add the text that follows."""
        if not text:
            return
        if b'"' in text:
            self._add_quotes(text)
        else:
            self._has_closed = False
        self._last = text[-1:]

    def _add_quotes(self, text: bytes) -> None:
        characters = np.frombuffer(text, np.uint8)
        places = np.flatnonzero(characters == ord('"'))
        # Where quotes alternate, every other one opens a field, or is the second of two quotes inside a field.
        opening = places[int(self.is_open) :: 2]
        if opening.size and opening[0] == 0:
            is_regular = self._has_closed or self._last in self._begins
            opening = opening[1:]
        else:
            is_regular = True
        if is_regular and self._is_begin[characters[opening - 1]].all():
            self.is_open ^= len(places) % 2 == 1
            self._has_closed = not self.is_open and places[-1] == len(text) - 1
        else:
            self._search(text)

    def _search(self, text: bytes) -> None:
        """Add a text that also contains quotes as ordinary characters."""
        opens = re.compile(rb"(?<![^" + re.escape(self._begins) + rb'])"')
        at = 0
        if not self.is_open and text.startswith(b'"'):
            self.is_open = self._has_closed or self._last in self._begins
            at = 1
        self._has_closed = False
        while True:
            if not self.is_open:
                opened = opens.search(text, at)
                if opened is None:
                    return
                at, self.is_open = opened.end(), True
            closed = _QUOTED_REST.match(text, at)
            if closed is None:
                return
            at, self.is_open = closed.end(), False
            self._has_closed = at == len(text)


def count(text: bytes) -> int:
    """Return the number of line ends of a text: line feeds, or CRs if it has no line feed."""
    return text.count(b"\n") or text.count(b"\r")
