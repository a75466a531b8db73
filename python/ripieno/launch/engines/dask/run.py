"""Provide the tasks of a job in Dask: their control in the launching process, and their code on the workers."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from distributed import Client, Future, get_worker, secede

from ripieno.errors import EngineError
from ripieno.launch.engine.contract import Run
from ripieno.launch.engine.member_server import Invitation
from ripieno.launch.limits import LEAVE_S, SHUTDOWN_S, SLOTS_S
from ripieno.launch.member import serve

# A nanny needs this long to restart a worker, because it first retries without success for a few seconds.
RESTART_S = 10.0
# Higher than the priority of all other tasks that wait for a thread of the worker.
PRIORITY = 1_000_000
# Events of a task for subscribers to its worker: it has begun; its launcher closed the connection.
BEGUN = "ripieno-rank-begun"
DISCONNECTED = "ripieno-rank-disconnected"

logger = logging.getLogger("ripieno.dask")


class DaskRun(Run):
    """The tasks of a job, each pinned to its worker, under the keys ``name-rank``; calls `ended` after the last one."""

    def __init__(self, client: Client, name: str, ended: Callable[[], None]) -> None:
        super().__init__()
        self.places: list[str] = []
        self._client = client
        self._on_end = ended
        self._is_over = False
        self._name = name
        self._futures: list[Future] = []
        self._subscriptions: list[EventSubscription] = []
        self._waiting: set[int] = set()
        self._unfinished: set[int] = set()
        self._change = threading.Condition()

    def begin(self, places: list[str], invitation: Invitation) -> int:
        """Start rank i on the worker ``places[i]``; return the number of tasks without a thread after `SLOTS_S`."""
        self.places = places
        self._waiting = set(range(len(places)))
        self._unfinished = set(range(len(places)))
        self._subscriptions = [
            EventSubscription(self._client, worker, partial(self._on_event, rank)) for rank, worker in enumerate(places)
        ]
        for rank, worker in enumerate(places):
            future = self._client.submit(
                _rank,
                invitation,
                rank,
                key=self._key(rank),
                workers=[worker],
                allow_other_workers=False,
                pure=False,
                retries=0,
                priority=PRIORITY,
            )
            self._futures.append(future)
            future.add_done_callback(partial(self._ended, rank))
        with self._change:
            self._change.wait_for(lambda: not self._waiting, SLOTS_S)
            return len(self._waiting)

    def abandon(self) -> None:
        """End the tasks before the job exists; tasks that have begun wait for its server."""
        with self._change:
            self._unfinished.clear()
        self.close()

    def end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        try:
            with self._change:
                self._change.wait_for(lambda: not self._unfinished, SHUTDOWN_S)
                stuck = [self.places[rank] for rank in self._unfinished]
            # A suspended process receives no messages, and Dask detects this only after minutes. Its nanny can end it.
            if stuck and self._client.status == "running":
                with suppress(Exception):
                    self._client.restart_workers(stuck, timeout=RESTART_S)
        finally:
            for subscription in self._subscriptions:
                subscription.close()
            futures, self._futures = self._futures, []
            # A closed client has released the futures.
            with suppress(Exception):
                self._client.cancel(futures, force=True)
            with suppress(Exception):
                self._on_end()

    def _key(self, rank: int) -> str:
        return f"{self._name}-{rank}"

    def _on_event(self, rank: int, event: tuple[float, Any]) -> None:
        message = event[1]
        if message == {"action": BEGUN, "key": self._key(rank)}:
            self._has_begun(rank)
        elif message == {"action": DISCONNECTED, "key": self._key(rank)}:
            self.failed(rank, f"its task on {self.places[rank]} has lost the connection to its launcher")
        elif isinstance(message, dict) and message.get("action") == "remove-worker":
            unexpected = "its process ended, or its nanny has ended it"
            reason = "closed or retired on request" if message["expected"] else unexpected
            self.failed(rank, f"the worker {self.places[rank]} has left the cluster ({reason})")
            self._left(rank)

    def _ended(self, rank: int, future: Future) -> None:
        if future.status == "error":
            error = future.exception()
            self.failed(rank, f"its task has failed on {self.places[rank]}: {type(error).__name__}: {error}")
        elif self._client.status != "running":
            self.failed(None, "the connection to the scheduler is lost")
        elif future.status != "finished":
            self.failed(rank, f"its task is {future.status}, by another client")
        self._left(rank)

    def _has_begun(self, rank: int) -> None:
        with self._change:
            self._waiting.discard(rank)
            self._change.notify_all()

    def _left(self, rank: int) -> None:
        with self._change:
            self._unfinished.discard(rank)
            # Once a rank has left, the job does not wait for the start of others.
            self._waiting.clear()
            self._change.notify_all()


class EventSubscription:
    """Receives the scheduler's events about a worker, and its tasks' events, under the worker's address as topic.

    A client supports one handler per topic, so this class forwards events to all subscriptions of the process.
    """

    _open: ClassVar[dict[tuple[str, str], list[EventSubscription]]] = {}
    _lock = threading.Lock()

    def __init__(self, client: Client, worker: str, handle: Callable[[tuple[float, Any]], None]) -> None:
        self._client = client
        self._worker = worker
        self._handle = handle
        with self._lock:
            subscriptions = self._open.setdefault((client.id, worker), [])
            subscriptions.append(self)
            if len(subscriptions) == 1:
                client.subscribe_topic(worker, partial(_notify_listeners, subscriptions))

    def close(self) -> None:
        """End the subscription."""
        with self._lock:
            subscriptions = self._open[self._client.id, self._worker]
            subscriptions.remove(self)
            if subscriptions:
                return
            del self._open[self._client.id, self._worker]
            # A closed client receives no events.
            with suppress(Exception):
                self._client.unsubscribe_topic(self._worker)

    def __call__(self, event: tuple[float, Any]) -> None:
        self._handle(event)


def _notify_listeners(subscriptions: list[EventSubscription], event: tuple[float, Any]) -> None:
    for subscription in list(subscriptions):
        subscription(event)


def _rank(invitation: Invitation, rank: int) -> None:
    """Run a rank on its own thread, as the task."""
    worker = get_worker()
    key = worker.get_current_task()
    worker.log_event(worker.address, {"action": BEGUN, "key": key})
    guard = _RankGuard(rank, has_nanny=worker.nanny is not None)
    secede()
    try:
        serve(invitation, rank, local={"rank": rank}, on_disconnect=guard.end)
    except EngineError:
        # The caller knows the cause. An exception would add a traceback per rank to the worker's log.
        worker.log_event(worker.address, {"action": DISCONNECTED, "key": key})
    finally:
        guard.has_left()


class _Overdue(BaseException):
    """Raised in the thread of a rank that still runs after its launcher has ended."""


class _RankGuard:
    """Ends a rank that occupies a thread of this worker. Dask itself cannot end a running task."""

    def __init__(self, rank: int, *, has_nanny: bool) -> None:
        self._rank = rank
        self._has_nanny = has_nanny
        self._thread = threading.get_ident()
        self._left = threading.Event()
        self._lock = threading.Lock()

    def has_left(self) -> None:
        """Record that the rank has left."""
        with self._lock:
            self._left.set()

    def end(self) -> None:
        """End the rank after its launcher has ended: wait, interrupt, end the process. Runs in another thread."""
        if self._left.wait(LEAVE_S):
            return
        with self._lock:
            if not self._left.is_set():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(_Overdue))
        if self._left.wait(LEAVE_S) or not self._has_nanny:
            return
        logger.warning("rank %d has not left its thread: its nanny starts this worker again", self._rank)
        os.kill(os.getpid(), signal.SIGKILL)
