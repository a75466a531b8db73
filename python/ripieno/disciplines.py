"""Strategies for the distribution of a broadcast variable's or file's blocks, and the defaults for "auto"."""

from __future__ import annotations

import ripieno._native as _native

#: All strategies; and the strategies for fetches of all hosts at the same time. The others serve hosts on demand.
DISCIPLINES = tuple(_native.DISCIPLINES)
STREAMED = tuple(_native.STREAMED)
#: Defaults: if all ranks fetch at the same time, and if ranks fetch on demand or already hold parts.
AUTO = "auto"
AUTO_STREAMED, AUTO_ON_DEMAND = "chain", "csb"


def discipline_of(strategy: str, *, streamed: bool) -> str:
    """Return `strategy`, or the default for "auto". `streamed`: whether all ranks fetch at the same time."""
    if strategy != AUTO:
        return strategy
    return AUTO_STREAMED if streamed else AUTO_ON_DEMAND
