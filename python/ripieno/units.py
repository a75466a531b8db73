"""Sizes and durations in the units that suit them."""

from __future__ import annotations


def size_text(size_bytes: int) -> str:
    """``65536`` as ``64 KiB``; a number that is round in tens in decimal units."""
    units = (("GiB", 1 << 30), ("GB", 10**9), ("MiB", 1 << 20), ("MB", 10**6), ("KiB", 1 << 10), ("KB", 10**3))
    for unit, factor in units:
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"


def bytes_text(count: float) -> str:
    """Bytes that were computed, not chosen: ``5015379.2`` as ``5.02 MB``."""
    unit, factor = next((each for each in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)) if count >= each[1]), ("B", 1.0))
    return f"{count / factor:.3g} {unit}" if count < 999.5 * factor else f"{count / factor:.0f} {unit}"


def duration_text(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    unit, factor = unit_of(seconds)
    return f"{seconds / factor:.3g} {unit}"


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit that suits a duration, and its seconds."""
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    return next(((unit, factor) for unit, factor in units if seconds >= factor), ("ns", 1e-9))
