"""What all tests share: their order, and worlds of workers, because starting one takes longer than most tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import ripieno as rp
from ripieno import _native

# The files that take longest, with their seconds of computing. They go first, the longest in front: a process that
# began one last would end long after the others.
LONGEST_S = {
    "test_benches.py": 115,
    "test_examples.py": 78,
    "test_launch.py": 77,
    "test_replicas.py": 72,
    "test_broadcast_variables.py": 55,
    "test_distribute.py": 53,
    "test_engine.py": 45,
    "test_cli.py": 40,
    "test_mds.py": 37,
    "test_simulation.py": 29,
    "test_soak.py": 26,
    "test_run.py": 23,
    "test_fit_commands.py": 19,
    "test_seeding.py": 19,
    "test_bench.py": 18,
    "test_sgd.py": 18,
    "test_pagerank.py": 16,
    "test_lab.py": 14,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: -LONGEST_S.get(item.path.name, 0))


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


@pytest.fixture(params=[1, 2, 3], ids=lambda workers: f"{workers} workers")
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
            # Whoever has not come so far would be told here of what others do wrong in their first call.
            met.wait(60.0)
            with rp.Communicator(native) as comm:
                return program(comm, *args)

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(rank_program, range(workers)))

    return run
