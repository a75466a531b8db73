"""A recorded job on another cluster: what it computed stays, its collectives are played there one after the other.

A trace (`ripieno.flight.trace`) says when each rank began and ended each collective. A collective takes from the moment
at which its last rank has come, or the one before is over, until its last rank leaves. What lies between two is
computing. On the other cluster a vector has as many bytes as it had, and so has a rank's block of an allgather, gather
or scatter, and all that a rank sends in an alltoall.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.simulation.cluster import Cluster
from ripieno.simulation.simulate import simulate
from ripieno.units import duration_text, size_text

#: Bytes of a record are those of all blocks, bytes of a play those of one.
OF_BLOCKS = ("allgather", "gather", "scatter")
#: What depends on more than a trace has: who talks to whom, or which rows.
UNPLAYED = ("neighbour-exchange", "point-to-point")
#: So many kinds of calls are played at most; each takes as long as `simulate`.
KINDS_MAX = 10_000


@dataclass(frozen=True)
class RecordedCall:
    """A collective of a recorded job.

    Attributes
    ----------
    collective, algorithm
        What ran.
    nbytes
        As the simulator counts them.
    is_played
        Whether it can be: all ranks took part, and its plans follow from what the trace says.
    computing_s
        Since the one before it, until its last rank had come.
    seconds
        From then on until its last rank left.
    """

    collective: str
    algorithm: str
    nbytes: int
    is_played: bool
    computing_s: float
    seconds: float


@dataclass(frozen=True)
class ReplayRow:
    """All calls of a kind, in seconds; what could not be played counts as recorded."""

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
        Where.
    ranks
        How many there were.
    computing_s
        Between collectives, as recorded.
    compute
        How many times as long that takes there.
    rows
        The kinds of collectives, those first that take longest there.
    """

    cluster: Cluster
    ranks: int
    computing_s: float
    compute: float
    rows: list[ReplayRow] = field(default_factory=list)

    @property
    def recorded_s(self) -> float:
        """Of the whole job, as far as it is recorded."""
        return self.computing_s + sum(row.recorded_s for row in self.rows)

    @property
    def seconds(self) -> float:
        """Of the whole job there."""
        return self.compute * self.computing_s + sum(row.simulated_s for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Everything but the cluster as JSON has it."""
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
    """Play a recorded job's collectives on a modelled cluster.

    Parameters
    ----------
    calls, ranks
        As `read` gives them.
    cluster
        Where.
    compute
        How many times as long computing takes there: 1 if every rank has as much to do as it had.
    as_recorded
        Whether algorithms are those of the trace; else those that run there by default.

    Raises
    ------
    InputError
        If computing takes negative time, or the cluster cannot run it.
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
                raise InputError("dead nodes: expected none, for a job needs all ranks")
            simulated_s, algorithm = count * found.seconds, found.algorithm
        rows.append(ReplayRow(collective, nbytes, count, recorded, algorithm, seconds, simulated_s))
    rows.sort(key=lambda row: -row.simulated_s)
    return Replay(cluster, ranks, computing_s, compute, rows)


def read(path: Path) -> tuple[list[RecordedCall], int]:
    """The collectives of a trace in the order in which they ended, and how many ranks there were.

    Raises
    ------
    InputError
        If there is no such file, or it holds no trace, or none in which anything was timed.
    """
    try:
        return calls_of(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: expected a trace, as --trace or ripieno trace writes it, but {error!r}") from error


def calls_of(trace: Mapping[str, Any]) -> tuple[list[RecordedCall], int]:
    """The same of a trace that has been read."""
    events = trace["traceEvents"]
    rank_of = {event["tid"]: _rank(event) for event in events if event["name"] == "thread_name"}
    met: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    members: dict[int, set[int]] = {}
    for event in events:
        arguments = event.get("args", {})
        if event["ph"] == "X" and "sequence" in arguments and arguments["outcome"] == "done":
            met.setdefault((arguments["communicator"], arguments["sequence"], event["name"]), []).append(event)
            members.setdefault(arguments["communicator"], set()).add(rank_of[event["tid"]])
    if not met:
        raise ValueError("there is no collective in it that ended and was timed")
    ranks = set(rank_of.values())
    over_us, calls = min(event["ts"] for each in met.values() for event in each), []
    for (communicator, _, collective), each in sorted(met.items(), key=lambda item: _end_us(item[1])):
        came_us, left_us = max(event["ts"] for event in each), _end_us(each)
        begin_us = min(left_us, max(came_us, over_us))
        seconds, computing_s = (left_us - begin_us) / 1e6, max(0.0, begin_us - over_us) / 1e6
        over_us = left_us
        nbytes = max(event["args"]["bytes"] for event in each)
        is_played = members[communicator] == ranks and collective not in UNPLAYED
        is_played = is_played and collective in _native.COLLECTIVES
        if collective in OF_BLOCKS:
            nbytes = -(-nbytes // len(members[communicator]))
        calls.append(RecordedCall(collective, each[0]["args"]["algorithm"], nbytes, is_played, computing_s, seconds))
    return calls, len(ranks)


def _end_us(events: Iterable[Mapping[str, Any]]) -> float:
    return max(float(event["ts"] + event["dur"]) for event in events)


def _rank(event: Mapping[str, Any]) -> int:
    """The rank of a track, which is called ``rank 3`` or ``rank 3, in flight beside 1``."""
    return int(event["args"]["name"].split(",")[0].removeprefix("rank "))


def _duration(seconds: float) -> str:
    return duration_text(seconds) if seconds else "0"


def _algorithm(row: ReplayRow) -> str:
    if row.algorithm is None:
        return "as recorded, not played"
    return (
        row.algorithm if row.algorithm == row.recorded_algorithm else f"{row.algorithm}, was {row.recorded_algorithm}"
    )
