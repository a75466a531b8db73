"""Check numbers from users. Errors name the parameter and its value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from ripieno.errors import InputError

#: Largest count that the native module accepts.
COUNT_MAX = 2**63 - 1
#: Maximum number of threads of a rank.
THREADS_MAX = 4096
#: Largest time limit or measuring time of a command. poll(2) does not accept a longer timeout.
SECONDS_MAX = 1_000_000
#: Maximum timeout of a job, as in the native module. The system clock cannot represent sums of much longer times.
TIMEOUT_S_MAX = 1_000_000_000


def check_count(name: str, value: object, expected: str = "expected a whole number >= 1") -> None:
    """Raise InputError, naming the parameter, if a value is not a whole number of at least 1 that 63 bits hold."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name}={value!r}: {expected}")
    if int(value) > COUNT_MAX:
        raise InputError(f"{name}={value!r}: {expected}, and below 2**63")


def whole_number(
    name: str, value: Any, minimum: int, maximum: int, expected: str | None = None, *, takes_booleans: bool = False
) -> int:
    """Return `value` as an int; raise InputError with the name unless it is a whole number in this range."""
    if type(value) is int and minimum <= value <= maximum:
        # Fast path: the check of the abstract class below takes longer than a short call.
        return value
    is_refused = isinstance(value, bool) and not takes_booleans
    if is_refused or not isinstance(value, Integral) or not minimum <= int(value) <= maximum:
        raise InputError(f"{name}={value!r}: {expected or f'expected a whole number, {minimum} … {maximum}'}")
    return int(value)


def check_threads(value: object, name: str = "threads") -> None:
    """Raise InputError unless a value is a number of threads, 1 … `THREADS_MAX`."""
    whole_number(name, value, 1, THREADS_MAX)


def number(name: str, value: Any, expected: str) -> float:
    """Return `value` as a float; raise InputError with the parameter's name unless it is a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputError(f"{name}={value!r}: {expected}")
    return float(value)


def time_limit(name: str, value: Any) -> float:
    """Return a limit in seconds, infinity for None; raise InputError with the name unless it is a number > 0."""
    if value is None:
        return math.inf
    seconds = number(name, value, "expected a number > 0, or None for no limit")
    if not seconds > 0:
        raise InputError(f"{name}={value!r}: expected a number > 0, or None for no limit")
    return seconds


def seconds_of(variables: Mapping[str, str], name: str, default_s: float, *, zero: str | None = None) -> float:
    """Return the seconds in an environment variable, or the default if it is not set.

    Parameters
    ----------
    zero : str, optional
        Meaning of 0, if it is allowed.

    Raises
    ------
    InputError
        If the value is not a number > 0.
    """
    text = variables.get(name) or str(default_s)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if seconds > 0 or (seconds == 0 and zero is not None):
        return seconds
    raise InputError(f"{name}={text}: expected a number of seconds > 0{f', or 0 for {zero}' if zero else ''}")


def text(name: str, value: Any, expected: str) -> str | None:
    """Return `value`; raise InputError with the parameter's name unless it is a string or None."""
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name}={value!r}: {expected}")
    return value
