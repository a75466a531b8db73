"""Counts of Python's work on a rank: function calls and bytecodes, which do not grow with the rows.

benches/calls.py [--rows N] [--json FILE]
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import click
import numpy as np
import ripieno as rp

WORKERS = 2
ROWS = 20_000
TIMES = 10


class Counter:
    """Counts Python's work in this thread and in threads that it starts, inside a ``with`` statement.

    Attributes
    ----------
    calls : int
        Function calls, including functions written in C.
    bytecodes : int
        Instructions of Python's interpreter, so loops count even without calls.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.bytecodes = 0

    def __enter__(self) -> Counter:
        for module in (threading, sys):
            module.setprofile(self._profile)
            module.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        for module in (sys, threading):
            module.settrace(None)
            module.setprofile(None)

    def _profile(self, _: FrameType, event: str, __: Any) -> None:
        self.calls += event in ("call", "c_call")

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.bytecodes += event == "opcode"
        return self._trace


def keys_of(row_count: int) -> np.ndarray:
    """Return eight rows per key, so the number of rounds of a combining function does not depend on the rows."""
    return np.arange(row_count) * 7919 % (row_count // 8)


def regroup(comm: rp.Communicator, row_count: int) -> Callable[[], Any]:
    rows = rp.KeyValues(keys_of(row_count), np.ones(row_count))
    return lambda: comm.regroup(rows, combine="sum")


def regroup_by_function(comm: rp.Communicator, row_count: int) -> Callable[[], Any]:
    rows = rp.KeyValues(keys_of(row_count), np.ones(row_count))
    return lambda: comm.regroup(rows, combine=np.hypot)


def regroup_of_words(comm: rp.Communicator, row_count: int) -> Callable[[], Any]:
    rows = rp.KeyValues(np.char.add("word ", keys_of(row_count).astype(str)), np.ones(row_count))
    return lambda: comm.regroup(rows, combine="concat")


def word_count(comm: rp.Communicator, row_count: int) -> Callable[[], Any]:
    folder = tempfile.TemporaryDirectory()
    text = comm.broadcast(str(Path(folder.name) / "text"))
    if comm.rank == 0:
        Path(text).write_text("\n".join(map(str, keys_of(row_count))))
    comm.barrier()

    def count() -> Any:
        with folder:
            return rp.count_words(text, comm=comm)

    return count


def superstep(comm: rp.Communicator, row_count: int) -> Callable[[], Any]:
    sources = keys_of(row_count)
    targets = (sources * 31 + np.arange(row_count)) % (row_count // 8)
    graph = rp.Graph.from_edges(sources, targets, comm=comm)
    graph.values["sum"] = 1.0

    def add(block: Any) -> None:
        block.values["sum"] = block.values["sum"] + block.messages
        block.send_along_edges(block.values["sum"])

    return lambda: graph.superstep(add, combine="sum", max_supersteps=3)


def map_reduce_step(comm: rp.Communicator, row_count: int) -> Callable[[], Any]:
    job = rp.MapReduce(lambda rows, _: (rows, np.ones(len(rows))), reduce=lambda keys, sums: (keys, sums), comm=comm)
    job.cache(keys_of(row_count), tasks=8)
    return job.step


CASES = (regroup, regroup_by_function, regroup_of_words, word_count, superstep, map_reduce_step)


def counted(comm: rp.Communicator, name: str, row_count: int) -> tuple[int, int]:
    """Return calls and bytecodes of a case on this rank, after a first run, which imports modules and fills caches."""
    case = next(case for case in CASES if case.__name__ == name)
    case(comm, row_count)()
    run = case(comm, row_count)
    with Counter() as counter:
        run()
    return counter.calls, counter.bytecodes


@click.command()
@click.option("--rows", type=click.IntRange(min=ROWS), default=ROWS, help=f"Of a rank; then {TIMES} times as many.")
@click.option("--json", "target", type=click.Path(path_type=Path), help="File for the counts.")
def main(rows: int, target: Path | None) -> None:
    """Count for this number of rows, and for 10 times as many."""
    found = {}
    with rp.launch(workers=WORKERS, threads=1) as job:
        for case in CASES:
            counts = [job.run(counted, case.__name__, size) for size in (rows, TIMES * rows)]
            found[case.__name__] = counts
            for size, ranks in zip((rows, TIMES * rows), counts, strict=True):
                text = "; ".join(f"{calls} calls, {bytecodes} bytecodes" for calls, bytecodes in ranks)
                click.echo(f"{case.__name__:20} {size:8} rows: {text}")
    if target is not None:
        target.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
