"""Element types of buffers."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike


class Datatype:
    """The type of an element. Derived types are not supported."""

    def __init__(self, code: DTypeLike) -> None:
        self.dtype = np.dtype(code)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Datatype) and other.dtype == self.dtype

    def __hash__(self) -> int:
        return hash(self.dtype)

    def Get_size(self) -> int:
        """Return the size of an element in bytes."""
        return self.dtype.itemsize

    def Get_extent(self) -> tuple[int, int]:
        """Return the lower bound and the extent of an element in bytes."""
        return 0, self.dtype.itemsize

    @property
    def size(self) -> int:
        """Size of an element in bytes."""
        return self.dtype.itemsize

    extent = size

    def tocode(self) -> str:
        """Return NumPy's name of the type."""
        return self.dtype.str

    def __repr__(self) -> str:
        return f"<Datatype {self.dtype}>"


BYTE = UNSIGNED_CHAR = UINT8_T = Datatype("u1")
CHAR = SIGNED_CHAR = INT8_T = Datatype("i1")
SHORT = INT16_T = Datatype("i2")
INT = INT32_T = Datatype("i4")
LONG = LONG_LONG = INT64_T = Datatype("i8")
UNSIGNED_SHORT = UINT16_T = Datatype("u2")
UNSIGNED = UINT32_T = Datatype("u4")
UNSIGNED_LONG = UINT64_T = Datatype("u8")
FLOAT = Datatype("f4")
DOUBLE = Datatype("f8")
COMPLEX = C_FLOAT_COMPLEX = Datatype("c8")
DOUBLE_COMPLEX = C_DOUBLE_COMPLEX = Datatype("c16")
BOOL = C_BOOL = Datatype("?")


def _located(code: str) -> Datatype:
    """Return the type of a value with its location, in the memory layout of C."""
    return Datatype(np.dtype([("value", code), ("place", "i4")], align=True))


FLOAT_INT, DOUBLE_INT, LONG_INT, SHORT_INT = _located("f4"), _located("f8"), _located("i8"), _located("i2")
TWOINT = INT_INT = _located("i4")
