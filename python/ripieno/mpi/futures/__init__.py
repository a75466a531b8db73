"""mpi4py's executors on ranks of Ripieno: `MPIPoolExecutor` and `MPICommExecutor`.

``ripieno run -n 4 -m ripieno.mpi.futures script.py`` runs a script on rank 0. The other ranks are the workers of all
its pools. Without it, a pool starts processes of this machine.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    InvalidStateError,
    TimeoutError,
    as_completed,
    wait,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice, starmap
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ripieno import mpi
from ripieno.errors import InputError, UnsupportedError
from ripieno.host import usable_cores
from ripieno.launch import pool
from ripieno.launch.pool import Workers
from ripieno.mpi.communicator import Comm, Intracomm
from ripieno.mpi.unsupported import missing_in_futures

__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "BrokenExecutor",
    "CancelledError",
    "Executor",
    "Future",
    "InvalidStateError",
    "MPICommExecutor",
    "MPIPoolExecutor",
    "TimeoutError",
    "as_completed",
    "get_comm_workers",
    "wait",
]

R = TypeVar("R")

#: Options of mpi4py that have no effect here.
_IGNORED = ("main", "use_pkl5", "backoff", "mpi_info")
_APPLIED = ("path", "wdir", "env")

#: The ranks that all pools of this process share, if it runs under ``-m ripieno.mpi.futures``.
_shared: list[Workers] = []
#: Existing pools, including all pools with threads.
_live: weakref.WeakSet[_Pool] = weakref.WeakSet()
#: Whether the program has ended, so that no thread can start.
_has_ended = False


class MPIPoolExecutor(Executor):
    """Calls functions on other ranks, like `concurrent.futures.ProcessPoolExecutor`.

    Use it in a ``with`` statement, or call `shutdown`. The workers start with the first call.

    Parameters
    ----------
    max_workers : int, optional
        Number of processes to start on this machine; by default MPI4PY_FUTURES_MAX_WORKERS or one per usable core.
        Under ``-m ripieno.mpi.futures`` the workers are the other ranks, and the number is ignored.
    initializer : callable, optional
        Called with `initargs` on each worker before other functions. If it fails, all calls raise `BrokenExecutor`.
    initargs : tuple
        Its arguments.
    **options
        ``path``: folders to append to ``sys.path`` of the workers; ``wdir``: their current directory; ``env``: their
        environment variables. ``main``, ``use_pkl5``, ``backoff`` and ``mpi_info`` are ignored.

    Raises
    ------
    UnsupportedError
        For other options of mpi4py.

    Examples
    --------
    >>> from ripieno.mpi.futures import MPIPoolExecutor
    >>> with MPIPoolExecutor(max_workers=2) as executor:
    ...     executor.submit(pow, 2, 5).result(), list(executor.map(abs, [-1, 2, -3]))
    (32, [1, 2, 3])
    """

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Iterable[Any] = (),
        **options: Any,
    ) -> None:
        if max_workers is not None and int(max_workers) < 1:
            raise InputError(f"max_workers={max_workers}: expected 1 or more")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer: a {type(initializer).__name__}: expected a function")
        for name, value in options.items():
            is_this_python = name == "python_exe" and value == sys.executable
            if value is not None and name not in (*_IGNORED, *_APPLIED) and not is_this_python:
                raise UnsupportedError(
                    f"MPIPoolExecutor: {name}: expected max_workers, initializer, initargs, "
                    f"{', '.join(_APPLIED)}; an initializer can prepare the workers"
                )
        self._count = None if max_workers is None else int(max_workers)
        applied = {name: options[name] for name in _APPLIED if options.get(name)}
        as_mpi4py = getattr(sys.modules.get("mpi4py"), "MPI", None) is mpi
        self._preparation: list[pool.Call] = [(_prepare, (as_mpi4py,), applied)] if applied or as_mpi4py else []
        if initializer is not None:
            self._preparation.append((initializer, tuple(initargs), {}))
        self._is_shut_down = False
        self._lock = threading.Lock()
        self._pool: _Pool | None = None

    @property
    def num_workers(self) -> int:
        """Number of workers, which start if necessary; 0 after `shutdown` or a failure."""
        with self._lock:
            return 0 if self._is_shut_down else self._started().wait()

    def bootup(self, wait: bool = True) -> Self:
        """Start the workers, and wait until they are ready. Return this executor."""
        with self._lock:
            started = self._started()
        if wait:
            started.wait()
        return self

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Return a future of ``fn(*args, **kwargs)``, which a free worker calls.

        Functions of ``__main__`` travel by value. An exception of the function is raised by `Future.result`, from a
        `RankFailed` with the traceback of the worker.

        Raises
        ------
        BrokenExecutor
            If the initializer failed, a worker has died, or the workers could not start.
        RuntimeError
            After `shutdown`, and in functions that `atexit` calls.
        """
        future: Future[R] = Future()
        with self._lock:
            self._started().submit(future, (fn, args, kwargs))
        return future

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        unordered: bool = False,
    ) -> Iterator[R]:
        """Yield ``fn(*args)`` for the items of all iterables, as `starmap` does."""
        return self.starmap(fn, zip(*iterables, strict=False), timeout, chunksize, buffersize, unordered)

    def starmap(
        self,
        fn: Callable[..., R],
        iterable: Iterable[Iterable[Any]],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        unordered: bool = False,
    ) -> Iterator[R]:
        """Yield ``fn(*args)`` for each tuple of arguments.

        Parameters
        ----------
        fn : callable
            The function.
        iterable : iterable of iterables
            Its arguments. All are read at once, unless `buffersize` limits them.
        timeout : float, optional
            Raise `TimeoutError` if a result is not available this number of seconds after this call.
        chunksize : int
            Number of calls that a worker makes in a row. An exception replaces all results of its chunk.
        buffersize : int, optional
            Number of chunks without a result that are submitted at the same time.
        unordered : bool
            Whether to yield results as they complete, instead of in the order of the arguments.
        """
        if chunksize < 1:
            raise InputError(f"chunksize={chunksize}: expected 1 or more")
        if buffersize is not None and not isinstance(buffersize, int):
            raise TypeError(f"buffersize: a {type(buffersize).__name__}: expected a whole number")
        if buffersize is not None and (buffersize < 1 or unordered):
            raise InputError(
                f"buffersize={buffersize}, unordered={unordered}: expected 1 or more, for results in order"
            )
        end = None if timeout is None else time.monotonic() + timeout
        arguments = iter(iterable)
        chunks = iter(lambda: list(islice(arguments, chunksize)), [])
        submitted = (self.submit(_call_each, fn, chunk) for chunk in chunks)
        return _results(deque(islice(submitted, buffersize)), submitted, end, unordered)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further calls, and end the workers after the last one.

        Parameters
        ----------
        wait : bool
            Whether to wait until the workers have ended.
        cancel_futures : bool
            Whether to cancel calls that no worker has begun.
        """
        with self._lock:
            self._is_shut_down = True
            own = self._pool
            if own is not None:
                own.close(cancels=cancel_futures)
            if wait:
                self._pool = None
        if own is not None and wait:
            own.thread.join()

    def _started(self) -> _Pool:
        """Return the pool, with running threads. The caller holds the lock."""
        if self._is_shut_down:
            raise RuntimeError("this executor was shut down: expected an open one")
        if _has_ended:
            raise RuntimeError("the program has ended, and with it all executors: submit calls before its end")
        if self._pool is None:
            self._pool = _Pool(self._workers(), self._preparation)
            weakref.finalize(self, self._pool.close).atexit = False
        return self._pool

    def _workers(self) -> AbstractContextManager[Workers]:
        if _shared:
            return nullcontext(_shared[-1])
        return pool.launched(self._count or int(os.environ.get("MPI4PY_FUTURES_MAX_WORKERS") or usable_cores()))


class MPICommExecutor:
    """Makes one rank of a communicator the caller, and the other ranks its workers.

    In a ``with`` statement, which all ranks execute, the root gets an `MPIPoolExecutor`. The other ranks are its
    workers until the root leaves the statement, and then execute its body with None.

    Parameters
    ----------
    comm : Comm, optional
        The communicator; by default ``COMM_WORLD``.
    root : int
        The rank that gets the executor.
    **options
        As for `MPIPoolExecutor`.

    Examples
    --------
    >>> from ripieno.mpi.futures import MPICommExecutor
    >>> with MPICommExecutor() as executor:
    ...     if executor is not None:
    ...         print(list(executor.map(pow, [1, 2, 3], [2, 2, 2])))
    [1, 4, 9]
    """

    def __init__(self, comm: Comm | None = None, root: int = 0, **options: Any) -> None:
        self._comm = mpi.COMM_WORLD if comm is None else comm
        if not 0 <= root < self._comm.size:
            raise InputError(f"root={root}: expected 0 … {self._comm.size - 1}")
        self._root = self._comm.rank if _shared else root
        self._options = options
        self._executor: MPIPoolExecutor | None = None

    def __enter__(self) -> MPIPoolExecutor | None:
        if self._executor is not None:
            raise RuntimeError("MPICommExecutor: expected one with statement at a time")
        if self._comm.rank == self._root:
            self._executor = _CommExecutor(self._comm._comm, **self._options)
            self._executor.bootup(wait=False)
        else:
            pool.serve(self._comm._comm, self._root)
        return self._executor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()


class _CommExecutor(MPIPoolExecutor):
    """An executor with the other ranks of a communicator as workers, which call `pool.serve`."""

    def __init__(self, comm: Any, **options: Any) -> None:
        super().__init__(**options)
        self._comm = comm

    def _workers(self) -> AbstractContextManager[Workers]:
        return super()._workers() if _shared else _own(self._comm, self._comm.rank)


def get_comm_workers() -> Intracomm:
    """Return the communicator of all workers, inside a call on a worker. Raise RuntimeError elsewhere."""
    return Intracomm._of(pool.siblings())


@contextmanager
def shared_workers(comm: Comm) -> Iterator[bool]:
    """Make all ranks but 0 the workers of all pools of rank 0. Yield whether this is rank 0."""
    if comm.rank > 0:
        pool.serve(comm._comm, 0)
        yield False
        return
    workers = pool.of_ranks(comm._comm, 0)
    _shared.append(workers)
    try:
        yield True
    except SystemExit:
        # The script has ended; another exception ends all ranks instead.
        _close_all()
        workers.stop()
        raise
    _close_all()
    workers.stop()


@contextmanager
def _own(comm: Any, root: int) -> Iterator[Workers]:
    workers = pool.of_ranks(comm, root)
    try:
        yield workers
    finally:
        workers.stop()


class _Pool:
    """The threads of an executor: one starts the workers; afterwards each thread waits for the call of one worker.

    They hold no reference to the executor, so that its deletion ends them.
    """

    def __init__(self, source: AbstractContextManager[Workers], preparation: list[pool.Call]) -> None:
        self._source = source
        self._preparation = preparation
        # None ends the threads.
        self._calls: queue.SimpleQueue[tuple[Future[Any], pool.Call] | None] = queue.SimpleQueue()
        self._is_ready = threading.Event()
        self._size = 0
        self._lock = threading.Lock()
        self._cause = ""
        self.thread = threading.Thread(target=self._run, name="ripieno-pool", daemon=True)
        self.thread.start()
        _live.add(self)

    def wait(self) -> int:
        """Return the number of workers when they are ready; 0 after a failure."""
        self._is_ready.wait()
        return 0 if self._cause else self._size

    def submit(self, future: Future[Any], call: pool.Call) -> None:
        """Queue a call for a worker."""
        with self._lock:
            if self._cause:
                raise BrokenExecutor(self._cause)
            self._calls.put((future, call))

    def close(self, *, cancels: bool = False) -> None:
        """End the threads after the last call; cancel the calls that no worker has begun if `cancels`."""
        if cancels:
            self._drop(_cancel)
        self._calls.put(None)

    def _run(self) -> None:
        try:
            with self._source as workers:
                for call in self._preparation:
                    workers.run_on_all(call)
                self._size = workers.size
                self._is_ready.set()
                threads = [
                    threading.Thread(target=self._serve, args=(workers,), daemon=True) for _ in range(workers.size)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        except Exception as error:
            self._break(error)
        finally:
            self._is_ready.set()

    def _serve(self, workers: Workers) -> None:
        while self._serve_one(workers):
            pass
        self._calls.put(None)

    def _serve_one(self, workers: Workers) -> bool:
        """Run the next call on a worker; return whether more calls may follow."""
        item = self._calls.get()
        if item is None:
            return False
        future, call = item
        worker = workers.free.get()
        try:
            if not future.set_running_or_notify_cancel():
                return True
            try:
                packed = pool.packed_call(*call)
            except BaseException as error:
                future.set_exception(error)
                return True
            try:
                worker.begin(packed)
                reply = worker.end()
            except Exception as error:
                self._break(error)
                future.set_exception(BrokenExecutor(self._cause))
                return False
        finally:
            # Also after a failure: the next call of the worker raises, instead of waiting for a free worker.
            workers.free.put(worker)
        try:
            future.set_result(pool.result_of(reply))
        except BaseException as error:
            future.set_exception(error)
        return True

    def _break(self, error: Exception) -> None:
        """Let this and all further calls raise `BrokenExecutor`."""
        with self._lock:
            self._cause = f"a worker has failed: {error}"

            def fail(future: Future[Any]) -> None:
                if future.set_running_or_notify_cancel():
                    future.set_exception(BrokenExecutor(self._cause))

            self._drop(fail)

    def _drop(self, end: Callable[[Future[Any]], object]) -> None:
        """Remove all calls that no worker has begun, and end their futures."""
        while not self._calls.empty():
            try:
                item = self._calls.get_nowait()
            except queue.Empty:
                return
            if item is not None:
                end(item[0])


def _results(
    pending: deque[Future[list[R]]], following: Iterator[Future[list[R]]], end: float | None, unordered: bool
) -> Iterator[R]:
    """Yield the results of chunks. After each result another chunk is submitted."""

    def remaining() -> float | None:
        return None if end is None else end - time.monotonic()

    try:
        if unordered:
            for future in as_completed(list(pending), remaining()):
                yield from future.result()
            return
        while pending:
            results = pending.popleft().result(remaining())
            pending.extend(islice(following, 1))
            yield from results
    finally:
        for future in pending:
            future.cancel()


def _cancel(future: Future[Any]) -> None:
    future.cancel()
    # Otherwise `concurrent.futures.wait` would wait for this future.
    future.set_running_or_notify_cancel()


def _call_each(fn: Callable[..., R], chunk: list[Iterable[Any]]) -> list[R]:
    return list(starmap(fn, chunk))


def _prepare(
    as_mpi4py: bool,
    *,
    path: Iterable[str] = (),
    wdir: str | os.PathLike[str] = "",
    env: Mapping[str, str] | None = None,
) -> None:
    """Prepare a worker for the functions of the caller."""
    if as_mpi4py:
        mpi.as_mpi4py()
    sys.path.extend(path)
    os.environ.update(env or {})
    if wdir:
        os.chdir(wdir)


def _close_all() -> None:
    """End all pools after their last calls."""
    global _has_ended
    _has_ended = True
    for each in list(_live):
        each.close()
        each.thread.join()


# Runs before the functions of `atexit`, like the exit functions of Python's executors. Threads can still start then, so
# a starting pool completes its calls.
threading._register_atexit(_close_all)  # type: ignore[attr-defined]


if not TYPE_CHECKING:
    # Hidden from type checkers: with a module-level `__getattr__` they accept any name.
    def __getattr__(name: str) -> Any:
        return missing_in_futures(name)
