"""Provide a survey of an engine: tasks that report their environment and test their connections, without joining.

The survey starts its tasks like the tasks of a job. It finds problems that would keep a job from starting.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ripieno._version import __version__
from ripieno.launch.engine import remote
from ripieno.launch.engine.contract import Engine, EngineJob, Run
from ripieno.launch.engine.member_server import Invitation, Join
from ripieno.launch.engine.remote import NotAuthentic, RemoteChannel
from ripieno.launch.job.result_collector import try_send

PACKAGES = ("numpy", "pyarrow")
# Reported as the version of a package that is not installed.
MISSING = "missing"
# Timeout of one connection attempt.
REACH_S = 3.0
# Number of concurrent connection attempts of a task.
CONCURRENT_TRIES_MAX = 16


@dataclass(frozen=True)
class Site:
    """The location and environment of a task.

    Attributes
    ----------
    rank, host
        Number of the task, and name of its host.
    address, port
        Its listening address for the other tasks.
    python
        Path of the interpreter.
    versions
        Versions of Python, ripieno and `PACKAGES`; `MISSING` for a package that is not installed.
    """

    rank: int
    host: str
    address: str
    port: int
    python: str
    versions: dict[str, str]

    def __str__(self) -> str:
        return f"rank {self.rank} at {self.address} ({self.host})"


@dataclass(frozen=True)
class UnreachedHost:
    """`source` could not open a connection to `target`, because of `cause`."""

    source: Site
    target: Site
    cause: str


def versions() -> dict[str, str]:
    """Return the versions of the packages that a program may depend on, in this process."""
    return {
        "Python": platform.python_version(),
        "ripieno": __version__,
        **{name: package_version(name) for name in PACKAGES},
    }


def package_version(package: str) -> str:
    """Return the installed version of a package, or `MISSING`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return MISSING


def take(engine: Engine, workers: int, *, tls: bool | None = None) -> tuple[list[Site], list[UnreachedHost]]:
    """Start `workers` tasks in `engine`; return their locations, and the connections that failed.

    Every task connects to one task at each address, its own included, encrypted as `tls` requests.

    Raises
    ------
    EngineError, RankFailed
        If the engine has too few free slots, or its tasks cannot run or cannot reach this process.
    """
    with _Survey(engine, workers, threads=1, on_event=None, trace=None, tls=tls) as survey:
        return survey.result()


def answer(channel: RemoteChannel, invitation: Invitation, rank: int, bind_host: str | None) -> None:
    """Take part, in a task, in the survey of the process at the other end of `channel`."""
    address = bind_host or channel.own_address
    with _listening(address, invitation) as port:
        channel.send("ready")
        channel.receive()
        channel.send("site", Site(rank, socket.gethostname(), address, port, sys.executable, versions()))
        _, targets = channel.receive()
        with ThreadPoolExecutor(CONCURRENT_TRIES_MAX) as pool:
            causes = pool.map(lambda target: _try(target, invitation), targets)
            channel.send("tried", list(zip(targets, causes, strict=True)))
        # The other tasks may still connect to this one.
        channel.receive()


class _Survey(EngineJob):
    def _start(self, invitation: Invitation) -> Run:
        return self.engine.start(self.workers, replace(invitation, is_survey=True))

    def _check(self, join: Join) -> None:
        """Accept all versions: the survey reports differences."""

    def result(self) -> tuple[list[Site], list[UnreachedHost]]:
        with self._recovering():
            sites = self._request("site")
            tried = self._request("tried", _one_at_each_address(sites))
        unreached = [
            UnreachedHost(site, target, cause)
            for site, tries in zip(sites, tried, strict=True)
            for target, cause in tries
            if cause
        ]
        return sites, unreached

    def _request(self, request: str, value: Any = None) -> list[Any]:
        for member in self.members:
            try_send(member, request, value)
        return self._replies(request)


def _one_at_each_address(sites: Sequence[Site]) -> list[Site]:
    return list({site.address: site for site in reversed(sites)}.values())[::-1]


@contextmanager
def _listening(address: str, invitation: Invitation) -> Iterator[int]:
    """Provide a port that answers peers that know the token."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, backlog=1024) as listener:
        acceptor = threading.Thread(target=_accept_all, args=(listener, invitation), name="ripieno-survey", daemon=True)
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # The shutdown wakes the thread that accepts connections.
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()


def _accept_all(listener: socket.socket, invitation: Invitation) -> None:
    for channel in remote.MemberAcceptor(listener, invitation.token, tls=invitation.tls).members():
        channel.close()


def _try(target: Site, invitation: Invitation) -> str:
    """Return the reason if `target` is unreachable, else an empty string."""
    try:
        remote.connect(target.address, target.port, invitation.token, REACH_S, tls=invitation.tls).close()
    except (OSError, NotAuthentic) as error:
        return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return ""
