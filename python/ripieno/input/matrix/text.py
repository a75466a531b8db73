"""Read text by byte range: .csv with or without a header, and lines of "picture row col f1 … f512".

The reader of bytes `start .. stop` takes the lines that begin there, so every line is read exactly once for any cuts. A
range is parsed in windows, so the text of a large share is never in memory as a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.sources import EmptyFile, blamed_on, opened, size_bytes
from ripieno.input import lines
from ripieno.input.delimited import QUOTED_CHARACTERS, Dialect, is_number, read_table, sniff
from ripieno.input.matrix.parquet import INDEX_NAMES

WINDOW_BYTES = 32 << 20
FIRST_LINE_BYTES = 16 << 20
NO_NAME = ""


@dataclass(frozen=True)
class TextFile:
    """Lines of numbers in a file. `body` is the offset of the first line, `skipped` are columns without values."""

    path: str
    size: int
    body: int
    delimiter: str
    names: tuple[str, ...]
    skipped: tuple[str, ...]
    #: fsspec's name of the compression. Compressed text has one range, the whole text.
    compression: str | None = field(default=None, kw_only=True)
    counted: ClassVar[bool] = False
    #: The Arrow type of values, their narrowest dtype, and the quote character (False for none).
    _arrow_type: ClassVar[pa.DataType]
    _narrowest: ClassVar[np.dtype[Any]]
    _quote_char: ClassVar[str | Literal[False]]

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names that the file gives to the values of a row."""
        return None

    @property
    def column_count(self) -> int:
        """The number of values per row."""
        return len(self.names) - len(self.skipped)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the rows with lines that begin in bytes `start .. stop`."""
        stop = stop if self.compression is None else sys.maxsize
        with opened(self.path, self.compression) as file, blamed_on(self.path):
            windows = lines.blocks(file, start, stop, WINDOW_BYTES, self.body)
            rows = [self._parse(text, begin) for begin, text in windows]
        return np.concatenate([np.empty((0, self.column_count), self._narrowest), *rows])

    def read_index(self) -> pa.Table:
        """Return the columns with the origin of the rows, for the whole file."""
        types = {name: pa.string() if name == "picture" else pa.int64() for name in INDEX_NAMES}
        with opened(self.path, self.compression) as file:
            file.seek(self.body)
            return self._table(file.read(), self.body, types)

    def describe(self, start: int, row: int) -> str:
        """Return the line of the `row`-th row that begins at or after byte `start`, as text."""
        for number in self._lines(start):
            if row == 0:
                return f"{self.path}, line {number}"
            row -= 1
        raise IndexError(row)

    def _narrow(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the rows in a narrower dtype, if they fit."""
        return rows

    def _parse(self, text: bytes, begin: int) -> NDArray[Any]:
        values = [name for name in self.names if name not in self.skipped]
        if not text.strip():
            return np.empty((0, len(values)), self._narrowest)
        table = self._table(text, begin, dict.fromkeys(values, self._arrow_type))
        rows = np.empty((len(table), len(values)), self._arrow_type.to_pandas_dtype())
        for at, column in enumerate(table.columns):
            rows[:, at] = column.to_numpy()
        return self._narrow(rows)

    def _table(self, text: bytes, begin: int, types: dict[str, pa.DataType]) -> pa.Table:
        """Return the columns in `types`, from lines that begin at a byte of the file."""
        dialect = Dialect(self.delimiter, self.names, False, self.body)
        schema, quote_char = pa.schema(types), self._quote_char
        return read_table(text, begin, dialect, schema, self.path, self.compression, quote_char=quote_char)

    def _lines(self, start: int) -> Iterator[int]:
        """Yield the numbers of nonempty lines that begin at or after a byte."""
        at = number = 0
        with opened(self.path, self.compression) as file, blamed_on(self.path):
            for text in file:
                for line in text.splitlines(keepends=True):
                    number += 1
                    if at >= max(start, self.body) and line.strip(b"\r\n"):
                        yield number
                    at += len(line)


@dataclass(frozen=True)
class CsvFile(TextFile):
    """Comma-, semicolon- or tab-separated numbers. `delimited` defines a header."""

    dtype = np.dtype(np.float64)
    _arrow_type = pa.float64()
    _narrowest = np.dtype(np.float64)
    _quote_char = '"'
    has_header: bool = False

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names of the values in the header."""
        return tuple(name for name in self.names if name not in self.skipped) if self.has_header else None

    @classmethod
    def open(cls, path: str) -> CsvFile:
        """Read the first records."""
        dialect = sniff(path)
        if dialect is None:
            raise EmptyFile(f"{path} is empty")
        names = dialect.unique_names
        size = size_bytes(path)
        if dialect.body >= size:
            raise EmptyFile(f"{path} is empty: it has a header and no rows")
        # A first column without a name is a pandas index, or R's row names.
        skipped = tuple(
            name for at, name in enumerate(names) if name in INDEX_NAMES or (at == 0 and not name and len(names) > 1)
        )
        if len(skipped) == len(names):
            raise InputError(f"{path} has no column of values")
        return cls(path, size, dialect.body, dialect.delimiter, names, skipped, dialect.has_header)


class PatchTextFile(TextFile):
    """Lines of "picture row col f1 … f512", separated by spaces or tabs.

    If all values are integers from 0 to 255, they are stored as bytes, as in the paper; otherwise as float32. This is
    known only after everything has been read.
    """

    dtype = None
    _arrow_type = pa.float32()
    _narrowest = np.dtype(np.uint8)
    _quote_char = False

    @classmethod
    def open(cls, path: str, compression: str | None = None) -> PatchTextFile:
        """Read the first line."""
        line, begin, _ = _first_line(path, compression)
        delimiter = "\t" if "\t" in line else " "
        fields = line.rstrip(delimiter).split(delimiter)
        if len(fields) <= len(INDEX_NAMES) or not all(is_number(field) for field in fields[1:]):
            raise InputError(f'{path}, line 1: expected "picture row col f1 f2 …", found {line[:QUOTED_CHARACTERS]!r}')
        names = INDEX_NAMES + tuple(f"f{at + 1}" for at in range(len(fields) - len(INDEX_NAMES)))
        # Many programs also write a space after the last value.
        nothing = (NO_NAME,) if line.endswith(delimiter) else ()
        skipped = INDEX_NAMES + nothing
        return cls(path, size_bytes(path), begin, delimiter, names + nothing, skipped, compression=compression)

    def _narrow(self, rows: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(invalid="ignore"):
            whole = rows.astype(np.uint8)
        return whole if np.array_equal(whole, rows) else rows


def _first_line(path: str, compression: str | None) -> tuple[str, int, int]:
    """Return the first nonempty line, and the byte offsets of its begin and end."""
    with opened(path, compression) as file, blamed_on(path):
        begin = 0
        while line := file.readline(FIRST_LINE_BYTES):
            if line.strip(b"\xef\xbb\xbf \t\r\n"):
                break
            begin = file.tell()
        else:
            raise EmptyFile(f"{path} is empty")
        mark = len(b"\xef\xbb\xbf") if line.startswith(b"\xef\xbb\xbf") else 0
        try:
            return line[mark:].decode().strip("\r\n"), begin + mark, file.tell()
        except UnicodeDecodeError:
            raise InputError(f"{path} is not text") from None
