"""Point-to-point messages: lower-case names send objects, upper-case names buffers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ripieno.comm.mailbox import ANY_TAG as ANY_KEPT
from ripieno.comm.mailbox import Message
from ripieno.errors import InputError
from ripieno.mpi.base import MpiRank
from ripieno.mpi.buffers import BufferArgument, incoming, outgoing
from ripieno.mpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL
from ripieno.mpi.requests import Request
from ripieno.mpi.status import Status, noted

#: Interval at which a blocking send progresses pending receives.
_POLL_S = 0.0002


class MpiMessageCalls(MpiRank):
    """The point-to-point calls of a communicator. Every message has a tag."""

    # Objects

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object."""
        self.isend(obj, dest, tag).wait()

    ssend = bsend = send

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Start to send an object."""
        if dest == PROC_NULL:
            return _done()
        if dest == self.rank:
            self._comm._mailbox.put_back(Message(_copied(obj), dest, tag), last=True)
            return _done()
        handle = self._comm.send_async(obj, dest, tag=tag)

        def attempt(timeout_s: float | None, status: Status | None) -> tuple[bool, None]:
            # A blocking send progresses pending receives, because the other rank may be sending as well.
            while not handle.done and timeout_s is None and self._waiting:
                for request in list(self._waiting):
                    request.test()
                time.sleep(_POLL_S)
            if timeout_s is None:
                handle.wait()
            return handle.done, None

        return Request(attempt)

    issend = ibsend = isend

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        """Receive an object."""
        return None if source == PROC_NULL else self._taken(source, tag, status, None)

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Return a receive of an object, which is performed by its wait."""
        return self._later(source, tag, lambda value: value)

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Send an object, and receive another one."""
        leaving = self.isend(sendobj, dest, sendtag)
        received = self.recv(None, source, recvtag, status)
        leaving.wait()
        return received

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Return when a message is available, without receiving it."""
        return self._looked(source, tag, status, None)

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Return whether a message is available."""
        return self._looked(source, tag, status, 0.0)

    Probe, Iprobe = probe, iprobe

    # Buffers

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a buffer."""
        self.send(outgoing(buf, "Send"), dest, tag)

    Ssend = Bsend = Rsend = Send

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start to send a buffer, which must not change until the send has completed."""
        return self.isend(outgoing(buf, "Isend"), dest, tag)

    Issend = Ibsend = Irsend = Isend

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        """Receive into a buffer."""
        into = incoming(buf, "Recv")
        if source != PROC_NULL:
            _put(into, self._taken(source, tag, status, None))

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Return a receive into a buffer, which is performed by its wait, or by a blocking send of this rank."""
        into = incoming(buf, "Irecv")
        return self._later(source, tag, lambda value: _put(into, value))

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Send a buffer, and receive into another one."""
        leaving = self.Isend(sendbuf, dest, sendtag)
        self.Recv(recvbuf, source, recvtag, status)
        leaving.wait()

    def _later(self, source: int, tag: int, use: Any) -> Request:
        if source == PROC_NULL:
            return _done()

        def attempt(timeout_s: float | None, status: Status | None) -> tuple[bool, Any]:
            try:
                value = self._taken(source, tag, status, timeout_s)
            except TimeoutError:
                return False, None
            self._waiting.remove(request)
            return True, use(value)

        request = Request(attempt)
        self._waiting.append(request)
        return request

    def _taken(self, source: int, tag: int, status: Status | None, timeout_s: float | None) -> Any:
        message = self._message(source, tag, timeout_s)
        noted(status, message.source, int(message.tag or 0), message.value)
        return message.value

    def _looked(self, source: int, tag: int, status: Status | None, timeout_s: float | None) -> bool:
        try:
            message = self._message(source, tag, timeout_s)
        except TimeoutError:
            return False
        self._comm._mailbox.put_back(message)
        noted(status, message.source, int(message.tag or 0), message.value)
        return True

    def _message(self, source: int, tag: int, timeout_s: float | None) -> Message[Any]:
        wanted = None if source == ANY_SOURCE else source
        kept = self._comm._mailbox.take(wanted, ANY_KEPT if tag == ANY_TAG else tag)
        if kept is not None:
            return kept
        if source == self.rank or self.size == 1:
            if timeout_s is not None:
                raise TimeoutError("recv: this rank has sent itself nothing that fits")
            raise InputError(f"recv: this rank has sent itself no message with tag {tag}")
        return self._comm.recv(wanted, tag=ANY_KEPT if tag == ANY_TAG else tag, timeout_s=timeout_s, envelope=True)


def _done() -> Request:
    return Request(lambda timeout_s, status: (True, None))


def _put(into: BufferArgument, value: Any) -> None:
    """Copy received elements to the beginning of a buffer."""
    if not isinstance(value, np.ndarray):
        raise InputError(f"{into.call}: received a {type(value).__name__}: expected a buffer; recv receives objects")
    into.put(into.elements, value, is_whole=False)


def _copied(obj: Any) -> Any:
    import pickle

    return obj.copy() if isinstance(obj, np.ndarray) else pickle.loads(pickle.dumps(obj))
