"""The local engine: worker processes on this machine, each a fresh Python, heard and ended by this one.

Every worker holds one end of a socket pair. Setup, programs, exchanged addresses, events, results and reports pass
there, and the end of either process is noticed there: nothing is found by polling, or named in the file system.
"""

from __future__ import annotations

import os
import secrets
import select
import selectors
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ripieno.errors import RankFailed, SerializationError
from ripieno.flight.trace import Trace
from ripieno.launch import process
from ripieno.launch.channel import Channel, HungUp, pair
from ripieno.launch.copies import copies_environment, copies_of
from ripieno.launch.interruption import interruptible
from ripieno.launch.job import EventListener, Job
from ripieno.launch.output import LinePump
from ripieno.launch.parcel import Parcel
from ripieno.launch.report import Report

# Once a rank says that another one failed, that one has this long to give its own account.
CULPRIT_S = 2.0
# After a failure the other ranks have this long to report what they were at.
WITNESSES_S = 0.5
# A worker that has begun a message, or should be reading one, may stand still for this long.
MESSAGE_S = 60.0
# Workers of a job that has done its work get this long to say goodbye.
GOODBYE_S = 5.0


@dataclass
class _Worker:
    rank: int
    process: subprocess.Popen[bytes]
    channel: Channel
    pid_fd: int | None

    @property
    def sources(self) -> list[Any]:
        """What there is to listen to."""
        return [self.channel] if self.pid_fd is None else [self.channel, self.pid_fd]


class LocalJob(Job):
    """Two or more worker processes."""

    def __init__(
        self,
        workers: int,
        *,
        threads: int,
        replicas: int = 1,
        on_event: EventListener | None,
        trace: Trace | None,
        prefix_output: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(workers, threads, trace, replicas)
        options |= {} if trace is None else {"flight_folder": trace.folder}
        self._on_event = on_event
        self._host = socket.gethostname()
        self._pump = LinePump() if prefix_output else None
        self._workers: list[_Worker] = []
        # Of ranks that have failed, by rank.
        self._reports: dict[int, Report] = {}
        self._end = weakref.finalize(self, _end_workers, self._workers, self._pump, os.getpid())
        try:
            setup = {
                "world_size": workers,
                "replicas": replicas,
                "threads": threads,
                "token": secrets.token_bytes(32),
                **options,
            }
            for rank in range(workers):
                self._workers.append(self._start(rank, setup))
            if self._pump is not None:
                self._pump.start()
            self._replies("ready")
        except BaseException as error:
            self._fail(f"its workers did not start: {error}")
            raise

    @property
    def pids(self) -> list[int]:
        """The process of every rank."""
        return [worker.process.pid for worker in self._workers]

    def _start(self, rank: int, setup: dict[str, Any]) -> _Worker:
        channel, theirs = pair(MESSAGE_S)
        pipes = {} if self._pump is None else {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with theirs:
            child = process.start(
                "ripieno.launch.worker",
                [str(theirs.fileno())],
                environment=process.thread_environment(self.threads) | copies_environment(self.replicas),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                **pipes,
            )
        worker = _Worker(rank, child, channel, _open_pid(child.pid))
        if self._pump is not None:
            self._pump.add(f"rank {rank}", child)
        message = {
            "die_with": os.getpid() if process.on_main_thread() else None,
            "sys_path": sys.path,
            "communicator": {"rank": rank, **setup},
        }
        _tell(worker, "setup", message)
        return worker

    def _run(self, program: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        try:
            parcel = Parcel((program, args, kwargs))
        except SerializationError as error:
            # Nothing has begun, so the job can go on.
            name = getattr(program, "__qualname__", repr(program))
            raise SerializationError(f"{name} or its arguments cannot be sent to workers: {error}") from error
        try:
            with parcel:
                for worker in self._living():
                    # If it has ended, that is noticed below, with the cause.
                    with suppress(HungUp):
                        worker.channel.send_parcel("run", parcel)
            return self._replies("result")
        except Exception as error:
            self._hear_witnesses()
            for line in self._flight_lines():
                if line not in getattr(error, "__notes__", ()):
                    error.add_note(line)
            self._fail(f"its program failed: {type(error).__name__}: {error}".partition("\n")[0])
            raise
        except BaseException as error:
            self._fail(f"its program failed: {type(error).__name__}: {error}".partition("\n")[0])
            raise

    def _close(self) -> None:
        for worker in self._workers:
            _tell(worker, "close")
        deadline = time.monotonic() + GOODBYE_S
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        self._end()

    def _fail(self, sentence: str) -> None:
        self._over = sentence
        self._end()
        self._finish_trace(failed=True)

    def _hear_witnesses(self) -> None:
        """Wait for the reports of ranks that fail now because another one has; each has left its records by then."""
        deadline = time.monotonic() + WITNESSES_S
        with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
            for worker in self._workers:
                if worker.rank not in self._reports and worker.rank not in self.lost:
                    selector.register(worker.channel, selectors.EVENT_READ, worker)
            while selector.get_map() and (left_s := deadline - time.monotonic()) > 0:
                for key, _ in ready(left_s):
                    worker = key.data
                    try:
                        kind, value = worker.channel.receive()
                    except HungUp:
                        selector.unregister(key.fileobj)
                        continue
                    if kind == "error":
                        self._reports[worker.rank] = value
                        selector.unregister(key.fileobj)

    def _flight_lines(self) -> list[str]:
        """What the ranks that have reported did last."""
        return [line for rank in sorted(self._reports) for line in self._reports[rank].flight]

    def _replies(self, kind: str) -> list[Any]:
        """One message of `kind` from every worker; serves exchanges and events until then, and raises on failure."""
        conversation = _Conversation(kind, self)
        with selectors.DefaultSelector() as selector, interruptible(selector) as ready:
            for worker in self._living():
                for source in worker.sources:
                    selector.register(source, selectors.EVENT_READ, worker)
            while not conversation.complete:
                for key, _ in ready(conversation.patience_s()):
                    if key.data.rank in self.lost:
                        continue
                    event = conversation.hear(key.data)
                    if event is not None and self._on_event is not None:
                        self._on_event(event)
                    if key.data.rank in self.lost:
                        for source in key.data.sources:
                            selector.unregister(source)
        return conversation.results()

    def _living(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.rank not in self.lost]


class _Conversation:
    """What the workers have said so far."""

    def __init__(self, awaited: str, job: LocalJob) -> None:
        self._awaited = awaited
        self._workers = job._workers
        self._replicas = job.replicas
        self._host = job._host
        self._reports = job._reports
        self._lost = job.lost
        self._exchange: dict[int, str] = {}
        self._victim: Report | None = None
        self._culprit_by = 0.0
        self.replies: dict[int, Any] = {}

    @property
    def complete(self) -> bool:
        return all(worker.rank in self.replies or worker.rank in self._lost for worker in self._workers)

    def results(self) -> list[Any]:
        """The reply of every logical rank: of the first of its copies that has replied."""
        by_copy = [self._copies(logical) for logical in range(len(self._workers) // self._replicas)]
        return [next(self.replies[rank] for rank in copies if rank in self.replies) for copies in by_copy]

    def _copies(self, rank: int) -> range:
        return copies_of(rank, len(self._workers), self._replicas)

    def patience_s(self) -> float | None:
        """How long to wait for the next message; raises the victim's error if no culprit has come forward in time."""
        if self._victim is None:
            return None
        left_s = self._culprit_by - time.monotonic()
        if left_s <= 0:
            self._victim.throw()
        return left_s

    def hear(self, worker: _Worker) -> dict[str, Any] | None:
        """Take one message from `worker`, whose channel or whose end has shown up; an event is returned."""
        try:
            # A process that has ended may still have left messages, and must be heard before it is called dead.
            if not _readable(worker.channel):
                return self._dead(worker)
            kind, value = worker.channel.receive()
        except HungUp:
            return self._dead(worker)
        if kind == self._awaited:
            self.replies[worker.rank] = value
        elif kind == "exchange":
            self._exchanged(worker, value)
        elif kind == "event":
            return {"rank": worker.rank, **value}
        elif kind == "error":
            self._reported(worker, value)
        return None

    def _exchanged(self, worker: _Worker, text: str) -> None:
        self._exchange[worker.rank] = text
        if len(self._exchange) == len(self._workers):
            texts = [self._exchange[rank] for rank in range(len(self._workers))]
            self._exchange.clear()
            for each in self._workers:
                _tell(each, "exchange", texts)

    def _reported(self, worker: _Worker, report: Report) -> None:
        self._reports[worker.rank] = report
        if report.victim is None or report.victim.rank in self._lost:
            report.throw()
        if self._victim is None:
            self._victim = report
            self._culprit_by = time.monotonic() + CULPRIT_S

    def _dead(self, worker: _Worker) -> None:
        try:
            cause = process.ending(worker.process.wait(CULPRIT_S))
        except subprocess.TimeoutExpired:
            cause = "its process closed the connection to its launcher"
        others = [rank for rank in self._copies(worker.rank) if rank != worker.rank]
        if self._awaited == "result" and any(rank not in self._lost for rank in others):
            self._lost[worker.rank] = cause
            return
        before = "".join(
            f"; before that its copy, rank {rank}: {self._lost[rank]}" for rank in others if rank in self._lost
        )
        raise RankFailed(worker.rank, self._host, cause + before) from None


def _tell(worker: _Worker, kind: str, value: Any = None) -> None:
    # Whoever listens to this worker learns of its end there.
    with suppress(HungUp):
        worker.channel.send(kind, value)


def _readable(channel: Channel) -> bool:
    watch = select.poll()
    watch.register(channel.fileno(), select.POLLIN)
    return bool(watch.poll(0))


def _open_pid(pid: int) -> int | None:
    """A descriptor that tells of the process's end even if a grandchild holds its channel; from Linux 5.3 on."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _end_workers(workers: list[_Worker], pump: LinePump | None, owner_pid: int) -> None:
    """Leave no process, descriptor or thread behind."""
    if os.getpid() != owner_pid:
        return  # a fork of the launcher, whose workers these are not
    for worker in workers:
        worker.channel.close()
    try:
        process.end([worker.process for worker in workers])
    finally:
        for worker in workers:
            if worker.pid_fd is not None:
                os.close(worker.pid_fd)
        if pump is not None:
            pump.close()
