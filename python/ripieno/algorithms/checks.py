"""Checks of user input, with messages that name the parameter and its value."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import _check_sample_weight

from ripieno.errors import InputError
from ripieno.input.matrix import Dataset, InMemorySparse, RowsInMemory
from ripieno.input.matrix.sparse_files import LibsvmFiles
from ripieno.wire.arrays import check_complete


def checked_weights(
    sample_weight: ArrayLike | None,
    source: Dataset | RowsInMemory | InMemorySparse | LibsvmFiles,
    *,
    needs_positive: bool = True,
) -> NDArray[np.float64] | None:
    """Return the weights of all rows as (n,) float64, or None; raise InputError if they are invalid.

    With `needs_positive`, at least one weight must be above 0.
    """
    if sample_weight is None:
        return None
    check_complete(sample_weight, "sample_weight")
    weights: NDArray[np.float64]
    try:
        # scikit-learn rejects weights that are all 0. `LocalRows` checks the number of own weights.
        if needs_positive and isinstance(source, RowsInMemory | InMemorySparse):
            weights = _check_sample_weight(sample_weight, source.array, dtype=np.float64)
        else:
            weights = check_array(
                sample_weight, dtype=np.float64, ensure_2d=False, order="C", input_name="sample_weight"
            )
    except ValueError as error:
        raise InputError(f"sample_weight: {error}") from error
    if weights.ndim != 1 or weights.min() < 0 or (needs_positive and not weights.any()):
        raise InputError("sample_weight: expected a number >= 0 for each row, not all of them 0")
    return weights
