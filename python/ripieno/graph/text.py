"""Read text: edge and adjacency lists with blank-separated fields, and delimited columns, plain or gzipped.

The reader of bytes `start .. stop` takes the lines that begin there, so every line is read exactly once for any cuts. A
gzipped file cannot be cut: each rank with a part of it decompresses the whole file and takes the windows of its turn.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.files.sources import EmptyFile
from ripieno.graph.edge_files import EdgeColumns, EdgeFile, choose_columns
from ripieno.graph.edges import Edges
from ripieno.graph.matrix_market import BANNER, MatrixMarketEdges, is_matrix_market
from ripieno.graph.memory import LARGEST_ID
from ripieno.input import lines
from ripieno.input.delimited import MARK, QUOTED_CHARACTERS, Dialect, line_of, read_table, sniff
from ripieno.input.shares import FileShare

WINDOW_BYTES = 32 << 20
DEALT_BYTES = 1 << 20
FIRST_LINE_BYTES = 1 << 16
COMMENTS = (b"#", b"%")
#: Lines that are not CSV records: comments, and lines of spaces only.
NO_EDGE = re.compile(rb"^ *(?:[#%].*)?$", re.MULTILINE)
BLANK = re.compile(rb"^ +$", re.MULTILINE)
EXPECTED = f": expected vertex ids, whole numbers from 0 to {LARGEST_ID}, and finite weights"
#: The meaning of a third field, by the value of `weighted`.
THIRD = {True: "weight", False: "ignored", None: "refused"}
DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error)


@dataclass(frozen=True)
class EdgeLines(ABC):
    """Lines of edges in a file. They begin at byte `body` of the decompressed text."""

    path: str
    body: int

    @property
    @abstractmethod
    def weighted(self) -> bool:
        """Whether edges have weights."""

    @property
    def size_bytes(self) -> int:
        """The size of the file in bytes."""
        return os.path.getsize(self.path)

    def read(self, share: FileShare) -> Edges:
        """Return the edges of a share.

        Raises
        ------
        InputError
            A line is not an edge, or the file is damaged. The message names file and line.
        """
        try:
            windows = self._dealt(share) if is_packed(self.path) else self._cut(share)
            return Edges.joined([self._parse(*window) for window in windows], weighted=self.weighted)
        except DAMAGED as error:
            raise InputError(f"{self.path} is damaged: {error}") from error

    def _dealt(self, share: FileShare) -> Iterator[tuple[int, bytes]]:
        with _unpacked(self.path) as file:
            for number, window in enumerate(self._windows(file)):
                if number % share.reader_count == share.reader:
                    yield window

    @abstractmethod
    def _cut(self, share: FileShare) -> Iterator[tuple[int, bytes]]:
        """Yield the windows of a share of an uncompressed file, and the start of each."""

    @abstractmethod
    def _windows(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield all windows of the decompressed text, and the start of each."""

    @abstractmethod
    def _parse(self, begin: int, text: bytes) -> Edges:
        """Return the edges of a window."""


@dataclass(frozen=True)
class TextEdges(EdgeLines):
    """Lines with blank-separated fields. `third` is the meaning of a third field: "weight", "ignored" or "refused"."""

    third: str

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> EdgeFile:
        """Read the first line. A file with a MatrixMarket banner is opened as such, whatever its name."""
        try:
            with _unpacked(path) as file:
                if is_matrix_market(file.read(len(BANNER))):
                    file.seek(0)
                    return MatrixMarketEdges.open(path, file, weighted)
        except DAMAGED as error:
            raise InputError(f"{path} is damaged: {error}") from error
        return cls(path, _first_line(path), THIRD[weighted])

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.third == "weight"

    def _cut(self, share: FileShare) -> Iterator[tuple[int, bytes]]:
        with open(self.path, "rb") as file:
            yield from lines.blocks(file, *share.of(self.size_bytes), WINDOW_BYTES, self.body)

    def _windows(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        yield from lines.blocks(file, self.body, sys.maxsize, DEALT_BYTES, self.body)

    def _parse(self, begin: int, text: bytes) -> Edges:
        try:
            sources, targets, weights, lone = _native.parse_pairs(text, self.third)
        except ValueError as error:
            offset, reason = error.args
            line = text[offset : offset + FIRST_LINE_BYTES].split(b"\n")[0].decode(errors="replace").strip()
            quoted = line[:QUOTED_CHARACTERS] + "…" * (len(line) > QUOTED_CHARACTERS)
            number = line_of(self.path, compression(self.path), begin + offset)
            raise InputError(f"{self.path}, line {number}: {reason}: {quoted!r}") from None
        return Edges(sources, targets, weights if self.weighted else None, lone)


@dataclass(frozen=True)
class CsvEdges(EdgeLines):
    """Delimited columns, with the ends and optionally a weight. Quoted fields may contain line ends."""

    dialect: Dialect
    columns: EdgeColumns

    @classmethod
    def open(cls, path: str, weighted: bool | None) -> EdgeFile:
        """Read enough to identify the columns. A file without delimiters is opened as text."""
        try:
            dialect = sniff(path, compression(path), comments=COMMENTS)
        except DAMAGED as error:
            raise InputError(f"{path} is damaged: {error}") from error
        if dialect is None:
            raise EmptyFile(f"{path} is empty: it has no line with an edge")
        if len(dialect.names) < 2:
            return TextEdges.open(path, weighted)
        names = dialect.names if dialect.has_header else [""] * len(dialect.names)
        return cls(path, dialect.body, dialect, choose_columns(path, names, weighted))

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.columns.weight is not None

    def _cut(self, share: FileShare) -> Iterator[tuple[int, bytes]]:
        start, stop = share.of(self.size_bytes)
        with open(self.path, "rb") as file:
            begin = lines.record_start(file, start, self.body)
            yield from lines.records(self.path, file, begin, stop, WINDOW_BYTES)

    def _windows(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        yield from lines.records(self.path, file, self.body, sys.maxsize, DEALT_BYTES)

    def _parse(self, begin: int, text: bytes) -> Edges:
        # With quotes, a line that looks like a comment may lie inside a field.
        if b'"' not in text and any(mark in text for mark in (*COMMENTS, b"\n ")):
            text = (NO_EDGE if 0 in self.columns else BLANK).sub(b"", text)
        if not text.strip():
            return Edges.joined([], weighted=self.weighted)
        names = self.dialect.unique_names
        ends, weight = [names[at] for at in self.columns[:2]], self.columns.weight
        types = dict.fromkeys(ends, pa.int64()) | ({} if weight is None else {names[weight]: pa.float64()})
        table = read_table(
            text, begin, self.dialect, pa.schema(types), self.path, compression(self.path), hint=EXPECTED
        )

        def check(name: str, wrong: NDArray[np.bool_]) -> None:
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                line, value = line_of(self.path, compression(self.path), begin, text, row + 1), table[name][row].as_py()
                found = "a missing value" if value is None else value
                raise InputError(f"{self.path}, line {line}, column {name!r}: {found}{EXPECTED}")

        sources, targets = (table[name].fill_null(-1).to_numpy() for name in ends)
        for name, column in zip(ends, (sources, targets), strict=True):
            check(name, (column < 0) | (column > LARGEST_ID))
        if weight is None:
            return Edges(sources, targets)
        weights = table[names[weight]].to_numpy()
        check(names[weight], ~np.isfinite(weights))
        return Edges(sources, targets, weights)


def is_packed(path: str) -> bool:
    """Return whether the name of a file indicates gzip."""
    return path.lower().endswith(".gz")


def compression(path: str) -> str | None:
    """Return fsspec's name of a file's compression."""
    return "gzip" if is_packed(path) else None


def _unpacked(path: str) -> IO[bytes]:
    if path.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]  # it implements IO, but is not typed so
    return open(path, "rb")


def _first_line(path: str) -> int:
    """Return the byte at which the text begins, after a byte order mark, of a file that has a line with an edge."""
    try:
        with _unpacked(path) as file:
            body = len(MARK) if file.read(len(MARK)) == MARK else 0
            file.seek(body)
            in_comment = False
            while line := file.readline(FIRST_LINE_BYTES):
                in_comment = in_comment or line.lstrip().startswith(COMMENTS)
                if line.strip() and not in_comment:
                    line.decode()
                    return body
                # A longer line arrives in pieces.
                in_comment = in_comment and not line.endswith(b"\n")
    except DAMAGED as error:
        raise InputError(f"{path} is damaged: {error}") from error
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text") from None
    raise EmptyFile(f"{path} is empty: it has no line with an edge")
