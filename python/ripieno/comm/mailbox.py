"""Provide `Receive`, a posted receive, and `Mailbox`, the queue of tagged messages without a matching receive."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.units import size_text
from ripieno.wire import objects, signatures
from ripieno.wire.arrays import fill, native_elements

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator

T = TypeVar("T")

#: Wildcard tag of `Communicator.recv`: matches any tag of a program. Lower tags belong to receipts.
ANY_TAG: Final = -1

#: The signature of the header message that precedes a value with a tag.
TAG_SIGNATURE = "the tag of a message"

#: The maximum number of tags that an error about unexpected messages names.
_NAMED_TAGS = 8


# For each waiting thread: the source of its receive (None for any) and the start of the wait.
_waiting: dict[int, tuple[int | None, float]] = {}


def waiting_of(thread: int) -> tuple[int | None, float] | None:
    """Return the source and the start, on the monotonic clock, of a receive that a thread waits for."""
    return _waiting.get(thread)


class ReceivedMessage(NamedTuple, Generic[T]):
    """A message that `Communicator.recv` received, with its source and tag."""

    value: T
    source: int
    tag: int | None


class _Unexpected(NamedTuple):
    """A message without a matching receive so far."""

    message: ReceivedMessage[Any]
    length_bytes: int


class Receive:
    """A posted receive. It makes progress while the program waits for or polls this receive or a later one.

    Parameters
    ----------
    mailbox
        The mailbox of the communicator.
    native
        The native communicator.
    source
        The sender; None for any.
    tag
        The tag; None for a message without one.
    out
        The array that receives the value; None for a new value.
    memory
        An array that may receive a tagged value of its dtype and shape, which then is the result; by default `out`.
    timeout_s
        Maximum time until the first bytes of the message arrive; None without a limit.
    accept
        Applied to the tagged message that matches, at once; returns the message for `wait`.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        native: NativeCommunicator,
        source: int | None,
        tag: int | None,
        out: NDArray[Any] | None,
        timeout_s: float | None = None,
        accept: Callable[[ReceivedMessage[Any]], ReceivedMessage[Any]] = lambda message: message,
        memory: NDArray[Any] | None = None,
    ) -> None:
        self._mailbox = mailbox
        self._accept = accept
        self._native = native
        self.source = source
        self.tag = tag
        self.out = out
        self.memory = out if memory is None else memory
        self._timeout_s = timeout_s
        self._message: ReceivedMessage[Any] | None = None
        self._error: Exception | None = None

    def __repr__(self) -> str:
        return f"<Receive {'done' if self.has_ended else 'posted'}>"

    @property
    def has_ended(self) -> bool:
        """Whether the receive has ended, with a result or an error."""
        return self._message is not None or self._error is not None

    @property
    def done(self) -> bool:
        """Whether the receive has ended, with a result or an error. Processes messages that have arrived."""
        # If another thread holds the lock, that thread receives.
        if not self.has_ended and self._mailbox.lock.acquire(blocking=False):
            try:
                self.attempt(0.0)
            finally:
                self._mailbox.lock.release()
        return self.has_ended

    def wait(self) -> ReceivedMessage[Any]:
        """Return the message once it has arrived; raise `TimeoutError` if none begins to arrive in time."""
        thread = threading.get_ident()
        _waiting[thread] = self.source, time.monotonic()
        try:
            self._wait()
        finally:
            _waiting.pop(thread, None)
        if self._error is not None:
            raise self._error
        assert self._message is not None, "a receive without an error has a message"
        return self._message

    def _wait(self) -> None:
        with self._mailbox.lock:
            if not self.attempt(self._timeout_s):
                sender_name = "any rank" if self.source is None else f"rank {self.source}"
                self._fail(TimeoutError(f"recv: no message from {sender_name} within {self._timeout_s} s"))

    def attempt(self, timeout_s: float | None) -> bool:
        """Receive until this receive has ended or no message arrives for `timeout_s`. Return whether it has ended."""
        with self._mailbox.lock:
            while not self.has_ended:
                receive = self._first_untagged() if self.tag is None else self
                # Store the error in the receive that it belongs to: its `wait` raises it.
                try:
                    sender = receive._sender(timeout_s)
                    if sender is None:
                        return False
                    if self.tag is None:
                        receive._end(ReceivedMessage(receive._value(sender), sender, None))
                    else:
                        self._mailbox.deliver(*self._tagged(sender))
                except Exception as error:
                    receive._fail(error)
        return True

    def matches(self, message: ReceivedMessage[Any]) -> bool:
        """Whether the message matches this receive."""
        return _matches(self.source, self.tag, message)

    def end(self, message: ReceivedMessage[Any]) -> None:
        """Complete with a tagged message."""
        try:
            message = self._accept(message)
            self._end(message if self.out is None else filled(message, self.out))
        except Exception as error:
            self._fail(error)

    def _end(self, message: ReceivedMessage[Any]) -> None:
        self._message = message
        self._mailbox.posted.remove(self)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._mailbox.posted.remove(self)

    def _first_untagged(self) -> Receive:
        """Return the first posted untagged receive that can match the same message as this one."""
        for receive in self._mailbox.posted:
            shares_source = None in (receive.source, self.source) or receive.source == self.source
            if receive is self or (receive.tag is None and shares_source):
                return receive
        return self

    def _sender(self, timeout_s: float | None) -> int | None:
        """Return the rank of the next message, or None if none has begun to arrive in time."""
        if self.source is not None and timeout_s is None:
            return self.source
        ranks = range(self._native.world_size)
        sources = [self.source] if self.source is not None else [rank for rank in ranks if rank != self._native.rank]
        if not sources:
            raise InputError("recv: there is no other rank that could send: expected a communicator of several")
        signature = TAG_SIGNATURE if self.tag is not None else signatures.OBJECT_PART if self.out is None else None
        return self._native.await_message(sources, signature, timeout_s)

    def _value(self, sender: int) -> Any:
        """Return the next untagged value from `sender`."""
        if self.out is None:
            return objects.receive(self._native, sender)
        task, signature = ("receive", sender), signatures.of_array(self.out)
        self._native.collective(task, native_elements(self.out)[0], None, signature)
        return self.out

    def _tagged(self, sender: int) -> tuple[ReceivedMessage[Any], int]:
        """Return the next tagged message from `sender`, and its size in bytes."""
        return self._mailbox.receive(self._native, sender, self._mailbox.posted_memory)


class Mailbox:
    """The posted receives of a communicator, and the tagged messages without a matching receive."""

    def __init__(self) -> None:
        # Only one thread receives at a time. Otherwise two threads could receive each other's messages.
        self.lock = threading.RLock()
        self.bytes_max = 64 << 20
        #: Receives in the order of posting.
        self.posted: list[Receive] = []
        #: Tags of receipts, which confirm that a message has been received.
        self.receipt_tags = itertools.count(ANY_TAG - 1, -1)
        self._unexpected: list[_Unexpected] = []

    def post(self, receive: Receive) -> Receive:
        """Post a receive. It gets the first matching message, if there is one."""
        with self.lock:
            self.posted.append(receive)
            message = None if receive.tag is None else self.take(receive.source, receive.tag)
            if message is not None:
                receive.end(message)
        return receive

    def take(self, source: int | None, tag: int) -> ReceivedMessage[Any] | None:
        """Remove and return the first queued message that matches; None without one."""
        for index, (message, _) in enumerate(self._unexpected):
            if _matches(source, tag, message):
                return self._unexpected.pop(index).message
        return None

    def receive(
        self, native: NativeCommunicator, sender: int, memory_of: Callable[[ReceivedMessage[Any]], NDArray[Any] | None]
    ) -> tuple[ReceivedMessage[Any], int]:
        """Return the next tagged message from `sender`, and its size in bytes.

        `memory_of` returns memory for the value of a message: a long array of its dtype and shape is received into it.
        """
        head, lengths_bytes = np.empty(1, np.int64), [_native.FRAME_ROOM_BYTES]
        native.collective(("receive", sender), head, None, TAG_SIGNATURE)
        message = ReceivedMessage(None, sender, int(head[0]))
        value = objects.receive(native, sender, lengths_bytes, memory_of(message))
        return message._replace(value=value), sum(lengths_bytes)

    def posted_memory(self, message: ReceivedMessage[Any]) -> NDArray[Any] | None:
        """Return the memory of the first posted receive that matches a message."""
        receive = self._first_posted(message)
        return None if receive is None else receive.memory

    def receive_now(
        self, native: NativeCommunicator, source: int, tag: int, memory: NDArray[Any] | None
    ) -> ReceivedMessage[Any] | None:
        """Wait for the first matching message of `source`, like a `Receive`; None if other receives are posted."""
        with self.lock:
            if self.posted:
                return None
            message = self.take(source, tag)
            thread = threading.get_ident()
            _waiting[thread] = source, time.monotonic()
            try:
                while message is None:
                    found, length_bytes = self.receive(
                        native, source, lambda message: memory if _matches(source, tag, message) else None
                    )
                    if _matches(source, tag, found):
                        message = found
                    else:
                        self.keep(found, length_bytes)
            finally:
                del _waiting[thread]
            return message

    def put_back(self, message: ReceivedMessage[Any], *, last: bool = False) -> None:
        """Insert a probed message at the front of the queue, or a message from this rank itself at the end (`last`)."""
        self._unexpected.insert(len(self._unexpected) if last else 0, _Unexpected(message, 0))

    def holds(self, message: ReceivedMessage[Any]) -> bool:
        """Return whether this message object is queued."""
        return any(each.message is message for each in self._unexpected)

    def deliver(self, message: ReceivedMessage[Any], length_bytes: int) -> None:
        """Pass a message to the first matching receive, or queue it."""
        receive = self._first_posted(message)
        if receive is not None:
            receive.end(message)
        else:
            self.keep(message, length_bytes)

    def _first_posted(self, message: ReceivedMessage[Any]) -> Receive | None:
        return next((receive for receive in self.posted if receive.matches(message)), None)

    def keep(self, message: ReceivedMessage[Any], length_bytes: int) -> None:
        """Queue a message. Raise `InputError` if the queue exceeds its limit; the message is queued nevertheless."""
        self._unexpected.append(_Unexpected(message, length_bytes))
        total_bytes = sum(each.length_bytes for each in self._unexpected)
        if total_bytes > self.bytes_max:
            senders = sorted({each.message.source for each in self._unexpected})
            tags = sorted({each.message.tag for each in self._unexpected if each.message.tag is not None})
            more = ", …" if len(tags) > _NAMED_TAGS else ""
            raise InputError(
                f"recv: {len(self._unexpected)} messages without a receive take {size_text(total_bytes)}, more "
                f"than {size_text(self.bytes_max)}: from ranks {senders} with tags "
                f"{', '.join(map(str, tags[:_NAMED_TAGS]))}{more}; receive them, or raise comm.unexpected_bytes_max"
            )


def filled(message: ReceivedMessage[Any], out: NDArray[Any]) -> ReceivedMessage[Any]:
    """Return the message with its value in `out`, unless it was received there."""
    return message if message.value is out else message._replace(value=fill(out, message.value))


def _matches(source: int | None, tag: int | None, message: ReceivedMessage[Any]) -> bool:
    """Return whether a receive from a source, with a tag, can receive a message."""
    is_any = tag == ANY_TAG and message.tag is not None and message.tag > ANY_TAG
    return source in (None, message.source) and (is_any or tag == message.tag)
