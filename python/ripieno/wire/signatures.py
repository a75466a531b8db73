"""Describe the signature of a rank's data: the properties besides count and dtype that must agree between ranks.

The native module compares these texts, and the shapes of arrays without text. An array of one axis, with a dtype that
the module knows, needs no text. The error message shows the texts if ranks differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.wire.arrays import is_native_order

#: The signature of messages that make up an object.
OBJECT_PART = "parts of an object"


def of_object(call: str) -> str:
    """Return the signature of an object that ranks exchange within a call of several steps, named with its options."""
    return f"{OBJECT_PART} in {call}"


#: The signature of a Python number, of any type.
NUMBER = _native.NUMBER_SIGNATURE


def of_array(array: NDArray[Any]) -> str | None:
    """Return the signature of an array, or None if the native module reads the signature from the array itself."""
    return None if is_native_order(array.dtype) else _of_leaf(array)


def of_rows(array: NDArray[Any]) -> str | None:
    """Return the signature of an array with a number of rows that may differ between ranks."""
    is_known = is_native_order(array.dtype)
    if is_known and array.ndim == 1:
        return None
    of_dtype = "" if is_known else f" of {_name(array.dtype)}"
    return f"one element{of_dtype}" if array.ndim == 0 else f"rows{of_dtype} of shape {array.shape[1:]}"


def of_leaf(array: NDArray[Any]) -> str:
    """Return the signature of an array, or a number, inside a container."""
    return _of_leaf(array) if array.ndim else _name(array.dtype)


def of_tree(value: Any, leaves: Iterator[str]) -> str:
    """Return the signature of tuples, lists and dicts of `leaves`, in the order of `map_leaves`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {of_tree(value[key], leaves)}" for key in sorted(value, key=repr)) + "}"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = zip(value._fields, value, strict=True)
        return f"{type(value).__name__}({', '.join(f'{name}={of_tree(each, leaves)}' for name, each in fields)})"
    if isinstance(value, tuple | list):
        parts = ", ".join(of_tree(each, leaves) for each in value)
        return f"[{parts}]" if isinstance(value, list) else f"({parts},)" if len(value) == 1 else f"({parts})"
    return next(leaves)


def _of_leaf(array: NDArray[Any]) -> str:
    return f"{_name(array.dtype)} of shape {array.shape}"


_names: dict[np.dtype[Any], str] = {}


def _name(dtype: np.dtype[Any]) -> str:
    """Return NumPy's name of a dtype, cached because reading it takes longer than a short call."""
    name = _names.get(dtype)
    if name is None:
        name = _names[dtype] = str(dtype)
    return name
