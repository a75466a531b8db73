"""Provide Parquet: a split has row groups. Only requested columns are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from ripieno.files.sources import File, size_bytes
from ripieno.input.columns.groups import GroupedColumns
from ripieno.input.columns.source import TableSplits
from ripieno.input.cuts import grouped
from ripieno.input.split import Range, Split

#: Bytes after the footer: its length, and a magic number.
FOOTER_END_BYTES = 8


@dataclass(frozen=True)
class ParquetColumns(GroupedColumns):
    """A Parquet file with its row groups."""

    suffixes = (".parquet", ".pq")
    kind = "Parquet"

    @classmethod
    def group_bytes(cls, path: str) -> list[int]:
        """Return the size of each row group when decoded. PyArrow ends the process on some damaged chunks, not here."""
        with cls._opened(path) as file:
            data = file.metadata
            return [max(1, data.row_group(at).total_byte_size) for at in range(data.num_row_groups)]

    @classmethod
    def chunks(cls, path: str) -> tuple[list[list[tuple[int, int]]], int]:
        """Return the first byte and the length of each column of each row group, and the length of the footer."""
        with cls._opened(path) as file:
            data = file.metadata
            groups = [data.row_group(i) for i in range(data.num_row_groups)]
            columns = [[group.column(i) for i in range(group.num_columns)] for group in groups]
            footer_bytes = data.serialized_size + FOOTER_END_BYTES
        return [
            [
                (min(filter(None, (each.dictionary_page_offset, each.data_page_offset)), default=0),
                 each.total_compressed_size)
                for each in group
            ]
            for group in columns
        ], footer_bytes  # fmt: skip

    @staticmethod
    def _open(file: pa.NativeFile) -> pq.ParquetFile:
        return pq.ParquetFile(file)

    @staticmethod
    def _described(file: pq.ParquetFile) -> tuple[pa.Schema, tuple[int, ...]]:
        return file.schema_arrow, tuple(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))

    @staticmethod
    def _group(file: pq.ParquetFile, group: int, names: Sequence[str], block_bytes: int | None) -> Iterator[pa.Table]:
        if block_bytes is None:
            yield file.read_row_group(group, columns=list(names)).select(list(names))
            return
        metadata = file.metadata.row_group(group)
        rows = max(1, metadata.num_rows * block_bytes // max(1, metadata.total_byte_size))
        for batch in file.iter_batches(rows, row_groups=[group], columns=list(names)):
            yield pa.Table.from_batches([batch]).select(list(names))


@dataclass(frozen=True)
class Parquet(TableSplits):
    """Splits of Parquet files."""

    name = "parquet"
    unit = "row groups"
    source = ParquetColumns
    suffixes = source.suffixes

    def cut(self, file: File, count: int) -> list[Range]:
        """Return ranges of row groups, as even in decoded bytes as the groups allow."""
        sizes = ParquetColumns.group_bytes(file.path)
        number_at = {end: number for number, end in enumerate(accumulate(sizes, initial=0))}
        scale = file.size_bytes / max(1, sum(sizes))
        return [
            (number_at[start], number_at[stop], round((stop - start) * scale))
            for start, stop in grouped(sizes, sum(sizes), count)
        ]

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the range from the first to the last page of the row groups, and the range of the footer."""
        groups, footer_bytes = ParquetColumns.chunks(split.path)
        chunks = [chunk for group in groups[split.start : split.stop] for chunk in group]
        begin, end = min((begin for begin, _ in chunks), default=0), max((sum(chunk) for chunk in chunks), default=0)
        length = size_bytes(split.path)
        return ((begin, end), (length - footer_bytes, length))

    def _rows_of(self, source: GroupedColumns, split: Split) -> tuple[int, int, int]:
        return *source.range_of(range(split.start, split.stop)), len(source.groups)
