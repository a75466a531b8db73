"""Gather all ranks' key-values on every rank: with one allgather per column, into the result.

Cost: an allgather of 32 bytes per rank, which also determines the common schema of the rows, and one of the columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.keyed import agreement
from ripieno.keyed.columns import KeyedSchema, Keys, Strings
from ripieno.keyed.key_values import KeyValues
from ripieno.wire.arrays import elements, empty, split


class RowSummary(NamedTuple):
    """The rows of all ranks: their common schema, and each rank's number of rows and bytes of strings."""

    schema: KeyedSchema
    row_counts: NDArray[np.int64]
    string_bytes: NDArray[np.int64]

    @property
    def row_bytes(self) -> int:
        """The bytes of a row without its string."""
        dtype, width = self.schema.dtype, self.schema.width
        return 8 + (np.dtype(dtype).itemsize * (1 if width is None else width) if dtype else 0)

    @property
    def nbytes(self) -> NDArray[np.int64]:
        """The bytes of each rank's rows."""
        return self.row_counts * self.row_bytes + self.string_bytes


def summary(native: Any, call: str, rows: KeyValues) -> RowSummary:
    """Return the summary of all ranks' rows. All must make the same call with rows of one schema.

    Raises
    ------
    CollectiveMismatch
        On every rank: the calls or schemas differ.
    """
    own = rows.key_column
    string_bytes = own.used.size if isinstance(own, Strings) else 0
    found = agreement.numbers(native, call, (len(rows), string_bytes, rows.schema.label))
    schemas = [(KeyedSchema.of_label(label), count) for count, _, label in found.tolist()]
    return RowSummary(agreement.common_schema(call, schemas), found[:, 0], found[:, 1])


def allgathered(native: Any, rows: KeyValues, algorithm: str | None = None) -> KeyValues:
    """Return the rows of all ranks, in rank order."""
    call = "allgather of key-values" + ("" if algorithm is None else f", algorithm={algorithm!r}")
    schema, row_counts, sizes_bytes = summary(native, call, rows)
    keys, values = (rows.key_column, rows.values) if len(rows) else schema.empty
    all_keys: Keys
    if isinstance(keys, Strings):
        ends = _allgather_column(native, keys.offsets[1:] - keys.offsets[0], row_counts, algorithm)
        ends += np.repeat(np.cumsum(sizes_bytes) - sizes_bytes, row_counts)
        data = _allgather_column(native, keys.used, sizes_bytes, algorithm)
        all_keys = Strings(np.concatenate([np.zeros(1, np.int64), ends]), data, keys.is_text)
    else:
        all_keys = _allgather_column(native, keys, row_counts, algorithm)
    all_values = None if values is None else _allgather_column(native, values, row_counts, algorithm)
    return KeyValues.of_columns(all_keys, all_values)


def _allgather_column(native: Any, own: NDArray[Any], counts: NDArray[Any], algorithm: str | None) -> NDArray[Any]:
    """Return all ranks' rows of a column; `counts` gives the rows of each rank."""
    listed = counts.tolist()
    rows = empty((sum(listed), *own.shape[1:]), own.dtype)
    split(rows, listed)[native.rank][...] = own
    array, element_counts = elements(rows, listed)
    native.collective(("allgather", element_counts), array, algorithm)
    return rows
