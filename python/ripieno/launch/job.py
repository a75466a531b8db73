"""`launch` and `Job`: worker ranks that stand ready to run programs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn
from weakref import WeakSet

from ripieno.errors import CommunicatorClosed, InputError, SerializationError
from ripieno.flight.trace import Trace
from ripieno.launch.broadcast import Broadcast

# A thread that runs a program which was made to fail has this long to end the workers.
CLOSING_S = 20.0

EventListener = Callable[[dict[str, Any]], None]


class Job(ABC):
    """Worker ranks that have met. Use it in a ``with`` statement, so that they end with it.

    Attributes
    ----------
    workers : int
        How many ranks there are.
    threads : int
        Threads that each should compute with.
    replicas : int
        How many copies there are of each logical rank.
    lost : dict of int to str
        Ranks that have died of which a copy lives, and why.
    kept : set of Broadcast
        The values that the ranks keep.
    """

    def __init__(
        self, workers: int, threads: int, trace: Trace | None, on_event: EventListener | None, replicas: int = 1
    ) -> None:
        self.workers = workers
        self.threads = threads
        self.replicas = replicas
        self.lost: dict[int, str] = {}
        self.kept: WeakSet[Broadcast] = WeakSet()
        self._trace = trace
        self._listeners = [] if on_event is None else [on_event]
        self._over: str | None = None
        self._running = False
        self._was_closed = False
        self._idle = threading.Event()
        self._lock = threading.Lock()

    def run(self, program: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Call ``program(comm, *args, **kwargs)`` on every rank.

        Functions of ``__main__`` and of notebooks work. Arrays among the arguments, however deeply nested, are
        read-only views of memory that all workers of a machine share; a `numpy.memmap` is opened anew by each.

        Parameters
        ----------
        program : callable
            The same for every rank; its first argument is the rank's `Communicator`.

        Returns
        -------
        list
            What each rank returned, in order of rank; where ranks have copies, what the first copy of each logical rank
            returned that lived.

        Raises
        ------
        Exception
            What the program raised on the rank that failed first, from a `RankFailed` that says which and where. After
            that the job is over.
        RankFailed
            If a rank ended without a word, or its exception cannot travel.
        SerializationError
            If the program, an argument or a result cannot travel.
        CommunicatorClosed
            If the job is over.
        """
        if self._over is not None:
            raise CommunicatorClosed(f"this job is over: {self._over}; launch another one")
        if self._running:
            raise InputError("this job is already running a program: a job runs one at a time")
        self._running = True
        self._idle.clear()
        failed = True
        try:
            result = self._run(program, args, kwargs)
            failed = False
            return result
        except Exception as error:
            if self._was_closed:
                raise CommunicatorClosed("the job was closed while it ran a program") from error
            raise
        finally:
            with self._lock:
                self._running = False
                ends_here = self._was_closed and not failed
            if ends_here:
                self._close()
                self._finish_trace(failed=False)
            self._idle.set()

    def broadcast(self, value: Any) -> Broadcast:
        """Give all ranks `value`, to keep until it is released.

        Parameters
        ----------
        value : object
            As an argument of `run`. It is sent once: to all workers of this machine by memory that they share; in an
            engine to rank 0, and from there along the ranks.

        Returns
        -------
        Broadcast
            To pass to programs, which find the value in its ``value``.

        Examples
        --------
        >>> import numpy as np
        >>> import ripieno as rp
        >>> def program(comm, table, row):
        ...     return int(table.value[row + comm.rank])
        >>> with rp.launch(workers=2) as job, job.broadcast(np.arange(100) ** 2) as table:
        ...     job.run(program, table, 3)
        [9, 16]
        """
        return Broadcast(self, value)

    @contextmanager
    def telling(self, listener: EventListener | None) -> Iterator[None]:
        """Within the ``with`` statement `listener` gets what ranks emit, too; with None nothing changes."""
        listeners = [] if listener is None else [listener]
        self._listeners.extend(listeners)
        try:
            yield
        finally:
            for each in listeners:
                self._listeners.remove(each)

    @property
    def over(self) -> bool:
        """Whether it was closed or has failed."""
        return self._over is not None

    def close(self) -> None:
        """End the workers. May be called again."""
        self._close_once(failed=False)

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_once(failed=error is not None)

    def _close_once(self, *, failed: bool) -> None:
        with self._lock:
            if self._over is not None:
                return
            self._over = "it was closed"
            self._was_closed = True
            is_running = self._running
        # Another thread that waits for a program is made to fail, and ends the workers.
        if is_running and self._hang_up() and self._idle.wait(CLOSING_S):
            return
        self._close()
        self._finish_trace(failed=failed)

    def _finish_trace(self, *, failed: bool) -> None:
        """Once no rank will leave a file any more."""
        if self._trace is not None:
            (self._trace.rescue if failed or self.lost else self._trace.finish)()

    def __deepcopy__(self, memo: dict[int, Any]) -> Job:
        # There is one gang: estimators that are cloned share it.
        return self

    def __reduce__(self) -> NoReturn:
        raise SerializationError(
            "a running job cannot be pickled, nor can what holds it: of an estimator, set_params(engine='local') first"
        )

    @abstractmethod
    def _run(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]: ...

    @abstractmethod
    def _close(self) -> None: ...

    def _hang_up(self) -> bool:
        """Let the program that another thread waits for fail, if there is such a thread, and a way."""
        return False


def tell_all(listeners: list[EventListener], event: dict[str, Any]) -> None:
    """Pass on what a rank has emitted."""
    for listener in listeners:
        listener(event)
