"""Worlds of workers that tests share, because starting one takes longer than most tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import ripieno as rp
from ripieno import _native


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


@pytest.fixture
def threads() -> Callable[..., list]:
    """Runs a program on ranks that are threads of this process, in a world of its own, whose end harms no other."""

    def run(workers: int, program: Callable[..., Any], *args: Any) -> list:
        cards: list[str] = [""] * workers
        met = threading.Barrier(workers)

        def rank_program(rank: int) -> Any:
            def exchange(card: str) -> list[str]:
                cards[rank] = card
                met.wait()
                return cards

            native = _native.Communicator.connect(rank, workers, exchange, token=b"test")
            with rp.Communicator(native) as comm:
                return program(comm, *args)

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(rank_program, range(workers)))

    return run
