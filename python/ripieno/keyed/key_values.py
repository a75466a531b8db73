"""Provide `KeyValues`: rows with keys, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno import log
from ripieno._types import CombineOne
from ripieno.errors import InputError
from ripieno.keyed import columns
from ripieno.keyed.columns import KeyedSchema, Keys, Strings
from ripieno.keyed.combiners import Combiner

if TYPE_CHECKING:
    import pyarrow as pa

    from ripieno.keyed.combiners import Combine
    from ripieno.keyed.groups import Groups


class KeyValues:
    """A column of keys and a row of numbers for each. Keys may repeat, and may have any order.

    Columns with a suitable layout are not copied: int64 arrays, NumPy arrays of numbers, Arrow columns of the same
    types, large strings and large binaries. They must not change during the lifetime of this object.

    Parameters
    ----------
    keys : array of shape (n,), list, or Arrow column
        Integers of any type, which become int64, or strings: NumPy ``str`` or ``bytes``, lists of ``str`` or ``bytes``,
        Arrow strings and binaries, also dictionary-encoded. Strings are equal if their bytes are equal.
    values : array of shape (n,) or (n, width), list, or Arrow column, optional
        Numbers: int8 … int64, uint8 … uint64, float16, bfloat16, float32 or float64; or booleans. By default there are
        only keys.

    Attributes
    ----------
    values : array of shape (n,) or (n, width), or None
    key_column : int64 array, or Strings
        The keys in the form of the native module.

    Raises
    ------
    InputError
        Keys or values have other types or are missing, rows differ in length, or there are not as many values as keys.

    Examples
    --------
    >>> import ripieno as rp
    >>> sales = rp.KeyValues(["pear", "fig", "pear"], [3, 1, 2])
    >>> sales.combined("sum").sorted().to_arrow().to_pydict()
    {'key': ['fig', 'pear'], 'value': [1, 5]}
    """

    def __init__(self, keys: Any, values: Any = None) -> None:
        self.key_column: Keys = columns.keys_of(keys)
        # Typed so that callers with values need not check for None.
        self.values: NDArray[Any] | Any = columns.values_of(values, len(self))

    @classmethod
    def of_columns(cls, keys: Keys, values: NDArray[Any] | None) -> KeyValues:
        """Create rows from columns in the form of the native module, without checks."""
        rows = cls.__new__(cls)
        rows.key_column, rows.values = keys, values
        return rows

    @classmethod
    def from_arrow(cls, data: Any, key: str = "key", value: str | None = "value") -> KeyValues:
        """Create rows from two columns of a table or frame.

        Parameters
        ----------
        data : object with ``__arrow_c_stream__`` or ``__arrow_c_array__``
            A PyArrow table or record batch, a polars or pandas frame, or a DuckDB relation.
        key, value : str
            Names of the columns; None means no values. Lists of equal length become rows of that width.

        Returns
        -------
        KeyValues
            On the memory of `data` if the types allow it (see the class) and a column has one chunk. Columns of several
            chunks are copied.

        Raises
        ------
        InputError
            A column does not exist, has missing values, or has an unsupported type.
        """
        from ripieno.keyed import arrow

        found = arrow.columns_of(data, [key] if value is None else [key, value])
        keys = arrow.keys_of(found[0], f"column {key!r}")
        values = None if value is None else arrow.values_of(found[1], f"column {value!r}")
        return cls(keys, values)

    @classmethod
    def joined(cls, parts: Sequence[KeyValues]) -> KeyValues:
        """Concatenate the rows of all `parts`.

        Parts without rows may have any types. The others have keys of one kind and values of one dtype and width.
        """
        if not parts:
            raise InputError("joined: no parts: expected one or more")
        filled = [part for part in parts if len(part)] or list(parts[:1])
        if len(filled) == 1:
            return filled[0]
        schema = filled[0].schema
        for part in filled[1:]:
            if part.schema != schema:
                raise InputError(f"joined: {part.schema} among {schema}: expected one schema")
        values = [part.values for part in filled if part.values is not None]
        keys = columns.joined_keys([part.key_column for part in filled])
        return cls.of_columns(keys, np.concatenate(values) if values else None)

    @property
    def keys(self) -> Any:
        """The keys: an int64 array, or a LargeStringArray or LargeBinaryArray of PyArrow."""
        if isinstance(self.key_column, Strings):
            from ripieno.keyed import arrow

            return arrow.array_of_keys(self.key_column)
        return self.key_column

    @property
    def schema(self) -> KeyedSchema:
        """The kind of the keys, and the dtype and width of the values."""
        return columns.schema_of(self.key_column, self.values)

    @property
    def form(self) -> KeyedSchema:
        """Return `schema`. Deprecated: use `schema`."""
        log.warn("KeyValues.form is deprecated, use schema", DeprecationWarning)
        return self.schema

    @property
    def nbytes(self) -> int:
        """The size of the columns in bytes."""
        keys = self.key_column
        keys_bytes = keys.offsets.nbytes + keys.used.nbytes if isinstance(keys, Strings) else keys.nbytes
        return keys_bytes + (0 if self.values is None else self.values.nbytes)

    def __len__(self) -> int:
        return columns.key_count(self.key_column)

    def __repr__(self) -> str:
        return f"<KeyValues: {len(self)} rows, {self.schema}>"

    def __reduce__(self) -> Any:
        # Pickle sends these columns in place, trimmed to the used part.
        keys = self.key_column
        if isinstance(keys, Strings):
            keys = Strings(keys.offsets - keys.offsets[0], np.ascontiguousarray(keys.used), keys.is_text)
        return KeyValues, (keys, self.values)

    @overload
    def combined(self, combine: Literal["concat"], *, threads: int = 1, memory_limit: int | None = None) -> Groups: ...

    @overload
    def combined(
        self, combine: CombineOne = "sum", *, threads: int = 1, memory_limit: int | None = None
    ) -> KeyValues: ...

    @overload
    def combined(
        self, combine: Combine, *, threads: int = 1, memory_limit: int | None = None
    ) -> KeyValues | Groups: ...

    def combined(
        self, combine: Combine = "sum", *, threads: int = 1, memory_limit: int | None = None
    ) -> KeyValues | Groups:
        """Combine these rows to one row for each key, as `Communicator.regroup` does for all ranks.

        Parameters
        ----------
        combine : str or callable
            As for `Communicator.regroup`; "concat" returns `Groups`.
        threads : int
            Number of computing threads.
        memory_limit : int, optional
            Bytes beyond which rows are spilled to temporary files.

        Returns
        -------
        KeyValues or Groups
            In an order that depends only on the keys.
        """
        from ripieno.keyed.emitter import Emitter

        emitter = Emitter(1, combine=combine, threads=threads, memory_limit=memory_limit)
        emitter.add(self)
        return emitter.combined()

    def take(self, rows: Any) -> KeyValues:
        """Return some rows, by index, in that order."""
        rows = np.asarray(rows)
        if rows.dtype.kind == "b":
            if rows.shape != (len(self),):
                raise InputError(f"take: booleans of shape {rows.shape}: expected one for each of {len(self)} rows")
            rows = np.flatnonzero(rows)
        if rows.dtype.kind not in "iu" and rows.size:
            raise InputError(f"take: rows of dtype {rows.dtype}: expected whole numbers or booleans")
        rows = rows.astype(np.int64, copy=False)
        return KeyValues.of_columns(
            columns.taken_keys(self.key_column, rows), None if self.values is None else self.values[rows]
        )

    def sorted(self, by: Literal["key", "value"] = "key", descending: bool = False) -> KeyValues:
        """Return the rows sorted by key, or by value and then by key.

        Strings are compared by their bytes. NaNs come last. Values must be one-dimensional.
        """
        rows = _order_of_keys(self.key_column, descending and by == "key")
        if by == "key":
            return self.take(rows)
        return self.take(rows[np.argsort(_ranked(self._sortable(by), descending)[rows], kind="stable")])

    def top(self, k: int) -> KeyValues:
        """Return the `k` rows with the largest values, largest first; equal values are ordered by key."""
        ranked = _ranked(self._sortable("value"), descending=True)
        if k < 0:
            raise InputError(f"top: k={k}: expected 0 or more")
        if 0 < k < len(self):
            last = np.partition(ranked, k - 1)[k - 1]
            return self.take(np.flatnonzero(~(ranked > last)))._topped(k)
        return self._topped(k)

    def to_arrow(self) -> pa.Table:
        """Return a table of the columns "key" and, if there are values, "value", on the same memory.

        Rows of several values become fixed-size lists.
        """
        import pyarrow as pa

        from ripieno.keyed import arrow

        named = {"key": arrow.array_of_keys(self.key_column)}
        if self.values is not None:
            named["value"] = arrow.array_of_values(self.values)
        return pa.table(named)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def widened(self, combiner: Combiner) -> KeyValues:
        """Return the rows with values in the result dtype of `combiner`."""
        if self.values is None or combiner.function is not None:
            return self
        values = columns.widened(self.values, combiner.name)
        return self if values is self.values else KeyValues.of_columns(self.key_column, values)

    def _topped(self, k: int) -> KeyValues:
        ordered = self.sorted("value", descending=True)
        return ordered if len(ordered) <= k else ordered.take(np.arange(k))

    def _sortable(self, by: str) -> NDArray[Any]:
        if by != "value":
            raise InputError(f"by={by!r}: expected 'key' or 'value'")
        if self.values is None or self.values.ndim != 1:
            raise InputError(f"the order of values of {self.schema}: expected one value for each key")
        return self.values


def _ranked(values: NDArray[Any], descending: bool) -> NDArray[Any]:
    """Return numbers with the requested order as their ascending order."""
    if not descending:
        return values
    return ~values if values.dtype.kind in "biu" else -values


def _order_of_keys(keys: Keys, descending: bool) -> NDArray[Any]:
    if not isinstance(keys, Strings):
        return np.argsort(_ranked(keys, descending), kind="stable")
    return _native.order_of_strings(keys.offsets, keys.data, descending)
