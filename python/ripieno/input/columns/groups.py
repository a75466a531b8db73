"""Provide columns of Parquet, Arrow and Feather files, which hold rows in groups that are read on their own."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ripieno.errors import InputError
from ripieno.files.frames import index_columns
from ripieno.files.sources import EmptyFile, is_url, opened
from ripieno.input.columns.source import ColumnSource, TableOptions


@dataclass(frozen=True)
class GroupedColumns(ColumnSource):
    """Columns with rows in groups. `groups` has the number of rows of each."""

    groups: tuple[int, ...] = ()

    #: The name of the format.
    kind: ClassVar[str]

    @classmethod
    def open(cls, path: str, options: TableOptions) -> Self:
        """Read the metadata."""
        with cls._opened(path) as file:
            schema, groups = cls._described(file)
            names = schema.names
        if len(set(names)) < len(names):
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            raise InputError(f"{path} has several columns named {twice!r}: expected different names")
        if not sum(groups):
            raise EmptyFile(f"{path} is empty")
        return cls(path, schema, sum(groups), True, index_columns(schema), groups=groups)

    def _batches(self, start: int, stop: int, schema: pa.Schema, hint: str) -> Iterator[pa.Table]:
        ends = np.cumsum(self.groups)
        first, last = int(np.searchsorted(ends, start, "right")), int(np.searchsorted(ends, stop, "left"))
        if start >= stop:
            return
        with self._opened(self.path) as file:
            table = self._groups(file, range(first, last + 1), schema.names)
        yield table.slice(start - sum(self.groups[:first]), stop - start)

    @staticmethod
    @abstractmethod
    def _open(file: pa.NativeFile) -> Any:
        """Open the file with its library."""

    @staticmethod
    @abstractmethod
    def _described(file: Any) -> tuple[pa.Schema, tuple[int, ...]]:
        """Return the columns, and the number of rows of each group."""

    @staticmethod
    @abstractmethod
    def _groups(file: Any, groups: Sequence[int], names: Sequence[str]) -> pa.Table:
        """Return some columns of some groups."""

    @classmethod
    @contextmanager
    def _opened(cls, path: str) -> Iterator[Any]:
        try:
            if is_url(path):
                with opened(path) as stream:
                    yield cls._open(pa.PythonFile(stream, "r"))
            else:
                # Encoded, because Arrow accepts only UTF-8 in strings.
                with pa.OSFile(os.fsencode(path)) as file:
                    yield cls._open(file)
        except FileNotFoundError:
            raise InputError(f"{path} does not exist") from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            text = " ".join(str(error).split())
            raise InputError(f"{path} is damaged, or not a readable {cls.kind} file: {text}") from error


@dataclass(frozen=True)
class ParquetColumns(GroupedColumns):
    """A Parquet file with its row groups."""

    suffixes = (".parquet", ".pq")
    kind = "Parquet"

    @staticmethod
    def _open(file: pa.NativeFile) -> pq.ParquetFile:
        return pq.ParquetFile(file)

    @staticmethod
    def _described(file: pq.ParquetFile) -> tuple[pa.Schema, tuple[int, ...]]:
        return file.schema_arrow, tuple(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))

    @staticmethod
    def _groups(file: pq.ParquetFile, groups: Sequence[int], names: Sequence[str]) -> pa.Table:
        return file.read_row_groups(list(groups), columns=list(names)).select(list(names))


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
    def _groups(file: pa.NativeFile, groups: Sequence[int], names: Sequence[str]) -> pa.Table:
        schema = pa.ipc.open_file(file).schema
        fields = sorted(schema.get_field_index(name) for name in names)
        with pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields)) as reader:
            table = pa.Table.from_batches([reader.get_batch(at) for at in groups], reader.schema)
        # Arrow trusts the offsets and lengths in such files.
        table.validate(full=True)
        return table.select(list(names))
