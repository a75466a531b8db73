"""Feature hashing: convert rows of words or named values to sparse rows of fixed width, without a vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

import ripieno._native as _native
from ripieno._checks import whole_number
from ripieno.errors import InputError

#: Maximum number of columns. Column numbers are int32 in SciPy and in files.
MAX_COLUMNS = 2**31 - 1

Feature = str | bytes | tuple[str | bytes, Any]


def hash_features(
    rows: Iterable[Iterable[Feature] | Mapping[str, Any]], n_features: int = 2**20, *, alternate_sign: bool = True
) -> csr_matrix:
    """Convert rows of words, categories or named numbers to sparse rows, as scikit-learn's `FeatureHasher` does.

    The column of a feature is a hash of its name. So nothing is fitted or stored, and each worker can hash its own
    rows.

    Parameters
    ----------
    rows : iterable
        Each row is an iterable of words, which add 1 per occurrence; an iterable of pairs of name and value; or a
        mapping from name to value. A value is a number, or a string, which is converted to the feature ``name=value``.
    n_features : int, default=2**20
        Number of columns. Features with the same column are added.
    alternate_sign : bool, default=True
        Whether half of the features count negatively, so that collisions cancel out on average.

    Returns
    -------
    csr_matrix of float64, of shape (rows, n_features)

    Raises
    ------
    InputError
        A row is a string, or a feature is of another type.

    Examples
    --------
    >>> import ripieno as rp
    >>> rows = rp.hash_features([["good", "film"], {"rating": 2.5, "genre": "drama"}], 16)
    >>> rows.shape, rows.nnz
    ((2, 16), 4)
    """
    n_features = whole_number("n_features", n_features, 1, MAX_COLUMNS)
    names: list[bytes] = []
    values: list[float] = []
    ends = [0]
    for number, row in enumerate(rows):
        _add(number, row, names, values)
        ends.append(len(names))
    offsets = np.concatenate([[0], np.cumsum([len(name) for name in names], dtype=np.int64)]).astype(np.int64)
    columns, signs = _native.feature_places(offsets, np.frombuffer(b"".join(names), np.uint8), n_features)
    data = np.asarray(values, np.float64)
    data = data * signs if alternate_sign else data
    found = csr_matrix((data, columns, np.asarray(ends)), shape=(len(ends) - 1, n_features))
    found.sum_duplicates()
    return found


def _add(number: int, row: Any, names: list[bytes], values: list[float]) -> None:
    """Append the names and values of a row."""
    if isinstance(row, (str, bytes)):
        raise InputError(
            f"rows: row {number} is a string; expected words, as in {row.split()[:2]!r}, pairs, or a mapping"
        )
    for feature in row.items() if isinstance(row, Mapping) else row:
        name, value = (feature, 1.0) if isinstance(feature, (str, bytes)) else _pair(number, feature)
        if isinstance(value, str):
            name, value = f"{name.decode() if isinstance(name, bytes) else name}={value}", 1.0
        if value != 0:
            names.append(name if isinstance(name, bytes) else name.encode())
            values.append(value)


def _pair(number: int, feature: Any) -> tuple[str | bytes, Any]:
    match feature:
        case (str() | bytes() as name, str() | int() | float() | np.number() as value):
            return name, value
    raise InputError(f"rows: row {number} has {feature!r}; expected a word, or a name and a number or string")
