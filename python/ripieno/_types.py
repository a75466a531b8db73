"""Types for the signatures of several packages."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np

#: An array, and a result of the same dtype.
Array = TypeVar("Array", bound=np.ndarray[Any, Any])

#: The name of an operation that combines two elements.
OpName = Literal["sum", "prod", "min", "max", "and", "or", "xor"]
#: A function that combines two values; also ``sum`` or ``np.max``, which stand for operations.
Combining = Callable[..., Any]
#: An operation on two elements: its name, or a function.
Op = OpName | Combining
#: An operation that combines rows with equal keys; not "concat", which keeps all rows.
CombineOne = OpName | Literal["mul"] | Combining

#: Policy for a rank that is lost: raise, restart the program on the survivors, or restart it with replacements.
OnFailure = Literal["raise", "shrink", "respawn"]


class SupportsDlpack(Protocol):
    """An object that exports its memory by DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


#: An object other than a NumPy array that can be viewed as one without a copy.
Foreign: TypeAlias = "array[Any] | memoryview | SupportsDlpack"

#: How threads execute the phases of a kernel.
ThreadModel = Literal["fork-join", "bsp"]

#: Treatment of rows with missing values: leave them out, or use the mean of the column instead.
Missing = Literal["drop", "mean"]

#: Whether each rank of a common fit has its own rows, or all ranks have the same rows.
Rows = Literal["own", "shared"]
