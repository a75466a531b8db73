"""Provide columns of delimited text: .csv and .tsv, plain or compressed.

The reader of bytes `start .. stop` takes the records that begin there, so every record is read exactly once for any
cuts. Text is parsed in windows. A compressed file is unpacked up to the end of the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from ripieno.files.sources import EmptyFile, File, blamed_on, opened, size_bytes, unpacked_bytes
from ripieno.input import lines
from ripieno.input.columns.delimited import Dialect, line_of, read_table, sniff
from ripieno.input.columns.source import ColumnSource, TableOptions, arrow_type

#: Text that is parsed at once. It stays in the caches between reading and parsing.
WINDOW_BYTES = 4 << 20


@dataclass(frozen=True)
class TextColumns(ColumnSource):
    """Text with a record per row."""

    dialect: Dialect = field(default_factory=lambda: Dialect(",", (), False, 0))
    compression: str | None = None

    counted = False

    def _batches(self, start: int, stop: int, schema: pa.Schema, hint: str) -> Iterator[pa.Table]:
        with opened(self.path, self.compression) as file, blamed_on(self.path):
            if self.dialect.quote and len(schema) < len(self.own):
                # Fields of other columns may contain line ends in quotes.
                begin = lines.record_start(file, start, self.dialect.body)
                windows = lines.records(self.path, file, begin, stop, WINDOW_BYTES)
            else:
                windows = lines.blocks(file, start, stop, WINDOW_BYTES, self.dialect.body)
            for begin, text in windows:
                table = read_table(text, begin, self.dialect, schema, self.path, self.compression, hint=hint)
                if len(table):
                    yield table

    def describe(self, start: int, row: int) -> str:
        """Return the line of the `row`-th record that begins at or after byte `start`, as text."""
        with opened(self.path, self.compression) as file, blamed_on(self.path):
            find = lines.record_start if self.dialect.quote else lines.line_start
            begin = find(file, start, self.dialect.body)
        return f"{self.path}, line {line_of(self.path, self.compression, begin, row + 1, self.dialect)}"


@dataclass(frozen=True)
class CsvColumns(TextColumns):
    """Comma-, semicolon- or tab-separated records."""

    suffixes = (".csv", ".tsv")

    @classmethod
    def open(cls, path: str, options: TableOptions, *, has_comments: bool = False) -> Self:
        """Read the first records. Lines that begin with # or % may be comments."""
        file = File(path, size_bytes(path))
        delimiter = options.delimiter or ("\t" if file.inner_suffix == ".tsv" else None)
        dialect = sniff(path, file.compression, options, delimiter=delimiter, has_comments=has_comments)
        if dialect is None:
            raise EmptyFile(f"{path} is empty")
        size = unpacked_bytes(file)
        if dialect.body >= size:
            raise EmptyFile(f"{path} is empty: it has a header and no rows")
        schema = pa.schema([(name, arrow_type(options.types.get(name, "null"))) for name in dialect.unique_names])
        return cls(path, schema, size, dialect.has_header, dialect=dialect, compression=file.compression)
