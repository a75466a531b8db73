"""What the threads of a rank's kernels have done: by our clock, and by what the kernel has counted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import ripieno._native as _native
from ripieno.host import thread_usage


def thread_statistics() -> list[dict[str, Any]]:
    """Of each thread that has computed in kernels of this process, as `Communicator.stats` tells."""
    return [
        {
            "index": index,
            "thread": tid,
            "kernels": order_count,
            "computing_s": computing_s,
            "waiting_s": waiting_s,
            **asdict(thread_usage(tid)),
        }
        for index, tid, order_count, computing_s, waiting_s in _native.thread_times()
        if order_count > 0
    ]
