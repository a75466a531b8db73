"""Provide edge text: lines "source target [weight]", or adjacency lists "source<TAB>target,target,…"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.files.sources import File, input_errors, opened, size_bytes, unpacked_bytes
from ripieno.input import lines
from ripieno.input.columns.delimited import QUOTED_CHARACTERS, is_number, line_of
from ripieno.input.columns.source import ColumnSource, TableOptions

WINDOW_BYTES = 32 << 20
FIRST_LINE_BYTES = 1 << 16
COMMENTS = (b"#", b"%")
ENDS = (pa.field("source", pa.int64()), pa.field("target", pa.int64()))


@dataclass(frozen=True)
class EdgeText(ColumnSource):
    """Lines with blank-separated fields. A vertex in a line without neighbors has a row with a null target.

    `third` is the meaning of a third field: "weight", "ignored" or "refused".
    """

    body: int = 0
    compression: str | None = None
    third: str = "refused"

    suffixes = ("", ".txt", ".tsv", ".edges", ".edgelist", ".el", ".adj", ".adjlist")
    counted = False

    @classmethod
    def open(cls, path: str, options: TableOptions, *, third: str = "refused") -> Self:
        """Read the first line."""
        file = File(path, size_bytes(path))
        body, _ = _first_line(file)
        own = pa.schema([*ENDS, pa.field("weight", pa.float64())] if third == "weight" else ENDS)
        return cls(path, own, unpacked_bytes(file), body=body, compression=file.compression, third=third)

    def _batches(self, start: int, stop: int, schema: pa.Schema, hint: str) -> Iterator[pa.Table]:
        with opened(self.path, self.compression) as file, input_errors(self.path):
            for begin, text in lines.blocks(self.path, file, start, stop, WINDOW_BYTES, self.body):
                yield self._parsed(begin, text).select(schema.names)

    def _parsed(self, begin: int, text: bytes) -> pa.Table:
        try:
            sources, targets, weights, lone = _native.parse_pairs(text, self.third)
        except ValueError as error:
            offset, reason = error.args
            line = text[offset : offset + FIRST_LINE_BYTES].split(b"\n")[0].decode(errors="replace").strip()
            quoted = line[:QUOTED_CHARACTERS] + "…" * (len(line) > QUOTED_CHARACTERS)
            number = line_of(self.path, self.compression, begin + offset)
            hint = "; strings are ids in tables, format='csv'" if "vertex id" in reason else ""
            raise InputError(f"{self.path}, line {number}: {reason}: {quoted!r}{hint}") from None
        table = pa.table([sources, targets, weights][: len(self.own)], schema=self.own)
        if not len(lone):
            return table
        return pa.concat_tables(
            [table, pa.table({"source": lone}).cast(pa.schema(ENDS[:1]))], promote_options="default"
        )


def has_names(path: str) -> bool:
    """Return whether the first line of a text begins with a name of a column, not with a vertex."""
    _, line = _first_line(File(path, 0))
    return not is_number(line.split()[0].decode())


def _first_line(file: File) -> tuple[int, bytes]:
    """Return the byte offset and the beginning of the first line that is not a comment."""
    with opened(file.path, file.compression) as stream, input_errors(file.path):
        begin, line = lines.first_line(file.path, stream, FIRST_LINE_BYTES, COMMENTS)
    try:
        line.decode()
    except UnicodeDecodeError:
        raise InputError(f"{file.path} is not text") from None
    return begin, line
