"""A channel over TCP: what passes is copied into the socket and out of it, and nothing else.

Before anything is read both ends prove that they know the job's token, without sending it. What passes afterwards is
neither encrypted nor signed.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
from typing import Any

import numpy as np

from ripieno import _wire
from ripieno._arrays import empty
from ripieno.launch.channel import Channel, HungUp
from ripieno.launch.parcel import pack

# A peer that has begun a message, or should be reading one, may stand still for this long.
MESSAGE_S = 60.0
# A silent host is noticed after this long: idle seconds, seconds between probes, probes.
KEEP_ALIVE = (10, 5, 4)

_HEADER = struct.Struct("<16sQ")  # kind, bytes of the blob
_CHALLENGE_BYTES = 32
_PROOF_BYTES = hashlib.sha256().digest_size


class NotAuthentic(Exception):
    """The other end does not know the token."""


class RemoteChannel(Channel):
    """One end of an authenticated connection; large values are packed without a copy."""

    def send(self, kind: str, value: Any = None) -> None:
        self.send_packed(kind, pack(value, files_by_name=False))

    def send_packed(self, kind: str, packed: _wire.Packed) -> None:
        """Send what was packed, to this member and perhaps to others, too."""
        with self._sending:
            try:
                size_bytes = _wire.blob_bytes(packed)
                self._socket.sendall(_HEADER.pack(kind.encode(), size_bytes))
                sent = 0
                for offset, piece in _wire.blob_pieces(packed):
                    self._socket.sendall(bytes(offset - sent))
                    self._socket.sendall(piece)
                    sent = offset + piece.nbytes
                self._socket.sendall(bytes(size_bytes - sent))
            except OSError as error:
                raise HungUp(f"the other process no longer listens: {error}") from error

    def own_address(self) -> str:
        """The address of this end."""
        return self._socket.getsockname()[0]

    def receive(self, patience_s: float | None = None) -> tuple[str, Any]:
        kind, blob = self.receive_blob(patience_s)
        return kind, _wire.read_blob(blob)

    def receive_blob(self, patience_s: float | None = None) -> tuple[str, np.ndarray]:
        """The next message, not unpickled yet; its bytes lie where ranks of a host can read them without a copy."""
        # A peer may be silent between messages, by default for ever, but not within one.
        self._socket.settimeout(patience_s)
        try:
            start = self._socket.recv(_HEADER.size)
        except OSError as error:
            raise HungUp(str(error)) from error
        if not start:
            raise HungUp("the other process is gone")
        self._socket.settimeout(MESSAGE_S)
        kind, size_bytes = _HEADER.unpack(start + bytes(self._exactly(_HEADER.size - len(start))))
        blob = empty(size_bytes, np.uint8)
        self._fill(memoryview(blob))
        return kind.rstrip(b"\0").decode(), blob


def connect(host: str, port: int, token: bytes, timeout_s: float) -> RemoteChannel:
    """A channel to a hub.

    Raises
    ------
    OSError
        If nobody listens there.
    NotAuthentic
        If who listens does not know the token.
    """
    end = socket.create_connection((host, port), timeout=timeout_s)
    try:
        theirs = _exactly(end, _CHALLENGE_BYTES)
        mine = secrets.token_bytes(_CHALLENGE_BYTES)
        end.sendall(mine + _proof(token, b"member", theirs, mine))
        if not hmac.compare_digest(_exactly(end, _PROOF_BYTES), _proof(token, b"hub", mine, theirs)):
            raise NotAuthentic(f"{host}:{port} does not know this job's token")
        return _channel(end)
    except BaseException:
        end.close()
        raise


def accept(end: socket.socket, token: bytes, timeout_s: float) -> RemoteChannel:
    """The channel to who has connected by `end`; `OSError` or `NotAuthentic` if that is no member of this job."""
    try:
        end.settimeout(timeout_s)
        mine = secrets.token_bytes(_CHALLENGE_BYTES)
        end.sendall(mine)
        theirs = _exactly(end, _CHALLENGE_BYTES)
        if not hmac.compare_digest(_exactly(end, _PROOF_BYTES), _proof(token, b"member", mine, theirs)):
            raise NotAuthentic("who has connected does not know this job's token")
        end.sendall(_proof(token, b"hub", theirs, mine))
        return _channel(end)
    except BaseException:
        end.close()
        raise


def _channel(end: socket.socket) -> RemoteChannel:
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in zip((socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT), KEEP_ALIVE, strict=True):
        end.setsockopt(socket.IPPROTO_TCP, option, value)
    end.settimeout(MESSAGE_S)
    return RemoteChannel(end)


def _proof(token: bytes, role: bytes, *challenges: bytes) -> bytes:
    return hmac.digest(token, b"ripieno " + role + b"".join(challenges), hashlib.sha256)


def _exactly(end: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        piece = end.recv(size_bytes - len(data))
        if not piece:
            raise ConnectionError("the connection was closed before both ends knew each other")
        data += piece
    return data
