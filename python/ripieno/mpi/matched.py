"""Matched probes: only the handle of a found message can receive it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from ripieno.comm.mailbox import ReceivedMessage
from ripieno.errors import InputError
from ripieno.mpi.buffers import incoming
from ripieno.mpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from ripieno.mpi.elements import Elements
from ripieno.mpi.requests import Request
from ripieno.mpi.status import Status, noted
from ripieno.mpi.unsupported import refusing


def _unchanged(message: ReceivedMessage[Any]) -> ReceivedMessage[Any]:
    return message


@refusing
class Message:
    """A message that a matched probe has found.

    Parameters
    ----------
    message : Message, optional
        Another reference to this message is created. By default it is null.
    """

    _received: ReceivedMessage[Any] | None
    _accept: Callable[[ReceivedMessage[Any]], ReceivedMessage[Any]]

    def __new__(cls, message: Message | None = None) -> Self:
        if not isinstance(message, Message | None):
            raise TypeError(f"Message: a {type(message).__name__}: expected a message")
        instance = object.__new__(cls)
        instance._received, instance._accept = (
            (None, _unchanged) if message is None else (message._received, message._accept)
        )
        return instance

    @classmethod
    def _of(
        cls,
        received: ReceivedMessage[Any],
        accept: Callable[[ReceivedMessage[Any]], ReceivedMessage[Any]] = _unchanged,
    ) -> Message:
        instance = cls()
        instance._received, instance._accept = received, accept
        return instance

    @classmethod
    def probe(cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message:
        """Return the next message that fits."""
        found: Message = comm.mprobe(source, tag, status)
        return found

    @classmethod
    def iprobe(
        cls, comm: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Message | None:
        """Return a message that fits, or None if none has arrived."""
        found: Message | None = comm.improbe(source, tag, status)
        return found

    Probe, Iprobe = probe, iprobe

    def recv(self, status: Status | None = None) -> Any:
        """Return the object."""
        received = self._taken()
        noted(status, received.source, int(received.tag or 0), received.value)
        return received.value

    def irecv(self) -> Request:
        """Return a request. Its wait returns the object."""
        received = self._taken()

        def attempt(timeout_s: float | None, status: Status | None) -> tuple[bool, Any]:
            noted(status, received.source, int(received.tag or 0), received.value)
            return True, received.value

        return Request(attempt)

    def Recv(self, buf: Any, status: Status | None = None) -> None:
        """Receive into a buffer."""
        self.Irecv(buf).Wait(status)

    def Irecv(self, buf: Any) -> Request:
        """Return a request. Its wait receives into a buffer."""
        into: Elements = incoming(buf, "Recv").elements
        received = self._taken()

        def attempt(timeout_s: float | None, status: Status | None) -> tuple[bool, None]:
            noted(status, received.source, int(received.tag or 0), received.value)
            if received.source != PROC_NULL:
                into.write(received.value, is_whole=False)
            return True, None

        return Request(attempt)

    def free(self) -> None:
        """Turn this reference into the null message, unless it is `MESSAGE_NO_PROC`."""
        if self is not MESSAGE_NO_PROC:
            self._received = None

    def __bool__(self) -> bool:
        return self._received is not None

    def __eq__(self, other: object) -> bool:
        return self._received is other._received if isinstance(other, Message) else NotImplemented

    def __hash__(self) -> int:
        return id(self._received)

    def __reduce__(self) -> Any:
        for name, constant in (("MESSAGE_NULL", MESSAGE_NULL), ("MESSAGE_NO_PROC", MESSAGE_NO_PROC)):
            if self is constant:
                return name
            if self == constant:
                return _copied, (type(self), name)
        raise InputError("a message that was found cannot be pickled; receive it first")

    def _taken(self) -> ReceivedMessage[Any]:
        """Return the message that was found; this reference becomes null."""
        if self._received is None:
            raise InputError("message: MESSAGE_NULL: expected one that a probe has found; it is received once")
        received = self._accept(self._received)
        self.free()
        return received


def _copied(cls: type[Message], name: str) -> Message:
    return cls(MESSAGE_NULL if name == "MESSAGE_NULL" else MESSAGE_NO_PROC)


MESSAGE_NULL = Message()
MESSAGE_NO_PROC = Message._of(ReceivedMessage(None, PROC_NULL, ANY_TAG))
