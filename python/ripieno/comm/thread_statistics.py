"""Provide statistics of a rank's kernel threads: wall-clock times, and counters of the operating system."""

from __future__ import annotations

from dataclasses import asdict
from threading import get_native_id
from typing import Any

import ripieno._native as _native
from ripieno.host import thread_usage


def thread_statistics() -> list[dict[str, Any]]:
    """Return one dict for each thread that has computed in kernels of this process; see `Communicator.stats`."""
    return [
        {
            "team": team,
            "index": index,
            "thread": tid,
            "kernels": task_count,
            "computing_s": computing_s,
            "waiting_s": waiting_s,
            **asdict(thread_usage(tid)),
        }
        for team, index, tid, task_count, computing_s, waiting_s in _native.thread_times()
        if task_count > 0
    ]


class ThreadStatisticsStart:
    """Statistics at the start of the calling thread's program; `until_now` subtracts them from later ones."""

    def __init__(self) -> None:
        statistics, caller = thread_statistics(), get_native_id()
        self._of_members = {(each["team"], each["index"]): each for each in statistics}
        # The caller's thread may be older than its first kernel.
        self._of_threads = {caller: asdict(thread_usage(caller))} | {each["thread"]: each for each in statistics}

    def until_now(self) -> list[dict[str, Any]]:
        """Return the statistics since the start, for each thread that has computed since."""
        since = [self._since_start(each) for each in thread_statistics()]
        return [each for each in since if each["kernels"] > 0]

    def _since_start(self, statistics: dict[str, Any]) -> dict[str, Any]:
        member = self._of_members.get((statistics["team"], statistics["index"]), {})
        thread = self._of_threads.get(statistics["thread"], {})
        before = thread | {name: member.get(name, 0) for name in ("kernels", "computing_s", "waiting_s")}
        unchanged = ("team", "index", "thread")
        return {
            name: value if name in unchanged or value is None else value - (before.get(name) or 0)
            for name, value in statistics.items()
        }
