"""Estimate offsets between the clocks of several hosts from collectives of ranks on both hosts.

No rank leaves an allreduce or a barrier before the last rank has entered. Let the clocks of hosts A and B differ by an
unknown offset. Every such collective gives ``end on B - offset >= start on A``, and the same with A and B exchanged.
Each inequality bounds the offset from one side. The tightest bounds form an interval: its middle is the estimate, and
half its width the error, as with pings. If clocks drift, the bounds may cross; then half the crossing is the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SYNCHRONIZING = ("allreduce", "barrier")

Dump = dict[str, Any]


@dataclass(frozen=True)
class Offset:
    """The value to subtract from a clock's times to obtain times of the reference clock.

    Attributes
    ----------
    seconds
        The estimate; 0 for the reference clock, and without data.
    error_s
        Maximum error of the estimate; None if the ranks share no collective.
    """

    seconds: float
    error_s: float | None


def offsets(dumps: Sequence[Dump]) -> dict[str, Offset]:
    """Return the offset of every clock in the files of ranks, relative to the clock of the first file."""
    reference = dumps[0]["clock"]
    known = {reference: Offset(0.0, 0.0)}
    latest_start, earliest_end = {}, {}
    for clock in dict.fromkeys(dump["clock"] for dump in dumps):
        of_clock = [dump for dump in dumps if dump["clock"] == clock]
        latest_start[clock] = _extreme(of_clock, "start_s", max)
        earliest_end[clock] = _extreme(of_clock, "end_s", min)
        if clock != reference:
            low = _largest_gap(latest_start[clock], earliest_end[reference])
            high = _largest_gap(latest_start[reference], earliest_end[clock])
            known[clock] = _between(low, None if high is None else -high)
    return known


def _extreme(dumps: Iterable[Dump], field: str, pick: Any) -> dict[tuple[str, int], float]:
    """Return, per collective of all ranks, the latest or earliest of these times."""
    found: dict[tuple[str, int], float] = {}
    for dump in dumps:
        for record in dump["records"]:
            if _is_synchronizing(record):
                key = (dump["job"], record["sequence"])
                found[key] = pick(found.get(key, record[field]), record[field])
    return found


def _is_synchronizing(record: dict[str, Any]) -> bool:
    of_all = record["collective"] in SYNCHRONIZING and record["communicator"] == 0 and record["bytes"] > 0
    return of_all and record["outcome"] == "done" and record["start_s"] is not None


def _largest_gap(starts: dict[tuple[str, int], float], ends: dict[tuple[str, int], float]) -> float | None:
    return max((starts[key] - ends[key] for key in starts.keys() & ends.keys()), default=None)


def _between(low: float | None, high: float | None) -> Offset:
    if low is None or high is None:
        return Offset(0.0, None)
    return Offset((low + high) / 2, abs(high - low) / 2)
