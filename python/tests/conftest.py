"""Worlds of workers that tests share, because starting one takes longer than most tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ripieno as rp

# What a user waits for an error; the promise is 2 s, the rest is for machines that are busy with other tests.
PROMPT_S = 2.0
SLACK_S = 2.0


@pytest.fixture(scope="session")
def world() -> Iterator[Callable[[int], rp.Job]]:
    """A job of so many workers; started when first asked for, and anew if a test has ended it."""
    jobs: dict[int, rp.Job] = {}

    def of(workers: int) -> rp.Job:
        if workers not in jobs or jobs[workers].over:
            jobs[workers] = rp.launch(workers=workers, threads=1)
        return jobs[workers]

    yield of
    for job in jobs.values():
        job.close()


def is_running(pid: int) -> bool:
    """Whether the process exists and is not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone_within(seconds: float, pids: list[int]) -> bool:
    """Whether all processes have ended before the time is up."""
    deadline = time.monotonic() + seconds
    while any(is_running(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        # These are no children of this process: there is nothing to wait on.
        time.sleep(0.01)
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
