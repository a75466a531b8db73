"""Provide the member server, which accepts the connections of a job's members in the launching process."""

from __future__ import annotations

import os
import platform
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ripieno._version import __version__
from ripieno.launch.engine.remote import MemberAcceptor, RemoteChannel
from ripieno.launch.limits import CONNECT_S, HEARTBEAT_S
from ripieno.launch.process.channel import ConnectionClosed

# Maximum size of the `Join` message.
JOIN_BYTES = 1 << 16


@dataclass(frozen=True)
class Invitation:
    """The data that a task needs to become a rank. It contains the token, so the engine's own channel carries it.

    Attributes
    ----------
    host, port
        Address of the member server.
    token
        The job's secret, 32 bytes.
    world_size, threads
        Number of ranks, and number of threads of each rank.
    options
        Options of the native communicator: ``links``, ``heartbeat_timeout_s`` …
    sys_path
        Module folders of the launching process, for members that can read them.
    is_survey
        Whether tasks only report their location instead of becoming ranks.
    """

    host: str
    port: int
    token: bytes = field(repr=False)
    world_size: int
    threads: int
    options: dict[str, Any] = field(default_factory=dict)
    sys_path: tuple[str, ...] = ()
    is_survey: bool = False

    @property
    def tls(self) -> bool | None:
        """Return whether connections are encrypted: all (True), none (False), or between hosts (None)."""
        tls: bool | None = self.options.get("tls")
        return tls

    @property
    def heartbeat_s(self) -> float:
        """Return the heartbeat timeout of the ranks."""
        heartbeat_s: float = self.options.get("heartbeat_timeout_s", HEARTBEAT_S)
        return heartbeat_s


@dataclass(frozen=True)
class Join:
    """The first message of a member.

    Attributes
    ----------
    rank, host, pid
        Rank, host name and process id of the member.
    attempt
        Equal for ranks that were started together: an engine may start tasks again.
    versions
        Versions that must be equal so that values can be exchanged.
    """

    rank: int
    host: str
    pid: int
    attempt: str
    versions: dict[str, str]


def versions() -> dict[str, str]:
    """Return the versions that must be equal in all processes: ripieno, and Python without the patch level."""
    return {"ripieno": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}


class MemberServer:
    """A listener on `host` for members with the same `tls`. Call ``joined`` when its descriptor is readable.

    Attributes
    ----------
    port : int
        Listening port.
    """

    def __init__(self, host: str, token: bytes, *, tls: bool | None = None, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._joined: deque[tuple[Join, RemoteChannel]] = deque()
        self._closed = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._acceptor: MemberAcceptor | None = MemberAcceptor(self._listener, token, tls=tls, heartbeat_s=heartbeat_s)
        self._join_event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        # Authenticated peers that have not sent `Join` yet.
        self._pending: set[RemoteChannel] = set()
        threading.Thread(target=self._receive, name="ripieno-members", daemon=True).start()

    def fileno(self) -> int:
        """Return a descriptor that is readable after a member has joined."""
        return self._join_event

    @property
    def shortage(self) -> str | None:
        """Return the exhausted resource that prevents accepting connections, or None."""
        acceptor = self._acceptor
        return None if acceptor is None else acceptor.shortage

    def joined(self) -> Iterator[tuple[Join, RemoteChannel]]:
        """Yield the members that have joined since the last call."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._join_event)
        while self._joined:
            yield self._joined.popleft()

    def close(self) -> None:
        """Refuse new connections. Repeated calls have no effect."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.close(self._join_event)
            # Each shutdown wakes the thread that waits on the socket.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            for channel in self._pending:
                channel.shut_down()
        for _, channel in self._joined:
            channel.close()

    def _receive(self) -> None:
        acceptor = self._acceptor
        assert acceptor is not None, "the acceptor exists while this thread runs"
        with self._listener:
            for channel in acceptor.members():
                self._begin_join(channel)
        # Closes all connections that are not authenticated.
        self._acceptor = None

    def _begin_join(self, channel: RemoteChannel) -> None:
        thread = threading.Thread(target=self._receive_join, args=(channel,), name="ripieno-members", daemon=True)
        with self._lock:
            is_open = not self._closed
            if is_open:
                self._pending.add(channel)
        try:
            if is_open:
                thread.start()
                return
        except RuntimeError:
            # The thread limit is reached. The rejected member connects again.
            pass
        self._reject(channel)

    def _receive_join(self, channel: RemoteChannel) -> None:
        try:
            kind, join = channel.receive(CONNECT_S, JOIN_BYTES)
        except ConnectionClosed:
            # The peer is not a member. It sees the end of the connection.
            self._reject(channel)
            return
        except BaseException:
            self._reject(channel)
            raise
        with self._lock:
            if not self._closed and kind == "join":
                self._pending.discard(channel)
                self._joined.append((join, channel))
                os.eventfd_write(self._join_event, 1)
                return
        self._reject(channel)

    def _reject(self, channel: RemoteChannel) -> None:
        with self._lock:
            self._pending.discard(channel)
        channel.close()
