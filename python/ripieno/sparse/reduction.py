"""Check the arguments of sparse reductions.

Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._checks import number, whole_number
from ripieno.errors import InputError
from ripieno.wire import signatures
from ripieno.wire.arrays import (
    as_array,
    check_fits,
    check_unmasked,
    empty,
    fill,
    flat_elements,
    in_place,
    native_elements,
    reducible,
    row_size,
)
from ripieno.wire.operations import check_op

#: Density of a union of index sets above which the whole range is exchanged.
DENSE_ABOVE: float = _native.DENSE_ABOVE

Degrees = str | int | Sequence[int] | None


def indices_of(value: Any, name: str) -> NDArray[Any]:
    """Return `value` as a C-contiguous int64 array of one axis."""
    check_unmasked(value, name)
    found = as_array(value)
    array = np.asarray(value) if found is None else found
    if array.ndim != 1:
        raise InputError(f"{name}: shape {array.shape}: expected one axis of whole numbers")
    if array.dtype.kind not in "iu" and array.size:
        raise InputError(f"{name}: dtype {array.dtype}: expected whole numbers, such as int64")
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError(f"{name}: {array.max()}: expected indices below 2**63")
    return np.ascontiguousarray(array, dtype=np.int64)


def rows_of(values: Any, op: Any, count: int) -> NDArray[Any]:
    """Return `values` as a C-contiguous array of `count` rows that `op` supports."""
    check_op(op)
    rows = reducible(values, op, "sparse reduce")
    if rows.ndim == 0 or len(rows) != count:
        raise InputError(f"values: shape {rows.shape}: expected {count} rows, one per out-index")
    if row_size(rows) == 0:
        raise InputError(f"values: shape {rows.shape}: expected at least one element in a row")
    return np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("="))


def reduced(
    reduce: Callable[[NDArray[Any], NDArray[Any], int, str], None],
    rows: NDArray[Any],
    count: int,
    out: NDArray[Any] | None,
) -> NDArray[Any]:
    """Return the `count` rows of `reduce` for `rows`, in `out` unless it is None.

    `reduce` takes two flat arrays, the number of elements per row, and a description of the rows.
    """
    shape = (count, *rows.shape[1:])
    if out is not None:
        check_fits(in_place(out), shape, rows.dtype)
        if np.may_share_memory(rows, out):
            # Received rows must not overwrite rows that are not sent yet.
            rows = rows.copy()
    result = out if out is not None and out.dtype == rows.dtype else empty(shape, rows.dtype)
    reduce(
        flat_elements(rows),
        flat_elements(result),
        row_size(rows) * native_elements(rows)[1],
        signatures.of_rows(rows) or "rows of one number",
    )
    return result if out is None or out is result else fill(out, result)


def options_of(
    size: int | None, degrees: Degrees, missing: str, dense_above: float
) -> tuple[int | None, str | None, bool, float]:
    """Return the options of a sparse reduction in the form of the native module."""
    if size is not None:
        size = whole_number("size", size, 0, 2**63 - 1, "expected None or a whole number, 0 … 2**63 - 1")
    if not isinstance(missing, str) or missing not in ("error", "zero"):
        raise InputError(f"missing={missing!r}: expected 'error' or 'zero'")
    share = number("dense_above", dense_above, "expected a share of a range, or more than 1 for never")
    return size, _degrees_of(degrees), missing == "zero", share


def _degrees_of(degrees: Degrees) -> str | None:
    """Return the degrees in the form of the native module; a number means a single layer."""
    if degrees is None or isinstance(degrees, str):
        return degrees
    layers = [degrees] if isinstance(degrees, Integral) else degrees
    if not isinstance(layers, Sequence | np.ndarray) or np.ndim(layers) != 1:
        raise InputError(f"degrees={degrees!r}: expected 'direct', 'binary', such as '8x4x2', or whole numbers")
    return "x".join(str(whole_number("degrees", degree, 1, 2**32 - 1)) for degree in layers)
