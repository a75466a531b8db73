"""Provide Parquet files as splits of row groups. Only requested columns are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
#: A column of strings with at most this many stored bytes per value is a dictionary and numbers of its entries.
DICTIONARY_VALUE_BYTES = 4


@dataclass(frozen=True)
class ParquetColumns(GroupedColumns):
    """A Parquet file with its row groups."""

    suffixes = (".parquet", ".pq")
    kind = "Parquet"

    #: Whether blocks keep the dictionary columns of strings in the file.
    has_dictionaries: bool = False

    @classmethod
    def group_bytes(cls, path: str) -> list[int]:
        """Return the decoded size of each row group.

        PyArrow's metadata of single columns can end the process if a file is damaged, so this reads none.
        """
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

    def _open_for_blocks(self, file: pa.NativeFile) -> pq.ParquetFile:
        found = self._open(file)
        names = _stored_dictionaries(found) if self.has_dictionaries else []
        return pq.ParquetFile(file, metadata=found.metadata, read_dictionary=names) if names else found

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

    #: Whether blocks keep the dictionary columns of strings in the file.
    has_dictionaries: bool = False

    def cut(self, file: File, count: int) -> list[Range]:
        """Return ranges of row groups, as even in decoded bytes as the groups allow."""
        sizes = ParquetColumns.group_bytes(file.path)
        number_at = {end: number for number, end in enumerate(accumulate(sizes, initial=0))}
        scale = file.size_bytes / max(1, sum(sizes))
        return [
            (number_at[start], number_at[stop], round((stop - start) * scale))
            for start, stop in grouped(sizes, sum(sizes), count)
        ]

    def blocks(self, split: Split, block_bytes: int) -> Iterator[pa.Table]:
        """Yield rows in blocks of about `block_bytes` when decoded, at least one row each."""
        source, start, stop, names = self._resolve(split)
        assert isinstance(source, ParquetColumns), "the source of this format"
        return replace(source, has_dictionaries=self.has_dictionaries).blocks(start, stop, names, block_bytes)

    def extents(self, split: Split) -> tuple[tuple[int, int], ...]:
        """Return the range from the first to the last page of the row groups, and the range of the footer."""
        groups, footer_bytes = ParquetColumns.chunks(split.path)
        chunks = [chunk for group in groups[split.start : split.stop] for chunk in group]
        begin, end = min((begin for begin, _ in chunks), default=0), max((sum(chunk) for chunk in chunks), default=0)
        length = size_bytes(split.path)
        return ((begin, end), (length - footer_bytes, length))

    def _rows_of(self, source: GroupedColumns, split: Split) -> tuple[int, int, int]:
        return *source.range_of(range(split.start, split.stop)), len(source.groups)


def _stored_dictionaries(file: pq.ParquetFile) -> list[str]:
    """Return the columns of strings with dictionaries in all row groups."""
    schema, metadata = file.schema_arrow, file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    found: dict[str, bool] = {}
    for chunk in (group.column(number) for group in groups for number in range(group.num_columns)):
        is_small = chunk.total_uncompressed_size <= DICTIONARY_VALUE_BYTES * chunk.num_values
        found[chunk.path_in_schema] = found.get(chunk.path_in_schema, True) and is_small
    strings = (pa.string(), pa.large_string())
    return [field.name for field in schema if field.type in strings and found.get(field.name)]
