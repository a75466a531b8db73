"""Provide `Groups`: all rows of each key, stored consecutively."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ripieno.keyed import columns
from ripieno.keyed.columns import Keys, Strings

if TYPE_CHECKING:
    import pyarrow as pa


class Groups:
    """The result of ``combine="concat"``: each key once, and its rows, grouped by key.

    The rows of key i are ``values[offsets[i]:offsets[i + 1]]``, by rank and then in the order of their addition.

    Attributes
    ----------
    offsets : int64 array of shape (n + 1,)
    values : array of shape (rows,) or (rows, width), or None if there are only keys
    key_column : int64 array, or Strings
        The keys in the form of the native module.

    Examples
    --------
    >>> import ripieno as rp
    >>> groups = rp.KeyValues([7, 7], [1.5, 3.5]).combined("concat")
    >>> groups.to_arrow().to_pydict()
    {'key': [7], 'values': [[1.5, 3.5]]}
    """

    def __init__(self, keys: Keys, offsets: NDArray[Any], values: NDArray[Any] | None) -> None:
        self.key_column = keys
        self.offsets = offsets
        # Typed so that callers with values need not check for None.
        self.values: NDArray[Any] | Any = values

    @property
    def keys(self) -> Any:
        """The keys: an int64 array, or a LargeStringArray or LargeBinaryArray of PyArrow."""
        if isinstance(self.key_column, Strings):
            from ripieno.keyed import arrow

            return arrow.array_of_keys(self.key_column)
        return self.key_column

    @property
    def counts(self) -> NDArray[Any]:
        """The number of rows of each key, an int64 array of shape (n,)."""
        return np.diff(self.offsets)

    @classmethod
    def joined(cls, parts: Sequence[Groups]) -> Groups:
        """Concatenate the groups of all `parts`, which have no keys in common."""
        counts = np.concatenate([part.counts for part in parts])
        values = [part.values for part in parts if part.values is not None]
        keys = columns.joined_keys([part.key_column for part in parts])
        return cls(keys, offsets_of(counts), np.concatenate(values) if values else None)

    def __len__(self) -> int:
        return columns.key_count(self.key_column)

    def __repr__(self) -> str:
        return f"<Groups: {len(self)} keys, {self.offsets[-1]} rows, {columns.schema_of(self.key_column, self.values)}>"

    def to_arrow(self) -> pa.Table:
        """Return the columns "key" and "values" (lists), or "key" and "count" without values, on the same memory."""
        import pyarrow as pa

        from ripieno.keyed import arrow

        keys = arrow.array_of_keys(self.key_column)
        if self.values is None:
            return pa.table({"key": keys, "count": self.counts})
        rows = arrow.array_of_values(self.values)
        return pa.table({"key": keys, "values": pa.LargeListArray.from_arrays(pa.array(self.offsets), rows)})

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)


def offsets_of(counts: NDArray[Any]) -> NDArray[Any]:
    """Return the start of each group, for groups of `counts` rows, and the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
