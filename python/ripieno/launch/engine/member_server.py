"""The member server: where the members of a job in an engine report to the process that launched it."""

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
from ripieno.launch.engine.remote import MemberReception, RemoteChannel
from ripieno.launch.process.channel import HungUp

# Who has proved that it knows the token has this long to say who it is.
JOIN_S = 10.0
# What a member says first is not longer than this.
JOIN_BYTES = 1 << 16


@dataclass(frozen=True)
class Invitation:
    """What a task of an engine needs to become a rank; it holds the token, so it travels by the engine's own channel.

    Attributes
    ----------
    host, port
        Where the member server listens.
    token
        The job's secret, 32 bytes.
    world_size, threads
        How many ranks there will be, and how many threads each computes with.
    options
        Of the native communicator: ``links``, ``heartbeat_timeout_s`` …
    sys_path
        Folders of modules that programs may come from, for members that can see them, too.
    is_survey
        Whether tasks do not become ranks, but only say where they are.
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
        """Whether all connections are encrypted, or none; None is those between hosts."""
        tls: bool | None = self.options.get("tls")
        return tls


@dataclass(frozen=True)
class Join:
    """What a member says first.

    Attributes
    ----------
    rank, host, pid
        Who it is.
    attempt
        The same for ranks that were started together: an engine may start tasks again.
    versions
        Of what must be equal for values to travel.
    """

    rank: int
    host: str
    pid: int
    attempt: str
    versions: dict[str, str]


def versions() -> dict[str, str]:
    """Of what must be equal in all processes of a job: ripieno, and Python but for its last number."""
    return {"ripieno": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}


class MemberServer:
    """A listener on `host`, for members of the same `tls`. Use ``joined`` when its descriptor is readable.

    Attributes
    ----------
    port : int
        Where it listens.
    """

    def __init__(self, host: str, token: bytes, *, tls: bool | None = None) -> None:
        self._joined: deque[tuple[Join, RemoteChannel]] = deque()
        self._closed = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._reception: MemberReception | None = MemberReception(self._listener, token, tls=tls)
        self._heard = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        # Who have proved that they know the token, and have not said yet who they are.
        self._newcomers: set[RemoteChannel] = set()
        threading.Thread(target=self._receive, name="ripieno-members", daemon=True).start()

    def fileno(self) -> int:
        """Readable when somebody has joined."""
        return self._heard

    @property
    def lack(self) -> str | None:
        """What this process has lacked for a while to let anybody in."""
        reception = self._reception
        return None if reception is None else reception.lack

    def joined(self) -> Iterator[tuple[Join, RemoteChannel]]:
        """Who has joined since the last call."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._heard)
        while self._joined:
            yield self._joined.popleft()

    def close(self) -> None:
        """Refuse whoever comes now. May be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            os.close(self._heard)
            # Each wakes the thread that waits for it.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            for channel in self._newcomers:
                channel.hang_up()
        for _, channel in self._joined:
            channel.close()

    def _receive(self) -> None:
        reception = self._reception
        assert reception is not None, "it is there until nobody is received any more"
        with self._listener:
            for channel in reception.members():
                self._hear(channel)
        # Closes upon all who have proved nothing.
        self._reception = None

    def _hear(self, channel: RemoteChannel) -> None:
        thread = threading.Thread(target=self._greet, args=(channel,), name="ripieno-members", daemon=True)
        with self._lock:
            is_welcome = not self._closed
            if is_welcome:
                self._newcomers.add(channel)
        try:
            if is_welcome:
                thread.start()
                return
        except RuntimeError:
            # No more threads: a member that is sent away comes again.
            pass
        self._send_away(channel)

    def _greet(self, channel: RemoteChannel) -> None:
        try:
            kind, join = channel.receive(JOIN_S, JOIN_BYTES)
        except HungUp:
            # No member; it learns of that by the end of the connection.
            self._send_away(channel)
            return
        except BaseException:
            self._send_away(channel)
            raise
        with self._lock:
            if not self._closed and kind == "join":
                self._newcomers.discard(channel)
                self._joined.append((join, channel))
                os.eventfd_write(self._heard, 1)
                return
        self._send_away(channel)

    def _send_away(self, channel: RemoteChannel) -> None:
        with self._lock:
            self._newcomers.discard(channel)
        channel.close()
