"""Python's whole numbers on their way through reductions: exact, of any sign, and without a limit for what comes out.

A sum adds two words of int64 per number, of which the lower has 32 bits: no number of ranks makes them overflow. A
product has no such form, so ranks gather the numbers and multiply them. Other operations are those of int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError

#: Numbers are smaller than this, and larger than its negative.
LIMIT = 1 << 72

#: Words that one number takes.
WORDS = 2

_LOW_BITS = 32
_WHOLES = (int, np.bool_)


def is_whole(value: Any, op: str) -> bool:
    """Whether `value` is a number that `op` combines exactly; whether something is true counts as 0 or 1."""
    return op in ("sum", "prod") and isinstance(value, _WHOLES)


def words(value: int | np.bool_, what: str) -> NDArray[Any]:
    """A number as two words, the sums of which are those of the sum."""
    number = int(value)
    if not -LIMIT < number < LIMIT:
        raise InputError(f"{what}: {number}: expected a whole number between -2**72 and 2**72")
    return np.array((number & ((1 << _LOW_BITS) - 1), number >> _LOW_BITS), np.int64)


def number(words: NDArray[Any]) -> int:
    """The number that two words stand for."""
    low, high = words.tolist()
    found: int = low + (high << _LOW_BITS)
    return found


def product(of_ranks: NDArray[Any]) -> int:
    """The product of the numbers in the rows of `of_ranks`; of none, 1."""
    result = 1
    for row in of_ranks:
        result *= number(row)
    return result


def check_int64(value: int, op: str, what: str) -> None:
    """`InputError` unless int64 has the number."""
    if not -(2**63) <= value < 2**63:
        raise InputError(f"{what}: {value}: expected -2**63 … 2**63 - 1 for op={op!r}")
