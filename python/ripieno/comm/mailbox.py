"""Messages with tags that have come before anybody asked for them, in memory that is bounded."""

from __future__ import annotations

import threading
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ripieno.errors import InputError
from ripieno.units import size_text

T = TypeVar("T")

#: As the tag of `Communicator.recv`: whatever the tag is.
ANY_TAG: Final = -1

#: What tells in few words which messages nobody has asked for names so many tags.
_NAMED_TAGS = 8


class Message(NamedTuple, Generic[T]):
    """What `Communicator.recv` took, and whose it was."""

    value: T
    source: int
    tag: int | None


class _Unexpected(NamedTuple):
    """A message that came while another one was asked for."""

    message: Message[Any]
    length_bytes: int


class Mailbox:
    """Messages with tags that have come before anybody asked for them, in the order in which they came."""

    def __init__(self) -> None:
        # One thread at a time receives by tags: what is another's would be taken by whoever is faster.
        self.lock = threading.RLock()
        self.bytes_max = 64 << 20
        self._kept: list[_Unexpected] = []

    def take(self, source: int | None, tag: int) -> Message[Any] | None:
        """The first that fits."""
        for index, (message, _) in enumerate(self._kept):
            if source in (None, message.source) and tag in (ANY_TAG, message.tag):
                return self._kept.pop(index).message
        return None

    def put_back(self, message: Message[Any], *, last: bool = False) -> None:
        """Let one be the next that fits, or the last: it was looked at, or is of this rank itself."""
        self._kept.insert(len(self._kept) if last else 0, _Unexpected(message, 0))

    def keep(self, message: Message[Any], length_bytes: int) -> None:
        """Keep one for later. `InputError` if all together are too large; nothing is lost."""
        self._kept.append(_Unexpected(message, length_bytes))
        total_bytes = sum(each.length_bytes for each in self._kept)
        if total_bytes > self.bytes_max:
            senders = sorted({each.message.source for each in self._kept})
            tags = sorted({each.message.tag for each in self._kept if each.message.tag is not None})
            more = ", …" if len(tags) > _NAMED_TAGS else ""
            raise InputError(
                f"recv: {len(self._kept)} messages that nobody has asked for yet take {size_text(total_bytes)}, more "
                f"than {size_text(self.bytes_max)}: from ranks {senders} with tags "
                f"{', '.join(map(str, tags[:_NAMED_TAGS]))}{more}; receive them, or raise comm.unexpected_bytes_max"
            )
