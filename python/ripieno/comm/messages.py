"""Provide messages between pairs of ranks: in order, or matched by tag and from any source."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from ripieno._checks import number, whole_number
from ripieno._types import Array
from ripieno.comm.mailbox import ANY_TAG, TAG_SIGNATURE, Receive, ReceivedMessage, filled
from ripieno.comm.rank import CallBase
from ripieno.errors import InputError
from ripieno.wire import objects, signatures
from ripieno.wire.arrays import in_place, native_elements, required
from ripieno.wire.calls import NativeCalls, PostedCall, StagedCall

#: Exclusive upper bound of tags.
TAG_LIMIT = 2**62


class MessageCalls(CallBase):
    """Calls of a communicator between two ranks."""

    @property
    def unexpected_bytes_max(self) -> int:
        """Limit in bytes for tagged messages that arrived before a matching receive; 64 MiB by default."""
        return self._mailbox.bytes_max

    @unexpected_bytes_max.setter
    def unexpected_bytes_max(self, length_bytes: int) -> None:
        self._mailbox.bytes_max = whole_number("unexpected_bytes_max", length_bytes, 0, 2**63 - 1)

    def send(self, value: Any, to: int, *, tag: int | None = None) -> None:
        """Send `value` to rank `to`, which calls `recv`.

        A value that does not fit into the link waits for the receiver. If two ranks exchange large values, the lower
        rank sends first, or both call `sendrecv` or `alltoall`. Ranks that wait for each other in a cycle get an error
        after some seconds. For a `recv` with ``out=`` and without tag, send the array with `send_into`.

        Parameters
        ----------
        value : array or object
            The value to send.
        to : int
            The receiving rank, other than this one.
        tag : int, optional
            Not negative. A tagged message matches only a `recv` with a tag. Such receives may take the messages of one
            rank in a different order than they were sent.
        """
        to = self._other("to", to)
        tag = _checked(tag)
        # Fast path: short messages are latency-bound. A plain array cannot fail to be sent after its tag.
        if (tag is None or objects.is_plain(value)) and (native := self._idle_native) is not None:
            if tag is not None:
                native.collective(("send", to), np.array([tag], np.int64), None, TAG_SIGNATURE)
            return objects.send(native, value, to)
        return self._send_pieces(value, to, tag)

    def _send_receipt(self, to: int, tag: int) -> None:
        """Confirm that a message of rank `to` has been received; `tag` is one of its `Mailbox.receipt_tags`."""
        return self._send_pieces(None, to, tag)

    def _send_pieces(self, value: Any, to: int, tag: int | None) -> None:
        calls = [("collective", ("send", to), piece, None, signature) for piece, signature in _pieces(value, tag)]
        return self._do(NativeCalls(calls, lambda: None))

    def send_into(self, array: Any, to: int) -> None:
        """Send the elements of `array` to rank `to`, which receives them with ``recv(source, out=...)``."""
        to = self._other("to", to)
        sent = required(array, "send_into")
        sent = np.ascontiguousarray(sent).reshape(sent.shape)
        call = ("collective", ("send", to), native_elements(sent)[0], None, signatures.of_array(sent))
        return self._do(NativeCalls([call], lambda: None))

    @overload
    def recv(
        self, source: int | None = None, *, out: Array, tag: int | None = None, timeout_s: float | None = None
    ) -> Array: ...

    @overload
    def recv(
        self,
        source: int | None = None,
        *,
        out: NDArray[Any] | None = None,
        tag: int | None = None,
        timeout_s: float | None = None,
        envelope: Literal[True],
    ) -> ReceivedMessage[Any]: ...

    @overload
    def recv(self, source: int | None = None, *, tag: int | None = None, timeout_s: float | None = None) -> Any: ...

    def recv(
        self,
        source: int | None = None,
        *,
        out: NDArray[Any] | None = None,
        tag: int | None = None,
        timeout_s: float | None = None,
        envelope: bool = False,
    ) -> Any:
        """Receive a value from rank `source`, or from the rank of the first message to arrive.

        Parameters
        ----------
        source : int, optional
            The sending rank; by default any other rank of this communicator.
        out : ndarray, optional
            Receives the value. Without a tag: an array of this shape and dtype, sent with `send_into`. With a tag: any
            array that fits, sent with `send`.
        tag : int, optional
            Takes the first message with this tag, or with any tag (`ANY_TAG`). Messages that arrive before it are kept,
            up to `unexpected_bytes_max`. Without a tag the next message is taken, which must have no tag.
        timeout_s : float, optional
            Time limit until a message begins to arrive. Without it, and after the arrival began, the call waits until
            the message is complete or a rank fails.
        envelope : bool
            Return a `ReceivedMessage`: the value, its "source" and its "tag".

        Returns
        -------
        array or object, or ReceivedMessage
            The received value.

        Raises
        ------
        TimeoutError
            No message arrived in time. No message is lost: receive again.
        CollectiveMismatch
            The message has a tag but none was requested, or the reverse. If several ranks may be the source, or with a
            timeout, such a message is skipped instead. Or ranks wait for each other in a cycle.

        Notes
        -----
        Messages of one rank with one tag arrive in the order of sending, messages of several ranks in the order of
        arrival. Messages and collectives are independent: while this rank is in a collective, a message waits in its
        link, or in its sender if it is long. One thread at a time receives. `Communicator.recv_async` begins a receive,
        which has priority over receives that begin later. It makes progress while the program waits for it or polls it.
        """
        if source is not None:
            source = self._other("source", source)
            is_simple = out is None and tag is None and timeout_s is None and not envelope
            if is_simple and not self._mailbox.posted and (native := self._idle_native) is not None:
                # Fast path, as in `send`.
                return objects.receive(native, source)
        if tag is not None:
            expected = f"expected ANY_TAG or a whole number, 0 … {TAG_LIMIT - 1}"
            tag = whole_number("tag", tag, ANY_TAG, TAG_LIMIT - 1, expected, takes_booleans=True)
        if timeout_s is not None and not number("timeout_s", timeout_s, "expected seconds") >= 0:
            raise InputError(f"timeout_s={timeout_s!r}: expected seconds, 0 or more")
        if out is not None:
            in_place(out)
        is_plain = source is not None and tag is None and timeout_s is None and not envelope
        if is_plain and out is not None and not self._mailbox.posted:
            call = ("collective", ("receive", source), native_elements(out)[0], None, signatures.of_array(out))
            return self._do(NativeCalls([call], lambda: out))

        if tag is not None and timeout_s is None:
            message = self._receive_tagged(source, tag, out)
            if message is not None:
                message = message if out is None else filled(message, out)
                return message if envelope else message.value

        def begin(native: Any) -> Receive:
            return self._mailbox.post(Receive(self._mailbox, native, source, tag, out, timeout_s))

        def finish(receive: Receive) -> Any:
            message = receive.wait()
            return message if envelope else message.value

        return self._do(PostedCall(begin, finish))

    def _receive_tagged(self, source: int | None, tag: int, memory: NDArray[Any] | None) -> ReceivedMessage[Any] | None:
        """Return the first message of a rank with a tag; None if other calls are ahead, which need a `Receive`.

        A long array with the dtype and the shape of `memory` is received into it.
        """
        native = self._idle_native
        return None if source is None or native is None else self._mailbox.receive_now(native, source, tag, memory)

    def sendrecv(
        self,
        value: Any,
        to: int,
        source: int | None = None,
        *,
        tag: int | None = None,
        recv_tag: int | None = None,
    ) -> Any:
        """Send `value` to rank `to` and, at the same time, receive a value from rank `source` or from any rank.

        Parameters
        ----------
        value : array or object
            The value to send.
        to, source : int
            The receiving and the sending rank, which may be the same. By default `source` is any rank.
        tag, recv_tag : int, optional
            As for `send` and `recv`. By default `recv_tag` equals `tag`.

        Returns
        -------
        array or object
            The received value.
        """
        to = self._other("to", to)
        source = None if source is None else self._other("source", source)
        pieces = _pieces(value, _checked(tag))
        recv_tag = tag if recv_tag is None else recv_tag

        def run(native: Any) -> Any:
            task = ("send", to)
            leaving = [native.collective(task, piece, None, signature, later=True) for piece, signature in pieces]
            arrived = self._mailbox.post(Receive(self._mailbox, native, source, recv_tag, None)).wait().value
            for each in leaving:
                each.wait()
            return arrived

        return self._do(StagedCall(run))


def _checked(tag: int | None) -> int | None:
    return None if tag is None else whole_number("tag", tag, 0, TAG_LIMIT - 1, takes_booleans=True)


def _pieces(value: Any, tag: int | None) -> list[tuple[NDArray[Any], str]]:
    """Return the messages that make up a value, and their signatures."""
    pieces: list[tuple[NDArray[Any], str]] = []
    if tag is not None:
        pieces.append((np.array([tag], np.int64), TAG_SIGNATURE))
    pieces.extend((piece, signatures.OBJECT_PART) for piece in objects.pieces(value))
    return pieces
