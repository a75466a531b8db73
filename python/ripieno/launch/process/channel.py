"""Provide the channel between a launcher and a worker, over the socket pair that the worker inherits.

A message has a kind and a value. Cost: one copy through the socket for small values; large values pass as a descriptor.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ripieno.launch.process.processes import fill_standard_descriptors
from ripieno.launch.process.shared_message import SharedMessage, open_inline, open_shared

# Kind, bytes of the message, whether it lies in shared memory, whether its arrays are writable.
_HEADER = struct.Struct("<16sQ??")


class ConnectionClosed(Exception):
    """Raised if the process at the other end has ended, or has closed the channel."""


class DamagedMessage(ConnectionClosed):
    """Raised if received bytes are not a valid message. The connection cannot be used any more."""


class Channel:
    """One end of a channel. Sending is thread-safe; only one thread may receive.

    Parameters
    ----------
    end : socket.socket
        A connected Unix stream socket; its timeout applies to every system call.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._socket.fileno()

    def send(self, kind: str, value: Any = None) -> None:
        """Pack and send `value`."""
        with SharedMessage(value, writable=True) as message:
            self.send_message(kind, message)

    def send_message(self, kind: str, message: SharedMessage) -> None:
        """Send a packed message, which may be sent to other receivers as well."""
        header = _HEADER.pack(kind.encode(), message.size_bytes, message.fd is not None, message.writable)
        with self._sending:
            try:
                self._send(header, message)
            except OSError as error:
                raise ConnectionClosed(f"the other process has closed the connection: {error}") from error

    def receive(self) -> tuple[str, Any]:
        """Return the next message, or raise `ConnectionClosed`. Exceptions during unpickling propagate."""
        kind, load = self.receive_packed()
        return kind, load()

    def receive_packed(self) -> tuple[str, Callable[[], Any]]:
        """Return the kind of the next message, and a function that unpickles its value; or raise `ConnectionClosed`."""
        try:
            start, fds, _, _ = socket.recv_fds(self._socket, _HEADER.size, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise ConnectionClosed(str(error)) from error
        if not start:
            raise ConnectionClosed("the other process has ended")
        header = bytearray(start) + self._exactly(_HEADER.size - len(start))
        kind, size_bytes, shared, writable = _HEADER.unpack(header)
        name = kind.rstrip(b"\0").decode()
        if shared:
            return name, partial(open_shared, fds[0], size_bytes)
        return name, partial(open_inline, self._exactly(size_bytes), writable=writable)

    def shut_down(self) -> None:
        """Shut down the connection for both ends, even if a forked process still holds this end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def closed(self) -> bool:
        """Whether this end has closed its descriptor."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Shut down the connection and close the descriptor."""
        self.shut_down()
        self._socket.close()

    def _send(self, header: bytes, message: SharedMessage) -> None:
        if message.inline is not None:
            self._socket.sendall(header + message.inline)
            return
        assert message.fd is not None, "a message is sent before it is closed"
        sent = socket.send_fds(self._socket, [header], [message.fd])
        self._socket.sendall(header[sent:])

    def _exactly(self, size_bytes: int) -> bytearray:
        data = bytearray(size_bytes)
        view = memoryview(data)
        while view:
            try:
                received = self._socket.recv_into(view)
            except OSError as error:
                raise ConnectionClosed(str(error)) from error
            if not received:
                raise ConnectionClosed("the other process has ended")
            view = view[received:]
        return data


def pair(timeout_s: float) -> tuple[Channel, socket.socket]:
    """Return this process's channel, with `timeout_s` within a message, and the socket that a child inherits."""
    fill_standard_descriptors()
    own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    own.settimeout(timeout_s)
    return Channel(own), theirs


def inherited(fd: int) -> Channel:
    """Return the channel on an inherited descriptor, which this process's own children do not inherit."""
    os.set_inheritable(fd, False)
    return Channel(socket.socket(fileno=fd))
