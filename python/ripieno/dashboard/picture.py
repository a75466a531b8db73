"""The history of a job as a file in Chrome's trace event format, which ui.perfetto.dev opens.

Shares of time are counters, one track per rank; log lines are instants. Only a trace of the flight recorder contains
single collectives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ripieno.dashboard.board import Board

Event = dict[str, Any]


def picture(board: Board) -> dict[str, Any]:
    """Return the history; times are in microseconds since the board began."""
    with board.lock:
        events = [*_names(board), *_counters(board), *_instants(board)]
        return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"job": dict(board.job)}}


def _names(board: Board) -> Iterator[Event]:
    for rank, known in board.ranks.items():
        name = f"rank {rank} on {known.host}" if known.host else f"rank {rank}"
        yield {"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}}


def _counters(board: Board) -> Iterator[Event]:
    history = board.history
    shares = {name: history.share(name) for name in ("computing", "communicating", "waiting")}
    memory = history.memory()
    for rank in range(history.rank_count):
        known = np.flatnonzero(~np.isnan(shares["computing"][rank]))
        for place in known.tolist():
            at_us = 1e6 * place * history.width_s
            percent = {name: round(100 * float(share[rank, place]), 1) for name, share in shares.items()}
            yield {"ph": "C", "name": "time, %", "pid": rank, "ts": at_us, "args": percent}
            mebibytes = round(float(memory[rank, place]) / 2**20, 1)
            yield {"ph": "C", "name": "memory, MiB", "pid": rank, "ts": at_us, "args": {"memory": mebibytes}}


def _instants(board: Board) -> Iterator[Event]:
    for line in board.lines:
        where = {"s": "g"} if line.rank is None else {"s": "p"}
        yield {
            "ph": "i",
            "name": line.text[:80],
            "ts": 1e6 * line.at_s,
            "pid": line.rank or 0,
            "tid": 0,
            **where,
            "args": {"kind": line.kind, "source": line.source, "text": line.text},
        }
