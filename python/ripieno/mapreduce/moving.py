"""Move map tasks of slow ranks to idle ranks that have the partition, or a replica of it.

A thread on rank 0 assigns the tasks. A rank gets its own tasks in ascending order. Then it gets the last task of the
rank with the most remaining work. The output of a moved task returns to the rank with the partition. This rank adds the
outputs in the order of the tasks, so the result has the same bits for any distribution of tasks.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ripieno._threads import mapped

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator

#: The tag of all messages of this module: the largest valid one, which programs hardly choose.
TAG = 2**62 - 1
#: A request is answered with own tasks of this total time. A rank with less work left keeps its tasks.
GRANT_S = 0.005
_REQUEST, _GRANT, _OUTPUT = range(3)


@dataclass
class Pace:
    """The tasks that a rank has finished, and their total seconds."""

    count: int = 0
    seconds: float = 0.0

    @property
    def task_s(self) -> float | None:
        """Mean seconds of a task, or None before the first has finished."""
        return self.seconds / self.count if self.count else None


@dataclass
class Claims:
    """The tasks that no rank has claimed, on rank 0.

    Parameters
    ----------
    owners
        The rank of each task, by number.
    may_run
        ``may_run(number, rank)`` returns whether a rank other than the owner has the partition.
    rank_count
        The number of ranks.
    """

    owners: Sequence[int]
    may_run: Callable[[int, int], bool]
    rank_count: int
    moved: list[dict[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._left: list[deque[int]] = [deque() for _ in range(self.rank_count)]
        for number, owner in enumerate(self.owners):
            self._left[owner].append(number)
        self._paces = [Pace() for _ in range(self.rank_count)]
        self._lock = threading.Lock()
        self.moved = [{} for _ in range(self.rank_count)]

    def take(self, rank: int, pace: Pace) -> tuple[list[int], dict[int, int]]:
        """Return the next tasks of a rank, or, after the last, an empty list and the rank of each moved task."""
        with self._lock:
            self._paces[rank] = pace
            own_tasks = self._left[rank]
            if own_tasks:
                task_s = pace.task_s
                count = 1 if task_s is None else max(1, min(len(own_tasks) // 2, int(GRANT_S / max(task_s, 1e-9))))
                return [own_tasks.popleft() for _ in range(count)], {}
            number = self._task_of_slowest(rank)
            if number is None:
                return [], self.moved[rank]
            self.moved[self.owners[number]][number] = rank
            return [number], {}

    def stop(self) -> None:
        """Assign no further tasks."""
        with self._lock:
            for left in self._left:
                left.clear()

    def _task_of_slowest(self, rank: int) -> int | None:
        for owner in sorted(range(self.rank_count), key=self._work_left, reverse=True):
            left = self._left[owner]
            task_s = self._paces[owner].task_s
            if not left or (task_s is not None and task_s * len(left) < GRANT_S):
                continue
            for number in reversed(left):
                if self.may_run(number, rank):
                    left.remove(number)
                    return number
        return None

    def _work_left(self, owner: int) -> tuple[float, int]:
        task_s = self._paces[owner].task_s
        count = len(self._left[owner])
        return (float("inf") if task_s is None else task_s * count) if count else 0.0, count


class _Messages:
    """Messages of one rank. Outputs are stored when they arrive."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._sending = threading.Lock()
        self._leaving: list[Any] = []
        self.outputs: dict[int, Any] = {}

    def send(self, kind: int, content: Any, to: int) -> None:
        # A tag and its value are two messages. The lock keeps messages of other threads from between them.
        with self._sending:
            self._leaving.append(self._comm.send_async((kind, content), to, tag=TAG))

    def receive(self, source: int | None = None) -> tuple[Any, int]:
        """Return the content of the next message other than an output, and its source."""
        while True:
            (kind, content), sender, _ = self._comm.recv(source, tag=TAG, envelope=True)
            if kind != _OUTPUT:
                return content, sender
            number, output = content
            self.outputs[number] = output

    def output(self, number: int) -> Any:
        """Wait for the output of a moved task, and return it."""
        while number not in self.outputs:
            (_, (arrived, output)), _, _ = self._comm.recv(tag=TAG, envelope=True)
            self.outputs[arrived] = output
        return self.outputs.pop(number)

    def finish(self) -> None:
        """Wait until all messages have left."""
        for each in self._leaving:
            each.wait()


def run(
    comm: Communicator,
    claims: Claims,
    work: Callable[[int], Any],
    work_elsewhere: Callable[[int], Any],
    add: Callable[[int, Any], None],
    threads: int,
) -> int:
    """Run tasks until no rank has any left, add the outputs of this rank's tasks, and return the number of moved ones.

    Parameters
    ----------
    comm
        The ranks, two or more.
    claims
        The tasks. Rank 0's claims count.
    work
        Run a task of this rank, and return its output.
    work_elsewhere
        Run a task of another rank. It returns None if this rank cannot load the partition any more.
    add
        Add the output of a task of this rank. It is called in the order of the tasks.
    threads
        Number of tasks that run at the same time.
    """
    messages, paces, lock = _Messages(comm), Pace(), threading.Lock()
    server = _TaskServer(comm, claims, messages) if comm.rank == 0 else None
    moved: dict[int, int] = {}

    def granted() -> Iterator[int]:
        while True:
            with lock:
                pace = Pace(paces.count, paces.seconds)
            if server is not None:
                numbers, found = claims.take(0, pace)
            else:
                messages.send(_REQUEST, pace, 0)
                (numbers, found), _ = messages.receive(0)
            if not numbers:
                moved.update(found)
                return
            yield from numbers

    def run_task(number: int) -> tuple[int, Any]:
        begin = time.perf_counter()
        output = work(number) if claims.owners[number] == comm.rank else work_elsewhere(number)
        with lock:
            paces.count += 1
            paces.seconds += time.perf_counter() - begin
        return number, output

    try:
        for number, output in mapped(run_task, granted(), threads):
            owner = claims.owners[number]
            if owner == comm.rank:
                add(number, output)
            else:
                messages.send(_OUTPUT, (number, output), owner)
    except BaseException:
        claims.stop()
        raise
    if server is not None:
        server.join()
    for number in sorted(moved):
        output = messages.output(number)
        add(number, work(number) if output is None else output)
    messages.finish()
    return len(moved)


class _TaskServer:
    """The thread of rank 0 that answers requests until it has reported to each other rank that no task is left."""

    def __init__(self, comm: Communicator, claims: Claims, messages: _Messages) -> None:
        self._claims = claims
        self._messages = messages
        self._waiting = comm.world_size - 1
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="ripieno-map-server", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, and raise the error that has ended the service, if any."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _serve(self) -> None:
        try:
            while self._waiting:
                pace, rank = self._messages.receive()
                granted = self._claims.take(rank, pace)
                self._messages.send(_GRANT, granted, rank)
                self._waiting -= not granted[0]
        except BaseException as error:
            self._error = error
            self._claims.stop()
