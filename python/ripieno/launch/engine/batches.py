"""Provide `Batches`: a rank's rows of a DataFrame, as Arrow batches and as NumPy arrays.

A single batch with one column of numbers, or of lists of equal length, becomes a view of Arrow's memory. Other data is
copied once, from the batches directly to its place in the array. Sparse vectors are converted to dense ones first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ripieno.errors import InputError

# The fields of a vector in Spark ML: (type, size, indices, values), where size and indices are null if type is 1,
# dense.
_VECTOR_FIELDS = ("type", "size", "indices", "values")
_DENSE = 1


class Batches(Sequence[pa.RecordBatch]):
    """The rows of one rank, in Spark's order.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        All with `schema`; empty batches are dropped.
    schema : pyarrow.Schema
        Known even without rows.

    Attributes
    ----------
    schema : pyarrow.Schema
        Names and types of the columns.
    row_count : int
        Rows in all batches.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = [batch for batch in batches if batch.num_rows]
        self.schema = schema
        self.row_count = sum(batch.num_rows for batch in self._batches)

    @overload
    def __getitem__(self, index: int) -> pa.RecordBatch: ...
    @overload
    def __getitem__(self, index: slice) -> Batches: ...
    def __getitem__(self, index: int | slice) -> pa.RecordBatch | Batches:
        if isinstance(index, slice):
            return Batches(self._batches[index], self.schema)
        return self._batches[index]

    def __len__(self) -> int:
        return len(self._batches)

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"Batches({self.row_count} rows in {len(self)} batches; {columns})"

    def clear(self) -> None:
        """Drop the rows. Their memory is freed once no array or table refers to it."""
        self._batches = []
        self.row_count = 0

    def to_table(self) -> pa.Table:
        """Return all rows as one table, without a copy."""
        return pa.Table.from_batches(self._batches, self.schema)

    def to_numpy(self, columns: str | Sequence[str] | None = None) -> NDArray[Any]:
        """Return the numbers of some columns as one array.

        Parameters
        ----------
        columns : str or sequence of str, optional
            One column by name, or several, which are concatenated horizontally; by default all. A column holds numbers,
            booleans, lists of numbers of equal length, or Spark ML vectors (dense and sparse) of equal size.

        Returns
        -------
        numpy.ndarray
            Shape (rows,) for one column of numbers, (rows, values per row) otherwise. A column of lists without rows
            has 0 values per row. One batch with one column gives a read-only view of Arrow's memory, except for
            booleans and sparse vectors. Otherwise the result is a new array in C order, of the type that holds the
            values of all columns. Sparse vectors take as much memory in it as dense ones.

        Raises
        ------
        InputError
            If a column is missing or holds another type, a null, or a list or vector of another length. The message
            names the row of this rank.
        """
        names = list(self.schema.names) if columns is None else [columns] if isinstance(columns, str) else list(columns)
        if not names:
            raise InputError("columns: expected the names of one column or more")
        found = [self._column(name) for name in names]
        if len(found) == 1 and len(found[0].parts) == 1 and not found[0].is_packed:
            return found[0].parts[0]
        width = sum(column.width for column in found)
        array = np.empty((self.row_count, width), np.result_type(*(column.dtype for column in found)))
        first = 0
        for column in found:
            row = 0
            for part in column.parts:
                array[row : row + len(part), first : first + column.width] = part.reshape(len(part), -1)
                row += len(part)
            first += column.width
        return array[:, 0] if len(found) == 1 and found[0].is_flat else array

    def _column(self, name: str) -> _Column:
        place = self.schema.get_field_index(name)
        if place < 0:
            raise InputError(f"column {name!r}: expected one of {', '.join(self.schema.names)}, and only once")
        column = _Column(name, self.schema.field(place).type)
        for batch in self._batches:
            column.add(batch.column(place))
        return column


class _Column:
    """Views of one column, one per batch: shape (rows,), or (rows, values per row) for lists."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self._name = name
        self._is_vector = _is_vector(kind)
        values = kind.field("values").type if self._is_vector else kind
        self.is_flat = not (_is_list(values) or pa.types.is_fixed_size_list(values))
        number = values if self.is_flat else values.value_type
        if not (pa.types.is_integer(number) or pa.types.is_floating(number) or pa.types.is_boolean(number)):
            raise InputError(f"column {name!r} is {kind}: expected numbers, lists of numbers, or vectors")
        self.dtype = np.dtype(number.to_pandas_dtype())
        # Arrow packs booleans into bits, which NumPy cannot view.
        self.is_packed = pa.types.is_boolean(number)
        # For lists without a fixed size, the length of the first row.
        self.width = 1 if self.is_flat else values.list_size if pa.types.is_fixed_size_list(values) else 0
        self._row_count = 0
        self.parts: list[NDArray[Any]] = []

    def add(self, array: pa.Array) -> None:
        """Add the next rows."""
        self._refuse_nulls(array)
        if self._is_vector and pc.any(pc.not_equal(array.field("type"), _DENSE)).as_py():
            part = self._densified(array)
        else:
            values = array.field("values") if self._is_vector else array
            part = (values if self.is_flat else self._values(values)).to_numpy(zero_copy_only=not self.is_packed)
        self.parts.append(part if self.is_flat else part.reshape(len(array), self.width))
        self._row_count += len(array)

    def _densified(self, vectors: pa.StructArray) -> NDArray[Any]:
        """Return vectors, some of them sparse, as a dense array of shape (rows, values per row)."""
        is_dense = pc.equal(vectors.field("type"), _DENSE)
        values, indices = vectors.field("values"), vectors.field("indices")
        self._agree(pc.if_else(is_dense, pc.list_value_length(values), vectors.field("size")))
        array = np.zeros((len(vectors), self.width), self.dtype)
        array[is_dense] = values.filter(is_dense).flatten().to_numpy().reshape(-1, self.width)
        is_sparse = pc.invert(is_dense)
        values = values.filter(is_sparse)
        rows = np.repeat(np.flatnonzero(is_sparse), pc.list_value_length(values))
        array[rows, indices.filter(is_sparse).flatten()] = values.flatten()
        return array

    def _values(self, lists: pa.Array) -> pa.Array:
        """Return the values of all rows, concatenated."""
        self._refuse_nulls(lists)
        if _is_list(lists.type):
            self._agree(pc.list_value_length(lists))
        values = lists.flatten()
        self._refuse_nulls(values, self.width)
        return values

    def _agree(self, lengths: pa.Array) -> None:
        """Raise if a row has another length than the first one."""
        if not self.parts:
            self.width = lengths[0].as_py()
        is_other = pc.not_equal(lengths, self.width)
        if pc.any(is_other).as_py():
            row = pc.index(is_other, True).as_py()
            raise self._wrong(row, f"{lengths[row].as_py()} values where the rows before have {self.width}")

    def _refuse_nulls(self, array: pa.Array, values_per_row: int = 1) -> None:
        if array.null_count:
            raise self._wrong(pc.index(pc.is_null(array), True).as_py() // values_per_row, "a null")

    def _wrong(self, row: int, problem: str) -> InputError:
        return InputError(f"column {self._name!r}, row {self._row_count + row} of this rank: {problem}")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_vector(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind):
        return False
    return tuple(kind.field(place).name for place in range(kind.num_fields)) == _VECTOR_FIELDS
