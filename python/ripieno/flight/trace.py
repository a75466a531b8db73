"""A trace of all ranks: their records as a file in Chrome's trace event format, which Perfetto opens.

A process of the trace is a host, and a thread is a rank. A slice is a collective, slices inside it are waits, and the
gap between two collectives is computation. Concurrent collectives lie on separate tracks of their rank.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ripieno.flight as flight
from ripieno import log
from ripieno.errors import InputError
from ripieno.files.results import check_new_file, write_text
from ripieno.files.sources import parsed_json, read_whole
from ripieno.flight.clocks import Dump, offsets

Event = dict[str, Any]
ARGUMENTS = ("sequence", "communicator", "algorithm", "dtype", "op", "bytes", "peer_count", "waited_for", "outcome")


class Trace:
    """A folder for the files of a job's ranks, and the trace made from them.

    Parameters
    ----------
    path
        The file to write; `InputError` if it cannot be created.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        check_new_file(self.path)
        self._folder = tempfile.TemporaryDirectory(prefix="ripieno-trace-")

    @property
    def folder(self) -> str:
        """The folder for the files of the ranks."""
        return self._folder.name

    def finish(self) -> None:
        """Write the trace; a failure raises a warning only. Repeated calls have no effect."""
        folder = Path(self.folder)
        if not folder.exists():
            return
        try:
            with log.warn_on_failure("ripieno.flight", f"the trace {self.path}"):
                if any(folder.glob(f"*{flight.SUFFIX}")):
                    write(read([folder]), self.path)
        finally:
            self._folder.cleanup()


@contextmanager
def traced(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Trace all jobs that this process runs within the block; None traces nothing."""
    if path is None:
        yield
        return
    trace = Trace(path)
    before = os.environ.get(flight.VARIABLE)
    os.environ[flight.VARIABLE] = trace.folder
    try:
        yield
    finally:
        del os.environ[flight.VARIABLE]
        if before is not None:
            os.environ[flight.VARIABLE] = before
        trace.finish()


def read(places: Sequence[str | os.PathLike[str]]) -> list[Dump]:
    """Return the contents of the ranks' files in these folders, in order of rank."""
    paths = [path for place in places for path in sorted(Path(place).glob(f"*{flight.SUFFIX}"))]
    if not paths:
        names = ", ".join(map(str, places))
        raise InputError(f"no file *{flight.SUFFIX} in {names}: ranks write them to the folder {flight.VARIABLE}")
    return sorted(map(_read, paths), key=lambda dump: (dump["rank"], dump["job"]))


def _read(path: Path) -> Dump:
    text = read_whole(path)
    try:
        dump: Dump = parsed_json(text)
        _ = dump["rank"] + 0, dump["job"] + "", dump["records"], dump["clock"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: expected the records of a rank, but {error!r}") from error
    return dump


def write(dumps: Sequence[Dump], path: str | os.PathLike[str]) -> None:
    """Write the trace; the file appears complete or not at all."""
    write_text(path, json.dumps(chrome_trace(dumps)))


def chrome_trace(dumps: Sequence[Dump]) -> dict[str, Any]:
    """Return the trace of these ranks, with times in microseconds since their first activity."""
    clocks = offsets(dumps)
    starts = [
        record["start_s"] - clocks[dump["clock"]].seconds
        for dump in dumps
        for record in dump["records"]
        if record["start_s"] is not None
    ]
    first_s = min(starts, default=0.0)
    hosts = {host: number for number, host in enumerate(dict.fromkeys(dump["host"] for dump in dumps))}
    events = [_name("process_name", hosts[host], 0, f"host {host}") for host in hosts]
    tracks: dict[tuple[int, int], _Tracks] = {}
    for dump in dumps:
        pid, rank = hosts[dump["host"]], dump["rank"]
        own = tracks.setdefault((pid, rank), _Tracks(pid, rank, max(each["world_size"] for each in dumps)))
        events += _slices(dump, own, first_s + clocks[dump["clock"]].seconds)
    for own in tracks.values():
        events += own.names()
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"clocks": [_clock(dump, clocks[dump["clock"]]) for dump in dumps]},
    }


class _Tracks:
    """The tracks of one rank: the first, and one more for each additional concurrent collective."""

    def __init__(self, pid: int, rank: int, rank_count: int) -> None:
        self._pid, self._rank, self._rank_count = pid, rank, rank_count
        self._free_at_us: list[float] = []

    def place(self, start_us: float, end_us: float) -> dict[str, int]:
        """Return the first track that is free from `start_us` on; add collectives in order of start."""
        level = next((at for at, free_us in enumerate(self._free_at_us) if free_us <= start_us), None)
        if level is None:
            level = len(self._free_at_us)
            self._free_at_us.append(end_us)
        self._free_at_us[level] = end_us
        return {"pid": self._pid, "tid": self._tid(level)}

    def names(self) -> Iterator[Event]:
        for level in range(max(1, len(self._free_at_us))):
            more = f", concurrent calls {level}" if level else ""
            yield _name("thread_name", self._pid, self._tid(level), f"rank {self._rank}{more}")
            yield {
                "ph": "M",
                "name": "thread_sort_index",
                "pid": self._pid,
                "tid": self._tid(level),
                "args": {"sort_index": self._rank},
            }

    def _tid(self, level: int) -> int:
        return self._rank + level * self._rank_count


def _slices(dump: Dump, tracks: _Tracks, zero_s: float) -> Iterator[Event]:
    """Yield a slice for every collective with known times, and for the waits inside it."""
    waits: dict[int, list[Sequence[Any]]] = {}
    for wait in dump["waits"]:
        waits.setdefault(wait[0], []).append(wait)
    timed = [record for record in dump["records"] if record["start_s"] is not None]
    for record in sorted(timed, key=lambda record: record["start_s"]):
        start_us, end_us = (1e6 * (record[field] - zero_s) for field in ("start_s", "end_s"))
        track = tracks.place(start_us, end_us)
        times = {"waiting_us": 1e6 * record["waiting_s"], "moving_us": 1e6 * record["moving_s"]}
        arguments = {name: record[name] for name in ARGUMENTS if record[name] is not None}
        yield _slice(record["collective"], start_us, end_us, track, {**arguments, **times})
        for _, peer, peer_count, since_s, until_s in waits.get(record["number"], ()):
            others = f" and {peer_count - 1} more" if peer_count > 1 else ""
            since_us, until_us = 1e6 * (since_s - zero_s), 1e6 * (until_s - zero_s)
            yield _slice(f"waiting for rank {peer}{others}", since_us, min(until_us, end_us), track, {"peer": peer})


def _slice(name: str, start_us: float, end_us: float, track: Mapping[str, int], arguments: dict[str, Any]) -> Event:
    return {"ph": "X", "name": name, "ts": start_us, "dur": end_us - start_us, **track, "args": arguments}


def _name(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _clock(dump: Dump, offset: Any) -> dict[str, Any]:
    return {"rank": dump["rank"], "host": dump["host"], "offset_s": offset.seconds, "error_s": offset.error_s}
