"""Represent Python numbers in reductions, so that whole numbers and floats of different ranks can be combined.

A bool, int or float is four words of the same kind. Ranks combine the words element by element. A result is a float if
any rank has a float; otherwise it is a whole number, and exact.

Sums add float64 words: the float, the lower and the higher half of the whole number, and the count of floats. Half of a
number has 36 bits, so up to 2**17 ranks add it without rounding. Products have no such form: ranks gather these words
and multiply the numbers. Minima and maxima combine int64 words: the whole number, the bits of the float in ascending
order, the kind of the number, and whether it is whole. `plain_leaves.rs` has the same words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError

#: Whole numbers in sums and products must be smaller than this and larger than its negative.
LIMIT = 1 << 72

#: Words per number.
WORDS = 4

_HALF_BITS = 36
_INT64 = np.iinfo(np.int64)


def is_number(value: Any, op: str) -> bool:
    """Whether `op` combines `value` with Python numbers of other ranks. NumPy's booleans are added as 0 or 1."""
    if op in ("sum", "prod"):
        return isinstance(value, int | float | np.bool_)
    return op in ("min", "max") and isinstance(value, int | float)


def words(value: float | np.bool_, op: str, name: str) -> NDArray[Any]:
    """Return the words of a number for an operation."""
    is_float = isinstance(value, float)
    if op in ("sum", "prod"):
        if is_float:
            return np.array((value, 0, 0, 1), np.float64)
        number = int(value)
        if not -LIMIT < number < LIMIT:
            raise InputError(f"{name}: {number}: expected a whole number between -2**72 and 2**72")
        # -0.0 changes no float that is added to it.
        return np.array((-0.0, number & ((1 << _HALF_BITS) - 1), number >> _HALF_BITS, 0), np.float64)
    sign, absent = (1, _INT64.min) if op == "max" else (-1, _INT64.max)
    if is_float:
        return np.array((absent, _ascending(float(value), op), 2 * sign, 0), np.int64)
    number = int(value)
    check_int64(number, op, name)
    return np.array((number, absent, sign * (not isinstance(value, bool)), sign), np.int64)


def number(words: NDArray[Any], op: str) -> bool | int | float:
    """Return the number from combined words."""
    if op == "sum":
        fraction, low, high, float_count = words.tolist()
        whole = int(low) + (int(high) << _HALF_BITS)
        return whole if not float_count else fraction + whole if whole else fraction
    whole, bits, kind, is_whole = words.tolist()
    if abs(kind) < 2:
        return whole if kind else bool(whole)
    fraction = np.int64(bits if bits >= 0 else bits ^ _INT64.max).view(np.float64).item()
    if not is_whole or fraction != fraction:
        return fraction
    return max(fraction, float(whole)) if op == "max" else min(fraction, float(whole))


def product(of_ranks: NDArray[Any]) -> int | float:
    """Return the product of the numbers in the rows of `of_ranks`; 1 if there are none."""
    factors = [number(row, "sum") for row in of_ranks]
    result: int | float = float(any(isinstance(factor, float) for factor in factors)) or 1
    for factor in factors:
        # A float beyond the largest one is infinite, but an int is not converted to it.
        result *= float(factor) if isinstance(result, float) else factor
    return result


def check_int64(value: int, op: str, name: str) -> None:
    """Raise `InputError` unless the number fits into int64."""
    if not -(2**63) <= value < 2**63:
        raise InputError(f"{name}: {value}: expected -2**63 … 2**63 - 1 for op={op!r}")


def _ascending(value: float, op: str) -> int:
    """Return the bits of a float as an integer. NaN is beyond all numbers, so that it is the result."""
    if value != value:
        return _INT64.max if op == "max" else _INT64.min
    bits: int = np.float64(value).view(np.int64).item()
    return bits if bits >= 0 else bits ^ _INT64.max
