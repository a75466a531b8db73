"""The status of a received message."""

from __future__ import annotations

from typing import Any

import numpy as np

from ripieno.mpi.constants import ANY_SOURCE, ANY_TAG, SUCCESS, UNDEFINED
from ripieno.mpi.datatypes import BYTE, Datatype
from ripieno.wire.packing import pack


class Status:
    """Sender, tag and length of a received message."""

    def __init__(self) -> None:
        self.source = ANY_SOURCE
        self.tag = ANY_TAG
        self.error = SUCCESS
        self._length_bytes = 0

    def _note(self, source: int, tag: int, value: Any) -> None:
        self.source, self.tag = source, tag
        self._length_bytes = value.nbytes if isinstance(value, np.ndarray) else _pickled_bytes(value)

    def Get_source(self) -> int:
        """Return the sender."""
        return self.source

    def Get_tag(self) -> int:
        """Return the tag."""
        return self.tag

    def Get_error(self) -> int:
        """Return `SUCCESS`: failures raise exceptions."""
        return self.error

    def Get_count(self, datatype: Datatype = BYTE) -> int:
        """Return the number of received elements, for an object of its pickle; `UNDEFINED` if bytes are left over."""
        count, rest = divmod(self._length_bytes, datatype.size)
        return UNDEFINED if rest else count

    Get_elements = Get_count

    @property
    def count(self) -> int:
        """Number of received bytes."""
        return self._length_bytes


def noted(status: Status | None, source: int, tag: int, value: Any) -> None:
    """Fill in a status, if one was passed."""
    if status is not None:
        status._note(source, tag, value)


def _pickled_bytes(value: Any) -> int:
    packed = pack(value)
    return len(packed.pickled) + sum(buffer.nbytes for buffer in packed.buffers)
