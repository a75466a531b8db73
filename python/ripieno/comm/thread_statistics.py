"""Provide statistics of a rank's kernel threads: wall-clock times, and counters of the operating system."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import ripieno._native as _native
from ripieno.host import thread_usage


def thread_statistics() -> list[dict[str, Any]]:
    """Return one dict for each thread that has computed in kernels of this process; see `Communicator.stats`."""
    return [
        {
            "index": index,
            "thread": tid,
            "kernels": task_count,
            "computing_s": computing_s,
            "waiting_s": waiting_s,
            **asdict(thread_usage(tid)),
        }
        for index, tid, task_count, computing_s, waiting_s in _native.thread_times()
        if task_count > 0
    ]
