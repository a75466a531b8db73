"""How blocks of a broadcast variable or a file find their ways, and what "auto" means."""

from __future__ import annotations

import ripieno._native as _native

#: All of them, and those by which all hosts fetch at once; with the others whoever asks first fetches first.
DISCIPLINES = tuple(_native.DISCIPLINES)
AT_ONCE = tuple(_native.STREAMED)
#: What runs if nobody names one: where all ranks ask at once, and where they ask when they need it, or have parts.
AUTO = "auto"
AUTO_AT_ONCE, AUTO_WHEN_NEEDED = "chain", "csb"


def discipline_of(strategy: str, *, at_once: bool) -> str:
    """The discipline that a strategy by links is, for ranks that ask `at_once` or not."""
    if strategy != AUTO:
        return strategy
    return AUTO_AT_ONCE if at_once else AUTO_WHEN_NEEDED
