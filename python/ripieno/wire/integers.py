"""Represent Python integers in reductions: exact, signed, with an unlimited result.

A sum adds two int64 words per number. The lower word has 32 bits, so no number of ranks can overflow it. A product has
no such form, so ranks gather the numbers and multiply them. Other operations use int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError

#: Numbers must be smaller than this and larger than its negative.
LIMIT = 1 << 72

#: Words per number.
WORDS = 2

_LOW_BITS = 32
_INTEGER_TYPES = (int, np.bool_)


def is_exact_integer(value: Any, op: str) -> bool:
    """Whether `op` combines `value` exactly. Booleans count as 0 or 1."""
    return op in ("sum", "prod") and isinstance(value, _INTEGER_TYPES)


def words(value: int | np.bool_, what: str) -> NDArray[Any]:
    """Return a number as two words. Sums of words represent the sum of numbers."""
    number = int(value)
    if not -LIMIT < number < LIMIT:
        raise InputError(f"{what}: {number}: expected a whole number between -2**72 and 2**72")
    return np.array((number & ((1 << _LOW_BITS) - 1), number >> _LOW_BITS), np.int64)


def number(words: NDArray[Any]) -> int:
    """Return the number that two words represent."""
    low, high = words.tolist()
    found: int = low + (high << _LOW_BITS)
    return found


def product(of_ranks: NDArray[Any]) -> int:
    """Return the product of the numbers in the rows of `of_ranks`; 1 if there are none."""
    result = 1
    for row in of_ranks:
        result *= number(row)
    return result


def check_int64(value: int, op: str, what: str) -> None:
    """Raise `InputError` unless the number fits into int64."""
    if not -(2**63) <= value < 2**63:
        raise InputError(f"{what}: {value}: expected -2**63 … 2**63 - 1 for op={op!r}")
