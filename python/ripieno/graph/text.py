"""Read text: edge and adjacency lists with blank-separated fields, plain or compressed.

A rank with bytes `start .. stop` reads the lines that begin there, so every line is read exactly once for any cuts. A
compressed file cannot be cut: each rank with a part decompresses the whole file and uses every k-th window.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.files.matrix_market import is_matrix_market
from ripieno.files.sources import EmptyFile, File, input_errors, opened, size_bytes
from ripieno.graph.edge_files import EdgeFile
from ripieno.graph.edges import Edges
from ripieno.graph.tables import MatrixEdges
from ripieno.input import lines
from ripieno.input.columns.delimited import QUOTED_CHARACTERS, UTF8_BOM, is_number, line_of
from ripieno.input.shares import FileShare

WINDOW_BYTES = 32 << 20
COMPRESSED_WINDOW_BYTES = 1 << 20
FIRST_LINE_BYTES = 1 << 16
COMMENTS = (b"#", b"%")
#: The meaning of a third field, by the value of `weighted`.
THIRD = {True: "weight", False: "ignored", None: "refused"}


@dataclass(frozen=True)
class TextEdges:
    """Lines with blank-separated fields, from byte `body` of the unpacked text on.

    `third` is the meaning of a third field: "weight", "ignored" or "refused".
    """

    path: str
    body: int
    compression: str | None
    third: str

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> EdgeFile:
        """Read the first line. A file with a MatrixMarket banner is opened as such, under any name."""
        if is_matrix_market(path):
            return MatrixEdges.open(path, weighted)
        compression = File(path, 0).compression
        return cls(path, _first_line(path, compression)[0], compression, THIRD[weighted])

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.third == "weight"

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return size_bytes(self.path)

    def read(self, share: FileShare) -> Edges:
        """Return the edges of a share.

        Raises
        ------
        InputError
            A line is not an edge, or the file is damaged. The message names file and line.
        """
        with input_errors(self.path):
            parts = [self._parse(*window) for window in self._windows(share)]
        return Edges.joined(parts, weighted=self.weighted)

    def _windows(self, share: FileShare) -> Iterator[tuple[int, bytes]]:
        with opened(self.path, self.compression) as file:
            if self.compression is None:
                yield from lines.blocks(file, *share.of(self.size_bytes), WINDOW_BYTES, self.body)
                return
            for number, window in enumerate(
                lines.blocks(file, self.body, sys.maxsize, COMPRESSED_WINDOW_BYTES, self.body)
            ):
                if number % share.reader_count == share.reader:
                    yield window

    def _parse(self, begin: int, text: bytes) -> Edges:
        try:
            sources, targets, weights, lone = _native.parse_pairs(text, self.third)
        except ValueError as error:
            offset, reason = error.args
            line = text[offset : offset + FIRST_LINE_BYTES].split(b"\n")[0].decode(errors="replace").strip()
            quoted = line[:QUOTED_CHARACTERS] + "…" * (len(line) > QUOTED_CHARACTERS)
            number = line_of(self.path, self.compression, begin + offset)
            hint = "; strings are ids in tables, format='csv'" if "vertex id" in reason else ""
            raise InputError(f"{self.path}, line {number}: {reason}: {quoted!r}{hint}") from None
        return Edges(sources, targets, weights if self.weighted else None, lone)


def has_names(path: str) -> bool:
    """Return whether the first line of a text begins with a name of a column, not with a vertex."""
    line = _first_line(path, File(path, 0).compression)[1]
    return not is_number(line.split()[0].decode())


def _first_line(path: str, compression: str | None) -> tuple[int, bytes]:
    """Return the byte offset of the text after a byte order mark, and the first line that is not a comment."""
    with opened(path, compression) as file, input_errors(path):
        begin, in_comment, at_start = 0, False, True
        while line := file.readline(FIRST_LINE_BYTES):
            if at_start and line.startswith(UTF8_BOM):
                begin, line = len(UTF8_BOM), line.removeprefix(UTF8_BOM)
            at_start = False
            in_comment = in_comment or line.lstrip().startswith(COMMENTS)
            if line.strip() and not in_comment:
                try:
                    line.decode()
                except UnicodeDecodeError:
                    raise InputError(f"{path} is not text") from None
                return begin, line
            # A longer line arrives in pieces.
            in_comment = in_comment and not line.endswith(b"\n")
    raise EmptyFile(f"{path} is empty: it has no line with an edge")
