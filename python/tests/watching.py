"""What tests look at from outside: processes that end, descriptors that stay, conditions that come true, and when."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from pathlib import Path

# What a user waits for an error; the promise is 2 s, the rest is for machines that are busy with other tests.
PROMPT_S = 2.0
SLACK_S = 2.0


def is_running(pid: int) -> bool:
    """Whether the process exists and is not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone_within(seconds: float, pids: list[int]) -> bool:
    """Whether all processes have ended before the time is up."""
    deadline = time.monotonic() + seconds
    return all(_ends(pid, deadline) for pid in pids)


def _ends(pid: int, deadline: float) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        end = select.poll()
        end.register(process, select.POLLIN)
        return bool(end.poll(max(0.0, deadline - time.monotonic()) * 1000))
    finally:
        os.close(process)


def comes_true(condition: Callable[[], object], within_s: float) -> bool:
    """Whether it does before the time is up; for what nobody tells of, so that it must be looked at again."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def open_descriptors() -> list[str]:
    """What this process has open."""
    names = []
    for entry in os.scandir("/proc/self/fd"):
        try:
            names.append(os.readlink(entry.path))
        except FileNotFoundError:
            continue
    return sorted(names)
