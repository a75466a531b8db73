"""Lookup of the positions of ids, by a table for dense ids such as graph vertices, else by binary search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Maximum number of table entries per id in `ids` and `requested`.
_TABLE_ENTRIES_PER_ID = 4


def positions_of(requested: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    """Return the position of each requested id among `ids`; -1 if it is missing.

    Parameters
    ----------
    requested : (m,) int64
    ids : (n,) int64
        Distinct ids, in any order.

    Returns
    -------
    (m,) int32 or int64
    """
    if not len(ids):
        return np.full(len(requested), -1)
    smallest, span = int(ids.min()), int(ids.max() - ids.min())
    if span >= _TABLE_ENTRIES_PER_ID * (len(ids) + len(requested)):
        return _search(requested, ids)
    # The last entry is the position -1 of ids outside of the table.
    table: NDArray[np.integer[Any]] = np.full(span + 2, -1, np.int32 if len(ids) < 1 << 31 else np.int64)
    table[ids - smallest] = np.arange(len(ids), dtype=table.dtype)
    entries = requested - smallest
    entries[(entries < 0) | (entries > span)] = span + 1
    return table[entries]


def columns_of_ids(requested: NDArray[np.int64], parts: Iterable[tuple[NDArray[Any], ...]]) -> list[NDArray[Any]]:
    """Return the saved columns of ranks, in the order of the requested ids. Each id must be in one of the parts.

    A part consists of a rank's ids, (m,) int64, disjoint from the ids of other ranks, and columns, (m, …).
    """
    ids, *columns = (np.concatenate(each) for each in zip(*parts, strict=True))
    positions = positions_of(requested, ids)
    return [column[positions] for column in columns]


def _search(requested: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    order = np.argsort(ids)
    positions = order[np.minimum(np.searchsorted(ids, requested, sorter=order), len(ids) - 1)]
    return np.where(ids[positions] == requested, positions, -1)
