"""Provide Arrow and Feather files as splits of rows. Only requested columns are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ripieno.input.columns.groups import GroupedColumns
from ripieno.input.columns.source import TableSplits


@dataclass(frozen=True)
class ArrowColumns(GroupedColumns):
    """An Arrow or Feather file with its record batches."""

    suffixes = (".arrow", ".feather", ".ipc")
    kind = "Arrow"

    @staticmethod
    def _open(file: pa.NativeFile) -> pa.NativeFile:
        return file

    @staticmethod
    def _described(file: pa.NativeFile) -> tuple[pa.Schema, tuple[int, ...]]:
        schema = pa.ipc.open_file(file).schema
        # One column is enough to count rows.
        with pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=[0])) as reader:
            return schema, tuple(reader.get_batch(at).num_rows for at in range(reader.num_record_batches))

    @staticmethod
    def _group(file: pa.NativeFile, group: int, names: Sequence[str], block_bytes: int | None) -> Iterator[pa.Table]:
        schema = pa.ipc.open_file(file).schema
        fields = sorted(schema.get_field_index(name) for name in names)
        with pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields)) as reader:
            table = pa.Table.from_batches([reader.get_batch(group)], reader.schema)
        # Arrow trusts the offsets and lengths in such files.
        table.validate(full=True)
        table = table.select(list(names))
        rows = len(table) if block_bytes is None else max(1, len(table) * block_bytes // max(1, table.nbytes))
        for start in range(0, len(table), max(1, rows)):
            yield table.slice(start, rows)


@dataclass(frozen=True)
class Arrow(TableSplits):
    """Splits of Arrow and Feather files."""

    name = "arrow"
    source = ArrowColumns
    suffixes = source.suffixes
