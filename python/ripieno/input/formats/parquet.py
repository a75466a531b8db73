"""Provide Parquet: a split has row groups, and reads as Arrow tables. Only requested columns are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ripieno.errors import InputError
from ripieno.files.frames import index_columns
from ripieno.files.sources import File, blamed_on, opened, size_bytes
from ripieno.input.formats.cuts import grouped

if TYPE_CHECKING:
    from ripieno.input.split import FormatOptions, Range, Split

#: Bytes after the footer: its length, and a magic number.
FOOTER_END_BYTES = 8


@dataclass(frozen=True)
class Parquet:
    """Parquet files. The named columns are read; by default all except for a pandas index."""

    columns: tuple[str, ...] | None = None

    name = "parquet"
    unit = "row groups"
    block_bytes = 8 << 20

    @classmethod
    def open(cls, file: File, options: FormatOptions) -> Parquet:
        """Read the footer."""
        if file.compression is not None:
            raise InputError(f"{file.path}: Parquet is compressed inside and is read from its end: unpack it first")
        with opened(file.path) as stream, _checked(file.path), pq.ParquetFile(stream) as table:
            schema = table.schema_arrow
        return cls(options.chosen_of(file, schema.names, index_columns(schema)))

    def cut(self, file: File, count: int) -> list[Range]:
        """Return ranges of row groups, as even in bytes as the groups allow."""
        with opened(file.path) as stream, _checked(file.path), pq.ParquetFile(stream) as table:
            groups = [table.metadata.row_group(i) for i in range(table.num_row_groups)]
        sizes = [sum(g.column(i).total_compressed_size for i in range(g.num_columns)) for g in groups]
        number_at = {end: number for number, end in enumerate(accumulate(sizes, initial=0))}
        return [(number_at[start], number_at[stop], stop - start) for start, stop in grouped(sizes, sum(sizes), count)]

    def read(self, split: Split) -> pa.Table:
        """Return all rows."""
        with self._opened(split) as table:
            return table.read_row_groups(list(range(split.start, split.stop)), columns=self.columns)

    def blocks(self, split: Split, block_bytes: int) -> Iterator[pa.Table]:
        """Yield rows in blocks of about `block_bytes` when decoded, at least one row each, within one row group."""
        with self._opened(split) as table:
            for number in range(split.start, split.stop):
                group = table.metadata.row_group(number)
                rows = max(1, group.num_rows * block_bytes // max(1, group.total_byte_size))
                for batch in table.iter_batches(rows, row_groups=[number], columns=self.columns):
                    yield pa.Table.from_batches([batch])

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the range from the first to the last page of the row groups, and the range of the footer."""
        with self._opened(split) as table:
            groups = [table.metadata.row_group(i) for i in range(split.start, split.stop)]
            footer_bytes = table.metadata.serialized_size + FOOTER_END_BYTES
        chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        begins = [
            min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0) for chunk in chunks
        ]
        ends = [begin + chunk.total_compressed_size for begin, chunk in zip(begins, chunks, strict=True)]
        length = size_bytes(split.path)
        return ((min(begins, default=0), max(ends, default=0)), (length - footer_bytes, length))

    @contextmanager
    def _opened(self, split: Split) -> Iterator[pq.ParquetFile]:
        place = split.place()
        with split.opened(place) as file, _checked(place), pq.ParquetFile(file) as table:
            if table.num_row_groups < split.stop:
                raise InputError(
                    f"{place} has {table.num_row_groups} row groups, but had {split.stop} when it was split"
                )
            yield table


@contextmanager
def _checked(path: str) -> Iterator[None]:
    with blamed_on(path):
        try:
            yield
        except pa.ArrowException as error:
            raise InputError(f"{path} is not a readable Parquet file: {' '.join(str(error).split())}") from error
