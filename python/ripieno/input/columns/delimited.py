"""Provide delimited text for all CSV readers: detect the dialect from the first records, and parse records.

A record is one line, or several if a quoted field contains line ends. Lines end with LF, CR LF, or CR alone. The first
record is a header if its fields are names: words above columns of numbers, or only words.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ripieno.errors import InputError
from ripieno.files.sources import EmptyFile, input_errors, opened
from ripieno.input import lines
from ripieno.input.columns.source import IGNORE_HINT, MISSING_HINT, TableOptions

DELIMITERS = ",;\t"
#: Fields for a missing value, in lower case. "nan" is also a number.
MISSING = ("", "?", "-", "na", "n/a", "#n/a", "<na>", "null", "none", "nan")
_MISSING_CODES = [*MISSING, *map(str.upper, MISSING), *map(str.capitalize, MISSING), "NaN", "<NA>", "N/A"]
#: Maximum length of the first record, and the bytes read after it to infer column types.
FIRST_RECORD_BYTES = 16 << 20
SAMPLE_BYTES = 64 << 10
SAMPLE_RECORDS = 100
#: A line with more fields is transposed data, or not columnar text. Each column takes about 1 KiB to parse.
COLUMNS_MAX = 100_000
#: The largest block that Arrow's 32-bit sizes support.
BLOCK_BYTES_MAX = 1 << 30
#: Bytes of records that Arrow reads at once. A longer record is read by itself.
STREAM_BYTES = 1 << 20
#: Bytes read at once to count lines.
WINDOW_BYTES = 1 << 20
QUOTED_CHARACTERS = 40
#: Arrow's errors about a field that does not fit its column's type, and about a record with a wrong number of fields.
_NO_VALUE = re.compile(
    r"In CSV column #(?P<column>\d+): (Row #(?P<row>\d+): )?CSV conversion error to (?P<type>.+?): "
    r"invalid value '(?P<text>.*)'",
    re.DOTALL,
)
_NO_RECORD = re.compile(
    r"CSV parse error: Row #(?P<row>\d+): Expected (?P<expected>\d+) columns, got (?P<found>\d+)", re.DOTALL
)
_KINDS = {"double": "a number", "float": "a number", "int64": "a whole number", "uint64": "a whole number"}
#: Lines that are not records: comments of a first column that is read, and lines of spaces only.
_COMMENT = re.compile(rb"^ *(?:[#%].*)?$", re.MULTILINE)
_BLANK = re.compile(rb"^ +$", re.MULTILINE)


@dataclass(frozen=True)
class Dialect:
    """The delimiter, header, columns and form of the numbers of a file.

    Parameters
    ----------
    delimiter : str
        One character.
    names : tuple of str
        Names of the columns, from the header, or f0, f1, …
    has_header : bool
    body : int
        Byte offset of the first record after the header, in the decompressed text.
    quote : str
        The quote character; empty if there is none.
    options : TableOptions
        The characters of numbers, and whether all of `MISSING` are missing values, or only Arrow's codes.
    has_comments
        Whether lines that begin with # or % are skipped, unless their first column is not read.
    """

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    body: int
    quote: str = '"'
    options: TableOptions = field(default_factory=TableOptions)
    has_comments: bool = False

    @property
    def unique_names(self) -> tuple[str, ...]:
        """The names, numbered if two are equal."""
        if len(set(self.names)) == len(self.names):
            return self.names
        return tuple(f"{name} ({at})" for at, name in enumerate(self.names))

    def cleaned(self, text: bytes, names: Sequence[str]) -> bytes:
        """Return records without blank lines, and without comments if the first column is in `names`."""
        # With quotes, a line that looks like a comment may lie inside a field.
        if not self.has_comments or b'"' in text or not any(mark in text for mark in (b"#", b"%", b"\n ")):
            return text
        return (_COMMENT if self.unique_names[0] in names else _BLANK).sub(b"", text)


def sniff(
    path: str,
    compression: str | None,
    options: TableOptions,
    *,
    delimiter: str | None = None,
    has_comments: bool = False,
) -> Dialect | None:
    """Return the dialect of a file, or None if the file has only line ends and comments.

    Parameters
    ----------
    path, compression
        The file, and fsspec's name of its compression.
    options : TableOptions
        The header and the form of numbers.
    delimiter : str, optional
        By default the character of ``,;<TAB>`` that divides the first records into equally many fields, preferably
        into most fields.
    has_comments : bool
        Whether lines before the first record that begin with # or % are comments.

    Raises
    ------
    InputError
        The file is not text, has more than `COLUMNS_MAX` columns or an unclosed quote, or its first record may be
        either a header or values.
    """
    with opened(path, compression) as file, input_errors(path):
        try:
            start, text = lines.first_line(path, file, FIRST_RECORD_BYTES, (b"#", b"%") if has_comments else ())
        except EmptyFile:
            return None
        marks = delimiter or "".join(mark for mark in DELIMITERS if mark not in (options.decimal, options.thousands))
        while _is_open(head := next(filter(bytes.strip, _records(text, marks))), marks):
            more = file.read(max(len(text), SAMPLE_BYTES))
            if not more or len(text) > FIRST_RECORD_BYTES:
                raise InputError(lines.NO_END.format(path=path, begin=start))
            text += more + lines.line(path, file)
        sample = file.read(SAMPLE_BYTES)
    start += text.index(head)
    below = text[text.index(head) + len(head) :] + sample
    widest = max(head.count(mark.encode()) for mark in marks)
    if widest >= COLUMNS_MAX:
        raise InputError(
            f"{path}: its first line has {widest + 1:,} fields: expected at most {COLUMNS_MAX:,} columns; write the "
            "transpose, a line for each row, or an .npy file"
        )
    try:
        first, rest = head.decode(), _complete_lines(below, len(sample)).decode(errors="replace")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text") from None
    try:
        mark = _delimiter(first, rest, marks)
        if delimiter is None and options.thousands in tuple(DELIMITERS) and mark not in first and '"' in first + rest:
            # Numbers in quotes, as in "1,234",5.
            mark = options.thousands
        (fields,), rows = _fields(first, mark, 1), _fields(rest, mark, SAMPLE_RECORDS)
    except csv.Error as error:
        raise InputError(f"{path} is not delimited text: {error}") from error
    fields = [field.strip() for field in fields]
    header = options.header
    if header is None:
        top, *lower = ([plain(field, options) for field in row] for row in (fields, *rows))
        header = _is_header(path, top, lower, first, rest)
    names = tuple(fields) if header else tuple(f"f{at}" for at in range(len(fields)))
    return Dialect(mark, names, header, start + len(head) * header, options=options, has_comments=has_comments)


def read_table(
    text: bytes,
    begin: int,
    dialect: Dialect,
    types: pa.Schema,
    path: str,
    compression: str | None = None,
    *,
    hint: str = "",
) -> pa.Table:
    """Return the columns of a schema, from whole records that begin at byte `begin` of a file.

    Raises
    ------
    InputError
        A record has a wrong number of fields, or a field does not fit its type. The error names line and column.
    """
    # A line of spaces is a record of one field, wherever the records are cut.
    if not text or (text.isspace() and not text.strip(b"\r\n")):
        return types.empty_table()
    try:
        return _parsed(text, begin, dialect, types, path, compression, hint)
    except InputError:
        # Few files have comments or lines of spaces, so they are removed only after an error.
        cleaned = dialect.cleaned(text, types.names)
        if cleaned == text:
            raise
    return read_table(cleaned, begin, dialect, types, path, compression, hint=hint)


def _parsed(
    text: bytes, begin: int, dialect: Dialect, types: pa.Schema, path: str, compression: str | None, hint: str
) -> pa.Table:
    grouped = [each.name for each in types if dialect.options.thousands and _is_numeric_type(each.type)]
    read_as = pa.schema([each.with_type(pa.string()) if each.name in grouped else each for each in types])
    try:
        block_bytes = min(len(text) + 1, BLOCK_BYTES_MAX)
        options = _options(dialect, read_as, block_bytes, multiline=b'"' in text, strings_can_be_null=bool(grouped))
        table = pa.csv.read_csv(pa.BufferReader(text), **options)
    except pa.ArrowInvalid as error:
        raise InputError(parse_error_text(error, path, compression, begin, dialect, hint)) from error
    for name in grouped:
        at = types.get_field_index(name)
        column, wrong = _without_separators(table[name], types.field(at).type, dialect)
        if wrong is not None:
            line, place = line_of(path, compression, begin, wrong + 1, dialect), dialect.unique_names.index(name)
            misfit = _misfit_text(dialect, place, column[wrong].as_py(), str(types.field(at).type), hint)
            raise InputError(f"{path}, line {line:,}, {misfit}")
        table = table.set_column(at, types.field(at), column)
    return table


def read_stream(file: IO[bytes], length: int, dialect: Dialect, types: pa.Schema) -> pa.Table | None:
    """Return the columns of a schema from the next `length` bytes, which are whole records.

    It is None for records that `read_table` may read or report: damaged, with long fields, or with separated thousands.
    """
    if dialect.options.thousands or dialect.names[-1] not in types.names:
        return None
    # A quote without end would hide a further record in the field of the last column.
    end = (dialect.delimiter * (len(dialect.names) - 1) + '""\n').encode()
    try:
        stream = pa.PythonFile(_Records(file, length, b"\n" + end), "r")
        table = pa.csv.read_csv(stream, **_options(dialect, types, STREAM_BYTES, multiline=True))
    except pa.ArrowInvalid:
        return None
    is_closed = len(table) and table[dialect.names[-1]][-1].as_py() in (None, "")
    return table.slice(0, len(table) - 1) if is_closed else None


class _Records(io.RawIOBase):
    """The next bytes of a file, followed by an end."""

    def __init__(self, file: IO[bytes], length: int, end: bytes) -> None:
        self._file, self._left, self._end = file, length, end

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(min(size, self._left))
        self._left -= len(found)
        if not found:
            found, self._end = self._end, b""
        return found


def _options(
    dialect: Dialect, types: pa.Schema, block_bytes: int, *, multiline: bool, strings_can_be_null: bool = False
) -> dict[str, Any]:
    """Return the options of Arrow for records without a header."""
    return {
        "read_options": pa.csv.ReadOptions(
            column_names=dialect.unique_names, use_threads=False, block_size=block_bytes
        ),
        "parse_options": pa.csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote or False,
            newlines_in_values=bool(dialect.quote) and multiline,
        ),
        "convert_options": pa.csv.ConvertOptions(
            column_types=types,
            include_columns=types.names,
            decimal_point=dialect.options.decimal,
            null_values=None if dialect.options.missing is None else _MISSING_CODES,
            strings_can_be_null=strings_can_be_null,
        ),
    }


def number_types(table: pa.Table, dialect: Dialect) -> pa.Schema:
    """Return the types of columns. Strings that are numbers with thousands separators become float64."""
    fields = []
    for each in table.schema:
        fits = pa.types.is_string(each.type) and _without_separators(table[each.name], pa.float64(), dialect)[1] is None
        fields.append(each.with_type(pa.float64()) if fits else each)
    return pa.schema(fields)


def parse_error_text(
    error: pa.ArrowInvalid, path: str, compression: str | None, begin: int, dialect: Dialect, hint: str = ""
) -> str:
    """Return Arrow's error about records from byte `begin`, with the line in the file and the column name."""
    value, length = _NO_VALUE.fullmatch(str(error)), _NO_RECORD.match(str(error))
    row = (value or length or {"row": None})["row"]
    if row is None:
        return f"{path}, records from byte {begin:,} on: {error}"
    line = f"{path}, line {line_of(path, compression, begin, int(row), dialect):,}"
    if length:
        return f"{line}: {length['found']} values, expected {length['expected']}"
    assert value is not None
    return f"{line}, {_misfit_text(dialect, int(value['column']), value['text'], value['type'], hint)}"


def line_of(path: str, compression: str | None, begin: int, row: int = 0, dialect: Dialect | None = None) -> int:
    """Return the line number, from 1, of byte `begin`, or of the `row`-th nonempty record from there on."""
    with opened(path, compression) as file, input_errors(path):
        line, left = 1, begin
        while left and (block := file.read(min(left, WINDOW_BYTES))):
            line, left = line + lines.count(block), left - len(block)
        if dialect is None:
            return line
        blocks = (
            lines.records(path, file, begin, sys.maxsize, 1, dialect.delimiter)
            if dialect.quote
            else lines.blocks(path, file, begin, sys.maxsize, 1, begin)
        )
        for _, block in blocks:
            for record in _records(block, dialect.delimiter) if dialect.quote else block.splitlines(keepends=True):
                row -= bool(dialect.cleaned(record, dialect.unique_names).strip(b"\r\n"))
                if row == 0:
                    return line
                line += lines.count(record)
    return line


def _without_separators(
    column: pa.ChunkedArray, kind: pa.DataType, dialect: Dialect
) -> tuple[pa.ChunkedArray, int | None]:
    """Convert texts with thousands separators to numbers. Also return the index of the first other text."""
    separator, point = re.escape(dialect.options.thousands or ""), re.escape(dialect.options.decimal)
    form = rf"^\s*[+-]?(\d{{1,3}}({separator}\d{{3}})+|\d*)({point}\d*)?([eE][+-]?\d+)?\s*$"
    wrong = pc.index(pc.match_substring_regex(column, form), False).as_py()
    if wrong >= 0:
        return column, wrong
    plain = pc.replace_substring(pc.utf8_trim_whitespace(column), dialect.options.thousands, "")
    try:
        return pc.replace_substring(plain, dialect.options.decimal, ".").cast(kind), None
    except pa.ArrowInvalid:
        fits = [text is None or (is_number(text) and pa.types.is_floating(kind)) for text in plain.to_pylist()]
        return column, fits.index(False) if False in fits else 0


def _misfit_text(dialect: Dialect, at: int, text: str, kind: str, hint: str) -> str:
    """Describe a field that does not fit the type of its column."""
    found, names = text[:QUOTED_CHARACTERS], dialect.unique_names
    missing = ", a missing value" if is_missing(found) else ""
    if not hint and missing:
        hint = MISSING_HINT
    elif not hint and dialect.options.decimal == "." and re.fullmatch(r"[+-]?[\d.]*,\d+", found):
        hint = "; for a decimal comma, pass decimal=','"
    elif not hint and len(names) > 1:
        hint = IGNORE_HINT.format(name=names[at])
    misfit = f"{found!r}{missing} is not {_KINDS.get(kind, kind)}"
    return f"column {names[at]!r} ({at + 1} of {len(names)}): {misfit}{hint}"


def _is_numeric_type(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def plain(field: str, options: TableOptions) -> str:
    """Return a number without thousands separators and with a decimal point."""
    return field.replace(options.thousands or "", "").replace(options.decimal, ".")


def is_number(field: str) -> bool:
    """Return whether a field is a number; "inf" and "nan" are numbers."""
    try:
        float(field)
    except ValueError:
        return False
    # Python accepts 1_000 as a number, but no CSV reader does.
    return "_" not in field


def is_missing(field: str) -> bool:
    """Return whether a field is a code for a missing value."""
    return field.strip().lower() in MISSING


def _is_header(path: str, first: Sequence[str], rows: Sequence[Sequence[str]], head: str, below: str) -> bool:
    words = [at for at, field in enumerate(first) if not is_number(field) and not is_missing(field)]
    numbers = [at for at, field in enumerate(first) if is_number(field) and not is_missing(field)]
    if not words or not numbers:
        return bool(words)
    numeric = {at for at in range(len(first)) if _is_numeric([row[at] for row in rows if at < len(row)])}
    if not numeric.intersection(numbers) or not rows:
        return True
    if not numeric.intersection(words):
        return False
    # The first record has words and numbers above numbers: "0,1,target" is a pandas header, but "unknown,1" is a row.
    values = [float(first[at]) for at in numbers]
    counts_up = len(values) > 1 and all(values[0] + step == value for step, value in enumerate(values))
    if counts_up or ('"' not in below and all(f'"{first[at]}"' in head for at in numbers)):
        return True
    raise InputError(
        f"{path}, line 1: {first[words[0]][:QUOTED_CHARACTERS]!r} is not a number, but {first[numbers[0]]!r} is, both "
        "above numbers: expected numbers in all columns, or a header of names, in quotes where they look like numbers"
    )


def _is_numeric(fields: Sequence[str]) -> bool:
    present = [field for field in fields if not is_missing(field)]
    return bool(present) and all(map(is_number, present))


def _delimiter(first: str, rest: str, marks: str) -> str:
    """Return the character of `marks` that divides all records into equally many fields, and the most of them."""

    def quality(mark: str) -> tuple[bool, int]:
        width = len(_fields(first, mark, 1)[0])
        widths = [len(row) for row in _fields(rest, mark, SAMPLE_RECORDS)]
        return width > 1 and all(found == width for found in widths), width

    return max(marks, key=quality)


def _fields(text: str, delimiter: str, count: int) -> list[list[str]]:
    """Return the fields of the first nonempty records of a text."""
    csv.field_size_limit(FIRST_RECORD_BYTES)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return list(islice((row for row in rows if row), count))


def _complete_lines(below: bytes, sample_bytes: int) -> bytes:
    """Return the sample without its last line if that is incomplete."""
    if sample_bytes < SAMPLE_BYTES:
        return below
    return below[: max(below.rfind(b"\n"), below.rfind(b"\r")) + 1]


def _quoted_field(marks: str) -> bytes:
    """Return the pattern of a quoted field. A quote that does not begin a field is an ordinary character."""
    return rb"(?<![^\r\n" + re.escape(marks.encode()) + rb'])"[^"]*+(?:""[^"]*+)*+"'


def _is_open(record: bytes, marks: str) -> bool:
    """Return whether a quote that begins a field of a record is not closed."""
    begin = rb"(?<![^\r\n" + re.escape(marks.encode()) + rb'])"'
    return re.search(begin, re.sub(_quoted_field(marks), b"x", record)) is not None


def _records(text: bytes, marks: str) -> Iterator[bytes]:
    """Yield the records of a text. Line ends inside quotes are part of a field."""
    pattern = rb"(?:" + _quoted_field(marks) + rb'|[^\r\n"]++|")*+(?:\r\n|\r|\n|$)'
    return (found[0] for found in re.finditer(pattern, text) if found[0])
