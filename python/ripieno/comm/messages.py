"""Messages between pairs of ranks: in their order, or by tags and from whoever comes first."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from ripieno._checks import number, whole
from ripieno._types import Array
from ripieno.comm.mailbox import ANY_TAG, TAG_FORM, Message, Receive
from ripieno.comm.rank import CallBase
from ripieno.errors import InputError
from ripieno.wire import forms, objects
from ripieno.wire.arrays import in_place, known, required
from ripieno.wire.calls import NativeCalls, PostedCall, StagedCall

#: Tags are smaller.
TAG_LIMIT = 2**62


class MessageCalls(CallBase):
    """The calls of a communicator that concern two ranks."""

    @property
    def unexpected_bytes_max(self) -> int:
        """How many bytes messages with tags may take that came while others were asked for; 64 MiB by default."""
        return self._mailbox.bytes_max

    @unexpected_bytes_max.setter
    def unexpected_bytes_max(self, length_bytes: int) -> None:
        self._mailbox.bytes_max = whole("unexpected_bytes_max", length_bytes, 0, 2**63 - 1)

    def send(self, value: Any, to: int, *, tag: int | None = None) -> None:
        """Send `value` to rank `to`, which calls `recv`.

        A value that does not fit into the link waits for the receiver. Ranks that exchange large values take turns, the
        lower one sending first, or call `sendrecv` or `alltoall`. Ranks that wait for each other in a circle get an
        error after some seconds. For a `recv` with ``out=`` and no tag send the array with `send_into`.

        Parameters
        ----------
        value : array or object
            What is sent.
        to : int
            The receiver, another rank than this one.
        tag : int, optional
            Not negative. A message with a tag is for a `recv` with a tag, which may take those of one rank in another
            order than that in which they were sent.
        """
        to = self._other("to", to)
        if tag is None and (native := self._at_once) is not None:
            # The common case, where every microsecond counts.
            return objects.send(native, value, to)
        calls = [("send", piece, to, form) for piece, form in _pieces(value, tag)]
        return self._do(NativeCalls(calls, lambda: None))

    def send_into(self, array: Any, to: int) -> None:
        """Send the elements of `array` to rank `to`, which receives them with ``recv(source, out=...)``."""
        to = self._other("to", to)
        sent = required(array, "send_into")
        sent = np.ascontiguousarray(sent).reshape(sent.shape)
        return self._do(NativeCalls([("send", known(sent)[0], to, forms.of_array(sent))], lambda: None))

    @overload
    def recv(
        self, source: int | None = None, *, out: Array, tag: int | None = None, timeout_s: float | None = None
    ) -> Array: ...

    @overload
    def recv(
        self,
        source: int | None = None,
        *,
        tag: int | None = None,
        timeout_s: float | None = None,
        envelope: Literal[True],
    ) -> Message[Any]: ...

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
        """The value that rank `source`, or whichever rank is first, sends to this one.

        Parameters
        ----------
        source : int, optional
            The sender; by default any other rank of this communicator.
        out : ndarray, optional
            Receives the value: without a tag the array of this shape and dtype that `send_into` sends, with one
            whatever array `send` sends that fits.
        tag : int, optional
            Takes the first message with this tag, or with any, `ANY_TAG`. Messages that come before it are kept, up to
            `unexpected_bytes_max`. Without a tag the next message is taken, which must have none.
        timeout_s : float, optional
            How long to wait for a first message; without it, or once one is on its way, as long as no rank fails.
        envelope : bool
            Give a `Message`: the value, its "source" and its "tag".

        Returns
        -------
        array or object, or Message
            What was sent.

        Raises
        ------
        TimeoutError
            Nothing came in time. Nothing is lost: receive again.
        CollectiveMismatch
            The message has a tag where none was asked for, or none where one was. While several ranks may be the
            source, or with a timeout, such a message is passed over. Or ranks wait for each other in a circle.

        Notes
        -----
        Messages of one rank with one tag are taken in the order in which they were sent, those of several ranks in the
        order in which they come. Messages and collectives pass each other: a message waits in its link, or in its
        sender if it is long, while this rank is in a collective. One thread at a time receives.
        `Communicator.recv_async` begins a receive, which takes its message before receives that begin later; it makes
        progress while it is waited for or looked at.
        """
        if source is not None:
            source = self._other("source", source)
            is_simple = out is None and tag is None and timeout_s is None and not envelope
            if is_simple and not self._mailbox.posted and (native := self._at_once) is not None:
                # As in `send`.
                return objects.receive(native, source)
        if tag is not None:
            tag = whole("tag", tag, ANY_TAG, TAG_LIMIT - 1, f"expected ANY_TAG or a whole number, 0 … {TAG_LIMIT - 1}")
        if timeout_s is not None and not number("timeout_s", timeout_s, "expected seconds") >= 0:
            raise InputError(f"timeout_s={timeout_s!r}: expected seconds, 0 or more")
        if out is not None:
            in_place(out)
        is_plain = source is not None and tag is None and timeout_s is None and not envelope
        if is_plain and out is not None and not self._mailbox.posted:
            call = ("receive", known(out)[0], source, forms.of_array(out))
            return self._do(NativeCalls([call], lambda: out))

        def begin(native: Any) -> Receive:
            return self._mailbox.post(Receive(self._mailbox, native, source, tag, out, timeout_s))

        def finish(receive: Receive) -> Any:
            message = receive.wait()
            return message if envelope else message.value

        return self._do(PostedCall(begin, finish))

    def sendrecv(
        self,
        value: Any,
        to: int,
        source: int | None = None,
        *,
        tag: int | None = None,
        recv_tag: int | None = None,
    ) -> Any:
        """Send `value` to rank `to`, and receive one of rank `source`, or any, at the same time.

        Parameters
        ----------
        value : array or object
            What is sent.
        to, source : int
            The receiver, and the sender; they may be one rank, and `source` is any by default.
        tag, recv_tag : int, optional
            As of `send` and of `recv`; what is received has the tag of what is sent by default.

        Returns
        -------
        array or object
            What came.
        """
        to = self._other("to", to)
        source = None if source is None else self._other("source", source)
        pieces = _pieces(value, tag)
        wanted = tag if recv_tag is None else recv_tag

        def run(native: Any) -> Any:
            leaving = [native.send(piece, to, form, later=True) for piece, form in pieces]
            came = self._mailbox.post(Receive(self._mailbox, native, source, wanted, None)).wait().value
            for each in leaving:
                each.wait()
            return came

        return self._do(StagedCall(run))


def _pieces(value: Any, tag: int | None) -> list[tuple[NDArray[Any], str]]:
    """The messages that a value travels as, and their forms."""
    pieces: list[tuple[NDArray[Any], str]] = []
    if tag is not None:
        tag = whole("tag", tag, 0, TAG_LIMIT - 1)
        pieces.append((np.array([tag], np.int64), TAG_FORM))
    pieces.extend((piece, forms.OBJECT) for piece in objects.pieces(value))
    return pieces
