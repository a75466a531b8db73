"""Provide delimited text for all CSV readers: detect the dialect from the first records, and parse records.

A record is one line, or several if a quoted field contains line ends. Lines end with LF, CR LF, or CR alone. The first
record is a header if its fields are names: words above columns of numbers, or only words.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.csv

from ripieno.errors import InputError
from ripieno.files.sources import blamed_on, opened
from ripieno.input import lines

MARK = b"\xef\xbb\xbf"
DELIMITERS = ",;\t"
#: Fields that mean a missing value, in lower case. "nan" is also a number.
MISSING = ("", "?", "-", "na", "n/a", "#n/a", "<na>", "null", "none", "nan")
#: Maximum length of the first record, and the bytes read after it to infer column types.
FIRST_RECORD_BYTES = 16 << 20
SAMPLE_BYTES = 64 << 10
SAMPLE_RECORDS = 100
#: A line with more fields is transposed data, or not columnar text. Each column takes about 1 KiB to parse.
COLUMNS_MAX = 100_000
#: The largest block that Arrow's 32-bit sizes support.
BLOCK_BYTES_MAX = 1 << 30
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


@dataclass(frozen=True)
class Dialect:
    """The delimiter, header and columns of a file.

    Parameters
    ----------
    delimiter : str
        One character.
    names : tuple of str
        Names of the columns, from the header, or f0, f1, …
    has_header : bool
    body : int
        Byte offset of the first record after the header, in the decompressed text.
    """

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    body: int

    @property
    def unique_names(self) -> tuple[str, ...]:
        """The names, numbered if two are equal."""
        if len(set(self.names)) == len(self.names):
            return self.names
        return tuple(f"{name} ({at})" for at, name in enumerate(self.names))


def sniff(
    path: str,
    compression: str | None = None,
    *,
    delimiter: str | None = None,
    header: bool | None = None,
    comments: tuple[bytes, ...] = (),
) -> Dialect | None:
    """Return the dialect of a file, or None if the file has only line ends and comments.

    Parameters
    ----------
    path, compression
        The file, and fsspec's name of its compression.
    delimiter : str, optional
        By default the character of ``,;<TAB>`` that divides the first records into equally many fields, then into most.
    header : bool, optional
        Whether the first record is a header. By default its fields and the columns below determine it.
    comments : tuple of bytes
        Prefixes of comment lines before the first record.

    Raises
    ------
    InputError
        The file is not text, has more than `COLUMNS_MAX` columns or an unclosed quote, or its first record may be
        either a header or values.
    """
    with opened(path, compression) as file, blamed_on(path):
        start = len(MARK) if file.read(len(MARK)) == MARK else 0
        file.seek(start)
        text = b""
        is_comment = False
        while line := file.readline(FIRST_RECORD_BYTES):
            is_comment = is_comment or (bool(comments) and line.lstrip().startswith(comments))
            if line.strip() and not is_comment:
                text = line
                break
            start += len(line)
            # A longer line arrives in pieces.
            is_comment = is_comment and not line.endswith(b"\n")
        if not text:
            return None
        while text.count(b'"') % 2 and len(text) < FIRST_RECORD_BYTES and (line := file.readline(FIRST_RECORD_BYTES)):
            text += line
        sample = file.read(SAMPLE_BYTES)
    head = next(record for record in _cr_records(text) if record.strip())
    start += text.index(head)
    below = text[text.index(head) + len(head) :] + sample
    widest = max(head.count(mark.encode()) for mark in delimiter or DELIMITERS)
    if widest >= COLUMNS_MAX:
        raise InputError(
            f"{path}: its first line has {widest + 1:,} fields: expected at most {COLUMNS_MAX:,} columns; write the "
            "transpose, a line for each row, or an .npy file"
        )
    try:
        first, rest = head.decode(), _whole(below, len(sample)).decode(errors="replace")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text") from None
    try:
        mark = delimiter or _delimiter(first, rest)
        (fields,), rows = _fields(first, mark, 1), _fields(rest, mark, SAMPLE_RECORDS)
    except csv.Error as error:
        raise InputError(f"{path} is not delimited text: {error}") from error
    fields = [field.strip() for field in fields]
    if header is None:
        header = _is_header(path, fields, rows, first, rest)
    names = tuple(fields) if header else tuple(f"f{at}" for at in range(len(fields)))
    return Dialect(mark, names, header, start + len(head) * header)


def read_table(
    text: bytes,
    begin: int,
    dialect: Dialect,
    types: pa.Schema,
    path: str,
    compression: str | None = None,
    *,
    quote_char: str | bool = '"',
    hint: str = "",
) -> pa.Table:
    """Return the columns of a schema, from whole records that begin at byte `begin` of a file.

    Raises
    ------
    InputError
        A record has a wrong number of fields, or a field does not fit its type. The error names line and column.
    """
    try:
        return pa.csv.read_csv(
            pa.BufferReader(text),
            pa.csv.ReadOptions(
                column_names=dialect.unique_names, use_threads=False, block_size=min(len(text) + 1, BLOCK_BYTES_MAX)
            ),
            pa.csv.ParseOptions(
                delimiter=dialect.delimiter, quote_char=quote_char, newlines_in_values=b'"' in text and bool(quote_char)
            ),
            pa.csv.ConvertOptions(column_types=types, include_columns=types.names),
        )
    except pa.ArrowInvalid as error:
        quoted = bool(quote_char)
        raise InputError(
            explained(error, path, compression, begin, text, dialect.unique_names, hint, quoted)
        ) from error


def explained(
    error: pa.ArrowInvalid,
    path: str,
    compression: str | None,
    begin: int,
    text: bytes,
    names: Sequence[str],
    hint: str = "",
    quoted: bool = True,
) -> str:
    """Return Arrow's error about records from byte `begin`, with the line in the file and the column name."""
    value, length = _NO_VALUE.fullmatch(str(error)), _NO_RECORD.match(str(error))
    row = (value or length or {"row": None})["row"]
    if row is None:
        return f"{path}, records from byte {begin:,} on: {error}"
    line = f"{path}, line {line_of(path, compression, begin, text, int(row), quoted):,}"
    if length:
        return f"{line}: {length['found']} values, expected {length['expected']}"
    assert value is not None
    at = int(value["column"])
    kind = {"double": "a number", "float": "a number", "int64": "a whole number"}.get(value["type"], value["type"])
    found = value["text"][:QUOTED_CHARACTERS]
    missing = ", a missing value" * (found.strip().lower() in MISSING)
    return f"{line}, column {names[at]!r} ({at + 1} of {len(names)}): {found!r}{missing} is not {kind}{hint}"


def line_of(
    path: str, compression: str | None, begin: int, text: bytes = b"", row: int = 0, quoted: bool = True
) -> int:
    """Return the line number, from 1, of byte `begin`, or of the `row`-th nonempty record of `text` there."""
    with opened(path, compression) as file, blamed_on(path):
        line, left = 1, begin
        while left and (block := file.read(min(left, WINDOW_BYTES))):
            line, left = line + lines.count(block), left - len(block)
    blocks = [text] if not quoted else (block for _, block in lines.records(path, io.BytesIO(text), 0, len(text), 1))
    for block in blocks:
        for record in _cr_records(block) if quoted else block.splitlines(keepends=True):
            row -= bool(record.strip(b"\r\n"))
            if row == 0:
                return line
            line += lines.count(record)
    return line


def is_number(field: str) -> bool:
    """Return whether a field is a number; "inf" and "nan" are numbers."""
    try:
        float(field)
    except ValueError:
        return False
    # Python accepts 1_000 as a number, but no CSV reader does.
    return "_" not in field


def is_missing(field: str) -> bool:
    """Return whether a field means a missing value."""
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
    # Words and numbers above numbers: 0,1,target is a pandas header, but unknown,1 is a row.
    values = [float(first[at]) for at in numbers]
    counts_up = len(values) > 1 and all(values[0] + step == value for step, value in enumerate(values))
    if counts_up or ('"' not in below and all(f'"{first[at]}"' in head for at in numbers)):
        return True
    raise InputError(
        f"{path}, line 1: {first[words[0]][:QUOTED_CHARACTERS]!r} is no number, but {first[numbers[0]]!r} is, both "
        "above numbers: expected numbers in all columns, or a header of names, in quotes where they look like numbers"
    )


def _is_numeric(fields: Sequence[str]) -> bool:
    given = [field for field in fields if not is_missing(field)]
    return bool(given) and all(map(is_number, given))


def _delimiter(first: str, rest: str) -> str:
    """Return the character that divides records into equally many fields, then into most fields."""

    def quality(mark: str) -> tuple[bool, int]:
        width = len(_fields(first, mark, 1)[0])
        widths = [len(row) for row in _fields(rest, mark, SAMPLE_RECORDS)]
        return width > 1 and all(found == width for found in widths), width

    return max(DELIMITERS, key=quality)


def _fields(text: str, delimiter: str, count: int) -> list[list[str]]:
    """Return the fields of the first nonempty records of a text."""
    csv.field_size_limit(FIRST_RECORD_BYTES)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return list(islice((row for row in rows if row), count))


def _whole(below: bytes, sample_bytes: int) -> bytes:
    """Return the sample without its last line if that is incomplete."""
    if sample_bytes < SAMPLE_BYTES:
        return below
    return below[: max(below.rfind(b"\n"), below.rfind(b"\r")) + 1]


def _cr_records(text: bytes) -> list[bytes]:
    """Return the records of a text, also split at single CRs outside quotes."""
    if b"\r" not in text.rstrip(b"\r\n"):
        return [text]
    return re.findall(rb'(?:"[^"]*"|[^"\r\n])*(?:\r\n|\r|\n|$)', text)[:-1] or [text]
