"""Provide the replay of a recorded job on another cluster: simulated collectives, and recorded computing times.

A trace (`ripieno.flight.trace`) contains the begin and end of each collective on each rank. A collective lasts from the
arrival of its last rank, or the end of the previous collective if later, until its last rank leaves. The time between
collectives is computing. On the other cluster vectors keep their bytes. So do a rank's block of an allgather, gather or
scatter, and the bytes that a rank sends in an alltoall.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.files.sources import parsed_json, read_whole
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import simulate
from ripieno.units import duration_text, size_text

#: Collectives with all blocks in their recorded bytes. A simulation counts one block.
BLOCK_COLLECTIVES = ("allgather", "gather", "scatter")
#: Collectives that depend on data not in the trace, such as neighbors or rows.
NOT_SIMULATED = ("neighbour-exchange", "point-to-point")
#: Maximum number of distinct calls to simulate; each takes as long as `simulate`.
KINDS_MAX = 10_000


@dataclass(frozen=True)
class RecordedCall:
    """A collective of a recorded job.

    Attributes
    ----------
    collective, algorithm
        The collective, and its algorithm.
    nbytes
        Bytes, as the simulator counts them.
    is_played
        Whether the simulator can run it: all ranks took part, and the trace determines its plans.
    computing_s
        Seconds from the previous collective until the arrival of its last rank.
    seconds
        Seconds from then until its last rank left.
    """

    collective: str
    algorithm: str
    nbytes: int
    is_played: bool
    computing_s: float
    seconds: float


@dataclass(frozen=True)
class ReplayRow:
    """All calls of a kind, in seconds. Calls that cannot be simulated keep their recorded times."""

    collective: str
    nbytes: int
    calls: int
    recorded_algorithm: str
    algorithm: str | None
    recorded_s: float
    simulated_s: float


@dataclass(frozen=True)
class Replay:
    """A recorded job on another cluster.

    Attributes
    ----------
    cluster
        The modeled cluster.
    ranks
        Number of ranks.
    computing_s
        Recorded seconds between collectives.
    compute
        Slowdown factor of computing there.
    rows
        The kinds of collectives, the longest there first.
    """

    cluster: Cluster
    ranks: int
    computing_s: float
    compute: float
    rows: list[ReplayRow] = field(default_factory=list)

    @property
    def recorded_s(self) -> float:
        """Return the recorded seconds of the whole job."""
        return self.computing_s + sum(row.recorded_s for row in self.rows)

    @property
    def seconds(self) -> float:
        """Return the seconds of the whole job on the other cluster."""
        return self.compute * self.computing_s + sum(row.simulated_s for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return all fields but the cluster as JSON values."""
        return {
            "recorded_ranks": self.ranks,
            "ranks": self.cluster.ranks,
            "recorded_s": self.recorded_s,
            "seconds": self.seconds,
            "computing_s": self.computing_s,
            "compute": self.compute,
            "collectives": [asdict(row) for row in self.rows],
        }

    def __str__(self) -> str:
        cells = [("collective", "size", "calls", "recorded", "there", "algorithm")]
        cells += [
            (
                row.collective,
                size_text(row.nbytes),
                f"{row.calls:,}",
                _duration(row.recorded_s),
                _duration(row.simulated_s),
                _algorithm(row),
            )
            for row in self.rows
        ]
        times = (_duration(self.computing_s), _duration(self.compute * self.computing_s))
        scaled = "" if self.compute == 1 else f"{self.compute:g} times as long"
        cells.append(("computing", "", "", *times, scaled))
        cells.append(("in all", "", "", _duration(self.recorded_s), _duration(self.seconds), ""))
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [f"a job of {self.ranks:,} ranks on {self.cluster}"]
        for name, *numbers, algorithm in cells:
            middle = "  ".join(cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True))
            lines.append(f"{name:{widths[0]}}  {middle}  {algorithm}".rstrip())
        return "\n".join(lines)


def replay(
    calls: Iterable[RecordedCall], ranks: int, cluster: Cluster, *, compute: float = 1.0, as_recorded: bool = False
) -> Replay:
    """Simulate the collectives of a recorded job on a modeled cluster.

    Parameters
    ----------
    calls, ranks
        Results of `read`.
    cluster
        The modeled cluster.
    compute
        Slowdown factor of computing there: 1 if every rank keeps its work.
    as_recorded
        Whether to use the algorithms of the trace instead of the defaults there.

    Raises
    ------
    InputError
        If computing takes negative time, or the cluster cannot run the job.
    """
    if not 0 <= compute < float("inf"):
        raise InputError(f"compute={compute!r}: expected 0 or more")
    counts: Counter[tuple[str, int, str, bool]] = Counter()
    recorded_s: Counter[tuple[str, int, str, bool]] = Counter()
    computing_s = 0.0
    for call in calls:
        kind = (call.collective, call.nbytes, call.algorithm, call.is_played)
        counts[kind] += 1
        recorded_s[kind] += call.seconds  # type: ignore[assignment]  # counters add all numbers
        computing_s += call.computing_s
    if len(counts) > KINDS_MAX:
        raise InputError(f"{len(counts):,} collectives of different kinds or sizes: expected at most {KINDS_MAX:,}")
    rows = []
    for (collective, nbytes, recorded, is_played), count in counts.items():
        seconds, algorithm = float(recorded_s[collective, nbytes, recorded, is_played]), None
        simulated_s = seconds
        if is_played:
            found = simulate(collective, cluster, nbytes=nbytes, algorithm=recorded if as_recorded else None)
            if found.seconds is None:
                raise InputError("dead nodes: expected none, because a job needs all ranks")
            simulated_s, algorithm = count * found.seconds, found.algorithm
        rows.append(ReplayRow(collective, nbytes, count, recorded, algorithm, seconds, simulated_s))
    rows.sort(key=lambda row: -row.simulated_s)
    return Replay(cluster, ranks, computing_s, compute, rows)


def read(path: Path) -> tuple[list[RecordedCall], int]:
    """Read the collectives of a trace in the order of their ends, and the number of ranks.

    Raises
    ------
    InputError
        If the file does not exist, holds no trace, or its trace has no times.
    """
    text = read_whole(path)
    try:
        return calls_of(parsed_json(text))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: expected a trace, as --trace or ripieno trace writes it, but {error!r}") from error


def calls_of(trace: Mapping[str, Any]) -> tuple[list[RecordedCall], int]:
    """Return the collectives, and the number of ranks, of a trace in memory."""
    events = trace["traceEvents"]
    rank_of = {event["tid"]: _rank(event) for event in events if event["name"] == "thread_name"}
    events_of_call: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    members: dict[int, set[int]] = {}
    for event in events:
        arguments = event.get("args", {})
        if event["ph"] == "X" and "sequence" in arguments and arguments["outcome"] == "done":
            events_of_call.setdefault((arguments["communicator"], arguments["sequence"], event["name"]), []).append(
                event
            )
            members.setdefault(arguments["communicator"], set()).add(rank_of[event["tid"]])
    if not events_of_call:
        raise ValueError("it has no finished collective with times")
    ranks = set(rank_of.values())
    previous_end_us, calls = min(event["ts"] for each in events_of_call.values() for event in each), []
    for (communicator, _, collective), each in sorted(events_of_call.items(), key=lambda item: _end_us(item[1])):
        entered_us, left_us = max(event["ts"] for event in each), _end_us(each)
        begin_us = min(left_us, max(entered_us, previous_end_us))
        seconds, computing_s = (left_us - begin_us) / 1e6, max(0.0, begin_us - previous_end_us) / 1e6
        previous_end_us = left_us
        nbytes = max(event["args"]["bytes"] for event in each)
        is_played = members[communicator] == ranks and collective not in NOT_SIMULATED
        is_played = is_played and collective in _native.COLLECTIVES
        if collective in BLOCK_COLLECTIVES:
            nbytes = -(-nbytes // len(members[communicator]))
        calls.append(RecordedCall(collective, each[0]["args"]["algorithm"], nbytes, is_played, computing_s, seconds))
    return calls, len(ranks)


def _end_us(events: Iterable[Mapping[str, Any]]) -> float:
    return max(float(event["ts"] + event["dur"]) for event in events)


def _rank(event: Mapping[str, Any]) -> int:
    """Return the rank of a track, which is called ``rank 3`` or ``rank 3, concurrent calls 1``."""
    return int(event["args"]["name"].split(",")[0].removeprefix("rank "))


def _duration(seconds: float) -> str:
    return duration_text(seconds) if seconds else "0"


def _algorithm(row: ReplayRow) -> str:
    if row.algorithm is None:
        return "as recorded, not simulated"
    return (
        row.algorithm if row.algorithm == row.recorded_algorithm else f"{row.algorithm}, was {row.recorded_algorithm}"
    )
