"""A survey of an engine: tasks, started as those of a job are, say what they run on and which others they can reach.

Nothing is computed and no rank meets another: it shows what would keep a job from starting.
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
from ripieno.launch.job.conversation import tell

PACKAGES = ("numpy", "pyarrow")
# The version of what is not installed.
MISSING = "missing"
# Who can be reached answers within this.
REACH_S = 3.0
# How many others a task tries at once.
TRIES_AT_ONCE = 16


@dataclass(frozen=True)
class Site:
    """What a task says of where it is.

    Attributes
    ----------
    rank, host
        Which task, and the name of its host.
    address, port
        Where it listens for the others.
    python
        The interpreter.
    versions
        Of Python, ripieno and `PACKAGES`; `MISSING` for what is not installed.
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
    """Of what a program may depend on, here."""
    return {
        "Python": platform.python_version(),
        "ripieno": __version__,
        **{name: package_version(name) for name in PACKAGES},
    }


def package_version(package: str) -> str:
    """Of what pip has installed here, or `MISSING`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return MISSING


def take(engine: Engine, workers: int, *, tls: bool | None = None) -> tuple[list[Site], list[UnreachedHost]]:
    """Start so many tasks in `engine`: where they are, and who cannot reach whom.

    Every task tries one task at each address, its own included, encrypted as `tls` says.

    Raises
    ------
    EngineError, RankFailed
        The engine has too few free slots, or its tasks cannot run or cannot reach this process.
    """
    with _Survey(engine, workers, threads=1, on_event=None, trace=None, tls=tls) as survey:
        return survey.result()


def answer(channel: RemoteChannel, invitation: Invitation, rank: int, bind_host: str | None) -> None:
    """In a task: take part in the survey of the process at the other end of `channel`."""
    address = bind_host or channel.own_address()
    with _listening(address, invitation) as port:
        channel.send("ready")
        channel.receive()
        channel.send("site", Site(rank, socket.gethostname(), address, port, sys.executable, versions()))
        _, targets = channel.receive()
        with ThreadPoolExecutor(TRIES_AT_ONCE) as pool:
            causes = pool.map(lambda target: _try(target, invitation), targets)
            channel.send("tried", list(zip(targets, causes, strict=True)))
        # The others may still be trying this one.
        channel.receive()


class _Survey(EngineJob):
    def _start(self, invitation: Invitation) -> Run:
        return self.engine.start(self.workers, replace(invitation, is_survey=True))

    def _check(self, join: Join) -> None:
        """Versions that differ are what is looked for."""

    def result(self) -> tuple[list[Site], list[UnreachedHost]]:
        with self._recovering():
            sites = self._asked("site")
            tried = self._asked("tried", _one_at_each_address(sites))
        unreached = [
            UnreachedHost(site, target, cause)
            for site, tries in zip(sites, tried, strict=True)
            for target, cause in tries
            if cause
        ]
        return sites, unreached

    def _asked(self, what: str, value: Any = None) -> list[Any]:
        for member in self.members:
            tell(member, what, value)
        return self._replies(what)


def _one_at_each_address(sites: Sequence[Site]) -> list[Site]:
    return list({site.address: site for site in reversed(sites)}.values())[::-1]


@contextmanager
def _listening(address: str, invitation: Invitation) -> Iterator[int]:
    """A port where whoever knows the token is greeted meanwhile."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, backlog=1024) as listener:
        greeter = threading.Thread(target=_greet, args=(listener, invitation), name="ripieno-survey", daemon=True)
        greeter.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Wakes the thread that accepts.
            listener.shutdown(socket.SHUT_RDWR)
            greeter.join()


def _greet(listener: socket.socket, invitation: Invitation) -> None:
    for channel in remote.MemberReception(listener, invitation.token, tls=invitation.tls).members():
        channel.close()


def _try(target: Site, invitation: Invitation) -> str:
    """Why `target` cannot be reached; nothing if it can."""
    try:
        remote.connect(target.address, target.port, invitation.token, REACH_S, tls=invitation.tls).close()
    except (OSError, NotAuthentic) as error:
        return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return ""
