"""A check of numbers that users pass, in words that name the parameter and its value."""

from __future__ import annotations

from numbers import Integral

from ripieno.errors import InputError


def check_count(name: str, value: object, expected: str = "expected a whole number >= 1") -> None:
    """Raise InputError, naming the parameter, if a value is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name}={value!r}: {expected}")
