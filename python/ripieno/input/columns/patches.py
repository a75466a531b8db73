"""Provide columns of patch text: lines of "picture row col f1 … f512", separated by spaces or tabs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from ripieno.errors import InputError
from ripieno.files.sources import File, input_errors, opened, size_bytes, unpacked_bytes
from ripieno.input import lines
from ripieno.input.columns.csv import TextColumns
from ripieno.input.columns.delimited import QUOTED_CHARACTERS, Dialect, is_number
from ripieno.input.columns.source import INDEX_NAMES, TableOptions

FIRST_LINE_BYTES = 16 << 20


@dataclass(frozen=True)
class PatchText(TextColumns):
    """Lines of "picture row col f1 f2 …"."""

    suffixes = (".txt", ".t12")

    @classmethod
    def open(cls, path: str, options: TableOptions) -> Self:
        """Read the first line."""
        file = File(path, size_bytes(path))
        with opened(path, file.compression) as stream, input_errors(path):
            begin, first = lines.first_line(path, stream, FIRST_LINE_BYTES)
        try:
            line = first.decode().strip("\r\n")
        except UnicodeDecodeError:
            raise InputError(f"{path} is not text") from None
        delimiter = "\t" if "\t" in line else " "
        fields = line.rstrip(delimiter).split(delimiter)
        if len(fields) <= len(INDEX_NAMES) or not all(is_number(field) for field in fields[1:]):
            raise InputError(f'{path}, line 1: expected "picture row col f1 f2 …", found {line[:QUOTED_CHARACTERS]!r}')
        names = INDEX_NAMES + tuple(f"f{at + 1}" for at in range(len(fields) - len(INDEX_NAMES)))
        picture, *numbers = (pa.field(name, pa.int64() if name in INDEX_NAMES else pa.float32()) for name in names)
        # Many programs also write a space after the last value.
        dialect = Dialect(delimiter, (*names, "") if line.endswith(delimiter) else names, False, begin, quote="")
        schema = pa.schema([picture.with_type(pa.string()), *numbers])
        return cls(
            path, schema, unpacked_bytes(file), False, INDEX_NAMES, dialect=dialect, compression=file.compression
        )
