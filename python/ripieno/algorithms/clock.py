"""Measure the computation and communication time of each iteration of a worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ripieno.comm.agreement import outcome_on_root, shared_outcome

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

R = TypeVar("R")


class IterationClock:
    """A stopwatch with two sums, in seconds; `lap` returns and clears them."""

    def __init__(self) -> None:
        self.compute_s = 0.0
        self.communication_s = 0.0

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the time inside as computation."""
        begin = time.perf_counter()
        yield
        self.compute_s += time.perf_counter() - begin

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """Count the time inside as communication, including waits for slower ranks."""
        begin = time.perf_counter()
        yield
        self.communication_s += time.perf_counter() - begin

    def on_root(self, comm: Communicator, compute: Callable[[], R]) -> R:
        """Return the result of ``compute()`` on rank 0, on all ranks. If it raises an error, raise it on all ranks."""
        with self.computing():
            outcome = outcome_on_root(comm, compute)
        with self.communicating():
            return shared_outcome(comm, outcome)

    def lap(self) -> tuple[float, float]:
        """Return the seconds of computation and of communication since the last lap."""
        lap = (self.compute_s, self.communication_s)
        self.compute_s = self.communication_s = 0.0
        return lap


@dataclass(frozen=True)
class IterationTime:
    """The duration of one iteration.

    Parameters
    ----------
    compute_s, communication_s
        Seconds per rank; waiting for slower ranks counts as communication.
    """

    compute_s: tuple[float, ...]
    communication_s: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Return the seconds of the iteration."""
        return max(sum(pair) for pair in zip(self.compute_s, self.communication_s, strict=True))


def by_rank(laps: Iterable[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return seconds of computation and of communication per rank, from each rank's `IterationClock.lap`."""
    compute_s, communication_s = zip(*laps, strict=True)
    return compute_s, communication_s
