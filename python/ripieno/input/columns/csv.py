"""Provide delimited text: .csv and .tsv, plain or compressed.

`CsvColumns` reads the records that begin in bytes `start .. stop`, so every record is read exactly once for any cuts.
Text is parsed in windows. A compressed file is unpacked up to the end of the range.

`Csv` cuts files between records. Whether a line end is inside quotes depends on all quotes before it, so a file is read
once before it is cut.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ripieno.errors import InputError
from ripieno.files.frames import check_names
from ripieno.files.sources import (
    EmptyFile,
    File,
    check_memory,
    held,
    input_errors,
    opened,
    size_bytes,
    unpacked_bytes,
)
from ripieno.input import lines
from ripieno.input.columns.delimited import (
    Dialect,
    line_of,
    number_types,
    parse_error_text,
    read_stream,
    read_table,
    sniff,
)
from ripieno.input.columns.source import ColumnSource, FormatOptions, TableOptions, nbytes
from ripieno.input.cuts import grouped, piece_size
from ripieno.input.split import Range, Split, arrow_type

#: Text that is parsed at once. It stays in the caches between reading and parsing.
WINDOW_BYTES = 4 << 20
#: Bytes read at once to find cuts.
CUT_BYTES = 1 << 20
#: Up to this number, float64 has all whole numbers.
FLOAT64_EXACT = 1 << 53
TYPES_HINT = 'types={"column": "string"}'


@dataclass(frozen=True)
class TextColumns(ColumnSource):
    """Text with a record per row."""

    dialect: Dialect = field(default_factory=lambda: Dialect(",", (), False, 0))
    compression: str | None = None

    counted = False

    def _batches(self, start: int, stop: int, schema: pa.Schema, hint: str) -> Iterator[pa.Table]:
        with opened(self.path, self.compression) as file, input_errors(self.path):
            if self.dialect.quote and len(schema) < len(self.own):
                # Fields of other columns may contain line ends in quotes.
                begin = lines.record_start(file, start, self.dialect.body, self.dialect.delimiter)
                windows = lines.records(self.path, file, begin, stop, WINDOW_BYTES, self.dialect.delimiter)
            else:
                windows = lines.blocks(self.path, file, start, stop, WINDOW_BYTES, self.dialect.body)
            for begin, text in windows:
                table = read_table(text, begin, self.dialect, schema, self.path, self.compression, hint=hint)
                if len(table):
                    yield table

    def describe(self, start: int, row: int) -> str:
        """Return the line of the `row`-th record that begins at or after byte `start`, as text."""
        with opened(self.path, self.compression) as file, input_errors(self.path):
            begin = (
                lines.record_start(file, start, self.dialect.body, self.dialect.delimiter)
                if self.dialect.quote
                else lines.line_start(file, start, self.dialect.body)
            )
        return f"{self.path}, line {line_of(self.path, self.compression, begin, row + 1, self.dialect)}"


@dataclass(frozen=True)
class CsvColumns(TextColumns):
    """Comma-, semicolon- or tab-separated records."""

    suffixes = (".csv", ".tsv")

    @classmethod
    def open(cls, path: str, options: TableOptions, *, has_comments: bool = False) -> Self:
        """Read the first records. Lines that begin with # or % may be comments."""
        file = File(path, size_bytes(path))
        dialect = _dialect(file, options, has_comments=has_comments)
        if dialect is None:
            raise EmptyFile(f"{path} is empty")
        size = unpacked_bytes(file)
        if dialect.body >= size:
            raise EmptyFile(f"{path} is empty: it has a header and no rows")
        schema = pa.schema([(name, arrow_type(options.types.get(name, "null"))) for name in dialect.unique_names])
        return cls(path, schema, size, dialect.has_header, dialect=dialect, compression=file.compression)


@dataclass(frozen=True)
class Csv:
    """Comma-, semicolon- or tab-separated records.

    Parameters
    ----------
    body : int
        Byte offset of the first record, after the header.
    delimiter : str
        One character.
    types : tuple of (str, str)
        Name and Arrow type of every column.
    columns : tuple of str, optional
        The columns to read; by default all.
    decimal, thousands
        The characters of numbers, as in `TableOptions`.
    """

    body: int
    delimiter: str
    types: tuple[tuple[str, str], ...]
    columns: tuple[str, ...] | None = None
    decimal: str = "."
    thousands: str | None = None

    name = "csv"
    suffixes = CsvColumns.suffixes
    unit = "bytes"
    block_bytes = 8 << 20

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Csv:
        """Read the header, and enough records to infer the types of the columns."""
        dialect = _dialect(file, options)
        if dialect is None:
            raise InputError(f"{file.path} has no record and no header: it holds nothing but line ends")
        with opened(file.path, file.compression) as stream, input_errors(file.path):
            records = lines.records(
                file.path, stream, dialect.body, sys.maxsize, options.sample_bytes, dialect.delimiter
            )
            begin, sample = next(records, (dialect.body, b""))
        names = dialect.names

        def read(**given: Any) -> pa.Table:
            is_grouped = options.thousands is not None
            return pa.csv.read_csv(
                pa.BufferReader(sample or b"\n"),
                pa.csv.ReadOptions(column_names=names, use_threads=False),
                pa.csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
                pa.csv.ConvertOptions(decimal_point=options.decimal, strings_can_be_null=is_grouped, **given),
            )

        try:
            table = read()
        except pa.ArrowInvalid as error:
            raise InputError(parse_error_text(error, file.path, file.compression, begin, dialect)) from error
        for at, each in enumerate(table.schema):
            # As float64, different whole numbers of this size could be equal.
            if pa.types.is_floating(each.type) and (pc.max(table[at]).as_py() or 0) >= 2.0**63:
                with suppress(pa.ArrowInvalid):
                    own = read(column_types={each.name: pa.uint64()}, include_columns=[each.name])
                    inexact = pc.greater_equal(own[0], pa.scalar(FLOAT64_EXACT, pa.uint64()))
                    if pc.count_distinct(own[0].filter(inexact)).as_py() > 1:
                        table = table.set_column(at, own.schema.field(0), own[0])
        schema = table.schema if options.thousands is None else number_types(table, dialect)
        chosen = options.chosen_of(file, names)
        return cls(
            dialect.body, dialect.delimiter, _types(file.path, schema, options), chosen, options.decimal,
            options.thousands,
        )  # fmt: skip

    def cut(self, file: File, count: int) -> list[Range]:
        """Return ranges with about the same number of bytes. Each begins with a record."""
        length = file.size_bytes - self.body
        if count == 1:
            return [(self.body, file.size_bytes, length)] if length else []
        with opened(file.path) as stream, input_errors(file.path):
            piece_bytes = min(piece_size(length, count), CUT_BYTES)
            pieces = lines.records(file.path, stream, self.body, file.size_bytes, piece_bytes, self.delimiter)
            cuts = grouped((len(text) for _, text in pieces), length, count)
        return [(self.body + start, self.body + stop, stop - start) for start, stop in cuts]

    def read(self, split: Split) -> pa.Table:
        """Return all records."""
        if split.compression is None:
            place = split.place()
            check_memory(place, split.stop - split.start)
            with split.opened(place) as file, input_errors(place):
                file.seek(start := max(split.start, self.body))
                table = read_stream(file, split.stop - start, self._dialect, self.schema)
            if table is not None:
                return table
        tables = list(held(split.path, self.blocks(split, WINDOW_BYTES), nbytes))
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def blocks(self, split: Split, block_bytes: int) -> Iterator[pa.Table]:
        """Yield records in blocks of about `block_bytes`, each up to the end of its last record."""
        place, schema, hint = split.place(), self.schema, f"; name its type, as in {TYPES_HINT}"
        dialect = self._dialect
        with split.opened(place) as file, input_errors(place):
            stop = sys.maxsize if split.compression else split.stop
            start = max(split.start, self.body)
            for begin, text in lines.records(place, file, start, stop, block_bytes, self.delimiter):
                table = read_table(text, begin, dialect, schema, place, split.compression, hint=hint)
                if len(table):
                    yield table

    @property
    def _dialect(self) -> Dialect:
        numbers = TableOptions(decimal=self.decimal, thousands=self.thousands)
        return Dialect(self.delimiter, tuple(dict(self.types)), False, self.body, options=numbers)

    def empty(self, split: Split) -> pa.Table:
        """Return a table of no rows."""
        return self.schema.empty_table()

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the range of the split."""
        return ((split.start, split.stop),)

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the columns to read."""
        types = dict(self.types)
        return pa.schema([(name, arrow_type(types[name])) for name in self.columns or types])


def of_same_types(formats: Sequence[Csv]) -> list[Csv]:
    """Return the formats with common column types for files of the same columns, such as float64 for ints and floats.

    Raises
    ------
    InputError
        No type fits all files, for example numbers in one and words in another.
    """
    schemas: dict[tuple[str, ...], pa.Schema] = {}
    for format in formats:
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in format.types])
        names = tuple(schema.names)
        try:
            schemas[names] = pa.unify_schemas([schemas.get(names, schema), schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(f"files have different types of columns: {error}; name one, as in {TYPES_HINT}") from error
    # A column without values in the sample is read as strings.
    types = {
        names: tuple((field.name, "string" if pa.types.is_null(field.type) else str(field.type)) for field in schema)
        for names, schema in schemas.items()
    }
    return [replace(format, types=types[tuple(name for name, _ in format.types)]) for format in formats]


def _types(path: str, schema: pa.Schema, options: FormatOptions) -> tuple[tuple[str, str], ...]:
    check_names(schema.names, path, ", or header=False")
    return tuple(({field.name: str(field.type) for field in schema} | dict(options.types)).items())


def _dialect(file: File, options: TableOptions, *, has_comments: bool = False) -> Dialect | None:
    delimiter = options.delimiter or ("\t" if file.inner_suffix == ".tsv" else None)
    return sniff(file.path, file.compression, options, delimiter=delimiter, has_comments=has_comments)
