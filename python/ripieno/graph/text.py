"""Text: edge lists and adjacency lists with blanks between the fields, and delimited columns, plain or gzipped.

A reader of bytes `start .. stop` takes the lines that begin there, so every line is read exactly once whatever the cut.
A gzipped file has no cuts: each rank that has a part of it unpacks all of it and takes the windows that are its turn.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.graph.edge_files import EdgeColumns, EmptyFile, choose_columns
from ripieno.graph.edges import Edges
from ripieno.input import lines
from ripieno.input.matrix.text import is_number
from ripieno.input.shares import FileShare

WINDOW_BYTES = 32 << 20
DEALT_BYTES = 1 << 20
FIRST_LINE_BYTES = 1 << 16
QUOTED_CHARACTERS = 40
MARK = b"\xef\xbb\xbf"
#: What a third field is, if edges are said to have weights, or not.
THIRD = {True: "weight", False: "ignored", None: "refused"}
DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)


@dataclass(frozen=True)
class TextEdges:
    """Lines of edges in a file; `columns` says which fields are read, None that blanks divide them.

    Parameters
    ----------
    path : str
    body
        The byte, of the unpacked text, at which the lines begin.
    delimiter, columns
        Of delimited columns; None where blanks divide the fields.
    third
        What a third field is: "weight", "ignored" or "refused"; of no meaning with columns.
    """

    path: str
    body: int
    delimiter: str | None
    columns: EdgeColumns | None
    third: str

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> TextEdges:
        """Read as much as tells what the fields are."""
        _, begin, _ = _first_line(path)
        return cls(path, begin, None, None, THIRD[weighted])

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.third == "weight" if self.columns is None else self.columns.weight is not None

    @property
    def size_bytes(self) -> int:
        """What it takes on the disk."""
        return os.path.getsize(self.path)

    def read(self, share: FileShare) -> Edges:
        """The edges of a share.

        Raises
        ------
        InputError
            A line is no edge, or the file is damaged; names file and line.
        """
        try:
            windows = self._dealt(share) if self._packed else self._cut(share)
            return Edges.joined([self._parse(*window) for window in windows], weighted=self.weighted)
        except DAMAGED as error:
            raise InputError(f"{self.path} is damaged: {error}") from error

    @property
    def _packed(self) -> bool:
        return self.path.lower().endswith(".gz")

    def _cut(self, share: FileShare) -> Iterator[tuple[int, bytes]]:
        with open(self.path, "rb") as file:
            yield from lines.blocks(file, *share.of(self.size_bytes), WINDOW_BYTES, self.body)

    def _dealt(self, share: FileShare) -> Iterator[tuple[int, bytes]]:
        with _unpacked(self.path) as file:
            file.seek(self.body)
            begin, number = self.body, 0
            while text := lines.whole_lines(file, DEALT_BYTES):
                if number % share.reader_count == share.reader:
                    yield begin, text
                begin += len(text)
                number += 1

    def _parse(self, begin: int, text: bytes) -> Edges:
        try:
            if self.columns is None:
                parsed = _native.parse_pairs(text, self.third)
            else:
                assert self.delimiter is not None
                parsed = _native.parse_columns(text, ord(self.delimiter), *self.columns)
        except ValueError as error:
            offset, reason = error.args
            line = text[offset : offset + FIRST_LINE_BYTES].split(b"\n")[0].decode(errors="replace").strip()
            quoted = line[:QUOTED_CHARACTERS] + "…" * (len(line) > QUOTED_CHARACTERS)
            raise InputError(f"{self.path}, line {self._line_number(begin + offset)}: {reason}: {quoted!r}") from None
        sources, targets, weights, lone = parsed
        return Edges(sources, targets, weights if self.weighted else None, lone)

    def _line_number(self, offset: int) -> int:
        number = 1
        with _unpacked(self.path) as file:
            while offset > 0 and (block := file.read(min(offset, WINDOW_BYTES))):
                number += block.count(b"\n")
                offset -= len(block)
        return number


class CsvEdges(TextEdges):
    """The same with columns, if there are any delimiters."""

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> TextEdges:
        """Read as much as tells what the columns are."""
        line, begin, end = _first_line(path)
        delimiter = next((mark for mark in ",;\t" if mark in line), None)
        if delimiter is None:
            return super().open(path, weighted)
        fields = [field.strip().strip('"') for field in line.split(delimiter)]
        has_names = not any(is_number(field) for field in fields[:2])
        names: Sequence[str] = fields if has_names else [""] * len(fields)
        columns = choose_columns(path, names, weighted)
        return cls(path, end if has_names else begin, delimiter, columns, THIRD[weighted])


def _unpacked(path: str) -> IO[bytes]:
    if path.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]  # it can do what IO can, but does not say so
    return open(path, "rb")


def _first_line(path: str) -> tuple[str, int, int]:
    """The first line that says something, and the bytes at which it begins and ends."""
    try:
        with _unpacked(path) as file:
            begin = len(MARK) if file.read(len(MARK)) == MARK else 0
            file.seek(begin)
            in_comment = False
            while line := file.readline(FIRST_LINE_BYTES):
                in_comment = in_comment or line.lstrip().startswith((b"#", b"%"))
                if line.strip() and not in_comment:
                    return line.decode().strip("\r\n"), begin, file.tell()
                begin += len(line)
                # A longer line comes in pieces.
                in_comment = in_comment and not line.endswith(b"\n")
    except DAMAGED as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text") from None
    raise EmptyFile(f"{path} is empty: it has no line with an edge")
