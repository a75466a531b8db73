"""Provide authenticated TCP channels between the launching process and the members of a job.

Both ends prove that they know the job's token, without sending it, before either reads a message. With TLS, all data
passes through a tunnel: a thread of the native module encrypts the data written into a Unix socket, and decrypts
received data. Without TLS, data is neither encrypted nor signed: a checksum of small messages, and of the sizes of
others, detects accidental changes. Large values are copied only into and out of the socket.
"""

from __future__ import annotations

import select
import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.launch.deadline import is_ready, pauses
from ripieno.launch.limits import DELIVERY_HEARTBEATS, HEARTBEAT_S, MESSAGE_S, SHUTDOWN_S
from ripieno.launch.process.channel import Channel, ConnectionClosed, DamagedMessage
from ripieno.wire import packing
from ripieno.wire.arrays import empty

# Kind, bytes of the blob, checksum.
_HEADER = struct.Struct("<16sQI")
# The checksum covers blobs of at most this many bytes.
_CHECKED_BYTES = 1 << 16


class NotAuthentic(Exception):
    """Raised if the other end does not know the token."""


class RemoteChannel(Channel):
    """One end of an authenticated connection. Large values are packed without a copy.

    Parameters
    ----------
    end : socket.socket
    send_s : float or None
        Maximum time to wait until the other end accepts sent data. None waits without limit. Members pass None,
        because the launching process serves one rank after another.
    own_address : str
        Address of this end, if it has one.
    tunnel : optional
        Tunnel of an encrypted connection; `end` is its near end.
    """

    def __init__(
        self, end: socket.socket, send_s: float | None, own_address: str = "", tunnel: _native.Tunnel | None = None
    ) -> None:
        super().__init__(end)
        self.own_address = own_address
        self._tunnel = tunnel
        # Wait by poll: a socket timeout would apply to both the sending and the receiving thread.
        end.setblocking(False)
        self._send_s = send_s

    def close(self) -> None:
        super().close()
        if self._tunnel is not None and self._send_s is None:
            # A member's process may exit next, which would end the tunnel before all data is sent.
            self._tunnel.wait(SHUTDOWN_S)

    def send(self, kind: str, value: Any = None) -> None:
        self.send_packed(kind, packing.pack_for_process(value, files_by_name=False))

    def send_packed(self, kind: str, packed: packing.PackedValue) -> None:
        """Send a packed value. The same packed value may be sent to several members."""
        with self._sending:
            try:
                size_bytes = packing.blob_bytes(packed)
                checked = packing.blob(packed).tobytes() if size_bytes <= _CHECKED_BYTES else b""
                header = _HEADER.pack(kind.encode(), size_bytes, _checksum(kind, size_bytes, checked))
                self._send_all(header + checked)
                if checked:
                    return
                sent = 0
                for offset, piece in packing.blob_pieces(packed):
                    self._send_all(bytes(offset - sent))
                    self._send_all(piece)
                    sent = offset + piece.nbytes
                self._send_all(bytes(size_bytes - sent))
            except OSError as error:
                raise ConnectionClosed(f"the other process has closed the connection: {error}") from error

    def _send_all(self, data: bytes | NDArray[Any]) -> None:
        view = data.data if isinstance(data, np.ndarray) else memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, self._send_s)

    def receive(self, timeout_s: float | None = None, max_bytes: int | None = None) -> tuple[str, Any]:
        kind, blob = self.receive_blob(timeout_s, max_bytes)
        return kind, packing.read_blob(blob)

    def receive_packed(self) -> tuple[str, Callable[[], Any]]:
        kind, blob = self.receive_blob()
        return kind, partial(packing.read_blob, blob)

    def receive_blob(self, timeout_s: float | None = None, max_bytes: int | None = None) -> tuple[str, NDArray[Any]]:
        """Return the next message, packed, in memory that ranks of the same host can read without a copy."""
        # `timeout_s` limits the wait for a message, `MESSAGE_S` each pause within a message.
        header = bytearray(_HEADER.size)
        self._fill(memoryview(header), timeout_s)
        padded, size_bytes, checksum = _HEADER.unpack(header)
        kind = padded.rstrip(b"\0").decode("latin-1")
        if max_bytes is not None and size_bytes > max_bytes:
            raise ConnectionClosed(f"the other process announced {size_bytes} bytes, more than {max_bytes}")
        is_checked = size_bytes <= _CHECKED_BYTES
        if not is_checked and checksum != _checksum(kind, size_bytes):
            raise DamagedMessage(f"the header of a message is damaged: {bytes(header).hex()}")
        blob = empty(size_bytes, np.uint8)
        self._fill(blob.data, MESSAGE_S)
        if is_checked and checksum != _checksum(kind, size_bytes, blob.data):
            raise DamagedMessage(f"a message of {size_bytes} bytes is damaged: its checksum is wrong")
        return kind, blob

    def _fill(self, view: memoryview, timeout_s: float | None) -> None:
        while view:
            try:
                received = self._socket.recv_into(view)
            except BlockingIOError:
                self._wait(select.POLLIN, timeout_s)
                continue
            except OSError as error:
                raise ConnectionClosed(str(error)) from error
            if not received:
                raise ConnectionClosed("the other process has ended")
            view = view[received:]
            timeout_s = MESSAGE_S

    def _wait(self, event: int, timeout_s: float | None) -> None:
        if not is_ready(self._socket, timeout_s, event):
            raise ConnectionClosed(f"the other process has made no progress for {timeout_s:g} s")


def _checksum(kind: str, size_bytes: int, content: bytes | memoryview = b"") -> int:
    return zlib.crc32(content, zlib.crc32(f"{kind} {size_bytes}".encode()))


def connect(
    host: str,
    port: int,
    token: bytes,
    timeout_s: float,
    *,
    tls: bool | None = None,
    heartbeat_s: float = HEARTBEAT_S,
) -> RemoteChannel:
    """Return a member's channel to a member server; `tls` encrypts it always, never, or between hosts.

    Raises
    ------
    OSError
        If no process listens there, or the listener sends nothing within `timeout_s`.
    NotAuthentic
        If the listener does not know the token.
    """
    for _ in pauses(timeout_s):
        end = socket.create_connection((host, port), timeout=timeout_s)
        try:
            tunneled = _native.introduce_member(end.fileno(), token, tls, timeout_s)
            return _channel(end, None, tunneled, heartbeat_s)
        except PermissionError as error:
            end.close()
            raise NotAuthentic(f"{host}:{port} does not know this job's token") from error
        except (ConnectionAbortedError, ConnectionResetError, BrokenPipeError) as error:
            # The server may abort connections while many unauthenticated peers connect.
            end.close()
            aborted = error
        except BaseException:
            end.close()
            raise
    raise aborted


class MemberAcceptor:
    """Acceptor of members on `listener`, until that is shut down. Only one thread may call `members`.

    The native module authenticates all connections without blocking. An unauthenticated peer costs some µs, and no
    thread.

    Attributes
    ----------
    shortage : str or None
        The exhausted resource that prevents accepting connections, if any.
    """

    def __init__(
        self, listener: socket.socket, token: bytes, *, tls: bool | None = None, heartbeat_s: float = HEARTBEAT_S
    ) -> None:
        self.shortage: str | None = None
        self._heartbeat_s = heartbeat_s
        self._listener = listener
        self._native = _native.MemberAcceptor(listener.fileno(), token, tls)

    def members(self) -> Iterator[RemoteChannel]:
        """Yield the channels of peers that have proved that they know the token."""
        while self._listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            while (member := self._native.next_member()) is not None:
                end = socket.socket(fileno=member[0])
                try:
                    channel = _channel(end, MESSAGE_S, member[1], self._heartbeat_s)
                except OSError:
                    # The peer has closed the connection.
                    end.close()
                    continue
                yield channel
            self.shortage = self._native.shortage()
            is_ready(self._native.fileno(), self._native.due_s())


def _channel(
    end: socket.socket, send_s: float | None, tunneled: tuple[_native.Tunnel, int] | None, heartbeat_s: float
) -> RemoteChannel:
    tunnel, near = (None, end) if tunneled is None else (tunneled[0], socket.socket(fileno=tunneled[1]))
    try:
        _set_timeouts(end, heartbeat_s)
        address = str(end.getsockname()[0])
    except OSError:
        near.close()
        raise
    if near is not end:
        # The tunnel owns the connection.
        end.close()
    return RemoteChannel(near, send_s, address, tunnel)


def _set_timeouts(end: socket.socket, heartbeat_s: float) -> None:
    """Set the time until the system ends a connection without acknowledgments of the other host."""
    limit_s = DELIVERY_HEARTBEATS * heartbeat_s
    # The system counts whole seconds. It sends the first probe after a third of the limit.
    probe_s = max(1, round(limit_s / 6))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 2 * probe_s),
        (socket.TCP_KEEPINTVL, probe_s),
        (socket.TCP_KEEPCNT, 4),
        (socket.TCP_USER_TIMEOUT, round(1000 * limit_s)),
    ):
        end.setsockopt(socket.IPPROTO_TCP, option, value)
