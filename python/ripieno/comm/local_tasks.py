"""Provide local tasks: Python functions that run on the threads of one rank and release the interpreter lock.

It corresponds to doTasks of Harp. A pool of `concurrent.futures` runs the tasks. Results are in the order of the parts,
errors name their part, and no part starts after one has failed.
Source: Zhang, Ruan and Qiu, "Harp: collective communication on Hadoop", IC2E 2015, section VI.B.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from itertools import count as numbers
from types import TracebackType
from typing import Literal, Self, TypeVar

import ripieno._native as _native
from ripieno._checks import check_threads
from ripieno.comm.rank import CallBase
from ripieno.errors import InputError

#: Execution models of `Team.run`.
MODELS = ("bsp", "fork-join")

Part = TypeVar("Part")
Result = TypeVar("Result")


class LocalTasks(CallBase):
    """Calls of a communicator that run on this rank only."""

    def tasks(self, function: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
        """Call `function` once for each part, on up to `threads` threads.

        The threads exist for this call only. `team` keeps threads for several calls.

        Parameters
        ----------
        function : callable
            Receives a part. Threads run in parallel while it releases the interpreter lock, as NumPy and the kernels of
            this library do on large arrays. It must not call collectives, because their order would differ between
            ranks.
        parts : iterable
            The parts, in any number.

        Returns
        -------
        list
            The return values of `function`, in the order of the parts.

        Raises
        ------
        Exception
            The error of the first failed part, with a note that names the part. Parts that have begun finish first; the
            others are skipped.
        """
        with self.team() as team:
            return team.tasks(function, parts)

    def team(self, threads: int | None = None, model: Literal["bsp", "fork-join"] = "bsp") -> Team:
        """Return threads of this rank that live until the end of a ``with`` block, for several calls.

        Parameters
        ----------
        threads : int, optional
            Number of threads; by default `threads` of the communicator.
        model : {"bsp", "fork-join"}
            The meaning of `Team.run`. "bsp": one call for a whole loop; its threads synchronize in `Team.wait`.
            "fork-join": one call for each phase, which ends with the phase.

        Returns
        -------
        Team
        """
        self._check_process()
        count = self.threads if threads is None else threads
        check_threads(count)
        if model not in MODELS:
            raise InputError(f"model={model!r}: expected one of {', '.join(MODELS)}")
        return Team(int(count), model)


class Team:
    """Threads of a rank, created by `Communicator.team`.

    Attributes
    ----------
    threads : int
        The number of threads.
    model : {"bsp", "fork-join"}
        The execution model of `run`.
    """

    def __init__(self, threads: int, model: Literal["bsp", "fork-join"] = "bsp") -> None:
        self.threads = threads
        self.model = model
        self._process = os.getpid()
        self._members: set[int] = set()
        self._numbers = numbers()
        self._pool = ThreadPoolExecutor(threads, "ripieno-tasks", self._begin_thread)
        self._barrier = _Barrier(threads)
        self._call = threading.Lock()
        self._closed = False

    def tasks(self, function: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
        """Run `Communicator.tasks` on the threads of this team."""
        has_failed = threading.Event()

        def run_part(part: Part) -> Result:
            if has_failed.is_set():
                raise CancelledError
            try:
                return function(part)
            except BaseException:
                has_failed.set()
                raise

        with self._calling():
            started = [self._pool.submit(run_part, part) for part in parts]
            try:
                wait(started)
            except BaseException:
                # A signal has interrupted this thread. The other threads stop after their current part.
                has_failed.set()
                raise
        return _results(started, "part")

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Call `function` with every number below `threads`, all at the same time.

        In a team of model "bsp" the calls may synchronize in `wait`. All must call it equally often.

        Parameters
        ----------
        function : callable
            Receives the number.

        Returns
        -------
        list
            The return values, by number.

        Raises
        ------
        Exception
            The error of the failed call, with a note that names its number. Calls that wait in `wait` end.
        InputError
            A call has ended while others wait for it: the calls did not call `wait` equally often.
        """

        def call(number: int) -> Result:
            try:
                result = function(number)
            except BaseException:
                self._barrier.abandon()
                raise
            self._barrier.leave(number)
            return result

        with self._calling():
            self._barrier = _Barrier(self.threads)
            started = [self._pool.submit(call, number) for number in range(self.threads)]
            try:
                wait(started)
            except BaseException:
                # A signal has interrupted this thread. The other threads stop at their next `wait`.
                self._barrier.abandon()
                raise
        return _results(started, "thread")

    def wait(self) -> None:
        """Wait until all threads have called this. Only inside `run` of a team of model "bsp".

        Raises
        ------
        threading.BrokenBarrierError
            Another call has failed. The caller of `run` gets its exception.
        InputError
            Another call has ended and will not call `wait` again, or the team is of model "fork-join".
        """
        if self.model == "fork-join":
            raise InputError(
                'threads of a team of model "fork-join" cannot wait for each other: '
                "return from `run`, and call it again"
            )
        if threading.get_ident() not in self._members:
            raise InputError("wait must be called by a thread of the team, inside `run`")
        self._barrier.wait_for_all()

    def close(self) -> None:
        """End the threads after their current work. Repeated calls have no effect."""
        self._closed = True
        if self._process == os.getpid():
            self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin_thread(self) -> None:
        self._members.add(threading.get_ident())
        cores = _native.pinned_cores()
        if cores:
            os.sched_setaffinity(0, {cores[next(self._numbers) % len(cores)]})

    def _calling(self) -> threading.Lock:
        """Return the lock that is held during a call. Threads of the team may not take it: they would deadlock."""
        if self._closed:
            raise InputError("the team is closed: use it inside its `with` block")
        if self._process != os.getpid():
            raise InputError("the team belongs to the parent of this forked process: make another")
        if threading.get_ident() in self._members:
            raise InputError("a task submits tasks to its own team, and would wait for itself: make another team")
        return self._call


class _Barrier:
    """A barrier for the calls of one `run`. It fails instead of waiting for a call that has ended."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._changed = threading.Condition()
        self._arrived_count = 0
        self._round = 0
        # By number of each call that has returned: the number of waits that all calls had completed by then.
        self._ended: dict[int, int] = {}
        self._has_failed = False

    def wait_for_all(self) -> None:
        """Wait for all other calls."""
        with self._changed:
            round_ = self._round
            self._arrived_count += 1
            if self._arrived_count == self._count:
                self._arrived_count, self._round = 0, round_ + 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._round > round_ or self._has_failed or self._ended)
            if self._round > round_:
                return
            if self._has_failed:
                raise threading.BrokenBarrierError
            number, waits = next(iter(self._ended.items()))
            raise InputError(
                f"thread {number} of {self._count} has ended after {waits} waits, but another thread "
                "waits for it again: all calls of a run must wait equally often"
            )

    def leave(self, number: int) -> None:
        """Record that a call has returned and will not wait again."""
        with self._changed:
            self._ended[number] = self._round
            self._changed.notify_all()

    def abandon(self) -> None:
        """Record that a call has failed and will not wait again."""
        with self._changed:
            self._has_failed = True
            self._changed.notify_all()


def _results(futures: list[Future[Result]], name: str) -> list[Result]:
    """Return all results, or raise the first error that is not a consequence of another, with a note."""
    failed = [
        (isinstance(error, (threading.BrokenBarrierError, CancelledError)), number, error)
        for number, future in enumerate(futures)
        if (error := future.exception()) is not None
    ]
    if failed:
        _, number, error = min(failed, key=lambda each: each[:2])
        error.add_note(f"in {name} {number} of {len(futures)}")
        raise error
    return [future.result() for future in futures]
