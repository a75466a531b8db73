"""The member server: where the members of a job in an engine report to the process that launched it."""

from __future__ import annotations

import errno
import os
import platform
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ripieno._version import __version__
from ripieno.launch.engine import remote
from ripieno.launch.engine.remote import NotAuthentic, RemoteChannel
from ripieno.launch.process.channel import HungUp

# Who connects has this long to prove that it knows the token and to say who it is.
HANDSHAKE_S = 10.0
# What a member says first is not longer than this.
JOIN_BYTES = 1 << 16
# So many are heard at once; for one more, who has said nothing for the longest is shown out.
GREETED_COUNT = 512
# How long nobody is let in when the system has no room, and nobody is there to be shown out.
PAUSE_S = 0.1
# Time for a thread to close what it has heard.
WAKE_S = 0.001
NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


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
    error : OSError or None
        Why it has stopped to listen.
    """

    def __init__(self, host: str, token: bytes, *, tls: bool | None = None) -> None:
        self._token = token
        self._tls = tls
        self._joined: deque[tuple[Join, RemoteChannel]] = deque()
        self._closed = False
        self.error: OSError | None = None
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self._heard = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        # Who have not said yet who they are, the oldest first, and whether they have proved that they know the token.
        self._guests: dict[socket.socket, bool] = {}
        threading.Thread(target=self._accept, name="ripieno-members", daemon=True).start()

    def fileno(self) -> int:
        """Readable when somebody has joined."""
        return self._heard

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
            for each in (self._listener, *self._guests):
                # Wakes the thread that waits for it.
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for _, channel in self._joined:
            channel.close()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listener.accept()
            except ConnectionAbortedError:
                continue
            except OSError as error:
                with self._lock:
                    if self._closed:
                        return
                    if error.errno not in NO_ROOM:
                        self.error = error
                        os.eventfd_write(self._heard, 1)
                        return
                if not self._show_out():
                    time.sleep(PAUSE_S)
                continue
            if len(self._guests) >= GREETED_COUNT:
                self._show_out()
            self._hear(end)

    def _show_out(self) -> bool:
        """Let go of one who has proved nothing, the oldest from where most come, and say whether there was one."""
        with self._lock:
            sources = {end: _source(end) for end, is_proven in self._guests.items() if not is_proven}
            if not sources:
                return False
            crowd = Counter(sources.values()).most_common(1)[0][0]
            oldest = next(end for end, source in sources.items() if source == crowd)
            del self._guests[oldest]
            # Wakes the thread that hears it, which closes it.
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        time.sleep(WAKE_S)
        return True

    def _hear(self, end: socket.socket) -> None:
        thread = threading.Thread(target=self._greet, args=(end,), name="ripieno-members", daemon=True)
        with self._lock:
            is_welcome = not self._closed
            if is_welcome:
                self._guests[end] = False
        try:
            if is_welcome:
                thread.start()
                return
        except RuntimeError:
            # No more threads: a member that is sent away comes again.
            self._forget(end)
        end.close()

    def _greet(self, end: socket.socket) -> None:
        channel = None
        try:
            channel = remote.accept(end, self._token, HANDSHAKE_S, tls=self._tls)
            with self._lock:
                if end in self._guests:
                    self._guests[end] = True
            kind, join = channel.receive(HANDSHAKE_S, JOIN_BYTES)
            with self._lock:
                self._guests.pop(end, None)
                if self._closed or kind != "join":
                    channel.close()
                    return
                self._joined.append((join, channel))
                os.eventfd_write(self._heard, 1)
        except (OSError, NotAuthentic, HungUp):
            # No member; it learns of that by the end of the connection.
            end.close()
            if channel is not None:
                channel.close()
        finally:
            self._forget(end)

    def _forget(self, end: socket.socket) -> None:
        with self._lock:
            self._guests.pop(end, None)


def _source(end: socket.socket) -> str:
    """From where somebody comes; nothing once the connection has ended."""
    try:
        return str(end.getpeername()[0])
    except OSError:
        return ""
