"""Check numbers from users. Errors name the parameter and its value."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from ripieno.errors import InputError

#: The largest count in the native module.
COUNT_MAX = 2**63 - 1
#: The most threads of a rank.
THREADS_MAX = 4096
#: Maximum time limit, and time to measure, of commands. A poll of the system takes no longer timeout.
SECONDS_MAX = 1_000_000
#: Maximum timeout of a job, as in the native module. The clock of the system holds no sums of much longer times.
TIMEOUT_S_MAX = 1_000_000_000


def check_count(name: str, value: object, expected: str = "expected a whole number >= 1") -> None:
    """Raise InputError, naming the parameter, if a value is not a whole number of at least 1 that 63 bits hold."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name}={value!r}: {expected}")
    if int(value) > COUNT_MAX:
        raise InputError(f"{name}={value!r}: {expected}, and below 2**63")


def whole_number(name: str, value: Any, least: int, most: int, expected: str | None = None) -> int:
    """Return `value` as an int; raise InputError with the name unless it is a whole number `least` … `most`."""
    if type(value) is int and least <= value <= most:
        # Fast path: the check of the abstract class below takes longer than a short call.
        return value
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise InputError(f"{name}={value!r}: {expected or f'expected a whole number, {least} … {most}'}")
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
    """Return `value` as a float; raise InputError with the parameter's name unless it is a number > 0."""
    seconds = number(name, value, "expected a number > 0")
    if not seconds > 0:
        raise InputError(f"{name}={value!r}: expected a number > 0")
    return seconds


def text(name: str, value: Any, expected: str) -> str | None:
    """Return `value`; raise InputError with the parameter's name unless it is a string or None."""
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name}={value!r}: {expected}")
    return value
