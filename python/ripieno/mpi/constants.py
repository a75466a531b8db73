"""Constants and markers for calls."""

from __future__ import annotations

from typing import Any, Final

from ripieno.errors import RipienoError

ANY_SOURCE: Final = -1
ANY_TAG: Final = -1
PROC_NULL: Final = -2
ROOT: Final = -3
UNDEFINED: Final = -32766
SUCCESS: Final = 0
COMM_TYPE_SHARED: Final = 1
THREAD_SINGLE, THREAD_FUNNELED, THREAD_SERIALIZED, THREAD_MULTIPLE = range(4)

#: Attributes of communicators.
TAG_UB: Final = 0x64400001
WTIME_IS_GLOBAL: Final = 0x64400007

#: The largest tag.
LARGEST_TAG: Final = 2**31 - 1

BOTTOM: Any = None


class _InPlace:
    """The type of `IN_PLACE`."""

    def __repr__(self) -> str:
        return "IN_PLACE"


#: Replaces a buffer argument: the input lies in the result buffer.
IN_PLACE: Final = _InPlace()


#: Base class of all errors that calls raise: invalid arguments, mismatched calls, failed ranks.
Exception = RipienoError
