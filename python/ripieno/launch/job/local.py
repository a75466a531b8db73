"""Provide the local engine: worker processes on this machine, forked by a helper, controlled by this process.

Each worker holds one end of a socket pair. Nothing is polled, and nothing appears in the file system.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ripieno import host
from ripieno.launch import limits
from ripieno.launch.binding import Binding, cpus_of_ranks
from ripieno.launch.job.process_job import JobState, ProcessJob
from ripieno.launch.job.programs import RunRequest
from ripieno.launch.job.result_collector import RankConnection, try_send
from ripieno.launch.limits import check_workers
from ripieno.launch.process import processes as process
from ripieno.launch.process.channel import ConnectionClosed, pair
from ripieno.launch.process.forked import ForkedProcess, fork
from ripieno.launch.process.interruption import deferred_signals
from ripieno.launch.process.output import LinePump
from ripieno.launch.process.shared_message import SharedMessage
from ripieno.launch.replicas import replicas_environment
from ripieno.wire import main_module
from ripieno.wire.zero_copy import ZeroCopyArray

# Workers use this array to test whether they can read this process's memory.
_PROBE = np.frombuffer(secrets.token_bytes(16), np.uint8)


@dataclass(eq=False)
class _Worker(RankConnection):
    process: ForkedProcess
    #: The caller's `sys.path`, as last sent.
    sys_path: list[str]

    @property
    def sources(self) -> list[Any]:
        # The process reports its end even if a grandchild holds its channel.
        return [self.channel, self.process]

    def ending(self) -> str | None:
        try:
            return process.ending(self.process.wait(0.0))
        except subprocess.TimeoutExpired:
            return None

    def is_stopped(self) -> bool:
        return process.is_stopped(self.process.pid)


class LocalJob(ProcessJob[_Worker]):
    """A job with worker processes on this machine.

    Parameters
    ----------
    workers, spares, prefix_output, **options
        As in `ripieno.launch.launch`.
    binding : Binding, optional
        The cores of each worker; by default workers are not bound.
    """

    _SURVIVES = True
    _START_S = limits.RENDEZVOUS_TIMEOUT_S

    def __init__(
        self,
        workers: int,
        *,
        binding: Binding | None = None,
        spares: int = 0,
        prefix_output: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(workers, **options)
        self._host = socket.gethostname()
        self._prefix_output = prefix_output
        self._binding = Binding() if binding is None else binding
        # Output pumps of the members that were started last.
        self._pumps: list[LinePump] = []
        # Processes without a rank, which replace lost members.
        self._spare_count = spares
        self._spares: list[_Worker] = []
        # Initial options of all members.
        self._setup: dict[str, Any] = {}
        weakref.finalize(self, _end_workers, self.members, self._spares, self._pumps, self._owner_pid)
        self._start_or_close()

    @property
    def pids(self) -> list[int]:
        """Process ids of all ranks. After a failure, ended processes are listed until they are replaced."""
        return [worker.process.pid for worker in self.members]

    @property
    def _place(self) -> str:
        return f"processes of {self._host}"

    def _start_members(self) -> None:
        self.members.clear()
        self._pumps.clear()
        self._setup = {
            "replicas": self.replicas,
            "threads": self.threads,
            "binding": self._binding,
            "cores": host.cores(),
            "restarts_on_failure": self._on_failure != "raise",
            "token": secrets.token_bytes(32),
            "bind_host": "127.0.0.1",
            **self._options,
        }
        self._start("rank", range(self.workers), self.members)
        self._keep_spares()
        self._join()

    def _stop_limit_s(self, awaited: str) -> float:
        return limits.STOPPED_S if awaited == "ready" else self._heartbeat_s

    def _keep_spares(self) -> None:
        """Keep the requested number of live spare processes."""
        self._spares[:] = [spare for spare in self._spares if spare.process.poll() is None]
        self._start("spare", range(len(self._spares), self._spare_count), self._spares)

    def _replace_lost(self, lost: list[_Worker]) -> bool:
        if self._on_failure == "raise" or len(lost) == len(self.members):
            return False
        _end_workers(lost, [], [], self._owner_pid)
        if self._on_failure == "shrink":
            self._renumber([member for member in self.members if member.loss is None])
            return True
        self._keep_spares()
        substitutes = self._spares[: len(lost)]
        del self._spares[: len(lost)]
        self._start("rank", [member.rank for member in lost[len(substitutes) :]], substitutes)
        for member, substitute in zip(lost, substitutes, strict=True):
            substitute.rank = substitute.number = member.rank
            self.members[member.rank] = substitute
        self._keep_spares()
        return True

    def _renumber(self, members: list[_Worker]) -> None:
        """Make `members` the members of the job, and number them."""
        self.members[:] = members
        for rank, member in enumerate(members):
            member.rank = rank

    def _resize(self, workers: int) -> None:
        check_workers(workers, self._spare_count)
        # Raise the error about too few cores before any member leaves.
        cpus_of_ranks(self._binding, [self.threads] * workers, host.cores())
        if self._state not in (JobState.READY, JobState.DISCONNECTED):
            super()._resize(workers)
            return
        self.epoch += 1
        with deferred_signals():
            leaving = self.members[workers:]
            for member in leaving:
                try_send(member, "close")
            _end_workers(leaving, [], [], self._owner_pid)
            staying = self.members[:workers]
            self._start("rank", range(len(staying), workers), staying)
            self._renumber(staying)
            self.workers = workers
        self._state, self._has_replacements = JobState.DISCONNECTED, True
        with self._recovering():
            self._make_ready()

    def _dismiss(self, member: _Worker) -> None:
        process.end([member.process], grace_s=0.0, step_s=0.0)

    def _start(self, name: str, numbers: Iterable[int], workers: list[_Worker]) -> None:
        """Start one worker per number, and append it to `workers`."""
        pump = LinePump(self._watch.output) if self._prefix_output else None
        for number in numbers:
            workers.append(self._start_one(f"{name} {number}", number, pump))
        if pump is not None:
            self._pumps.append(pump)
            pump.start()

    def _start_one(self, name: str, number: int, pump: LinePump | None) -> _Worker:
        channel, theirs = pair(limits.MESSAGE_S)
        environment = process.thread_environment(self.threads) | replicas_environment(self.replicas)
        with theirs:
            child = fork(theirs.fileno(), "ripieno.launch.job.worker", environment=environment, piped=pump is not None)
        worker = _Worker(number, self._host, channel, child, list(sys.path))
        if pump is not None:
            pump.add(name, child)
        message = {
            "sys_path": worker.sys_path,
            "main": main_module.current_main(),
            "communicator": self._setup,
            "probe": (ZeroCopyArray.of(_PROBE), _PROBE),
        }
        try_send(worker, "setup", message)
        return worker

    def _send(self, request: RunRequest) -> None:
        zero_copy = all(worker.can_read for worker in self._living())
        with SharedMessage(request, zero_copy=zero_copy) as message:
            for worker in self._living():
                if worker.sys_path != sys.path:
                    worker.sys_path = list(sys.path)
                    try_send(worker, "path", worker.sys_path)
                # If the member has ended, the next receive raises the error with its cause.
                with suppress(ConnectionClosed):
                    worker.channel.send_message("run", message)

    def _request_exit(self) -> None:
        for worker in (*self.members, *self._spares):
            try_send(worker, "close")
        process.still_running((each.process for each in self.members), limits.SHUTDOWN_S)

    def _end(self) -> None:
        _end_workers(self.members, self._spares, self._pumps, self._owner_pid)
        self._spares.clear()


def _end_workers(members: list[_Worker], spares: list[_Worker], pumps: list[LinePump], owner_pid: int) -> None:
    """Close all processes, descriptors and threads. Repeated calls have no effect."""
    if os.getpid() != owner_pid:
        return  # a fork of the launcher owns no workers
    workers = [*members, *spares]
    for worker in workers:
        worker.channel.close()
    try:
        process.end([worker.process for worker in workers])
    finally:
        for worker in workers:
            worker.process.close()
        for pump in pumps:
            pump.close()
