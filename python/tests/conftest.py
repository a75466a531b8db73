"""Worlds of workers that tests share, because starting one takes longer than most tests."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
