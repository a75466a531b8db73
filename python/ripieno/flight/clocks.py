"""Clocks of several hosts brought together, by the collectives that both took part in.

No rank leaves an allreduce or a barrier before the last rank has come. So for every such collective, with times on the
clocks of two hosts A and B that differ by an unknown offset, ``end on B - offset >= start on A`` and the other way
round: each bounds the offset from one side, and the tightest of all bounds leave an interval. Its middle is the
estimate and half its width the error, as with pings, of which every collective here is one. Hosts whose clocks drift
make the bounds cross; then half the crossing is the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MEETINGS = ("allreduce", "barrier")

Dump = dict[str, Any]


@dataclass(frozen=True)
class Offset:
    """What to subtract from a clock's times to get the reference's.

    Attributes
    ----------
    seconds
        The estimate; 0 for the reference, and where nothing is known.
    error_s
        It is off by at most so much; None if the ranks never met.
    """

    seconds: float
    error_s: float | None


def offsets(dumps: Sequence[Dump]) -> dict[str, Offset]:
    """The offset of every clock among the files of ranks; the reference is the clock of the first."""
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
    """Per meeting of all ranks, the last or first of these times."""
    found: dict[tuple[str, int], float] = {}
    for dump in dumps:
        for record in dump["records"]:
            if _is_meeting(record):
                key = (dump["job"], record["sequence"])
                found[key] = pick(found.get(key, record[field]), record[field])
    return found


def _is_meeting(record: dict[str, Any]) -> bool:
    of_all = record["collective"] in MEETINGS and record["communicator"] == 0 and record["bytes"] > 0
    return of_all and record["outcome"] == "done" and record["start_s"] is not None


def _largest_gap(starts: dict[tuple[str, int], float], ends: dict[tuple[str, int], float]) -> float | None:
    return max((starts[key] - ends[key] for key in starts.keys() & ends.keys()), default=None)


def _between(low: float | None, high: float | None) -> Offset:
    if low is None or high is None:
        return Offset(0.0, None)
    return Offset((low + high) / 2, abs(high - low) / 2)
