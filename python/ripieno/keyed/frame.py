"""Provide `KeyedFrame`: rows of named columns with a key of some columns, and aggregations per key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ripieno.errors import InputError
from ripieno.keyed.aggregation import Aggregation, check_column

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

#: Treatment of rows with a missing key.
NULLS = ("error", "drop", "keep")


class KeyedFrame:
    """Rows of named columns. Some of the columns together form the key.

    Parameters
    ----------
    data : object with ``__arrow_c_stream__`` or ``__arrow_c_array__``
        A PyArrow table or record batch, a polars or pandas frame, or a DuckDB relation.
    keys : str or sequence of str
        Columns of integers, floats, booleans, dates, times, strings or binaries. Floats compare as numbers; all NaNs
        are one key.
    nulls : {"error", "drop", "keep"}
        Treatment of rows with a missing value in their key: raise an error, drop them, or keep null as a key.

    Attributes
    ----------
    keys : list of str

    Examples
    --------
    >>> import pyarrow as pa, ripieno as rp
    >>> trips = pa.table({"city": ["Bonn", "Köln", "Bonn"], "night": [True, False, True], "km": [3.0, 4.0, None]})
    >>> frame = rp.KeyedFrame(trips, ["city", "night"])
    >>> frame.aggregated({"km": ("km", "mean"), "trips": "count", "lost": ("km", "nulls")}).to_arrow().to_pydict()
    {'city': ['Bonn', 'Köln'], 'night': [True, False], 'km': [3.0, 4.0], 'trips': [2, 1], 'lost': [1, 0]}
    """

    def __init__(
        self, data: Any, keys: str | Sequence[str], *, nulls: Literal["error", "drop", "keep"] = "error"
    ) -> None:
        try:
            table = pa.table(data)
        except (TypeError, ValueError) as error:
            raise InputError(f"a {type(data).__name__}: expected a table or frame of Arrow ({error})") from None
        self.keys: list[str] = [keys] if isinstance(keys, str) else list(keys)
        if not self.keys:
            raise InputError("keys: none: expected names of columns")
        for name in self.keys:
            check_column(table.schema, name)
        if nulls not in NULLS:
            raise InputError(f"nulls={nulls!r}: expected one of {', '.join(NULLS)}")
        self._table = _without_nulls(table, self.keys, nulls)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"<KeyedFrame: {len(self)} rows by {', '.join(self.keys)}>"

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table."""
        return self._table

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a polars frame."""
        import polars as pl

        return pl.DataFrame(self._table)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a pandas frame. Integers and booleans with nulls become objects or floats there."""
        return self._table.to_pandas()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def aggregated(self, aggregations: Mapping[str, str | tuple[str, str]]) -> KeyedFrame:
        """Return one row for each key, computed from these rows only.

        `Communicator.aggregate` uses the rows of all ranks.

        Parameters
        ----------
        aggregations : dict of str to "count" or (str, str)
            The columns of the result. Each value is a column name with "sum", "mean", "min", "max", "count", "nulls" or
            "distinct", the number of different values; a plain "count" counts rows. Nulls are treated as in SQL: they
            count only for "nulls", and without any value the sum, mean, minimum and maximum are null. Sums of integers
            are int64 or uint64, and exact. Sums of floats are float64. In minima and maxima, NaN follows all numbers.

        Returns
        -------
        KeyedFrame
            Rows in ascending order of the keys, nulls last.

        Raises
        ------
        InputError
            A column does not exist, has values that have no such aggregation, or a sum of integers exceeds 64 bits.
        """
        return self.of_table(self.aggregation(aggregations).result(), self.keys)

    def aggregation(self, aggregations: Mapping[str, Any], *, threads: int = 1, world_size: int = 1) -> Aggregation:
        """Return the aggregation of these rows, to be combined with the aggregations of other ranks."""
        aggregation = Aggregation(self.keys, aggregations, self._table.schema, threads=threads, world_size=world_size)
        aggregation.add(self._table)
        return aggregation

    @classmethod
    def of_table(cls, table: pa.Table, keys: Sequence[str]) -> KeyedFrame:
        """Return a frame of a table, without checks."""
        frame = cls.__new__(cls)
        frame.keys, frame._table = list(keys), table
        return frame

    def of_columns(self, schema: pa.Schema) -> KeyedFrame:
        """Return an empty frame with these columns and the same keys."""
        return KeyedFrame(schema.empty_table(), self.keys)


def _without_nulls(table: pa.Table, keys: list[str], nulls: str) -> pa.Table:
    count = sum(table[name].null_count for name in keys)
    if not count or nulls == "keep":
        return table
    if nulls == "drop":
        return table.select(table.column_names).filter(_are_valid(table, keys))
    name = next(name for name in keys if table[name].null_count)
    row = int(np.flatnonzero(table[name].is_null().to_numpy())[0])
    raise InputError(
        f"column {name!r}: {table[name].null_count} of {table.num_rows} are null, the first in row {row}: drop these "
        'rows with nulls="drop", or let null be a key with nulls="keep"'
    )


def _are_valid(table: pa.Table, keys: list[str]) -> Any:
    valid = pc.is_valid(table[keys[0]])
    for name in keys[1:]:
        valid = pc.and_(valid, pc.is_valid(table[name]))
    return valid
