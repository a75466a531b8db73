"""Point-to-point messages: lower-case names send objects, upper-case names buffers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.comm.mailbox import ANY_TAG as MAILBOX_ANY_TAG
from ripieno.comm.mailbox import Mailbox, Receive, ReceivedMessage
from ripieno.errors import InputError
from ripieno.mpi.base import MpiRank
from ripieno.mpi.buffers import incoming, outgoing
from ripieno.mpi.constants import ANY_SOURCE, ANY_TAG, LARGEST_TAG, PROC_NULL
from ripieno.mpi.elements import Elements
from ripieno.mpi.matched import MESSAGE_NO_PROC
from ripieno.mpi.matched import Message as Matched
from ripieno.mpi.pickling import leaving
from ripieno.mpi.requests import Prequest, Request
from ripieno.mpi.status import Status, noted
from ripieno.wire import packing
from ripieno.wire.calls import Pending

#: Interval between a blocking send's attempts to progress pending receives.
_POLL_S = 0.0002

#: The message of a receive from `PROC_NULL`.
_NOTHING: ReceivedMessage[Any] = ReceivedMessage(None, PROC_NULL, ANY_TAG)


class _Synchronous(NamedTuple):
    """The value of a synchronous send; the receiver confirms it by a message with the tag `receipt_tag`."""

    value: Any
    receipt_tag: int


class MpiMessageCalls(MpiRank):
    """The point-to-point calls of a communicator. Every message has a tag."""

    # Objects

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object."""
        self._send(leaving(obj), dest, tag)

    bsend = send

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send an object. If `dest` is this rank, the matching receive must be posted first."""
        self.issend(obj, dest, tag).wait()

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Start to send an object, which may change at once."""
        return self._start_send(_snapshot(leaving(obj)), dest, tag, is_synchronous=False)

    ibsend = isend

    def issend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Start to send an object. The request completes when a receive has taken the object."""
        return self._start_send(_snapshot(leaving(obj)), dest, tag, is_synchronous=True)

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        """Receive an object."""
        return self._receive_value(source, tag, status, None)

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Start to receive an object. Messages match receives in the order of posting."""
        return self._post_receive(source, tag, lambda value: value)

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
        sent = self.isend(sendobj, dest, sendtag)
        received = self.recv(None, source, recvtag, status)
        sent.wait()
        return received

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Wait until a matching message is available, without receiving it, and return True."""
        return self._has_message(source, tag, status, None)

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Return whether a matching message is available."""
        return self._has_message(source, tag, status, 0.0)

    Probe, Iprobe = probe, iprobe

    def mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Matched:
        """Return the next matching message. Only this handle can receive it."""
        found = self._matched_probe(source, tag, status, None)
        assert found is not None, "a probe without a time limit finds a message"
        return found

    def improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Matched | None:
        """Return a matching message, or None if none has arrived. Only this handle can receive it."""
        return self._matched_probe(source, tag, status, 0.0)

    Mprobe, Improbe = mprobe, improbe

    # Buffers

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a buffer."""
        self._send(outgoing(None if dest == PROC_NULL else buf, "Send"), dest, tag)

    Bsend = Rsend = Send

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send a buffer. If `dest` is this rank, the matching receive must be posted first."""
        self.Issend(buf, dest, tag).wait()

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start to send a buffer, which must not change until the send has completed."""
        values = outgoing(None if dest == PROC_NULL else buf, "Isend")
        return self._start_send(values, dest, tag, is_synchronous=False)

    Ibsend = Irsend = Isend

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Start to send a buffer. The request completes when a receive has taken it."""
        values = outgoing(None if dest == PROC_NULL else buf, "Issend")
        return self._start_send(values, dest, tag, is_synchronous=True)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        """Receive into a buffer."""
        into = incoming(None if source == PROC_NULL else buf, "Recv").elements
        _put(into, self._receive_value(source, tag, status, into.memory))

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Start to receive into a buffer. Messages match receives in the order of posting."""
        into = incoming(None if source == PROC_NULL else buf, "Irecv").elements
        return self._post_receive(source, tag, lambda value: _put(into, value), into.memory)

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
        # Check both buffers before anything is sent.
        into = incoming(None if source == PROC_NULL else recvbuf, "Recv").elements
        sent = self.Isend(sendbuf, dest, sendtag)
        _put(into, self._receive_value(source, recvtag, status, into.memory))
        sent.wait()

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Request:
        """Start to send a buffer, and to receive into another one."""
        values = outgoing(None if dest == PROC_NULL else sendbuf, "Isendrecv")
        arriving = self.Irecv(recvbuf, source, recvtag)
        sent = self._start_send(values, dest, sendtag, is_synchronous=False)

        def attempt(timeout_s: float | None, status: Status | None) -> tuple[bool, None]:
            is_over = arriving._progress(timeout_s, status)
            return sent._progress(timeout_s, None) and is_over, None

        return Request(attempt)

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Send a buffer, and receive into the same one."""
        self.Sendrecv(outgoing(buf, "Sendrecv_replace").copy(), dest, sendtag, buf, source, recvtag, status)

    def Isendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = ANY_SOURCE, recvtag: int = ANY_TAG
    ) -> Request:
        """Start to send a buffer, and to receive into the same one."""
        values = outgoing(buf, "Isendrecv_replace").copy()
        return self.Isendrecv(values, dest, sendtag, buf, source, recvtag)

    # Persistent requests

    def Send_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Return a persistent request. Each start sends the buffer."""
        outgoing(None if dest == PROC_NULL else buf, "Send_init")
        return Prequest(lambda: self.Isend(buf, dest, tag))

    Bsend_init = Rsend_init = Send_init

    def Ssend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Return a persistent request. Each start is an `Issend`."""
        outgoing(None if dest == PROC_NULL else buf, "Ssend_init")
        return Prequest(lambda: self.Issend(buf, dest, tag))

    def Recv_init(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Prequest:
        """Return a persistent request. Each start receives into the buffer."""
        incoming(None if source == PROC_NULL else buf, "Recv_init")
        return Prequest(lambda: self.Irecv(buf, source, tag))

    def _send(self, obj: Any, dest: int, tag: int) -> None:
        """Send an object or an array, and return when its memory may change."""
        is_remote = dest not in (PROC_NULL, self.rank)
        if is_remote and 0 <= tag <= LARGEST_TAG and not self._comm._mailbox.posted:
            self._comm.send(obj, dest, tag=tag)
        else:
            self._start_send(obj, dest, tag, is_synchronous=False).wait()

    def _start_send(self, obj: Any, dest: int, tag: int, *, is_synchronous: bool) -> Request:
        if not 0 <= tag <= LARGEST_TAG:
            raise InputError(f"send: tag={tag}: expected 0 … {LARGEST_TAG}")
        if dest == PROC_NULL:
            return _done()
        mailbox = self._comm._mailbox
        if dest == self.rank:
            message = ReceivedMessage(_copied(obj), self.rank, int(tag))
            mailbox.deliver(message, 0)
            return _until_received(mailbox, message) if is_synchronous else _done()
        if not is_synchronous:
            return _until_over(mailbox, self.rank, [self._comm.send_async(obj, dest, tag=tag)])
        receipt_tag = next(mailbox.receipt_tags)
        sent = self._comm.send_async(_Synchronous(obj, receipt_tag), dest, tag=tag)
        receipt = mailbox.post(Receive(mailbox, self._comm._native, dest, receipt_tag, None))
        return _until_over(mailbox, self.rank, [sent, receipt])

    def _post_receive(
        self, source: int, tag: int, use: Callable[[Any], Any], memory: NDArray[Any] | None = None
    ) -> Request:
        if source == PROC_NULL:
            return Request(lambda timeout_s, status: (True, use(self._receive_value(source, tag, status, None))))
        mailbox, native = self._comm._mailbox, self._comm._native
        source_rank = None if source == ANY_SOURCE else source
        mailbox_tag = MAILBOX_ANY_TAG if tag == ANY_TAG else tag
        receive = mailbox.post(
            Receive(mailbox, native, source_rank, mailbox_tag, None, accept=self._accepted, memory=memory)
        )

        def attempt(timeout_s: float | None, status: Status | None) -> tuple[bool, Any]:
            if not receive.has_ended and self._is_own(source):
                if timeout_s is None:
                    raise InputError(f"recv: this rank has sent itself no message with tag {tag}")
                return False, None
            if timeout_s is not None and not receive.done:
                return False, None
            message = receive.wait()
            noted(status, message.source, _tag_of(message), message.value)
            return True, use(message.value)

        def cancel() -> bool:
            is_pending = not receive.has_ended
            if is_pending:
                mailbox.posted.remove(receive)
            return is_pending

        return Request(attempt, cancel)

    def _is_own(self, source: int) -> bool:
        """Return whether a receive from `source` can only match messages of this rank to itself."""
        return source == self.rank or self.size == 1

    def _receive_value(self, source: int, tag: int, status: Status | None, memory: NDArray[Any] | None) -> Any:
        """Return the value of the next message, a long array in `memory` if it has its dtype and shape."""
        message = self._accepted(self._message(source, tag, None, memory))
        noted(status, message.source, _tag_of(message), message.value)
        return message.value

    def _accepted(self, message: ReceivedMessage[Any]) -> ReceivedMessage[Any]:
        """Return a message that a receive takes, and confirm it if it is of a synchronous send."""
        if not isinstance(message.value, _Synchronous):
            return message
        self._comm._send_receipt_async(message.source, message.value.receipt_tag)
        return message._replace(value=message.value.value)

    def _has_message(self, source: int, tag: int, status: Status | None, timeout_s: float | None) -> bool:
        found = self._probed(source, tag, status, timeout_s)
        if found is not None and found is not _NOTHING:
            self._comm._mailbox.put_back(found)
        return found is not None

    def _matched_probe(self, source: int, tag: int, status: Status | None, timeout_s: float | None) -> Matched | None:
        found = self._probed(source, tag, status, timeout_s)
        if found is None:
            return None
        return Matched(MESSAGE_NO_PROC) if found is _NOTHING else Matched._of(found, self._accepted)

    def _probed(
        self, source: int, tag: int, status: Status | None, timeout_s: float | None
    ) -> ReceivedMessage[Any] | None:
        """Take a message, which no receive has accepted yet; None if none has arrived in time."""
        try:
            message = self._message(source, tag, timeout_s)
        except TimeoutError:
            if status is not None:
                status.clear()
            return None
        noted(status, message.source, _tag_of(message), _value_of(message))
        return message

    def _message(
        self, source: int, tag: int, timeout_s: float | None, memory: NDArray[Any] | None = None
    ) -> ReceivedMessage[Any]:
        if source == PROC_NULL:
            return _NOTHING
        source_rank = None if source == ANY_SOURCE else source
        mailbox_tag = MAILBOX_ANY_TAG if tag == ANY_TAG else tag
        unexpected = self._comm._mailbox.take(source_rank, mailbox_tag)
        if unexpected is not None:
            return unexpected
        if self._is_own(source):
            if timeout_s is not None:
                raise TimeoutError("recv: this rank has sent itself no matching message")
            raise InputError(f"recv: this rank has sent itself no message with tag {tag}")
        found = self._comm._receive_tagged(source_rank, mailbox_tag, memory) if timeout_s is None else None
        return found or self._comm.recv(source_rank, tag=mailbox_tag, timeout_s=timeout_s, envelope=True)


def _done() -> Request:
    return Request(lambda timeout_s, status: (True, None))


def _progress(mailbox: Mailbox, own_rank: int) -> None:
    """Match the messages of other ranks that have arrived with the posted receives."""
    for receive in list(mailbox.posted):
        if receive.source != own_rank:
            receive.done  # noqa: B018  # processes messages


def _until_over(mailbox: Mailbox, own_rank: int, parts: list[Pending]) -> Request:
    """Return a request that completes when all parts of a send are over."""

    def attempt(timeout_s: float | None, status: Status | None) -> tuple[bool, None]:
        if timeout_s is None:
            # A blocking send progresses pending receives, because the other rank may be sending as well.
            while any(each not in parts for each in mailbox.posted) and not all(part.done for part in parts):
                _progress(mailbox, own_rank)
                time.sleep(_POLL_S)
            for part in parts:
                part.wait()
        return all(part.done for part in parts), None

    return Request(attempt)


def _until_received(mailbox: Mailbox, message: ReceivedMessage[Any]) -> Request:
    """Return a request that completes when a message of this rank to itself is received."""

    def attempt(timeout_s: float | None, status: Status | None) -> tuple[bool, None]:
        is_over = not mailbox.holds(message)
        if timeout_s is None and not is_over:
            raise InputError("ssend: this rank sends itself a message that it has not received: receive it first")
        return is_over, None

    return Request(attempt)


def _put(into: Elements, value: Any) -> None:
    """Copy received elements to the beginning of a buffer."""
    if value is _NOTHING.value or value is into.memory:
        return
    if not isinstance(value, np.ndarray):
        raise InputError(f"{into.call}: received a {type(value).__name__}: expected a buffer; recv receives objects")
    into.write(value, is_whole=False)


def _value_of(message: ReceivedMessage[Any]) -> Any:
    return message.value.value if isinstance(message.value, _Synchronous) else message.value


def _tag_of(message: ReceivedMessage[Any]) -> int:
    return int(message.tag or 0)


def _snapshot(obj: Any) -> Any:
    """Return a copy of an object with arrays, whose memory is sent later; other objects as they are."""
    if isinstance(obj, np.ndarray):
        return obj.copy()
    packed = packing.pack(obj)
    return packing.unpack(packed.pickled, [each.copy() for each in packed.buffers]) if packed.buffers else obj


def _copied(obj: Any) -> Any:
    import pickle

    return obj.copy() if isinstance(obj, np.ndarray) else pickle.loads(pickle.dumps(obj))
