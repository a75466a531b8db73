"""Read Parquet by row group: each numeric column is a value of the row, or one column holds lists of equal length."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.files.frames import index_columns, is_list, list_column, list_matrix
from ripieno.files.sources import EmptyFile, blamed_on, is_url, opened
from ripieno.input.matrix.binary import kernel_dtype

#: Columns with the origin of a row, which are not part of the vector.
INDEX_NAMES = ("picture", "row", "col")


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file. `index` names its pandas index columns, which are not values."""

    path: str
    columns: tuple[str, ...]
    column_count: int
    dtype: np.dtype[Any]
    groups: tuple[int, ...]
    index: tuple[str, ...] = ()
    counted = True

    @classmethod
    def open(cls, path: str, wanted: Collection[str] = ()) -> ParquetFile:
        """Read the footer. Index columns that are `wanted` are values."""
        groups, schema = read_footer(path)
        if not sum(groups):
            raise EmptyFile(f"{path} is empty")
        index = tuple(name for name in index_columns(schema) if name not in wanted)
        schema = pa.schema([field for field in schema if field.name not in (*INDEX_NAMES, *index)])
        if not len(schema):
            found = f": {', '.join(map(repr, index))} {'is' if len(index) == 1 else 'are'} the index of pandas"
            raise InputError(f"{path} has no column of values{found * bool(index)}")
        lists = list_column(schema, path)
        if lists is None:
            fields, width = list(schema), len(schema)
        else:
            fields, width = [lists.with_type(lists.type.value_type)], _list_length(path, lists)
        dtypes = [kernel_dtype(_numpy_dtype(field.type), f"{path}, column {field.name!r}") for field in fields]
        dtype = np.dtype(np.result_type(*dtypes))
        return cls(path, tuple(field.name for field in fields), width, dtype, groups, index)

    def including(self, name: str) -> ParquetFile:
        """Return the same file with an index column included in the values."""
        return ParquetFile.open(self.path, (name,)) if name in self.index else self

    @property
    def size(self) -> int:
        """The number of rows."""
        return sum(self.groups)

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names of the values of a row. Values of a list have no names."""
        return self.columns if len(self.columns) == self.column_count else None

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows `start .. stop`. Only the row groups with these rows are read."""
        table = read_rows(self.path, self.groups, start, stop, self.columns)
        if is_list(table.schema.types[0]):
            where = f"{self.path}, column {self.columns[0]!r}"
            return list_matrix(table.column(0), self.column_count, where, start).astype(self.dtype, copy=False)
        rows = np.empty((len(table), self.column_count), self.dtype)
        for at, column in enumerate(table.columns):
            rows[:, at] = self._values(column, self.columns[at])
        return rows

    def _values(self, column: pa.ChunkedArray, name: str) -> NDArray[Any]:
        if column.null_count and self.dtype == np.uint8:
            raise InputError(f"{self.path}: column {name!r} has missing values")
        # Missing values of a float column arrive as NaN, and are reported with their row.
        numbers: NDArray[Any] = column.to_numpy()
        return numbers

    def describe(self, start: int, row: int) -> str:
        """Return the position of a row as text."""
        return f"{self.path}, row {start + row}"


def read_footer(path: str) -> tuple[tuple[int, ...], pa.Schema]:
    """Return the row count of each row group, and the columns.

    Raises
    ------
    InputError
        The file is not Parquet.
    """
    try:
        with blamed_on(path), _opened(path) as file:
            return tuple(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)), file.schema_arrow
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a readable Parquet file: {error}") from error


def read_rows(path: str, groups: Sequence[int], start: int, stop: int, columns: Sequence[str]) -> pa.Table:
    """Return rows `start .. stop`. `groups` has the row counts of row groups; only the needed groups are read.

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


def _list_length(path: str, field: pa.Field) -> int:
    """Return the length of the first list that is not null, or the length stated by a fixed-size type."""
    if pa.types.is_fixed_size_list(field.type):
        length: int = field.type.list_size
        return length
    with _opened(path) as file:
        for batch in file.iter_batches(1, columns=[field.name]):
            if batch.num_rows and batch.column(0)[0].is_valid and len(batch.column(0)[0]):
                return len(batch.column(0)[0])
            break
    raise InputError(f"{path}, column {field.name!r}: its first list has no values")


@contextmanager
def _opened(path: str) -> Iterator[pq.ParquetFile]:
    if not is_url(path):
        # Encoded, because Arrow accepts only UTF-8 in strings.
        with pa.OSFile(os.fsencode(path)) as local, pq.ParquetFile(local) as file:
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
