"""Provide a task farm: idle ranks request items one by one, and results are returned as they arrive.

All ranks compute, including rank 0. A thread on rank 0 hands out item numbers in ascending order. Each rank sends a
result to the launching process at once.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from numpy.typing import NDArray

from ripieno.errors import CommunicatorClosed, SerializationError
from ripieno.launch.process.report import FailureReport
from ripieno.wire import packing

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator
    from ripieno.launch.job.job import Job

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Default number of items in flight per rank.
IN_FLIGHT_PER_RANK = 64

#: The item number that ends the work of a rank.
_NO_MORE = -1

_REQUEST, _GRANT = 1, 2


def results_of(
    job: Job, function: Callable[[Item], Result], items: Iterable[Item], in_flight: int, as_completed: bool
) -> Generator[Any, None, None]:
    """Yield the results in the order of the items or, with their numbers, as they arrive."""
    remaining, first = iter(items), 0
    while wave := list(itertools.islice(remaining, in_flight)):
        found: dict[int, Any] = {}
        next_in_order = 0
        for index, result in _wave(job, function, wave, first):
            if as_completed:
                yield first + index, result
                continue
            found[index] = result
            while next_in_order in found:
                yield found.pop(next_in_order)
                next_in_order += 1
        first += len(wave)


def _wave(
    job: Job, function: Callable[[Item], Result], items: Sequence[Item], first: int
) -> Generator[tuple[int, Any], None, None]:
    """Process `items`, all of them in flight; yield the number and the result of each as they arrive."""
    events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    failure: list[BaseException] = []

    def listen(event: dict[str, Any]) -> None:
        if _KEY in event:
            events.put(event)

    def run() -> None:
        try:
            with job.report_to(listen):
                job.run(_work, function, items)
        except BaseException as error:
            failure.append(error)
        events.put(None)

    runner = threading.Thread(target=run, name="ripieno-map", daemon=True)
    runner.start()
    seen: set[int] = set()
    failed: Callable[[], NoReturn] | None = None
    try:
        while (event := _next_event(job, events)) is not None:
            index = event[_KEY]
            # A program that restarts on fewer ranks computes some results again.
            if index in seen or failed is not None:
                continue
            seen.add(index)
            where = f"item {first + index} of map, on rank {event['rank']}"
            if event["failed"]:
                failed = partial(_throw, event["value"], where)
                continue
            try:
                result = packing.read_blob(event["value"])
            except Exception as error:
                failed = partial(_throw_unreadable, error, where)
                continue
            yield index, result
    finally:
        runner.join()
    if failed is not None:
        failed()
    if failure:
        raise failure[0]


def _throw(report: FailureReport, where: str) -> NoReturn:
    try:
        report.throw()
    except Exception as error:
        error.add_note(f"in {where}")
        raise


def _throw_unreadable(error: Exception, where: str) -> NoReturn:
    raise SerializationError(
        f"the result of {where}, cannot be unpickled in the launching process: {type(error).__name__}: {error}"
    ) from error


def _next_event(job: Job, events: queue.SimpleQueue[dict[str, Any] | None]) -> dict[str, Any] | None:
    if os.getpid() != job._owner_pid:
        raise CommunicatorClosed("this process was forked from the one that reads the results of map")
    return events.get()


#: The key of the item number in the events of a farm.
_KEY = "ripieno.map.item"


def _work(comm: Communicator, function: Callable[[Any], Any], items: Sequence[Any]) -> None:
    """Process items until none is left."""
    counter = _Counter(len(items))
    server = None
    if comm.rank == 0 and comm.world_size > 1:
        server = threading.Thread(target=counter.serve, args=(comm,), name="ripieno-map")
        server.start()
    has_failed = False
    while (index := counter.take() if comm.rank == 0 else _request_item(comm, has_failed)) != _NO_MORE:
        value: FailureReport | NDArray[Any]
        try:
            value = packing.blob(packing.pack_for_process(function(items[index])))
        except Exception as error:
            has_failed = True
            # Drop this module's frame: the traceback starts in the user's function.
            inner = error.__traceback__ and error.__traceback__.tb_next
            value = FailureReport.of(error.with_traceback(inner), comm.rank, comm.hosts[comm.rank])
        comm.emit({_KEY: index, "failed": has_failed, "value": value})
        if has_failed and comm.rank == 0:
            counter.stop()
    if server is not None:
        server.join()
        counter.check()


def _request_item(comm: Communicator, has_failed: bool) -> int:
    """Request the next item for an idle rank."""
    comm.send(has_failed, 0, tag=_REQUEST)
    index: int = comm.recv(0, tag=_GRANT)
    return index


class _Counter:
    """The counter of items on rank 0."""

    def __init__(self, count: int) -> None:
        self._next = 0
        self._count = count
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def take(self) -> int:
        """Return the next item number."""
        with self._lock:
            if self._next >= self._count:
                return _NO_MORE
            self._next += 1
            return self._next - 1

    def stop(self) -> None:
        """Stop handing out items."""
        with self._lock:
            self._next = self._count

    def serve(self, comm: Communicator) -> None:
        """Answer requests of the other ranks until each has received `_NO_MORE`."""
        try:
            waiting = comm.world_size - 1
            while waiting:
                request = comm.recv(tag=_REQUEST, envelope=True)
                if request.value:
                    self.stop()
                index = self.take()
                comm.send(index, request.source, tag=_GRANT)
                waiting -= index == _NO_MORE
        except BaseException as error:
            self._error = error
            self.stop()

    def check(self) -> None:
        """Raise the error that has ended the service, if any."""
        if self._error is not None:
            raise self._error
