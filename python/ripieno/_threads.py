"""Parallel processing of items by the threads of a rank."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Maximum number of items per thread that are in progress, or done and not yet read.
ITEMS_PER_THREAD_MAX = 2


def mapped(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield the result of `work` for each item, in order; after an error no further item is started."""
    if threads == 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(threads, "ripieno-map")
    try:
        started: deque[Future[Result]] = deque()
        for item in items:
            if len(started) == ITEMS_PER_THREAD_MAX * threads:
                yield started.popleft().result()
            started.append(pool.submit(work, item))
        while started:
            yield started.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
