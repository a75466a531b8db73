"""Provide the workers of a pool: ranks that execute the calls sent by one rank.

The sending rank and each worker form a separate world, because only one thread at a time can wait in a world.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from numpy.typing import NDArray

from ripieno.comm.communicator import Communicator
from ripieno.errors import RipienoError
from ripieno.host import usable_cores
from ripieno.launch.encryption import wants_tls
from ripieno.launch.job.local import LocalJob
from ripieno.launch.job.programs import connect
from ripieno.launch.limits import check_workers
from ripieno.launch.process.report import FailureReport
from ripieno.wire import packing

#: A function with its arguments.
Call = tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]
#: A packed result, or the report of an exception.
Reply = NDArray[Any] | FailureReport

#: The key of a worker's address in its event.
_ADDRESS = "ripieno.pool.address"

#: The communicator of the workers, in a process that is one.
_siblings: Communicator | None = None


class Worker:
    """A rank that executes one call at a time.

    Parameters
    ----------
    pair : Communicator
        A world of this rank, and of the worker as rank 1.
    """

    def __init__(self, pair: Communicator) -> None:
        self._pair = pair

    def begin(self, call: NDArray[Any]) -> None:
        """Send a packed call. Raise `RankFailed` if the worker has died."""
        self._pair.send(call, 1)

    def end(self) -> Reply:
        """Return the reply to the call. Raise `RankFailed` if the worker has died."""
        reply: Reply = self._pair.recv(1)
        return reply

    def stop(self) -> None:
        """Let the worker continue with its own program."""
        self._pair.send(None, 1)
        self._pair.close()


class OwnWorker(Worker):
    """The worker of a world of one rank, which is this process."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def begin(self, call: NDArray[Any]) -> None:
        """Keep a packed call."""
        self._call = call

    def end(self) -> Reply:
        """Make the call, and return its reply."""
        with _among(self._comm):
            return _reply(self._call, self._comm)

    def stop(self) -> None:
        """Do nothing: this process continues in another thread."""


class Workers:
    """The workers of one or more pools.

    Attributes
    ----------
    size : int
        Number of workers.
    free : SimpleQueue of Worker
        The idle workers.
    """

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.size = len(workers)
        self._workers = workers
        self.free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in workers:
            self.free.put(worker)
        self._lock = threading.Lock()

    def run_on_all(self, call: Call) -> None:
        """Execute the call on every worker. After all workers have replied, raise the first exception, if any."""
        packed, replies = packed_call(*call), []
        with self._lock, ExitStack() as stack:
            workers = [self.free.get() for _ in range(self.size)]
            for worker in workers:
                # Also after a failure of a worker: its next call raises, instead of waiting for a free worker.
                stack.callback(self.free.put, worker)
            for worker in workers:
                worker.begin(packed)
            replies = [worker.end() for worker in workers]
        for reply in replies:
            result_of(reply)

    def stop(self) -> None:
        """Let all workers continue with their own programs. Workers that have died are ignored."""
        for worker in self._workers:
            with suppress(RipienoError):
                worker.stop()


def of_ranks(comm: Communicator, root: int) -> Workers:
    """Return all ranks but `root` as workers. The root calls this, and the other ranks call `serve`."""
    others = [rank for rank in range(comm.world_size) if rank != root]
    return Workers([Worker(_pair(comm, root, rank)) for rank in others] or [OwnWorker(comm)])


def serve(comm: Communicator, root: int, siblings: Communicator | None = None) -> None:
    """Execute the calls of rank `root` until it stops this worker.

    Parameters
    ----------
    siblings : Communicator, optional
        The communicator of all workers; by default a new one.
    """
    with ExitStack() as stack:
        pair = stack.enter_context(_pair(comm, root, comm.rank))
        if siblings is None:
            others = [rank for rank in range(comm.world_size) if rank != root]
            siblings = stack.enter_context(comm.group(others))
        stack.enter_context(_among(siblings))
        while (call := pair.recv(0)) is not None:
            pair.send(_reply(call, siblings), 0)


def _pair(comm: Communicator, root: int, worker: int) -> Communicator:
    """Return a new world of two ranks of `comm`. Both call this; `root` becomes rank 0."""
    with comm.group([root, worker]) as pair:
        token = pair.broadcast(secrets.token_bytes(32) if pair.rank == 0 else None)
        bind_host = "127.0.0.1" if len(set(pair.nodes)) == 1 else os.environ.get("RIPIENO_BIND_HOST") or None
        tls = wants_tls(os.environ)
        options = {"token": token, "bind_host": bind_host, "tls": tls}
        return connect(pair.rank, 2, pair.allgather, threads=comm.threads, on_event=_ignore, **options)


@contextmanager
def launched(count: int) -> Iterator[Workers]:
    """Start processes of this machine as workers, which end with the context.

    This process and the workers of a job join as ranks of a world of their own. The workers receive the address of
    this process as an argument, and report theirs as events.
    """
    check_workers(count)
    options = {"token": secrets.token_bytes(32), "bind_host": "127.0.0.1"}
    reported: queue.SimpleQueue[dict[str, Any] | BaseException] = queue.SimpleQueue()

    def listen(event: dict[str, Any]) -> None:
        if _ADDRESS in event:
            reported.put(event)

    def exchange(address: str) -> list[str]:
        def run() -> None:
            try:
                job.run(_join, address, options)
            except BaseException as error:
                # Nothing reads this after all workers have joined: the calls of the pool raise `RankFailed` then.
                reported.put(error)

        runner.append(threading.Thread(target=run, name="ripieno-pool-job", daemon=True))
        runner[0].start()
        addresses: dict[int, str] = {}
        while len(addresses) < count:
            event = reported.get()
            if isinstance(event, BaseException):
                raise event
            addresses[event["rank"]] = event[_ADDRESS]
        return [address, *(addresses[rank] for rank in range(count))]

    runner: list[threading.Thread] = []
    threads = max(1, usable_cores() // count)
    with LocalJob(count, threads=threads, on_event=listen) as job:
        try:
            with connect(0, count + 1, exchange, threads=1, on_event=_ignore, **options) as comm:
                workers = of_ranks(comm, 0)
                try:
                    yield workers
                finally:
                    workers.stop()
        finally:
            if runner:
                runner[0].join()


def _join(comm: Communicator, root_address: str, options: dict[str, Any]) -> None:
    """Join the world of the launching process as a worker, and execute its calls."""

    def exchange(address: str) -> list[str]:
        comm.emit({_ADDRESS: address})
        return [root_address, *comm.allgather(address)]

    rank, count = comm.rank + 1, comm.world_size + 1
    with connect(rank, count, exchange, threads=comm.threads, on_event=_ignore, **options) as pool:
        serve(pool, 0, comm)


def siblings() -> Communicator:
    """Return the communicator of the workers. Raise RuntimeError in a process that is not a worker."""
    if _siblings is None:
        raise RuntimeError("this process is not a worker of a pool: expected a call that a worker makes")
    return _siblings


def packed_call(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> NDArray[Any]:
    """Return a call as bytes. Raise `SerializationError` if it cannot be pickled."""
    return packing.blob(packing.pack_for_process((function, tuple(args), kwargs)))


def result_of(reply: Reply) -> Any:
    """Return the result, or raise the exception of the call from a `RankFailed` with the worker and its host."""
    if isinstance(reply, FailureReport):
        reply.throw()
    return packing.read_blob(reply)


def _reply(call: NDArray[Any], comm: Communicator) -> Reply:
    """Execute a call, and return its reply."""
    try:
        function, args, kwargs = packing.read_blob(call)
        return packing.blob(packing.pack_for_process(function(*args, **kwargs)))
    except (Exception, SystemExit) as error:
        # The traceback starts in the function.
        inner = error.__traceback__ and error.__traceback__.tb_next
        return FailureReport.of(error.with_traceback(inner), comm.rank, comm.hosts[comm.rank])


@contextmanager
def _among(siblings: Communicator) -> Iterator[None]:
    global _siblings
    outer, _siblings = _siblings, siblings
    try:
        yield
    finally:
        _siblings = outer


def _ignore(event: dict[str, Any]) -> None:
    """Discard an event of a rank."""
