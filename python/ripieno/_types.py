"""Types that the signatures of several rooms name."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np

#: An array and what comes of it, of the same dtype.
Array = TypeVar("Array", bound=np.ndarray[Any, Any])

#: The name of an operation that combines two elements.
OpName = Literal["sum", "prod", "min", "max", "and", "or", "xor"]
#: A function that combines two values; ``sum`` and ``np.max`` mean operations, but take other arguments.
Combining = Callable[..., Any]
#: How two elements become one, where functions are those that mean an operation.
Op = OpName | Combining
#: How rows of equal keys become one; not "concat", which keeps them all.
CombineOne = OpName | Literal["mul"] | Combining

#: What a job does when a rank is lost: tell the caller, or begin the program again with the others, or with new ones.
OnFailure = Literal["raise", "shrink", "respawn"]


class SharesByDlpack(Protocol):
    """What other libraries have for arrays."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


#: What is no array of NumPy, but becomes one on the same memory.
Foreign: TypeAlias = "array[Any] | memoryview | SharesByDlpack"

#: Whose rows ranks give that fit together: each has its own, or all have the same.
Rows = Literal["own", "shared"]
