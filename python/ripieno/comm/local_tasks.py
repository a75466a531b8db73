"""Tasks of a rank on its threads: Python functions that let go of the interpreter while they compute.

Harp's doTasks. A pool of `concurrent.futures` has the threads. What is added: results in the order of the parts, an
error that names its part, and no part begun after one has failed.
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
from ripieno._checks import check_count
from ripieno.comm.rank import CallBase
from ripieno.errors import InputError

#: What `Team.run` may be.
MODELS = ("bsp", "fork-join")

Part = TypeVar("Part")
Result = TypeVar("Result")


class LocalTasks(CallBase):
    """The calls of a communicator that stay on this rank."""

    def tasks(self, function: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
        """Call `function` once for each part, on whichever of `threads` threads is free.

        The threads are made for this call. `team` keeps them for several.

        Parameters
        ----------
        function : callable
            Gets a part. Threads compute at the same time as far as it lets go of the interpreter, as NumPy and the
            kernels of this library do in large arrays. It may not call collectives: ranks would differ in their order.
        parts : iterable
            What there is to do. Its length need not be that of anything else.

        Returns
        -------
        list
            What `function` returned, in the order of the parts.

        Raises
        ------
        Exception
            That of a part that failed, with a note that names the part; of several, the lowest. Parts that had not
            begun are left out, and those that had have ended.
        """
        with self.team() as team:
            return team.tasks(function, parts)

    def team(self, threads: int | None = None, model: Literal["bsp", "fork-join"] = "bsp") -> Team:
        """Threads of this rank that stay from one call to the next, until the end of a ``with`` block.

        Parameters
        ----------
        threads : int, optional
            How many; by default `threads` of the communicator.
        model : {"bsp", "fork-join"}
            What `Team.run` is: one call for a whole loop, whose threads meet in `Team.wait`, or one for each phase of
            it, which ends with the phase.

        Returns
        -------
        Team
        """
        self._check_process()
        count = self.threads if threads is None else threads
        check_count("threads", count)
        if model not in MODELS:
            raise InputError(f"model={model!r}: expected one of {', '.join(MODELS)}")
        return Team(int(count), model)


class Team:
    """Threads of a rank, as `Communicator.team` makes them.

    Attributes
    ----------
    threads : int
        How many there are.
    model : {"bsp", "fork-join"}
        What `run` is.
    """

    def __init__(self, threads: int, model: Literal["bsp", "fork-join"] = "bsp") -> None:
        self.threads = threads
        self.model = model
        self._process = os.getpid()
        self._members: set[int] = set()
        self._numbers = numbers()
        self._pool = ThreadPoolExecutor(threads, "ripieno-tasks", self._begin_thread)
        self._meeting = _Meeting(threads)
        self._call = threading.Lock()
        self._closed = False

    def tasks(self, function: Callable[[Part], Result], parts: Iterable[Part]) -> list[Result]:
        """As `Communicator.tasks`, on the threads of this team."""
        over = threading.Event()

        def one(part: Part) -> Result:
            if over.is_set():
                raise CancelledError
            try:
                return function(part)
            except BaseException:
                over.set()
                raise

        with self._calling():
            begun = [self._pool.submit(one, part) for part in parts]
            try:
                wait(begun)
            except BaseException:
                # The user has interrupted this thread, and the others go no further than their parts.
                over.set()
                raise
        return _results(begun, "part")

    def run(self, function: Callable[[int], Result]) -> list[Result]:
        """Call `function` with every number below `threads`, all at the same time.

        In a team of model "bsp" they may meet in `wait`, all equally often.

        Parameters
        ----------
        function : callable
            Gets the number.

        Returns
        -------
        list
            What it returned, by number.

        Raises
        ------
        Exception
            That of a call that failed, with a note that names its number. Calls that wait for it in `wait` end there.
        InputError
            A call has ended for which others wait, as they do not all wait equally often.
        """

        def member(number: int) -> Result:
            try:
                result = function(number)
            except BaseException:
                self._meeting.give_up()
                raise
            self._meeting.leave(number)
            return result

        with self._calling():
            self._meeting = _Meeting(self.threads)
            begun = [self._pool.submit(member, number) for number in range(self.threads)]
            try:
                wait(begun)
            except BaseException:
                # The user has interrupted this thread, and the others go no further than to where they meet.
                self._meeting.give_up()
                raise
        return _results(begun, "thread")

    def wait(self) -> None:
        """Inside `run` of a team of model "bsp": wait until all threads have come here.

        Raises
        ------
        threading.BrokenBarrierError
            Another call has failed and will not come. The caller of `run` gets that one's exception.
        InputError
            Another call has ended, and will not come either; or the team is of model "fork-join".
        """
        if self.model == "fork-join":
            raise InputError('threads of a team of model "fork-join" do not meet: end `run`, and call it again')
        if threading.get_ident() not in self._members:
            raise InputError("wait is for the threads of the team, inside `run`")
        self._meeting.come()

    def close(self) -> None:
        """End the threads, once they are done. May be called again."""
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
        """Taken by one caller at a time, who is none of the threads: these would wait for themselves."""
        if self._closed:
            raise InputError("the team is closed: use it inside its `with` block")
        if self._process != os.getpid():
            raise InputError("the team is that of the process that this one was forked from: make another")
        if threading.get_ident() in self._members:
            raise InputError("a task gives its own team tasks, and would wait for itself: make another team")
        return self._call


class _Meeting:
    """Where the calls of one `run` meet. Nobody waits for one that has ended."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._changed = threading.Condition()
        self._here = 0
        self._round = 0
        # The numbers of calls that have ended well, and how often all had met then.
        self._left: dict[int, int] = {}
        self._has_failed = False

    def come(self) -> None:
        """Wait for all the others."""
        with self._changed:
            round_ = self._round
            self._here += 1
            if self._here == self._count:
                self._here, self._round = 0, round_ + 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._round > round_ or self._has_failed or self._left)
            if self._round > round_:
                return
            if self._has_failed:
                raise threading.BrokenBarrierError
            number, waits = next(iter(self._left.items()))
            raise InputError(
                f"thread {number} of {self._count} has ended after {waits} waits, and another one waits for it once "
                "more: all calls of a run wait equally often"
            )

    def leave(self, number: int) -> None:
        """A call has ended, and comes no more."""
        with self._changed:
            self._left[number] = self._round
            self._changed.notify_all()

    def give_up(self) -> None:
        """A call has failed, and comes no more."""
        with self._changed:
            self._has_failed = True
            self._changed.notify_all()


def _results(futures: list[Future[Result]], what: str) -> list[Result]:
    """What all of them returned; else the lowest error that is not a consequence, with a note."""
    failed = [
        (isinstance(error, (threading.BrokenBarrierError, CancelledError)), number, error)
        for number, future in enumerate(futures)
        if (error := future.exception()) is not None
    ]
    if failed:
        _, number, error = min(failed, key=lambda each: each[:2])
        error.add_note(f"in {what} {number} of {len(futures)}")
        raise error
    return [future.result() for future in futures]
