"""Provide reductions by a function of the program, in Python or compiled.

The function combines rows, not elements, and rows are never split: an array of shape (n, a, b) has n rows of shape
(a, b), an array of shape (n,) has n numbers. The operands of each combination are in rank order. Objects other than
arrays are gathered and combined in this order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno._types import Combining
from ripieno.errors import InputError
from ripieno.wire import objects, signatures
from ripieno.wire.arrays import (
    as_array,
    byte_view,
    check_unmasked,
    checked_counts,
    fill,
    in_place,
    like,
    map_leaves,
    native_copy,
    split,
)
from ripieno.wire.calls import NativeCalls, StagedCall
from ripieno.wire.operations import PRODUCT, Elementwise, check_object, check_rows, description_of

#: The common base class of `ctypes` function pointers.
_POINTER = ctypes.CFUNCTYPE(None).__mro__[1]


class CFunction:
    """A compiled function as the operation of a reduction. Calls do not use the interpreter.

    Attributes
    ----------
    address : int
        The address of the function.
    name : str
        The name that ranks compare to ensure that all use the same operation.

    Parameters
    ----------
    pointer : int, ctypes function, cffi function pointer, or numba cfunc
        ``void f(const void *from, void *into, int64_t row_count, int64_t row_bytes)`` combines each row of `from` into
        the matching row of `into`, which holds the values of lower ranks. Rows may have any alignment. The function
        runs on any thread that advances the call, and must not call this library.
    name : str, optional
        By default the name of the pointer.
    """

    def __init__(self, pointer: Any, name: str | None = None) -> None:
        address = _address(pointer)
        if not address:
            raise InputError(
                f"pointer={pointer!r}: expected the address of a function, a function of ctypes or cffi, or a cfunc of "
                "numba"
            )
        self.address: int = address
        self.name: str = name or getattr(pointer, "__name__", None) or "of another language"
        self._pointer = pointer  # keeps the function alive

    def __repr__(self) -> str:
        return f"<CFunction {self.name}>"


#: Operations of a reduction other than named ones.
Function = Combining | CFunction


def is_function(op: Any) -> bool:
    """Whether `op` is a function rather than the name of an operation."""
    return not isinstance(op, str) and (isinstance(op, CFunction) or callable(op) or _is_cffi(op))


def reduced(
    collective: str,
    place: tuple[int, int],
    value: Any,
    op: Any,
    *,
    root: int = 0,
    out: NDArray[Any] | None = None,
    counts: Sequence[int] | None = None,
    algorithm: str | None = None,
) -> NativeCalls[Any] | StagedCall[Any]:
    """Return the native call of reduction `collective` by a function; `place` is the rank and the number of ranks."""
    function = op if isinstance(op, CFunction) or not _address(op) else CFunction(op)
    check_unmasked(value, collective)
    array = as_array(value)
    if array is None and (isinstance(function, CFunction) or function is PRODUCT):
        array = np.asarray(value)
    if array is None:
        if out is not None or counts is not None:
            raise InputError(f"{collective}: a {type(value).__name__} and out= or counts=: expected an array")
        return _of_objects(collective, place, value, function, root)
    if array.dtype.hasobject:
        raise InputError(
            f"{collective}: dtype {array.dtype}: expected one without Python objects; a list of them is combined"
        )
    rank, world_size = place
    into = native_copy(array) if out is None or collective == "reduce_scatter" else fill(in_place(out), array)
    row = into.shape[1:]
    row_bytes = into.dtype.itemsize * int(np.prod(row))
    signature = f"{_rows(into)} by function {_name(function)}"
    if collective == "reduce_scatter":
        if into.ndim == 0:
            raise InputError("reduce_scatter: expected an array with at least one axis")
        counts = checked_counts(counts, len(into), world_size)
    combine = function.address if isinstance(function, CFunction) else _on_memory(function, into.dtype, row)
    tasks: dict[str, tuple[Any, ...]] = {"reduce": ("function", root), "reduce_scatter": (counts, "function")}
    task = (collective, *tasks.get(collective, ("function",)))
    call = ("reduce_by", task, byte_view(into), combine, max(row_bytes, 1), signature, algorithm)

    def finish() -> Any:
        if collective == "reduce_scatter":
            own_rows = split(into, counts or [])[rank]
            return own_rows.copy() if out is None else fill(in_place(out), own_rows)
        if collective == "exscan" and rank == 0 and function is PRODUCT:
            into[...] = 1
        elif (collective == "reduce" and rank != root) or (collective == "exscan" and rank == 0):
            return None
        return into if out is not None else like(value, into)

    return NativeCalls([call], finish)


def arg_extremum(name: str, rank: int, value: Any, index: Any, algorithm: str | None) -> NativeCalls[tuple[Any, Any]]:
    """Return the call of argmin or argmax."""
    check_unmasked(value, name)
    found = as_array(value)
    try:
        values = np.asarray(value) if found is None else found
    except ValueError as error:
        raise InputError(f"{name} of a {type(value).__name__}: expected a number or an array: {error}") from None
    if values.dtype.kind not in "iuf" and values.dtype.name != "bfloat16":
        raise InputError(f"{name}: dtype {values.dtype}: expected integers or floats")
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    rows = np.empty(values.shape, [("value", values.dtype), ("index", np.int64)])
    rows["value"] = values
    try:
        rows["index"] = rank if index is None else index
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: index={index!r}: expected whole numbers of shape {values.shape}") from error
    if index is not None and np.asarray(index).dtype.kind not in "iu":
        raise InputError(f"{name}: index of dtype {np.asarray(index).dtype}: expected whole numbers")
    signature = f"{values.dtype} of shape {values.shape} by {name}"
    combine = (name, values.dtype.name)
    call = ("reduce_by", ("allreduce", "function"), byte_view(rows), combine, rows.dtype.itemsize, signature, algorithm)

    def finish() -> tuple[Any, Any]:
        best, where = rows["value"].copy(), rows["index"].copy()
        return (like(value, best), int(where)) if values.ndim == 0 else (best, where)

    return NativeCalls([call], finish)


def _of_objects(collective: str, place: tuple[int, int], value: Any, function: Any, root: int) -> StagedCall[Any]:
    """Return the call that gathers objects and combines them on each rank that gets a result."""
    rank, world_size = place
    if collective == "reduce_scatter":
        raise InputError(f"reduce_scatter: a {type(value).__name__}: expected an array")
    call = f"{collective} by function {_name(function)}"
    if isinstance(function, Elementwise):
        shapes: list[str] = []
        map_leaves(value, lambda leaf: shapes.append(f"shape {np.shape(leaf)}"))
        call = f"{call} of {signatures.of_tree(value, shapes)}"
    signature = signatures.of_object(call)
    operand_count = {"scan": rank + 1, "exscan": rank}.get(collective, world_size)

    def combine(left: Any, right: Any) -> Any:
        return check_object(function, function(left, right), left, right)

    def run(native: Any) -> Any:
        if collective == "reduce":
            gathered = objects.gather(native, value, root, None, signature)
        else:
            gathered = objects.allgather(native, value, None, signature)
        return reduce(combine, gathered[:operand_count]) if gathered and operand_count else None

    return StagedCall(run)


def _on_memory(
    function: Callable[[Any, Any], Any], dtype: np.dtype[Any], row: tuple[int, ...]
) -> Callable[[int, int, int], None]:
    """Return `function` for blocks of rows at addresses. The function gets copies, so it may keep references."""

    def rows_at(address: int, length_bytes: int) -> NDArray[Any]:
        memory = memoryview((ctypes.c_ubyte * length_bytes).from_address(address)).cast("B")
        rows: NDArray[Any] = np.frombuffer(memory, np.uint8).view(dtype).reshape(-1, *row)
        return rows

    def combine(into: int, other: int, length_bytes: int) -> None:
        target = rows_at(into, length_bytes)
        result = function(target.copy(), rows_at(other, length_bytes).copy())
        np.copyto(target, check_rows("op", function, result, target))

    return combine


def _rows(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _name(function: Any) -> str:
    if isinstance(function, CFunction):
        return function.name
    return description_of(function)


def _is_cffi(op: Any) -> bool:
    return type(op).__module__ == "_cffi_backend"


def _address(pointer: Any) -> int | None:
    """Return the address of the function that `pointer` points to, or None if it is not a pointer."""
    if isinstance(pointer, int) and not isinstance(pointer, bool):
        return pointer if 0 < pointer < 2**64 else None
    if isinstance(pointer, _POINTER):
        value: int | None = ctypes.cast(pointer, ctypes.c_void_p).value  # type: ignore[arg-type]  # it is one
        return value
    if _is_cffi(pointer):
        from cffi import FFI  # a cffi pointer implies that cffi is installed

        return int(FFI().cast("uintptr_t", pointer))
    address = getattr(pointer, "address", None)
    return address if isinstance(address, int) and not isinstance(pointer, type) else None
