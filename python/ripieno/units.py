"""Parsing and formatting of sizes, rates and durations with units."""

from __future__ import annotations

import re

from ripieno.errors import InputError

# "GBps" is bytes, so only the prefix may be in upper case.
_RATE = re.compile(r"(\d+(?:\.\d+)?) *([kKmMgG])(?:bit|bit/s|bits/s|bps|b/s)")
_RATE_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9}
_SIZE = re.compile(r"([0-9]*\.?[0-9]+) *([A-Za-z]*)")
_SIZE_FACTORS = {"": 1, "b": 1} | {
    f"{prefix}{end}": base ** (1 + power)
    for power, prefix in enumerate("kmgt")
    for end, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|ms|us|µs|ns|min|h)")
_EXPONENTS = {"s": "", "ms": "e-3", "us": "e-6", "µs": "e-6", "ns": "e-9", "min": "", "h": ""}
_LONG = {"min": 60.0, "h": 3600.0}


def bits_per_s(name: str, rate: object, minimum: int = 10**5, maximum: int = 10**12) -> int:
    """Parse a rate such as ``100mbit``, ``10Gbit/s`` or ``10Gbps``; `name` is the parameter's name for the error.

    Raises
    ------
    InputError
        If it is not a rate, or is outside `minimum` … `maximum`.
    """
    match = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    number = int(float(match[1]) * _RATE_FACTORS[match[2].lower()]) if match else 0
    if not minimum <= number <= maximum:
        raise InputError(
            f"{name}={rate!r}: expected a number and kbit, mbit or gbit, such as 100mbit or 10Gbit/s, "
            f"from {_rate_text(minimum)} to {_rate_text(maximum)}"
        )
    return number


def _rate_text(rate_bits_per_s: int) -> str:
    unit, factor = next(
        each for each in (("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)) if rate_bits_per_s >= each[1]
    )
    return f"{rate_bits_per_s / factor:g}{unit}"


def seconds_of(name: str, text: str) -> float:
    """Parse a duration such as ``5us`` or ``0.2 s``; `name` is the parameter's name for the error.

    Raises
    ------
    InputError
        If it is not a duration.
    """
    if text.strip() == "0":
        return 0.0
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{name}={text!r}: expected a number and s, ms, us or ns, such as 5us")
    return float(match[1] + _EXPONENTS[match[2]]) * _LONG.get(match[2], 1.0)


def size_of(name: str, text: str) -> int:
    """Parse a size such as ``500MB``, ``2GiB`` or a number of bytes; `name` is the parameter's name for the error.

    Raises
    ------
    InputError
        If it is not a size, or less than a byte.
    """
    found = _SIZE.fullmatch(text)
    size = int(float(found[1]) * _SIZE_FACTORS.get(found[2].lower(), 0)) if found else 0
    if size == 0:
        raise InputError(f"{name}={text!r}: expected a size, such as 500MB or 2GiB")
    return size


def size_text(size_bytes: int) -> str:
    """Format ``65536`` as ``64 KiB``; round decimal numbers use decimal units."""
    units = (("GiB", 1 << 30), ("GB", 10**9), ("MiB", 1 << 20), ("MB", 10**6), ("KiB", 1 << 10), ("KB", 10**3))
    for unit, factor in units:
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def bytes_text(count: float) -> str:
    """Format a computed number of bytes with three digits: ``5015379.2`` as ``5.02 MB``."""
    unit, factor = next((each for each in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)) if count >= each[1]), ("B", 1.0))
    return f"{count / factor:.3g} {unit}" if count < 999.5 * factor else f"{count / factor:.0f} {unit}"


def duration_text(seconds: float) -> str:
    """Format a duration with a suitable unit."""
    unit, factor = unit_of(seconds)
    return f"{seconds / factor:.3g} {unit}"


def unit_of(seconds: float) -> tuple[str, float]:
    """Return a suitable unit for a duration, and its length in seconds."""
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    return next(((unit, factor) for unit, factor in units if seconds >= factor), ("ns", 1e-9))
