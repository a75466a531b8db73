"""Items worked on by the threads of a rank."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Items that are worked on, or done and not yet taken, for each thread.
AHEAD = 2


def mapped(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """What `work` makes of each item, in their order; after an error no further item is begun."""
    if threads == 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(threads, "ripieno-map")
    try:
        begun: deque[Future[Result]] = deque()
        for item in items:
            if len(begun) == AHEAD * threads:
                yield begun.popleft().result()
            begun.append(pool.submit(work, item))
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
