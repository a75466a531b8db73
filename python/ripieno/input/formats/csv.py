"""Provide CSV: a split has whole records, also with line ends inside quotes, and reads as Arrow tables.

Cuts are made where a record begins. A line end is inside quotes if the number of quotes before it is odd, so a file
is read once before it is cut.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv

from ripieno.errors import InputError
from ripieno.files.sources import File, blamed_on, opened
from ripieno.input import lines
from ripieno.input.columns.delimited import Dialect, explained, numbers, read_table, sniff
from ripieno.input.columns.source import arrow_type
from ripieno.input.formats.cuts import grouped, piece_size

if TYPE_CHECKING:
    from ripieno.input.split import FormatOptions, Range, Split

#: Bytes read at once to find cuts.
WINDOW_BYTES = 1 << 20
TYPES_HINT = 'types={"column": "string"}'


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
    unit = "bytes"
    block_bytes = 8 << 20

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Csv:
        """Read the header, and enough records to infer the types of the columns."""
        delimiter = options.delimiter or ("\t" if file.inner_suffix == ".tsv" else None)
        dialect = sniff(file.path, file.compression, options, delimiter=delimiter)
        if dialect is None:
            raise InputError(f"{file.path} has no record and no header: it holds nothing but line ends")
        with opened(file.path, file.compression) as stream, blamed_on(file.path):
            records = lines.records(file.path, stream, dialect.body, sys.maxsize, options.sample_bytes)
            begin, sample = next(records, (dialect.body, b""))
        names = dialect.names
        try:
            table = pa.csv.read_csv(
                pa.BufferReader(sample or b"\n"),
                pa.csv.ReadOptions(column_names=names, use_threads=False),
                pa.csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
                pa.csv.ConvertOptions(decimal_point=options.decimal, strings_can_be_null=options.thousands is not None),
            )
        except pa.ArrowInvalid as error:
            raise InputError(explained(error, file.path, file.compression, begin, dialect)) from error
        schema = table.schema if options.thousands is None else numbers(table, dialect)
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
        with opened(file.path) as stream, blamed_on(file.path):
            pieces = lines.records(
                file.path, stream, self.body, file.size_bytes, min(piece_size(length, count), WINDOW_BYTES)
            )
            cuts = grouped((len(text) for _, text in pieces), length, count)
        return [(self.body + start, self.body + stop, stop - start) for start, stop in cuts]

    def read(self, split: Split) -> pa.Table:
        """Return all records."""
        tables = list(self.blocks(split, max(split.size_bytes, 1)))
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def blocks(self, split: Split, block_bytes: int) -> Iterator[pa.Table]:
        """Yield records in blocks of about `block_bytes`, each up to the end of its last record."""
        place = split.place()
        with split.opened(place) as file:
            stop = sys.maxsize if split.compression else split.stop
            pieces = lines.records(place, file, max(split.start, self.body), stop, block_bytes)
            while True:
                with blamed_on(place):
                    begin, text = next(pieces, (0, b""))
                if not text:
                    return
                if text.strip():
                    yield self._table(place, split.compression, begin, text)

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the range of the split."""
        return ((split.start, split.stop),)

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the columns to read."""
        types = dict(self.types)
        return pa.schema([(name, arrow_type(types[name])) for name in self.columns or types])

    def _table(self, path: str, compression: str | None, begin: int, text: bytes) -> pa.Table:
        names = tuple(name for name, _ in self.types)
        dialect = Dialect(self.delimiter, names, False, self.body, decimal=self.decimal, thousands=self.thousands)
        hint = f"; name its type, as in {TYPES_HINT}"
        return read_table(text, begin, dialect, self.schema, path, compression, hint=hint)


def of_same_types(formats: Sequence[Csv]) -> list[Csv]:
    """Give files with the same columns the same types, wide enough for each file: fractions, if one file has some.

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
    # A column without any visible value may have any type.
    types = {
        names: tuple((field.name, "string" if pa.types.is_null(field.type) else str(field.type)) for field in schema)
        for names, schema in schemas.items()
    }
    return [replace(format, types=types[tuple(name for name, _ in format.types)]) for format in formats]


def _types(path: str, schema: pa.Schema, options: FormatOptions) -> tuple[tuple[str, str], ...]:
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path} has two columns named {twice!r}: expected different names, or header=False")
    return tuple(({field.name: str(field.type) for field in schema} | dict(options.types)).items())
