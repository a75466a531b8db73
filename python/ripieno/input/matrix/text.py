"""Text: .csv with or without a header, and lines of "picture row col f1 … f512", both read by byte range.

A reader of bytes `start .. stop` takes the lines that begin there, so every line is read exactly once whatever the cut.
A range is parsed in windows, so the text of a large share is never in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.sources import blamed_on, opened, size_bytes
from ripieno.input import lines
from ripieno.input.matrix.parquet import INDEX_NAMES

WINDOW_BYTES = 32 << 20
FIRST_LINE_BYTES = 16 << 20
QUOTED_CHARACTERS = 40
NO_NAME = ""


@dataclass(frozen=True)
class TextFile:
    """Lines of numbers in a file; `body` is the byte at which they begin, `skipped` the columns that are no values."""

    path: str
    size: int
    body: int
    delimiter: str
    names: tuple[str, ...]
    skipped: tuple[str, ...]
    counted: ClassVar[bool] = False
    #: As values are read, their narrowest type, and what is around words; False for nothing.
    _arrow_type: ClassVar[pa.DataType]
    _narrowest: ClassVar[np.dtype[Any]]
    _quote_char: ClassVar[str | Literal[False]]

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """What the file calls the values of a row."""
        return None

    @property
    def column_count(self) -> int:
        """Values per row."""
        return len(self.names) - len(self.skipped)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The rows whose lines begin in bytes `start .. stop`."""
        with opened(self.path) as file, blamed_on(self.path):
            windows = lines.blocks(file, start, stop, WINDOW_BYTES, self.body)
            rows = [self._parse(text, begin) for begin, text in windows]
        return np.concatenate([np.empty((0, self.column_count), self._narrowest), *rows])

    def read_index(self) -> pa.Table:
        """The columns that say where the rows come from, of the whole file."""
        types = {name: pa.string() if name == "picture" else pa.int64() for name in INDEX_NAMES}
        with opened(self.path) as file:
            file.seek(self.body)
            return self._table(file, self.body, types)

    def describe(self, start: int, row: int) -> str:
        """Line of the `row`-th row that begins at or after byte `start`."""
        for number, _ in self._lines(start):
            if row == 0:
                return f"{self.path}, line {number}"
            row -= 1
        raise IndexError(row)

    def _narrow(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The rows in a narrower type, if they fit."""
        return rows

    def _parse(self, text: bytes, begin: int) -> NDArray[Any]:
        values = [name for name in self.names if name not in self.skipped]
        if not text.strip():
            return np.empty((0, len(values)), self._narrowest)
        table = self._table(pa.BufferReader(text), begin, dict.fromkeys(values, self._arrow_type))
        rows = np.empty((len(table), len(values)), self._arrow_type.to_pandas_dtype())
        for at, column in enumerate(table.columns):
            rows[:, at] = column.to_numpy()
        return self._narrow(rows)

    def _table(self, source: pa.NativeFile, begin: int, types: dict[str, pa.DataType]) -> pa.Table:
        """The columns that `types` names, of lines that begin at a byte of the file."""
        try:
            return pa.csv.read_csv(
                source,
                pa.csv.ReadOptions(column_names=self.names, block_size=WINDOW_BYTES, use_threads=False),
                pa.csv.ParseOptions(delimiter=self.delimiter, quote_char=self._quote_char),
                pa.csv.ConvertOptions(column_types=types, include_columns=list(types)),
            )
        except pa.ArrowInvalid as error:
            numbers = [name for name, kind in types.items() if not pa.types.is_string(kind)]
            raise InputError(self._explain(begin, numbers) or f"{self.path}: {error}") from error

    def _explain(self, begin: int, numbers: list[str]) -> str | None:
        """The first line that has not as many fields as the first one, or a word in a column of numbers, in words."""
        values = [self.names.index(name) for name in numbers]
        for number, line in self._lines(begin):
            fields = line.split(self.delimiter)
            if len(fields) != len(self.names):
                return f"{self.path}, line {number}: {len(fields)} values, expected {len(self.names)}"
            wrong = next((at for at in values if not is_number(fields[at]) and fields[at].strip()), None)
            if wrong is not None:
                column = f"column {self.names[wrong]!r} ({wrong + 1} of {len(self.names)})"
                return f"{self.path}, line {number}, {column}: {fields[wrong][:QUOTED_CHARACTERS]!r} is not a number"
        return None

    def _lines(self, start: int) -> Iterator[tuple[int, str]]:
        """Numbers and contents of the lines that begin at or after a byte, without empty ones."""
        at = 0
        with opened(self.path) as file, blamed_on(self.path):
            for number, line in enumerate(file, start=1):
                if at >= max(start, self.body) and line.strip():
                    yield number, line.decode(errors="replace").strip("\r\n")
                at += len(line)


@dataclass(frozen=True)
class CsvFile(TextFile):
    """Comma-, semicolon- or tab-separated numbers; a first line with a word in it is a header."""

    dtype = np.dtype(np.float64)
    _arrow_type = pa.float64()
    _narrowest = np.dtype(np.float64)
    _quote_char = '"'
    has_header: bool = False

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """What the header calls the values of a row."""
        return tuple(name for name in self.names if name not in self.skipped) if self.has_header else None

    @classmethod
    def open(cls, path: str) -> CsvFile:
        """Read the first line."""
        line, begin, end = _first_line(path)
        delimiter = next((mark for mark in ",;\t" if mark in line), ",")
        fields = [field.strip().strip('"') for field in line.split(delimiter)]
        has_header = not all(is_number(field) or not field for field in fields)
        if has_header:
            names, body = tuple(fields), end
        else:
            names, body = tuple(f"f{at}" for at in range(len(fields))), begin
        if len(set(names)) < len(names):
            names = tuple(f"{name} ({at})" for at, name in enumerate(names))
        size = size_bytes(path)
        if body >= size:
            raise InputError(f"{path} is empty: it has a header and no rows")
        skipped = tuple(name for name in names if name in INDEX_NAMES)
        if len(skipped) == len(names):
            raise InputError(f"{path} has no column of values")
        return cls(path, size, body, delimiter, names, skipped, has_header)


class PatchTextFile(TextFile):
    """Lines of "picture row col f1 … f512", with a space or a tab in between.

    Values that are all whole numbers of 0 to 255 are bytes, as in the paper; others are float32. Which of the two only
    shows when everything has been read.
    """

    dtype = None
    _arrow_type = pa.float32()
    _narrowest = np.dtype(np.uint8)
    _quote_char = False

    @classmethod
    def open(cls, path: str) -> PatchTextFile:
        """Read the first line."""
        line, begin, _ = _first_line(path)
        delimiter = "\t" if "\t" in line else " "
        fields = line.rstrip(delimiter).split(delimiter)
        if len(fields) <= len(INDEX_NAMES) or not all(is_number(field) for field in fields[1:]):
            raise InputError(f'{path}, line 1: expected "picture row col f1 f2 …", found {line[:QUOTED_CHARACTERS]!r}')
        names = INDEX_NAMES + tuple(f"f{at + 1}" for at in range(len(fields) - len(INDEX_NAMES)))
        # Many programs write a space after the last value, too.
        nothing = (NO_NAME,) if line.endswith(delimiter) else ()
        return cls(path, size_bytes(path), begin, delimiter, names + nothing, INDEX_NAMES + nothing)

    def _narrow(self, rows: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(invalid="ignore"):
            whole = rows.astype(np.uint8)
        return whole if np.array_equal(whole, rows) else rows


def _first_line(path: str) -> tuple[str, int, int]:
    """The first line that is not empty, and the bytes at which it begins and ends."""
    with opened(path) as file, blamed_on(path):
        begin = 0
        while line := file.readline(FIRST_LINE_BYTES):
            if line.strip(b"\xef\xbb\xbf \t\r\n"):
                break
            begin = file.tell()
        else:
            raise InputError(f"{path} is empty")
        mark = len(b"\xef\xbb\xbf") if line.startswith(b"\xef\xbb\xbf") else 0
        try:
            return line[mark:].decode().strip("\r\n"), begin + mark, file.tell()
        except UnicodeDecodeError:
            raise InputError(f"{path} is not text") from None


def is_number(field: str) -> bool:
    """Whether a field of a line is a number, "nan" and "inf" included."""
    try:
        float(field)
    except ValueError:
        return False
    return True
