"""Provide columns, and splits, of files that hold rows in groups: Parquet, Arrow and Feather."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from ripieno.errors import InputError
from ripieno.files.frames import check_names, index_columns
from ripieno.files.sources import EmptyFile, File, is_url, opened
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
        source = cls.described(path)
        if not source.size:
            raise EmptyFile(f"{path} is empty")
        return source

    @classmethod
    def described(cls, path: str) -> Self:
        """Read the metadata of a file that may have no rows."""
        if File(path, 0).compression is not None:
            raise InputError(f"{path}: {cls.kind} is compressed inside and is read from its end: unpack it first")
        with cls._opened(path) as file:
            schema, groups = cls._described(file)
        if min(groups, default=0) < 0:
            raise InputError(f"{path} is damaged: a group has {min(groups)} rows by its metadata")
        check_names(schema.names, path)
        return cls(path, schema, sum(groups), True, index_columns(schema), groups=groups)

    def range_of(self, groups: range) -> tuple[int, int]:
        """Return the range of the rows of consecutive groups."""
        return sum(self.groups[: groups.start]), sum(self.groups[: groups.stop])

    def _batches(self, start: int, stop: int, schema: pa.Schema, hint: str) -> Iterator[pa.Table]:
        return self.blocks(start, stop, schema.names, None)

    def blocks(self, start: int, stop: int, names: Sequence[str], block_bytes: int | None) -> Iterator[pa.Table]:
        """Yield rows `start .. stop` in blocks of about `block_bytes`, or by groups if it is None.

        Raises
        ------
        InputError
            The file is damaged.
        """
        if start >= stop:
            return
        ends = np.cumsum(self.groups)
        first, last = int(np.searchsorted(ends, start, "right")), int(np.searchsorted(ends, stop, "left"))
        with self._opened(self.path, self._open_for_blocks) as file:
            for group in range(first, last + 1):
                begin = int(ends[group]) - self.groups[group]
                for table in self._group(file, group, names, block_bytes):
                    rows = table.slice(max(0, start - begin), min(stop, begin + len(table)) - max(start, begin))
                    begin += len(table)
                    if len(rows):
                        yield rows
                if begin != ends[group]:
                    found = begin - int(ends[group]) + self.groups[group]
                    raise InputError(
                        f"{self.path} is damaged: group {group} has {found:,} rows, but {self.groups[group]:,} by its "
                        "metadata"
                    )

    @staticmethod
    @abstractmethod
    def _open(file: pa.NativeFile) -> Any:
        """Open the file with its library."""

    def _open_for_blocks(self, file: pa.NativeFile) -> Any:
        """Open the file with its library, to read blocks."""
        return self._open(file)

    @staticmethod
    @abstractmethod
    def _described(file: Any) -> tuple[pa.Schema, tuple[int, ...]]:
        """Return the columns, and the number of rows of each group."""

    @staticmethod
    @abstractmethod
    def _group(file: Any, group: int, names: Sequence[str], block_bytes: int | None) -> Iterator[pa.Table]:
        """Yield some columns of a group, in blocks of about `block_bytes` or as a whole."""

    @classmethod
    @contextmanager
    def _opened(cls, path: str, open_with: Callable[[pa.NativeFile], Any] | None = None) -> Iterator[Any]:
        open_with = cls._open if open_with is None else open_with
        try:
            if is_url(path):
                with opened(path) as stream:
                    yield open_with(pa.PythonFile(stream, "r"))
            else:
                # The path is encoded, because Arrow accepts only UTF-8 strings.
                with pa.OSFile(os.fsencode(path)) as file:
                    yield open_with(file)
        except FileNotFoundError:
            raise InputError(f"{path} does not exist") from None
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            text = " ".join(str(error).split())
            raise InputError(f"{path} is damaged, or not a readable {cls.kind} file: {text}") from error
