"""Read tables as rows of numbers: numeric columns are values of a row, or one column holds lists of equal length."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.errors import InputError, MissingColumn
from ripieno.files.frames import NUMBERS, as_numbers, is_list, is_text, list_column, list_matrix, number_type
from ripieno.files.sources import check_memory, held
from ripieno.input.columns import ColumnSource, TableOptions
from ripieno.input.columns.arrays import kernel_dtype
from ripieno.input.columns.delimited import SAMPLE_BYTES, is_missing, is_number, plain
from ripieno.input.columns.patches import PatchText
from ripieno.input.columns.source import IGNORE_HINT, INDEX_NAMES, MISSING_HINT, nbytes


@dataclass(frozen=True)
class TableRows:
    """A table. Its columns of values form the rows of a matrix.

    Patches with only integer values from 0 to 255 are stored as bytes; others as float32. Only a full read determines
    this, so `dtype` is None.
    """

    source: ColumnSource
    options: TableOptions
    values: pa.Schema
    column_count: int
    dtype: np.dtype[Any] | None
    label: str | None = None
    classes: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        source: ColumnSource,
        options: TableOptions,
        required: Collection[str] = (),
        label: str | None = None,
        classes: tuple[str, ...] | None = None,
    ) -> Self:
        """Choose the columns of values. They include the columns in `required`, and the column `label`.

        A column from names of folders has to be chosen or left out by an option.

        The column `label` may hold strings, which are read as numbers of `classes`, or as -1.

        Raises
        ------
        InputError
            No column has values, a column has no numbers, several columns hold lists, or no option names a column from
            names of folders.
        """
        path, names = source.path, source.schema.names
        required = required if label is None else (*required, label)
        skipped = {name for name in (*INDEX_NAMES, *source.index) if name not in required}
        # A first column without a name is a pandas index, or R's row names.
        skipped |= {name for name in names[:1] if not name and len(names) > 1}
        chosen = options.chosen(path, names, [name for name in names if name not in skipped])
        keys = [key.name for key in source.keys if options.columns is None and key.name in set(chosen) - set(required)]
        if keys:
            raise InputError(
                f"{path}: the column {keys[0]!r} is from names of folders: name it in columns= to read it as a value"
                f"{IGNORE_HINT.format(name=keys[0])}"
            )
        chosen += tuple(name for name in dict.fromkeys(required) if name in names and name not in chosen)
        if not chosen:
            found = ", ".join(repr(name) for name in names if name in source.index)
            raise InputError(f"{path} has no column of values{f': {found} is the index of pandas' if found else ''}")
        if classes is None and label is not None and label not in names:
            raise MissingColumn("y", label, path, chosen)
        if label not in chosen or (classes is None and not _has_strings(source, label, options)):
            label = None
        strings = {label: pa.string()}
        fields = [source.schema.field(name) for name in chosen]
        fields = [each.with_type(strings.get(each.name, number_type(each.type))) for each in fields]
        # Text does not state the types of its columns.
        values = pa.schema([each.with_type(pa.float64()) if pa.types.is_null(each.type) else each for each in fields])
        lists = list_column(values, path)
        if lists is None:
            dtypes = [_kernel_dtype(path, each) for each in values if each.name != label]
            dtypes += [np.dtype(np.float64)] if label is not None else []
            width = len(values)
        else:
            values, width = pa.schema([lists]), _list_length(source, lists)
            dtypes = [kernel_dtype(_numpy_dtype(lists.type.value_type), f"{path}, column {lists.name!r}")]
        if options.missing is not None:
            dtypes.append(np.dtype(np.float32))
        dtype = None if isinstance(source, PatchText) else np.dtype(np.result_type(*dtypes))
        return cls(source, options, values, width, dtype, label, classes)

    def ids(self) -> pa.ChunkedArray:
        """Return the column with the names of the rows. The file is read for this."""
        name = self.options.id
        assert name is not None, "the options name the column"
        kind = self.source.schema.field(name).type
        schema = pa.schema([(name, pa.string() if pa.types.is_null(kind) else kind)])
        return self.source.read(0, self.size, schema).column(0)

    def found_classes(self) -> set[str]:
        """Return the strings in the label column. The file is read for this."""
        found: set[str] = set()
        assert self.label is not None, "the file has a label column"
        for table in self.source.batches(0, self.size, pa.schema([(self.label, pa.string())])):
            found.update(pc.unique(table.column(0).cast(pa.string())).to_pylist())
        return found - {None, ""}

    @property
    def path(self) -> str:
        """The path of the file."""
        return self.source.path

    @property
    def size(self) -> int:
        """The number of rows, or of bytes."""
        return self.source.size

    @property
    def counted(self) -> bool:
        """Whether the file states its number of rows."""
        return self.source.counted

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names of the values of a row. Values of a list have no names."""
        is_named = self.source.has_names and len(self.values) == self.column_count
        return tuple(self.values.names) if is_named else None

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows `start .. stop`, or the records that begin in bytes `start .. stop`."""
        tables = self.source.batches(start, stop, self.values)
        dtype = self.dtype
        if dtype is None:
            floats = np.dtype(np.float32)
            tables = held(self.path, tables, nbytes)
            blocks = [_narrowed(self._filled([table], len(table), start, floats)) for table in tables]
            return np.concatenate([np.empty((0, self.column_count), np.uint8), *blocks])
        if self.counted:
            return self._filled(tables, stop - start, start, dtype)
        parts = list(held(self.path, tables, nbytes))
        return self._filled(parts, sum(map(len, parts)), start, dtype)

    def describe(self, start: int, row: int) -> str:
        """Return the position of a row as text."""
        return self.source.describe(start, row)

    def _filled(self, tables: Iterable[pa.Table], count: int, first: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the `count` rows of some tables. Errors number the rows from `first`."""
        check_memory(self.path, count * self.column_count * dtype.itemsize)
        rows, begin = np.empty((count, self.column_count), dtype), 0
        for table in tables:
            part = rows[begin : begin + len(table)]
            if is_list(self.values.types[0]):
                part[:] = self._lists(table, first + begin)
            else:
                self._columns(table, first + begin, part)
            begin += len(table)
        return rows

    def _lists(self, table: pa.Table, first: int) -> NDArray[Any]:
        where = f"{self.path}, column {self.values.names[0]!r}"
        lists = as_numbers(table.column(0))
        if self.options.missing is None or not lists.null_count:
            rows = list_matrix(lists, self.column_count, where, first)
            if self.dtype == np.uint8 and rows.dtype != np.uint8:
                wrong = np.argwhere(np.isnan(rows))[0]
                raise InputError(f"{where}, row {first + wrong[0]}: value {wrong[1]} is missing{MISSING_HINT}")
            return rows
        found = np.full((len(lists), self.column_count), np.nan, self.dtype)
        found[lists.is_valid().to_numpy()] = list_matrix(lists.drop_null(), self.column_count, where, first)
        return found

    def _columns(self, table: pa.Table, first: int, rows: NDArray[Any]) -> None:
        for at, column in enumerate(table.columns):
            if self.values.names[at] == self.label:
                rows[:, at] = self._numbered(column.cast(pa.string()))
                continue
            if column.null_count and self.dtype == np.uint8:
                row = int(np.flatnonzero(column.is_null().to_numpy())[0])
                place = f"{self.path}, row {first + row}, column {self.values.names[at]!r}"
                raise InputError(f"{place}: a missing value is not a number{MISSING_HINT}")
            # Missing values of a float column arrive as NaN, and are reported with their row.
            rows[:, at] = as_numbers(column).to_numpy()

    def _numbered(self, strings: pa.ChunkedArray) -> NDArray[np.float64]:
        """Return the number of the class of each string. A missing or empty string is NaN."""
        numbers = pc.index_in(strings, pa.array(self.classes or (), pa.string())).fill_null(-1)
        is_missing = pc.equal(strings, "").fill_null(True)
        return np.where(is_missing.to_numpy(), np.nan, numbers.to_numpy())


def _has_strings(source: ColumnSource, name: str, options: TableOptions) -> bool:
    """Return whether a column holds strings. The first records decide for text."""
    kind = source.schema.field(name).type
    if not pa.types.is_null(kind):
        return is_text(kind)
    head = source.read(0, min(source.size, SAMPLE_BYTES), pa.schema([(name, pa.string())])).column(0).to_pylist()
    return not all(is_missing(text) or is_number(plain(text, options)) for text in head)


def _narrowed(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows as bytes if all values are whole numbers from 0 to 255."""
    with np.errstate(invalid="ignore"):
        narrow = rows.astype(np.uint8)
    return narrow if np.array_equal(narrow, rows) else rows


def _list_length(source: ColumnSource, field: pa.Field) -> int:
    """Return the length of the lists: from a fixed-size type, otherwise from the first list."""
    if pa.types.is_fixed_size_list(field.type):
        length: int = field.type.list_size
    else:
        first = as_numbers(source.read(0, 1, pa.schema([field])).column(0))[0]
        length = len(first) if first.is_valid else 0
    # A damaged schema may state a negative length.
    if length < 1:
        raise InputError(f"{source.path}, column {field.name!r}: its first list has no values")
    return length


def _kernel_dtype(path: str, field: pa.Field) -> np.dtype[Any]:
    dtype, where = _numpy_dtype(field.type), f"{path}, column {field.name!r}"
    if dtype.kind not in NUMBERS:
        hint = IGNORE_HINT.format(name=field.name)
        raise InputError(f"{where}: the type of the values is {field.type}, expected real numbers{hint}")
    return kernel_dtype(dtype, where)


def _numpy_dtype(kind: pa.DataType) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return np.dtype(object)
    return dtype
