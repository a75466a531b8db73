"""Provide the operations of reductions: their names, and the Python and NumPy functions that stand for them.

Every ``op=`` and ``combine=`` is parsed here, so ``sum``, ``np.add`` and ``operator.add`` mean "sum" in every call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.wire.fingerprint import code_of

ARITHMETIC = ("sum", "prod", "min", "max")
BITWISE = ("and", "or", "xor")
OPS = (*ARITHMETIC, *BITWISE)


class Pairwise(NamedTuple):
    """An operation as a function of two objects, and of two arrays."""

    on_objects: Callable[[Any, Any], Any]
    on_arrays: np.ufunc


#: Functions of every operation.
PAIRWISE = {
    "sum": Pairwise(operator.add, np.add),
    "prod": Pairwise(operator.mul, np.multiply),
    "min": Pairwise(min, np.minimum),
    "max": Pairwise(max, np.maximum),
    "and": Pairwise(operator.and_, np.bitwise_and),
    "or": Pairwise(operator.or_, np.bitwise_or),
    "xor": Pairwise(operator.xor, np.bitwise_xor),
}

#: Functions that mean an operation. Some do not combine two values: ``sum(a, b)`` adds all elements of `a` to `b`.
_NAMES: dict[Any, str] = {
    **{function: name for name, pairwise in PAIRWISE.items() for function in pairwise},
    **dict.fromkeys((sum, np.sum, operator.iadd), "sum"),
    **dict.fromkeys((math.prod, np.prod, operator.imul), "prod"),
    **dict.fromkeys((np.min, np.amin), "min"),
    **dict.fromkeys((np.max, np.amax), "max"),
    operator.iand: "and",
    operator.ior: "or",
    operator.ixor: "xor",
}


class Elementwise:
    """A ufunc as the operation of a reduction: results have the dtype of the operands, and containers keep their form.

    Parameters
    ----------
    ufunc : numpy.ufunc
        A ufunc with two operands.
    """

    def __init__(self, ufunc: np.ufunc) -> None:
        self.ufunc = ufunc
        self.__qualname__ = ufunc.__name__

    def __call__(self, left: Any, right: Any) -> Any:
        if isinstance(left, dict):
            return {key: self(left[key], right[key]) for key in left}
        if isinstance(left, tuple | list):
            parts = [self(first, second) for first, second in zip(left, right, strict=True)]
            return type(left)(*parts) if hasattr(left, "_fields") else type(left)(parts)
        result = self.ufunc(left, right)
        if isinstance(left, np.ndarray | np.generic):
            return result.astype(left.dtype, copy=False)
        return type(left)(result)

    def __repr__(self) -> str:
        return repr(self.ufunc)


_AND, _OR, _XOR = Elementwise(np.logical_and), Elementwise(np.logical_or), Elementwise(np.logical_xor)

#: Functions that combine truth values, for elements of any dtype.
_LOGICAL: dict[Any, Elementwise] = {
    np.logical_and: _AND,
    np.logical_or: _OR,
    np.logical_xor: _XOR,
    all: _AND,
    np.all: _AND,
    any: _OR,
    np.any: _OR,
}

#: Products of complex numbers, which the native module does not support.
PRODUCT = Elementwise(np.multiply)


def named(op: Any) -> Any:
    """Return the name of the operation that `op` means; a function that combines two operands; or `op` itself."""
    if isinstance(op, str):
        return op
    try:
        return _NAMES.get(op) or _LOGICAL.get(op, op)
    except TypeError:  # a callable without a hash
        return op


def named_for_booleans(op: Any) -> Any:
    """Return the same as `named`, for values that are all booleans."""
    op = named(op)
    return {_AND: "and", _OR: "or", _XOR: "xor"}.get(op, op) if isinstance(op, Elementwise) else op


def check_op(op: Any) -> None:
    """Raise `InputError` unless `op` is the name of an operation."""
    if not isinstance(op, str) or op not in OPS:
        raise InputError(f"op={text_of(op)}: expected one of {', '.join(OPS)}")


def text_of(op: Any) -> str:
    """Return `op` for messages: a name in quotes, a function as it is called."""
    return repr(op) if isinstance(op, str) or not callable(op) else name_of(op)


def name_of(function: Any) -> str:
    """Return the name of a function, which is the same on every rank."""
    found = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return str(found or type(function).__qualname__)


def description_of(function: Any) -> str:
    """Return the name of a function with a digest of its code, which ranks compare."""
    code = code_of(function)
    return name_of(function) if code is None else f"{name_of(function)} of code {code[:8]}"


def check_rows(parameter: str, function: Any, result: Any, like: NDArray[Any]) -> NDArray[Any]:
    """Return the result of a function of two blocks of rows, checked to have their shape and dtype."""
    rows = np.asarray(result)
    if rows.shape != like.shape or rows.dtype != like.dtype:
        raise InputError(
            f"{parameter}={name_of(function)}: returned shape {rows.shape} and dtype {rows.dtype} for two blocks of "
            f"shape {like.shape} and dtype {like.dtype}: expected the same"
        )
    return rows


def check_object(function: Any, result: Any, left: Any, right: Any, parameter: str = "op") -> Any:
    """Return the result of a function of two objects, checked to have the kind of one of them."""
    kind = _kind(result)
    is_alike = kind in (_kind(left), _kind(right))
    if not is_alike and (isinstance(kind, str) or not isinstance(result, (type(left), type(right)))):
        kinds = " and ".join(dict.fromkeys(type(each).__name__ for each in (left, right)))
        raise InputError(
            f"{parameter}={name_of(function)}: returned a {type(result).__name__} for operands of type {kinds}: "
            "expected the same"
        )
    return result


def _kind(value: Any) -> Any:
    """Return the kind of a number of Python or NumPy, or the type of any other object."""
    if isinstance(value, bool | np.bool_):
        return "b"
    if isinstance(value, int | np.integer):
        return "i"
    if isinstance(value, float | np.floating):
        return "f"
    return type(value)
