"""CSV: a split has whole records, line ends inside quotes included, and gives Arrow tables of the same columns.

Cuts are made where a record begins. Whether a line end is inside quotes only shows when all quotes before it have been
counted, so a file that is cut is read once to know where.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv

from ripieno.errors import InputError
from ripieno.files.sources import File, blamed_on, opened
from ripieno.input.formats.cuts import grouped, piece_size
from ripieno.input.lines import whole_lines

if TYPE_CHECKING:
    from ripieno.input.split import FormatOptions, Range, Split

MARK = b"\xef\xbb\xbf"
#: How much of a file is read to know the types of its columns, and at once to find cuts.
SAMPLE_BYTES = 1 << 20
WINDOW_BYTES = 1 << 20
TYPES_HINT = 'types={"column": "string"}'
QUOTED_CHARACTERS = 40
#: What Arrow says of a field that is no value of its column's type, and of a record that has too many or too few.
_NO_VALUE = re.compile(
    r"In CSV column #(?P<column>\d+): (Row #(?P<row>\d+): )?CSV conversion error to (?P<type>.+?): "
    r"invalid value '(?P<text>.*)'",
    re.DOTALL,
)
_NO_RECORD = re.compile(r"CSV parse error: Row #(?P<row>\d+): (?P<what>.*)", re.DOTALL)
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")


@dataclass(frozen=True)
class Csv:
    """Comma-, semicolon- or tab-separated records.

    Parameters
    ----------
    body : int
        The byte at which the records begin: behind the header.
    delimiter : str
        One character.
    types : tuple of (str, str)
        Name and Arrow type of every column.
    columns : tuple of str, optional
        The ones that are read; by default all.
    """

    body: int
    delimiter: str
    types: tuple[tuple[str, str], ...]
    columns: tuple[str, ...] | None = None

    name = "csv"
    unit = "bytes"
    block_bytes = 8 << 20

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Csv:
        """Read the header, and enough records to know the types of the columns."""
        with opened(file.path, file.compression) as stream, blamed_on(file.path):
            begin = len(MARK) if stream.read(len(MARK)) == MARK else 0
            lines = records(file.path, stream, begin, sys.maxsize, 1)
            begin, head = next(((at, line) for at, line in lines if line.strip(b"\r\n")), (begin, b""))
            sample = next(records(file.path, stream, begin + len(head), sys.maxsize, SAMPLE_BYTES), (0, b""))[1]
        if not head:
            raise InputError(f"{file.path} has no record and no header: it holds nothing but line ends")
        delimiter = options.delimiter or _delimiter_of(file, head)
        # Arrow takes a header alone for nothing if its line has no end.
        end = b"\n" * (not head.endswith(b"\n"))
        try:
            schema = pa.csv.read_csv(
                pa.BufferReader(head + end + sample),
                pa.csv.ReadOptions(autogenerate_column_names=not options.header, use_threads=False),
                pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            ).schema
        except pa.ArrowInvalid as error:
            raise InputError(_explained(error, file.path, file.compression, begin, head + sample, ())) from error
        types = _types(file.path, schema, options)
        return cls(begin + len(head) * options.header, delimiter, types, options.chosen(file.path, schema.names))

    def cut(self, file: File, count: int) -> list[Range]:
        """Ranges of about as many bytes, each from where a record begins."""
        length = file.size_bytes - self.body
        if count == 1:
            return [(self.body, file.size_bytes, length)] if length else []
        with opened(file.path) as stream, blamed_on(file.path):
            pieces = records(
                file.path, stream, self.body, file.size_bytes, min(piece_size(length, count), WINDOW_BYTES)
            )
            cuts = grouped((len(text) for _, text in pieces), length, count)
        return [(self.body + start, self.body + stop, stop - start) for start, stop in cuts]

    def read(self, split: Split) -> pa.Table:
        """All records."""
        tables = list(self.blocks(split, max(split.size_bytes, 1)))
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def blocks(self, split: Split, block_bytes: int) -> Iterator[pa.Table]:
        """Records, of so many bytes and as many as the last of them needs."""
        place = split.place()
        with split.opened(place) as file:
            stop = sys.maxsize if split.compression else split.stop
            pieces = records(place, file, max(split.start, self.body), stop, block_bytes)
            while True:
                with blamed_on(place):
                    begin, text = next(pieces, (0, b""))
                if not text:
                    return
                if text.strip():
                    yield self._table(place, split.compression, begin, text)

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """The split's range."""
        return ((split.start, split.stop),)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read."""
        types = dict(self.types)
        return pa.schema([(name, arrow_type(types[name])) for name in self.columns or types])

    def _table(self, path: str, compression: str | None, begin: int, text: bytes) -> pa.Table:
        schema = self.schema
        try:
            return pa.csv.read_csv(
                pa.BufferReader(text),
                pa.csv.ReadOptions(
                    column_names=[name for name, _ in self.types], use_threads=False, block_size=len(text) + 1
                ),
                pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                pa.csv.ConvertOptions(column_types=schema, include_columns=schema.names),
            )
        except pa.ArrowInvalid as error:
            names = [name for name, _ in self.types]
            raise InputError(_explained(error, path, compression, begin, text, names)) from error


def records(path: str, file: IO[bytes], start: int, stop: int, least_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The records of bytes `start .. stop`, from where one begins, in blocks of whole ones, and where these begin."""
    file.seek(start)
    begin = start
    while begin < stop and (text := whole_lines(file, min(least_bytes, stop - begin))):
        lines, is_inside = [text], text.count(b'"') % 2 == 1
        while is_inside:
            line = file.readline()
            if not line:
                raise InputError(
                    f"{path}: a quote in a record from byte {begin:,} on has no end; quotes inside quotes are doubled"
                )
            lines.append(line)
            is_inside ^= line.count(b'"') % 2 == 1
        text = b"".join(lines)
        yield begin, text
        begin += len(text)


def _explained(
    error: pa.ArrowInvalid, path: str, compression: str | None, begin: int, text: bytes, names: Sequence[str]
) -> str:
    """Arrow's words on records from byte `begin` on, with the line of the file, and the column by name and position."""
    value = _NO_VALUE.fullmatch(str(error))
    length = _NO_RECORD.fullmatch(str(error))
    row = (value or length or {"row": None})["row"]
    if row is None:
        return f"{path}, records from byte {begin:,} on: {error}"
    line = f"{path}, line {_line_of(path, compression, begin, text, int(row)):,}"
    if length:
        return f"{line}: {length['what']}"
    assert value is not None
    at = int(value["column"])
    return (
        f"{line}, column {names[at]!r} ({at + 1} of {len(names)}): {value['text'][:QUOTED_CHARACTERS]!r} is not "
        f"{value['type']}; name its type, as in {TYPES_HINT}"
    )


def _line_of(path: str, compression: str | None, begin: int, text: bytes, row: int) -> int:
    """The line at which the `row`-th record begins, of those from byte `begin` on that are not empty, from 1."""
    with opened(path, compression) as file, blamed_on(path):
        line, left = 1, begin
        while left and (block := file.read(min(left, WINDOW_BYTES))):
            line, left = line + block.count(b"\n"), left - len(block)
    for _, record in records(path, io.BytesIO(text), 0, len(text), 1):
        row -= bool(record.strip(b"\r\n"))
        if row == 0:
            break
        line += record.count(b"\n")
    return line


def of_same_types(formats: Sequence[Csv]) -> list[Csv]:
    """Files of the same columns, of the types that hold what each of them looks like: fractions, if one has some.

    Raises
    ------
    InputError
        A column has types that no type holds, as numbers and words.
    """
    schemas: dict[tuple[str, ...], pa.Schema] = {}
    for format in formats:
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in format.types])
        names = tuple(schema.names)
        try:
            schemas[names] = pa.unify_schemas([schemas.get(names, schema), schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(f"files have different types of columns: {error}; name one, as in {TYPES_HINT}") from error
    # A column of which nothing is seen may hold anything.
    types = {
        names: tuple((field.name, "string" if pa.types.is_null(field.type) else str(field.type)) for field in schema)
        for names, schema in schemas.items()
    }
    return [replace(format, types=types[tuple(name for name, _ in format.types)]) for format in formats]


def arrow_type(name: str) -> pa.DataType:
    """The type that Arrow prints by this name.

    Raises
    ------
    ValueError
        There is none.
    """
    zoned = _ZONED.fullmatch(name)
    return pa.timestamp(zoned[1], zoned[2]) if zoned else pa.type_for_alias(name)


def _delimiter_of(file: File, head: bytes) -> str:
    """What a file's name says, or the mark that its first record has most of outside quotes."""
    if file.inner_suffix == ".tsv":
        return "\t"
    unquoted = re.sub(rb'"[^"]*"', b"", head)
    return max(",;\t", key=lambda mark: unquoted.count(mark.encode()))


def _types(path: str, schema: pa.Schema, options: FormatOptions) -> tuple[tuple[str, str], ...]:
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path} has two columns named {twice!r}: expected different names, or header=False")
    unknown = next((name for name in options.types if name not in names), None)
    if unknown is not None:
        raise InputError(f"types={{{unknown!r}: …}}: {path} has the columns {', '.join(map(repr, names))}")
    return tuple(({field.name: str(field.type) for field in schema} | dict(options.types)).items())
