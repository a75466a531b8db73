"""Provide Arrow and Feather files: a split has rows, and reads as Arrow tables. Only requested columns are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ripieno.errors import InputError
from ripieno.files.sources import File, size_bytes
from ripieno.input.columns import TableOptions
from ripieno.input.columns.groups import ArrowColumns
from ripieno.input.formats.cuts import even

if TYPE_CHECKING:
    from ripieno.input.split import FormatOptions, Range, Split


@dataclass(frozen=True)
class Arrow:
    """Arrow and Feather files. The named columns are read; by default all."""

    columns: tuple[str, ...] | None = None

    name = "arrow"
    unit = "rows"
    block_bytes = 8 << 20

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Arrow:
        """Read the metadata."""
        source = ArrowColumns.open(file.path, options)
        return cls(options.chosen_of(file, source.own.names, source.index))

    def cut(self, file: File, count: int) -> list[Range]:
        """Return even ranges of rows."""
        size = ArrowColumns.open(file.path, TableOptions()).size
        return [(start, stop, file.size_bytes * (stop - start) // size) for start, stop in even(size, count)]

    def read(self, split: Split) -> pa.Table:
        """Return all rows."""
        return self._rows(split, split.start, split.stop)

    def blocks(self, split: Split, block_bytes: int) -> Iterator[pa.Table]:
        """Yield rows in blocks of about `block_bytes`, at least one row each."""
        rows = max(1, (split.stop - split.start) * block_bytes // max(1, split.size_bytes))
        for start in range(split.start, split.stop, rows):
            yield self._rows(split, start, min(start + rows, split.stop))

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the whole file."""
        return ((0, size_bytes(split.path)),)

    def _rows(self, split: Split, start: int, stop: int) -> pa.Table:
        place = split.place()
        source = ArrowColumns.open(place, TableOptions())
        if source.size < split.stop:
            raise InputError(f"{place} has {source.size:,} rows, but had {split.stop:,} when it was split")
        names = source.own.names if self.columns is None else self.columns
        return source.read(start, stop, pa.schema([source.own.field(name) for name in names]))
