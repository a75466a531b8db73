"""Provide `Job`: worker ranks that run programs."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar
from weakref import WeakSet, WeakValueDictionary

from ripieno._checks import check_count
from ripieno._types import OnFailure, Op
from ripieno.comm.broadcast_variables import BroadcastOptions
from ripieno.errors import CommunicatorClosed, InputError, SerializationError
from ripieno.flight.trace import Trace
from ripieno.launch.job import farm
from ripieno.launch.job.accumulators import AddFunction, Amounts, JobAccumulator, fold
from ripieno.launch.job.broadcast import Broadcast
from ripieno.launch.job.programs import ProgramCall
from ripieno.launch.job.watch import JobWatch
from ripieno.launch.limits import CLOSING_S
from ripieno.launch.supervisor import RankStatus
from ripieno.wire import packing

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.comm.shared_files import Place
    from ripieno.dashboard import Dashboard

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


EventListener = Callable[[dict[str, Any]], None]

#: The jobs that this process has launched. A forked process owns none of them.
_launched: WeakSet[Job] = WeakSet()


class Job(ABC):
    """Worker ranks that have joined. Use it in a ``with`` statement, which ends them.

    Parameters
    ----------
    workers, threads, trace, on_event, replicas, on_failure
        As in `ripieno.launch.launch`.
    watch : JobWatch, optional
        Receives the events of the job.
    **options
        For the native communicator.

    Attributes
    ----------
    workers : int
        Number of ranks.
    threads : int
        Threads of each rank.
    replicas : int
        Number of replicas of each logical rank.
    lost : dict of int to str
        Ranks that have died while a replica lives, and the cause; empty after new ranks have started. With
        ``on_failure="shrink"`` or "respawn": all ranks that the job has lost, by their initial numbers.
    epoch : int
        Increases when the ranks lose their communicators and `Communicator.cache`.
    """

    #: Whether ranks find files by the same paths as this process.
    _SHARES_FILES = True

    def __init__(
        self,
        workers: int,
        *,
        threads: int,
        trace: Trace | None = None,
        on_event: EventListener | None = None,
        replicas: int = 1,
        on_failure: OnFailure = "raise",
        watch: JobWatch | None = None,
        **options: Any,
    ) -> None:
        self.workers = workers
        self.threads = threads
        self.replicas = replicas
        self.lost: dict[int, str] = {}
        # The broadcast values that the ranks keep.
        self._live_broadcasts: WeakSet[Broadcast[Any]] = WeakSet()
        # Increases when the ranks may hold different broadcast values.
        self._broadcast_generation = 0
        self.epoch = 0
        self._owner_pid = os.getpid()
        self._trace = trace
        self._options = options | ({} if trace is None else {"flight_folder": trace.folder})
        self._on_failure = on_failure
        self._watch = watch or JobWatch()
        self._listeners = [] if on_event is None else [on_event]
        # Accumulators by number, and the amounts that each rank has added or inherited in the last program.
        self._accumulators: WeakValueDictionary[int, JobAccumulator] = WeakValueDictionary()
        self._added: dict[int, list[Amounts]] = {}
        # Broadcast values without a handle that the ranks still keep.
        self._dropped: deque[str] = deque()
        self._end_reason: str | None = None
        # The holder of the lock runs one or more programs, while other threads wait.
        self._run_lock = threading.RLock()
        self._running = False
        self._was_closed = False
        self._idle = threading.Event()
        self._lock = threading.Lock()
        _launched.add(self)

    def run(self, program: Callable[Concatenate[Communicator, P], R], /, *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Call ``program(comm, *args, **kwargs)`` on every rank.

        Programs run one after the other: a call in another thread waits for its turn. Functions and classes of
        ``__main__`` and of notebooks travel by value; in local workers `pickle` also finds them by name. Programs
        receive their own arguments, and the caller receives its own results. Local workers run a program in the
        caller's current directory, and find modules by the caller's `sys.path` at the time of the call.

        Arrays among the arguments, at any nesting depth, are read-only, for any size and number of workers. Large
        arrays are views of memory that all workers of a machine share; each worker opens a `numpy.memmap` itself. The
        caller may write to its own arrays again after the program has ended. Other objects are copies. A single worker
        is the calling process, and differs in two ways. The program itself is not copied, so its closure refers to the
        caller's variables. The result is the returned object itself, which need not be picklable.

        Parameters
        ----------
        program : callable
            Runs on every rank; its first argument is the rank's `Communicator`.

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
            If a rank died, even if others continued without it, or if the exception cannot be pickled.
        CollectiveMismatch
            If ranks made different calls and no program has caught the error; or as an exception of the program.
        SerializationError
            If the program, an argument or a result cannot be pickled.
        CommunicatorClosed
            If the job is over.

        Notes
        -----
        If all ranks return, `run` returns their results. This includes programs that have caught a `CollectiveMismatch`
        or `RankFailed`, or have closed the communicator. If a rank fails, others may still return within a second, for
        instance because they have caught `RankFailed`. The attribute `RankFailed.results` of the error, or of its
        cause, holds their results.

        With ``on_failure="shrink"`` or "respawn" (see `ripieno.launch`) the program restarts if ranks were lost, and a
        `RuntimeWarning` reports it.

        After a failure the job continues. Ranks that wait for the next program keep their process, with all modules and
        broadcast values, and join again before it. If a rank has died, still computes, or has a replica that died, all
        ranks are ended. The next program then gets new ranks, which receive broadcast values again. In both cases the
        next program gets a new communicator with an empty ``cache``.
        """
        if not callable(program):
            raise InputError(f"program: a {type(program).__name__}: expected a function of a communicator")
        with self._run_lock:
            if self._running:
                raise InputError(
                    "this job is already running a program; neither the program nor its event functions can call it"
                )
            if self._end_reason is not None:
                raise CommunicatorClosed(f"this job is over: {self._end_reason}; launch another one")
            self._forget_dropped()
            self._running = True
            self._idle.clear()
            try:
                call = ProgramCall(program, args, kwargs)
                with self._watch.program(call.name, self._rank_states):
                    results = self._run(call)
                self._add_up()
                return results
            except KeyboardInterrupt as interrupt:
                # Drop the launcher's frames: the notes of the exception show the position of the program.
                raise interrupt.with_traceback(None) from None
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
        """Call ``function(item)`` for every item, each on a free rank, and yield the results as they arrive.

        Parameters
        ----------
        function : callable
            Takes an item. It runs on one rank, and must not make collective calls.
        items : iterable
            The items. They are read only as far as items are in flight.
        as_completed : bool
            Yield pairs of item number and result as they arrive, instead of results in the order of the items.
        in_flight : int, optional
            Number of items that are sent to the ranks together; results are kept until they are read. The next items
            follow after all of these are done. 64 per rank by default.

        Returns
        -------
        iterator
            Yields results, or pairs (int, result). The work starts with the first read. If the iterator is deleted,
            the work ends with the items in flight.

        Raises
        ------
        Exception
            The first exception that the function raises, with a note of the number of the item and the rank. No further
            items start then.
        RankFailed
            If the exception of an item cannot be pickled, or a rank has died. With ``on_failure="shrink"`` or "respawn"
            the items in flight on a dead rank, and others without a result, are computed again. `function` may
            therefore see an item more than once.
        SerializationError
            If an item or the function cannot be pickled. A result that cannot be pickled counts as an error of its
            item.

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
        if in_flight is not None:
            check_count("in_flight", in_flight)
        return farm.results_of(self, function, items, in_flight or farm.IN_FLIGHT_PER_RANK * self.workers, as_completed)

    def resize(self, workers: int) -> None:
        """Change the number of ranks between two programs.

        Ranks numbered `workers` or higher end. Additional ranks are started; an engine restarts all ranks. All ranks
        join again, so `cache` is empty afterwards, and broadcast values are sent again. The number of threads per rank
        does not change.

        Parameters
        ----------
        workers : int
            New number of ranks.

        Raises
        ------
        InputError
            While a program runs, with replicas, or for a job of a single worker, which is the calling process.
        TooFewSlots
            If the engine has too few slots. The next program gets new ranks, as many as before.
        RendezvousError, RankFailed
            If the ranks could not join, or one ended before. The next program gets new ranks, as many as before.
        """
        check_count("workers", workers)
        with self._run_lock:
            if self._running:
                raise InputError(
                    "resize: this job is running a program; neither the program nor its event functions can call it"
                )
            if self._end_reason is not None:
                raise CommunicatorClosed(f"this job is over: {self._end_reason}; launch another one")
            if self.replicas > 1:
                raise InputError(f"resize: the job has {self.replicas} replicas of each rank, whose number is fixed")
            if workers != self.workers:
                self._resize(workers)

    def __repr__(self) -> str:
        workers = "worker" if self.workers == 1 else "workers"
        lost = f", {len(self.lost)} lost" if self.lost else ""
        state = (
            f"over: {self._end_reason}"
            if self._end_reason is not None
            else "running a program"
            if self._running
            else "ready"
        )
        return f"<{type(self).__name__} of {self.workers} {workers} in {self._place}{lost}, {state}>"

    @property
    def _place(self) -> str:
        """Return a description of the location of the ranks for messages."""
        return "this process"

    def broadcast(
        self,
        value: T,
        strategy: str = "auto",
        *,
        block_bytes: int | None = None,
        degree: int | None = None,
        verify: bool = True,
        places: Place | Sequence[Place] = (),
    ) -> Broadcast[T]:
        """Send `value` to all ranks when a program first uses it, until the handle is released or collected.

        Parameters
        ----------
        value : object
            Any argument of `run`. It is sent to rank 0 once, and from there once to each other host. The ranks of a
            host share its memory.
        strategy : {"auto", "chain", "splitstream", "tree", "flat", "csb", "csb-llcf", "bittorrent", "shared-file"}
            Distribution from rank 0, as in `Communicator.broadcast_variable`. With trees ("chain", "splitstream",
            "tree", "flat") all hosts fetch together. "auto" is "csb".
        block_bytes, degree, verify
            Block size in bytes; number of concurrent receivers of a source; whether receivers compare
            blocks with digests: as in `Communicator.broadcast_variable`.
        places : path or URL, or sequence of these
            Accessible on all ranks. For "shared-file" rank 0 writes the value to the first three. For other strategies
            rank 0 writes three copies. Ranks read the value from them if rank 0 is lost together with blocks.

        Returns
        -------
        Broadcast
            A handle to pass to programs, which read the value from ``value``. Their arrays are read-only. ``release()``
            frees the value: in a program on that rank, here on all ranks.

        Raises
        ------
        InputError
            If an option is unknown, or does not fit the strategy.
        SerializationError
            If the value cannot be pickled.

        Notes
        -----
        Sent values outlive failures of programs; new ranks receive the values again. If the data is no longer
        available, ``value`` raises `BroadcastError`. A single rank uses the caller's own arrays. Ranks with replicas
        receive the complete value from the caller, because each replica would have to fetch it separately.

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
        return Broadcast(self, value, BroadcastOptions.checked(strategy, block_bytes, degree, verify, places))

    def accumulator(self, initial: Any, op: Op = "sum", *, add: AddFunction | None = None) -> JobAccumulator:
        """Create a value that programs of this job add to, and that the caller reads.

        Parameters
        ----------
        initial : object
            Initial value: a number or an array, or any object with `add`. Added amounts have the same shape or type.
        op : {"sum", "prod", "min", "max"}, or an equivalent function, such as ``max``
            Combines the value with added amounts.
        add : callable, optional
            ``add(left, right)`` combines values of any type, instead of `op`: sets, lists, dicts, own classes. It must
            be associative. It may modify and return `left`, because it receives copies.

        Returns
        -------
        JobAccumulator
            A program that refers to it, or gets it as an argument, calls its ``add(amount)``. Its ``value`` changes
            when the program has succeeded on all ranks. Amounts are added in order of rank, so a sum has the same bits
            in every run. Amounts of a failed program are dropped. If a program restarts after a loss, only the amounts
            of its last run count, and those in the checkpoints that `Communicator.restore` brings back.

        Examples
        --------
        >>> import operator
        >>> import ripieno as rp
        >>> def program(comm, rows, names):
        ...     rows.add(10 + comm.rank)
        ...     names.add({f"rank {comm.rank}"})
        >>> with rp.launch(workers=2) as job:
        ...     rows, names = job.accumulator(0), job.accumulator(set(), add=operator.or_)
        ...     _ = job.run(program, rows, names)
        ...     rows.value, sorted(names.value)
        (21, ['rank 0', 'rank 1'])
        """
        made = JobAccumulator(initial, op, add)
        self._accumulators[made.number] = made
        return made

    def _add_up(self) -> None:
        """Combine the amounts that the ranks have added, once per logical rank, with the accumulators."""
        added, self._added = self._added, {}
        by_rank = {rank % (self.workers // self.replicas): added[rank] for rank in sorted(added, reverse=True)}
        amounts: Amounts = {}
        known = dict(self._accumulators)
        in_order = [each for rank in sorted(by_rank) for each in by_rank[rank]]
        if any(number not in known for each in in_order for number in each):
            raise InputError("a program has added to an accumulator of another job")
        for each in in_order:
            fold(amounts, each, {number: accumulator.addition for number, accumulator in known.items()})
        # If a function raises, no accumulator has changed.
        values = {number: known[number].with_amount(amount) for number, amount in amounts.items()}
        for number, value in values.items():
            known[number].value = value

    @contextmanager
    def report_to(self, listener: EventListener | None) -> Iterator[None]:
        """Pass the events of ranks to `listener` within the ``with`` statement, in addition to existing listeners.

        Parameters
        ----------
        listener : callable or None
            Like ``on_event=`` of `ripieno.launch`; None changes nothing.

        Examples
        --------
        >>> import ripieno as rp
        >>> with rp.launch(1) as job, job.report_to(print):
        ...     job.run(lambda comm: comm.emit({"done": 1}))
        {'rank': 0, 'done': 1}
        [None]
        """
        listeners = [] if listener is None else [listener]
        # Events of other threads' programs are not for this listener.
        with self._run_lock:
            self._listeners.extend(listeners)
            try:
                yield
            finally:
                for each in listeners:
                    self._listeners.remove(each)

    def announce(self, name: str, max_iter: int | None = None) -> None:
        """Report to the dashboard the name of the next fit and its maximum number of iterations."""
        self._watch.fit(name, max_iter)

    @property
    def dashboard(self) -> Dashboard | None:
        """The dashboard of the job, if it has one; its ``link`` opens the page."""
        return self._watch.dashboard

    @property
    def ranks(self) -> list[RankStatus]:
        """The state of each rank, in order of rank, and then of each rank that the job has lost.

        It may be read in any thread, also while a program runs. A job that is over has no ranks.

        Examples
        --------
        >>> import ripieno as rp
        >>> with rp.launch(workers=2) as job:
        ...     [str(each.state) for each in job.ranks]
        ['ready', 'ready']
        """
        return [] if self._end_reason is not None else self._rank_states()

    @abstractmethod
    def _rank_states(self) -> list[RankStatus]:
        """Return the state of each rank of a job that is not over."""

    @property
    def over(self) -> bool:
        """Whether the job was closed or could not be formed."""
        return self._end_reason is not None

    def close(self) -> None:
        """End the workers. Repeated calls have no effect."""
        with self._lock:
            if self._end_reason is not None:
                return
            self._end_reason = "it was closed"
            self._was_closed = True
            is_running = self._running
        # If another thread waits for a program, abort the program. That thread then ends the workers.
        if is_running and self._abort_program() and self._idle.wait(CLOSING_S):
            return
        self._close()
        self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget_if_idle(self) -> None:
        """Delete dropped values on the ranks if they wait for a program; otherwise leave it to the next program."""
        if self._run_lock.acquire(blocking=False):
            try:
                if not self._running and self._end_reason is None:
                    self._forget_dropped()
            finally:
                self._run_lock.release()

    def _forget_dropped(self) -> None:
        names = []
        while self._dropped:
            names.append(self._dropped.popleft())
        if names:
            self._forget(names)

    def _finish(self) -> None:
        """Close the watch and the trace, after the last rank has ended."""
        self._watch.close()
        if self._trace is not None:
            self._trace.finish()

    def _notify_listeners(self, event: dict[str, Any]) -> None:
        """Pass an event of a rank to all listeners."""
        self._watch.event(event)
        for listener in self._listeners:
            listener(event)

    def _disown(self) -> None:
        """Mark the job as over in a forked process. It continues in the process that launched it."""
        self._end_reason = self._end_reason or "it belongs to the process from which this one was forked"
        self._running = False
        # Threads that do not exist in this process may hold the old locks.
        self._run_lock, self._lock = threading.RLock(), threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Job:
        # Cloned estimators share the job.
        return self

    def __reduce__(self) -> NoReturn:
        raise SerializationError(
            "a running job cannot be pickled, nor an object that refers to it; call set_params(engine='local') of an "
            "estimator first"
        )

    @abstractmethod
    def _run(self, call: ProgramCall) -> list[Any]: ...

    def _packed(self, value: Any) -> packing.PackedValue:
        """Pack a value as rank 0 relays it, or raise `SerializationError`."""
        return packing.pack_for_process(value, files_by_name=self._SHARES_FILES, read_only=True)

    @abstractmethod
    def _resize(self, workers: int) -> None:
        """Change to `workers` waiting ranks; restore the previous number on failure."""

    @abstractmethod
    def _forget(self, names: list[str]) -> None:
        """Delete broadcast values on the ranks, which wait for a program."""

    @abstractmethod
    def _close(self) -> None: ...

    def _abort_program(self) -> bool:
        """Abort the program that another thread waits for; return whether that was possible."""
        return False


def _disown_all() -> None:
    for job in _launched:
        job._disown()


os.register_at_fork(after_in_child=_disown_all)
