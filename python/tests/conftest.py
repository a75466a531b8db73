"""Worlds of workers that tests share, because starting one takes longer than most tests."""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import ripieno as rp

# What a user waits for an error; the promise is 2 s, the rest is for machines that are busy with other tests.
PROMPT_S = 2.0
SLACK_S = 2.0

# The operations, as NumPy has them.
OPS = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


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


@pytest.fixture(params=[1, 2, 3, 5], ids=lambda workers: f"{workers} workers")
def everywhere(request: pytest.FixtureRequest, world: Callable[[int], rp.Job]) -> Callable[..., list]:
    """Runs a program on so many ranks."""
    return world(request.param).run


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


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """No file of this process can grow larger: writing fails as on a full disk, with another number."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
