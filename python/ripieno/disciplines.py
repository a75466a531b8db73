"""Strategies for the distribution of a broadcast variable's or file's blocks, and the defaults for "auto"."""

from __future__ import annotations

import ripieno._native as _native

#: All strategies, and the strategies by which all hosts fetch at once. The others serve hosts in order of request.
DISCIPLINES = tuple(_native.DISCIPLINES)
AT_ONCE = tuple(_native.STREAMED)
#: Defaults: for ranks that request at once, and for ranks that request when needed or hold parts.
AUTO = "auto"
AUTO_AT_ONCE, AUTO_WHEN_NEEDED = "chain", "csb"


def discipline_of(strategy: str, *, at_once: bool) -> str:
    """Return the discipline of a strategy by links, for ranks that request `at_once` or not."""
    if strategy != AUTO:
        return strategy
    return AUTO_AT_ONCE if at_once else AUTO_WHEN_NEEDED
