"""`launch` and `Job`: worker ranks that stand ready to run programs."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar
from weakref import WeakSet, WeakValueDictionary

from ripieno._checks import check_count
from ripieno._types import OnFailure, Op
from ripieno.errors import CommunicatorClosed, InputError, SerializationError
from ripieno.flight.trace import Trace
from ripieno.launch.job import farm
from ripieno.launch.job.accumulators import Amounts, JobAccumulator, combined, fold
from ripieno.launch.job.broadcast import Broadcast
from ripieno.launch.job.watch import JobWatch
from ripieno.launch.process import parcel
from ripieno.wire.packing import PackedValue

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.comm.shared_files import Place
    from ripieno.dashboard import Dashboard

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# A thread that runs a program which was made to fail has this long to end the workers.
CLOSING_S = 20.0

EventListener = Callable[[dict[str, Any]], None]

#: The jobs that this process has launched. A process that is forked from it owns none of them.
_launched: WeakSet[Job] = WeakSet()


class Job(ABC):
    """Worker ranks that have met. Use it in a ``with`` statement, so that they end with it.

    Attributes
    ----------
    workers : int
        How many ranks there are.
    threads : int
        Threads that each should compute with.
    replicas : int
        How many replicas there are of each logical rank.
    lost : dict of int to str
        Ranks that have died while a replica lives, and why; empty once new ranks have been started. With
        ``on_failure="shrink"`` or "respawn" all that the job has gone on without, by the ranks that they began with.
    epoch : int
        Grows whenever the ranks lose their communicators, and `Communicator.kept` with them.
    """

    #: What happens if a rank is lost while a program runs.
    _on_failure: OnFailure = "raise"
    #: Whether its ranks find files by the names that this process has for them.
    _SHARES_FILES = True

    def __init__(
        self,
        workers: int,
        threads: int,
        trace: Trace | None,
        on_event: EventListener | None,
        replicas: int = 1,
        watch: JobWatch | None = None,
    ) -> None:
        self.workers = workers
        self.threads = threads
        self.replicas = replicas
        self.lost: dict[int, str] = {}
        # The values that the ranks keep.
        self._kept: WeakSet[Broadcast[Any]] = WeakSet()
        # Grows whenever ranks may have begun different ones of them.
        self._broadcast_generation = 0
        self.epoch = 0
        self._owner_pid = os.getpid()
        self._trace = trace
        self._watch = watch or JobWatch()
        self._listeners = [] if on_event is None else [on_event]
        # By number; and what each rank has added to them in the program that ran last.
        self._accumulators: WeakValueDictionary[int, JobAccumulator] = WeakValueDictionary()
        self._added: dict[int, Amounts] = {}
        # What no handle stands for any more, and ranks still keep.
        self._dropped: deque[str] = deque()
        self._over: str | None = None
        # Who holds it runs a program, or several, while others wait.
        self._turn = threading.RLock()
        self._running = False
        self._was_closed = False
        self._idle = threading.Event()
        self._lock = threading.Lock()
        _launched.add(self)

    def run(self, program: Callable[Concatenate[Communicator, P], R], /, *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Call ``program(comm, *args, **kwargs)`` on every rank.

        Programs run one after the other: a call in another thread waits for its turn. Functions and classes of
        ``__main__`` and of notebooks travel by value; in local workers `pickle` finds them by their names, too.
        Programs get arguments of their own, and the caller results of its own. Local workers run a program in the
        caller's current directory.

        Arrays among the arguments, however deeply nested, are read-only, of any size and for any number of workers;
        large ones are views of memory that all workers of a machine share, a `numpy.memmap` is opened anew by each. The
        caller may go on to write to its own arrays once the program has ended. Other objects are copies. A single
        worker is the calling process, and differs in two ways. The program itself is no copy, so variables that it has
        closed over are the caller's own. The result is the very object that it returned, which need not be able to
        travel.

        Parameters
        ----------
        program : callable
            The same for every rank; its first argument is the rank's `Communicator`.

        Returns
        -------
        list
            The result of each rank, in order of rank. If ranks have replicas, the result of the first living replica of
            each logical rank.

        Raises
        ------
        Exception
            The exception of the program on the rank that failed first, from a `RankFailed` with the rank and its host.
        RankFailed
            If a rank died, even if others went on without it, or if its exception cannot travel.
        CollectiveMismatch
            If ranks made different calls and no program has noticed; or as an exception of the program.
        SerializationError
            If the program, an argument or a result cannot travel.
        CommunicatorClosed
            If the job is over.

        Notes
        -----
        If all ranks return, their results are returned, also those of programs that have caught a `CollectiveMismatch`
        or `RankFailed`, or closed the communicator. If a rank fails, others may still return within a second, for
        instance because they have caught `RankFailed`. Their results are in `RankFailed.results` of the error, or of
        its cause.

        With ``on_failure="shrink"`` or "respawn" (see `ripieno.launch`) the program begins again if ranks were lost,
        and a `RuntimeWarning` says so.

        After a failure the job goes on. Ranks that wait for the next program keep their process, with all modules and
        broadcast values, and meet anew before it. If one has died, still computes, or has a copy that died, all are
        ended. The next program then gets new ranks, to which broadcast values are sent again. Either way it gets a new
        communicator, whose ``kept`` is empty.
        """
        if not callable(program):
            raise InputError(f"program: a {type(program).__name__}: expected a function of a communicator")
        with self._turn:
            if self._running:
                raise InputError("this job is already running a program, which calls it, or whose events do")
            if self._over is not None:
                raise CommunicatorClosed(f"this job is over: {self._over}; launch another one")
            self._forget_dropped()
            self._running = True
            self._idle.clear()
            try:
                with self._watch.program(name_of(program)):
                    results = self._run(program, args, kwargs)
                self._add_up()
                return results
            except Exception as error:
                if self._was_closed:
                    raise CommunicatorClosed("the job was closed while it ran a program") from error
                raise
            finally:
                with self._lock:
                    self._running = False
                    ends_here = self._was_closed
                if ends_here:
                    self._close()
                    self._finish()
                self._idle.set()

    def map(
        self,
        function: Callable[[T], R],
        items: Iterable[T],
        *,
        as_completed: bool = False,
        in_flight: int | None = None,
    ) -> Iterator[Any]:
        """Call ``function(item)`` for every item, on whichever rank is free; results as they are found.

        Parameters
        ----------
        function : callable
            Gets an item. It runs on one rank, and makes no collective calls.
        items : iterable
            What there is to do. It is read as far as items are in flight.
        as_completed : bool
            Give pairs of the number of an item and its result, in the order in which they are found, instead of
            results in the order of the items.
        in_flight : int, optional
            So many items are given to the ranks together, and their results kept until they are taken; the next ones
            follow once all of these are done. 64 for each rank by default.

        Returns
        -------
        iterator
            Of results, or of pairs (int, result). The ranks begin when it is first asked; one that is dropped ends
            with the items in flight.

        Raises
        ------
        Exception
            That of the first item found to fail, with a note of its number and rank. No more items are begun then.
        RankFailed
            The exception of an item cannot travel, or a rank has died. With ``on_failure="shrink"`` or "respawn" the
            items in flight that a dead rank had, and others whose results were not yet there, are done again, so that
            `function` may see an item more than once.
        SerializationError
            An item, or the function, cannot travel; or a result cannot, which is an error of its item.

        Examples
        --------
        >>> import ripieno as rp
        >>> with rp.launch(workers=2) as job:
        ...     list(job.map(lambda number: number**2, range(5)))
        [0, 1, 4, 9, 16]
        """
        if not callable(function):
            raise InputError(f"function: a {type(function).__name__}: expected a function of an item")
        if self.replicas > 1:
            raise InputError(
                f"map: the job has {self.replicas} replicas of each rank, which do the same: expected none"
            )
        return farm.results_of(self, function, items, farm.check_in_flight(in_flight, self.workers), as_completed)

    def resize(self, workers: int) -> None:
        """Go on with another number of ranks, between two programs.

        Ranks whose number is not below `workers` end. Others are started where that is more; in an engine, all of them.
        All ranks meet anew, so `kept` is empty then; broadcast values are given to all again. Each computes with as
        many threads as before.

        Parameters
        ----------
        workers : int
            How many ranks there are to be.

        Raises
        ------
        InputError
            While a program runs, with replicas, or for a job of a single worker, which is the calling process.
        TooFewSlots
            The engine has no room for so many. The next program gets new ranks, as many as before.
        RendezvousError, RankFailed
            They could not meet, or one ended before; likewise.
        """
        check_count("workers", workers)
        with self._turn:
            if self._running:
                raise InputError("resize: this job is running a program, which calls it, or whose events do")
            if self._over is not None:
                raise CommunicatorClosed(f"this job is over: {self._over}; launch another one")
            if self.replicas > 1:
                raise InputError(f"resize: the job has {self.replicas} replicas of each rank, whose number is fixed")
            if workers != self.workers:
                self._resize(workers)

    def __repr__(self) -> str:
        workers = "worker" if self.workers == 1 else "workers"
        lost = f", {len(self.lost)} lost" if self.lost else ""
        state = f"over: {self._over}" if self._over is not None else "running a program" if self._running else "ready"
        return f"<{type(self).__name__} of {self.workers} {workers} in {self._place}{lost}, {state}>"

    @property
    def _place(self) -> str:
        """Where its ranks are, for people."""
        return "this process"

    def broadcast(self, value: T, strategy: str = "auto", *, places: Place | Sequence[Place] = ()) -> Broadcast[T]:
        """Give all ranks `value`, to fetch when a program first uses it, until the handle is released or collected.

        Parameters
        ----------
        value : object
            As an argument of `run`. It is sent to rank 0, once, and goes from there to the other hosts, once to each.
            The ranks of a host share its memory.
        strategy : {"auto", "chain", "splitstream", "tree", "flat", "csb", "csb-llcf", "bittorrent", "shared-file"}
            How it finds its way from rank 0, as of `Communicator.broadcast_variable`. By trees ("chain",
            "splitstream", "tree", "flat") all hosts fetch at once. "auto" is "csb".
        places : path or URL, or sequence of these
            Of "shared-file", and seen by all ranks: rank 0 writes the value to the first three.

        Returns
        -------
        Broadcast
            To pass to programs, which find the value in its ``value``. Their arrays are read-only. ``release()``, there
            or here, lets go of it: on that rank, or on all.

        Raises
        ------
        InputError
            The strategy is none.
        SerializationError
            The value cannot travel.

        Notes
        -----
        What was sent outlives failures of programs; new ranks are sent the values again. Where the bytes cannot come
        any more, ``value`` raises `BroadcastError`. A single rank has the caller's own arrays, and ranks with replicas
        are given the value all at once: there is nobody to fetch from, or each would have to fetch for itself.

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
        return Broadcast(self, value, strategy, places)

    def accumulator(self, initial: Any, op: Op = "sum") -> JobAccumulator:
        """A value that programs of this job add to, and that the caller reads.

        Parameters
        ----------
        initial : number or ndarray
            Its value at first; its shape is that of what is added.
        op : {"sum", "prod", "min", "max"}, or a function that means one, such as ``max``
            How it is combined with what is added.

        Returns
        -------
        JobAccumulator
            A program that refers to it, or gets it as an argument, calls its ``add(amount)``. Its ``value`` changes
            when the program has ended well on all ranks: rank by rank, so that a sum has the same bits in every run.
            What a program that fails has added does not count.

        Examples
        --------
        >>> import ripieno as rp
        >>> def program(comm, rows):
        ...     rows.add(10 + comm.rank)
        >>> with rp.launch(workers=2) as job:
        ...     rows = job.accumulator(0)
        ...     _ = job.run(program, rows)
        ...     rows.value
        21
        """
        made = JobAccumulator(initial, op)
        self._accumulators[made.number] = made
        return made

    def _add_up(self) -> None:
        """Combine what the ranks have added, of each logical rank once, with the accumulators."""
        added, self._added = self._added, {}
        by_rank = {rank % (self.workers // self.replicas): added[rank] for rank in sorted(added, reverse=True)}
        amounts: Amounts = {}
        known = dict(self._accumulators)
        if any(number not in known for each in by_rank.values() for number in each):
            raise InputError("a program has added to an accumulator of another job")
        for rank in sorted(by_rank):
            fold(amounts, by_rank[rank], {number: each.op for number, each in known.items()})
        for number, amount in amounts.items():
            known[number].value = combined(known[number].op, known[number].value, amount)

    @contextmanager
    def telling(self, listener: EventListener | None) -> Iterator[None]:
        """Within the ``with`` statement `listener` gets what ranks emit, besides those that get it already.

        Parameters
        ----------
        listener : callable or None
            As ``on_event=`` of `ripieno.launch`; with None nothing changes.

        Examples
        --------
        >>> import ripieno as rp
        >>> with rp.launch(1) as job, job.telling(print):
        ...     job.run(lambda comm: comm.emit({"done": 1}))
        {'rank': 0, 'done': 1}
        [None]
        """
        listeners = [] if listener is None else [listener]
        # What ranks emit for other threads is not for this listener.
        with self._turn:
            self._listeners.extend(listeners)
            try:
                yield
            finally:
                for each in listeners:
                    self._listeners.remove(each)

    def announce(self, name: str, max_iter: int | None = None) -> None:
        """Say what is fitted by the next program, and in how many iterations at most: a dashboard shows that."""
        self._watch.fit(name, max_iter)

    @property
    def dashboard(self) -> Dashboard | None:
        """The page that shows the job, if there is one; its ``link`` opens it."""
        return self._watch.dashboard

    @property
    def over(self) -> bool:
        """Whether it was closed, or never stood."""
        return self._over is not None

    def close(self) -> None:
        """End the workers. May be called again."""
        self._close_once()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_once()

    def _forget_now(self) -> None:
        """Let the ranks forget what was dropped, if they wait for a program; otherwise before the next one."""
        if self._turn.acquire(blocking=False):
            try:
                if not self._running and self._over is None:
                    self._forget_dropped()
            finally:
                self._turn.release()

    def _forget_dropped(self) -> None:
        names = []
        while self._dropped:
            names.append(self._dropped.popleft())
        if names:
            self._forget(names)

    def _close_once(self) -> None:
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
        self._finish()

    def _finish(self) -> None:
        """Once no rank will leave a file any more, or tell anything."""
        self._watch.close()
        if self._trace is not None:
            self._trace.finish()

    def _tell_all(self, event: dict[str, Any]) -> None:
        """Pass on what a rank has emitted."""
        self._watch.event(event)
        for listener in self._listeners:
            listener(event)

    def _disown(self) -> None:
        """In a forked process: the job is over here, and goes on in the process that launched it."""
        self._over = self._over or "it belongs to the process from which this one was forked"
        self._running = False
        # Other threads, which do not exist here, may hold these.
        self._turn, self._lock = threading.RLock(), threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Job:
        # There is one job: estimators that are cloned share it.
        return self

    def __reduce__(self) -> NoReturn:
        raise SerializationError(
            "a running job cannot be pickled, nor can what holds it: of an estimator, set_params(engine='local') first"
        )

    @abstractmethod
    def _run(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]: ...

    def _sealed(self, value: Any) -> PackedValue:
        """The value as rank 0 hands it on, or `SerializationError`."""
        return parcel.pack(value, files_by_name=self._SHARES_FILES, read_only=True)

    @abstractmethod
    def _resize(self, workers: int) -> None:
        """Have so many ranks, which wait; or, if that fails, as many as before."""

    @abstractmethod
    def _forget(self, names: list[str]) -> None:
        """Let the ranks, which wait for a program, forget broadcast values."""

    @abstractmethod
    def _close(self) -> None: ...

    def _hang_up(self) -> bool:
        """Let the program that another thread waits for fail, if there is such a thread, and a way."""
        return False


def _disown_all() -> None:
    for job in _launched:
        job._disown()


os.register_at_fork(after_in_child=_disown_all)


def name_of(program: Callable[..., Any]) -> str:
    """What a program is called in a sentence: what a partial function is of, and of other objects their class."""
    while isinstance(program, partial):
        program = program.func
    return str(getattr(program, "__qualname__", type(program).__qualname__))


def unsendable(program: Callable[..., Any], error: SerializationError) -> SerializationError:
    """What to raise if a program does not reach its ranks."""
    return SerializationError(f"{name_of(program)} or its arguments cannot be sent to workers: {error}")
