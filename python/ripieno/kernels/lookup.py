"""Position lookup of ids: by a table for dense ids such as vertices of graphs, else by a search."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Maximum number of table entries per given or wanted id.
_TABLE_ENTRIES_PER_ID = 4


def positions_of(wanted: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    """Return the position of each wanted id among `ids`; -1 if it is missing.

    Parameters
    ----------
    wanted : (m,) int64
    ids : (n,) int64
        Distinct ids, in any order.

    Returns
    -------
    (m,) int32 or int64
    """
    if not len(ids):
        return np.full(len(wanted), -1)
    least, span = int(ids.min()), int(ids.max() - ids.min())
    if span >= _TABLE_ENTRIES_PER_ID * (len(ids) + len(wanted)):
        return _searched(wanted, ids)
    # The last entry serves ids outside of the table.
    table: NDArray[np.integer[Any]] = np.full(span + 2, -1, np.int32 if len(ids) < 1 << 31 else np.int64)
    table[ids - least] = np.arange(len(ids), dtype=table.dtype)
    entries = wanted - least
    entries[(entries < 0) | (entries > span)] = span + 1
    return table[entries]


def _searched(wanted: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    order = np.argsort(ids)
    at = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[at] == wanted, at, -1)
