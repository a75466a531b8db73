"""Parquet: every numeric column is a value of the row, or one column holds fixed-size lists; read by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.sources import blamed_on, is_url, opened
from ripieno.input.matrix.binary import kernel_dtype

#: Columns that say where a row comes from and are no part of the vector.
INDEX_NAMES = ("picture", "row", "col")


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file."""

    path: str
    columns: tuple[str, ...]
    column_count: int
    dtype: np.dtype[Any]
    groups: tuple[int, ...]
    counted = True

    @classmethod
    def open(cls, path: str) -> ParquetFile:
        """Read the footer."""
        groups, schema = read_footer(path)
        fields = [field for field in schema if field.name not in INDEX_NAMES]
        if not sum(groups) or not fields:
            raise InputError(f"{path} is empty")
        width = len(fields)
        if width == 1 and pa.types.is_fixed_size_list(fields[0].type):
            width, fields = fields[0].type.list_size, [fields[0].with_type(fields[0].type.value_type)]
        dtypes = [kernel_dtype(_numpy_dtype(field.type), f"{path}, column {field.name!r}") for field in fields]
        return cls(path, tuple(field.name for field in fields), width, np.result_type(*dtypes), groups)

    @property
    def size(self) -> int:
        """Rows."""
        return sum(self.groups)

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """What the values of a row are called; values of a list have no names."""
        return self.columns if len(self.columns) == self.column_count else None

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start .. stop`; only the row groups that hold them are read."""
        table = read_rows(self.path, self.groups, start, stop, self.columns)
        rows = np.empty((len(table), self.column_count), self.dtype)
        for at, column in enumerate(table.columns):
            if pa.types.is_fixed_size_list(column.type):
                if column.null_count:
                    raise InputError(f"{self.path}: column {self.columns[at]!r} has missing values")
                rows[:] = column.combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(rows.shape)
            else:
                rows[:, at] = self._values(column, self.columns[at])
        return rows

    def _values(self, column: pa.ChunkedArray, name: str) -> NDArray[Any]:
        if column.null_count and self.dtype == np.uint8:
            raise InputError(f"{self.path}: column {name!r} has missing values")
        # Missing values of a float column arrive as NaN, which is reported with its row.
        numbers: NDArray[Any] = column.to_numpy()
        return numbers

    def describe(self, start: int, row: int) -> str:
        """Position of a row."""
        return f"{self.path}, row {start + row}"


def read_footer(path: str) -> tuple[tuple[int, ...], pa.Schema]:
    """Rows of each row group, and the columns.

    Raises
    ------
    InputError
        It is no Parquet file.
    """
    try:
        with blamed_on(path), _opened(path) as file:
            return tuple(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)), file.schema_arrow
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a readable Parquet file: {error}") from error


def read_rows(path: str, groups: Sequence[int], start: int, stop: int, columns: Sequence[str]) -> pa.Table:
    """Rows `start .. stop` of a file whose row groups have so many rows; only the groups that hold them are read.

    Raises
    ------
    InputError
        The file is damaged.
    """
    ends = np.cumsum(groups)
    first, last = np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop, "left")
    held = range(first, last + 1) if start < stop else range(0)
    try:
        with _opened(path) as file:
            table = file.read_row_groups(list(held), columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())}") from error
    return table.slice(start - sum(groups[: held.start]), stop - start)


@contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    if not is_url(path):
        with pq.ParquetFile(path) as file:
            yield file
        return
    with opened(path) as stream, pq.ParquetFile(stream) as file:
        yield file


def _numpy_dtype(kind: pa.DataType) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return np.dtype(object)
    return dtype
