"""The status of a received message."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ripieno.mpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL, SUCCESS, UNDEFINED
from ripieno.mpi.datatypes import Datatype
from ripieno.mpi.named_types import BYTE
from ripieno.mpi.unsupported import refusing
from ripieno.wire.packing import pack


@refusing
class Status:
    """Sender, tag and length of a received message.

    Parameters
    ----------
    status : Status, optional
        A status that is copied; by default the status is empty.
    """

    def __new__(cls, status: Status | None = None) -> Self:
        if not isinstance(status, Status | None):
            raise TypeError(f"Status: a {type(status).__name__}: expected a status")
        instance = object.__new__(cls)
        instance.clear()
        if status is not None:
            instance.copy_from(status)
        return instance

    def copy_from(self, status: Status) -> None:
        """Copy all values of another status."""
        self.__dict__.update(status.__dict__)

    def clear(self) -> None:
        """Reset all values, as for a call that has received no message."""
        self.source = ANY_SOURCE
        self.tag = ANY_TAG
        self.error = SUCCESS
        self.cancelled = False
        self._length_bytes = 0

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if isinstance(other, Status) else NotImplemented

    def __hash__(self) -> int:
        return id(self)

    def _note(self, source: int, tag: int, value: Any) -> None:
        self.source, self.tag, self.error, self.cancelled = source, tag, SUCCESS, False
        if source == PROC_NULL:
            self._length_bytes = 0
        else:
            self._length_bytes = value.nbytes if isinstance(value, np.ndarray | np.generic) else _pickled_bytes(value)

    def Get_source(self) -> int:
        """Return the sender."""
        return self.source

    def Set_source(self, source: int) -> None:
        """Set the sender."""
        self.source = source

    def Get_tag(self) -> int:
        """Return the tag."""
        return self.tag

    def Set_tag(self, tag: int) -> None:
        """Set the tag."""
        self.tag = tag

    def Get_error(self) -> int:
        """Return `SUCCESS`: failures raise exceptions."""
        return self.error

    def Set_error(self, error: int) -> None:
        """Set the error."""
        self.error = error

    def Get_count(self, datatype: Datatype = BYTE) -> int:
        """Return the number of received elements, for an object of its pickle; `UNDEFINED` if bytes are left over."""
        if not datatype.size:
            return UNDEFINED if self._length_bytes else 0
        count, rest = divmod(self._length_bytes, datatype.size)
        return UNDEFINED if rest else count

    def Get_elements(self, datatype: Datatype) -> int:
        """Return the number of received values. An element of a derived type has several values."""
        count, rest = divmod(self._length_bytes, datatype.dtype.itemsize)
        return UNDEFINED if rest else count

    def Set_elements(self, datatype: Datatype, count: int) -> None:
        """Set the number of received values."""
        self._length_bytes = count * datatype.dtype.itemsize

    def Is_cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        return self.cancelled

    def Set_cancelled(self, flag: bool) -> None:
        """Set whether the call was cancelled."""
        self.cancelled = flag

    @property
    def count(self) -> int:
        """Number of received bytes."""
        return self._length_bytes

    @count.setter
    def count(self, count: int) -> None:
        self._length_bytes = count


def noted(status: Status | None, source: int, tag: int, value: Any) -> None:
    """Fill in a status, if one was passed."""
    if status is not None:
        status._note(source, tag, value)


def _pickled_bytes(value: Any) -> int:
    packed = pack(value)
    return len(packed.pickled) + sum(buffer.nbytes for buffer in packed.buffers)
