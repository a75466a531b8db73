"""How long a worker computes and how long it communicates, per iteration."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class IterationClock:
    """A stopwatch with two sums, in seconds; `lap` returns and clears them."""

    def __init__(self) -> None:
        self.compute_s = 0.0
        self.communication_s = 0.0

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count what happens inside as computation."""
        begin = time.perf_counter()
        yield
        self.compute_s += time.perf_counter() - begin

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """Count what happens inside as communication, waiting for slower ranks included."""
        begin = time.perf_counter()
        yield
        self.communication_s += time.perf_counter() - begin

    def lap(self) -> tuple[float, float]:
        """Seconds of computation and of communication since the last lap."""
        lap = (self.compute_s, self.communication_s)
        self.compute_s = self.communication_s = 0.0
        return lap


@dataclass(frozen=True)
class IterationTime:
    """How long one iteration took.

    Parameters
    ----------
    compute_s, communication_s
        Seconds of each rank; waiting for a slower rank is communication.
    """

    compute_s: tuple[float, ...]
    communication_s: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """How long the iteration took."""
        return max(sum(pair) for pair in zip(self.compute_s, self.communication_s, strict=True))


def by_rank(laps: Iterable[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of computation and of communication of each rank, given what `IterationClock.lap` told on each."""
    compute_s, communication_s = zip(*laps, strict=True)
    return compute_s, communication_s
