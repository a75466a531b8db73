"""Provide columns of values, aligned with the vertices that a rank owns."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError


class Columns(MutableMapping[str, NDArray[Any]]):
    """Named arrays of shape (n, …) with a row per vertex. Assigned values are copied; a number fills all rows.

    Raises
    ------
    InputError
        An assigned value has another number of rows, or is not numeric.
    KeyError
        There is no column with that name.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._columns: dict[str, NDArray[Any]] = {}

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {rows.dtype} {rows.shape}" for name, rows in self._columns.items())
        return f"<Columns of {self._count} vertices: {columns or 'none'}>"

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._columns:
            raise KeyError(f"{name!r}: the graph has the columns {', '.join(map(repr, self)) or 'none yet'}")
        return self._columns[name]

    def __setitem__(self, name: str, rows: Any) -> None:
        array = np.asarray(rows)
        if array.dtype.kind not in "biufc":
            raise InputError(f"column {name!r}: dtype {array.dtype}, expected numbers")
        if array.ndim == 0:
            array = np.broadcast_to(array, self._count)
        if len(array) != self._count:
            raise InputError(f"column {name!r}: {len(array)} rows, expected {self._count}, one per vertex of this rank")
        self._columns[name] = np.array(array, order="C")

    def __delitem__(self, name: str) -> None:
        del self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class SomeRows:
    """The rows of columns for some of the vertices.

    Parameters
    ----------
    columns : Columns
    places : (k,) int64
        Indices of the vertices, ascending.
    """

    def __init__(self, columns: Columns, places: NDArray[np.int64]) -> None:
        self._columns = columns
        self._places = places

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a copy of the rows, (k, …)."""
        return self._columns[name][self._places]

    def __setitem__(self, name: str, rows: Any) -> None:
        """Overwrite the rows; a number fills all of them."""
        column = self._columns[name]
        array, shape = of_type(rows, column.dtype, f"column {name!r}"), (len(self._places), *column.shape[1:])
        if array.ndim and array.shape != shape:
            raise InputError(f"column {name!r}: rows of shape {array.shape}, expected {shape}, one per active vertex")
        column[self._places] = array


def of_type(value: Any, dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """Return `value` as an array to store with `dtype`: an array of the same kind, or a number in its range."""
    if isinstance(value, bool | int | float):
        with suppress(OverflowError):
            if np.can_cast(np.result_type(dtype, value), dtype, "same_kind"):
                return np.array(value, dtype)
        raise InputError(f"{name}: {value!r}, expected {dtype}")
    array = np.asarray(value)
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InputError(f"{name}: type {array.dtype}, expected {dtype}")
    return array
