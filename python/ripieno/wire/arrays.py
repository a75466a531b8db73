"""Recognize arrays, and convert them to the flat, contiguous forms of the native module."""

from __future__ import annotations

import array
import itertools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

import ripieno._native as _native
from ripieno._checks import text, whole_number
from ripieno.errors import InputError
from ripieno.wire.numbers import check_int64
from ripieno.wire.operations import ARITHMETIC, BITWISE, PAIRWISE, PRODUCT, named, named_for_booleans

Scalar = TypeVar("Scalar", bound=np.generic)

# The maximum number of rows of an array.
_ROWS_MAX = 2**63 - 1

# Cached, because building a union of types takes longer than a lookup in it.
_NUMBERS = (bool, int, float, complex)
_REDUCIBLE = (*_NUMBERS, np.number, np.bool_, np.ndarray)
_BUFFERS = (array.array, memoryview)
_CONTAINERS = (dict, tuple, list)

#: Ranks of a host read arrays of at least this size in place, if the system permits it.
ZERO_COPY_BYTES = 64 << 10

#: Dtypes that NumPy itself provides; bfloat16 is from another package.
NATIVE_DTYPES = {np.dtype(code) for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")}


#: Complex dtypes. Their sums are the sums of their parts.
_COMPLEX_DTYPES: dict[np.dtype[Any], np.dtype[Any]] = {np.dtype("c8"): np.dtype("f4"), np.dtype("c16"): np.dtype("f8")}


def is_native(dtype: np.dtype[Any]) -> bool:
    """Whether the native module can combine elements of this type."""
    return dtype in NATIVE_DTYPES or dtype.name == "bfloat16"


def is_native_order(dtype: np.dtype[Any]) -> bool:
    """Whether the native module can combine elements of this type in their byte order."""
    return dtype in NATIVE_DTYPES or (dtype.isnative and is_native(dtype))


def is_plain(value: Any) -> TypeGuard[NDArray[Any]]:
    """Whether the native module can receive into `value` directly, and can read its signature."""
    return type(value) is np.ndarray and value.dtype in NATIVE_DTYPES and value.flags.carray


def as_array(value: Any) -> NDArray[Any] | None:
    """Return `value` as an ndarray on the same memory, or None if it is not an array."""
    if type(value) in (np.ndarray, np.memmap):
        return np.asarray(value)
    if isinstance(value, _BUFFERS):
        return np.asarray(value)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        return np.from_dlpack(value)
    return None


def check_unmasked(value: Any, name: str) -> None:
    """Raise `InputError` if `value` is a masked array with masked elements, which would be used as data."""
    # A masked array exists only if its module is imported. Importing it takes time, and file descriptors.
    if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        hidden = np.ma.getmaskarray(value)
        first = ", ".join(map(str, np.argwhere(hidden)[0]))
        where = f", the first at [{first}]" if first else ""
        raise InputError(f"{name}: {hidden.sum()} of {value.size} are masked{where}: fill or drop them")


def check_complete(value: Any, name: str) -> None:
    """Raise `InputError` if `value` has masked elements, nulls of Arrow, or None among objects.

    PyArrow converts a null among categories to the last category.
    """
    check_unmasked(value, name)
    # It is a method of columns of polars.
    null_count = getattr(value, "null_count", 0)
    null_count = null_count() if callable(null_count) else null_count
    if isinstance(value, list | tuple) or getattr(getattr(value, "dtype", None), "kind", None) == "O":
        null_count = sum(each is None for each in value)
    if isinstance(null_count, int) and null_count:
        raise InputError(f"{name}: {null_count} of {len(value)} are missing: fill or drop them")


def resolved_operation(op: Any, value: Any) -> Any:
    """Resolve `op` for `value`: return the name of an operation, or the function that combines such values.

    Functions that mean an operation, such as ``sum``, stand for its name with arrays, numbers, and tuples, lists and
    dicts. With other objects, such as sets, they are called.
    """
    if isinstance(op, str) and op != "prod":
        return op
    dtypes = _dtypes(value)
    meaning = named_for_booleans(op) if all(dtype.kind == "b" for dtype in dtypes) else named(op)
    if not isinstance(meaning, str):
        return meaning
    if meaning == "prod" and dtypes[0].kind == "c" and not is_tree(value):
        return PRODUCT
    is_combined = is_tree(value) or dtypes[0].kind in "biufc" or dtypes[0].name == "bfloat16"
    if isinstance(op, str) or is_combined:
        return meaning
    pairwise = PAIRWISE[meaning]
    return pairwise.on_objects if as_array(value) is None else pairwise.on_arrays


def _dtypes(value: Any) -> list[np.dtype[Any]]:
    """Return the dtypes of the leaves of a value. The dtype of a leaf without one is object."""
    found: list[np.dtype[Any]] = []

    def visit(leaf: Any) -> None:
        array = leaf if isinstance(leaf, np.ndarray | np.generic) else as_array(leaf)
        if array is None and isinstance(leaf, _NUMBERS):
            array = np.asarray(leaf)
        found.append(np.dtype(object) if array is None else array.dtype)

    map_leaves(value, visit)
    return found


def reducible(value: Any, op: str, name: str) -> NDArray[Any]:
    """Return `value`, a number or an array, as an array of a type that `op` supports."""
    if type(value) is np.ndarray and value.dtype in NATIVE_DTYPES and op in ARITHMETIC:
        # The common case; each microsecond counts.
        return value
    check_unmasked(value, name)
    found = as_array(value)
    if found is None and type(value) is int:
        check_int64(value, op, name)
        found = np.asarray(value, np.int64)
    if found is None and isinstance(value, _REDUCIBLE):
        found = np.asarray(value)
    if found is None:
        raise InputError(
            f"{name} of a {type(value).__name__}: expected numbers, arrays, or tuples, lists, dicts of these"
        )
    if found.dtype == bool and op in ("sum", "prod") and found.ndim == 0:
        return found.astype(np.int64)
    dtype = found.dtype.newbyteorder("=")
    if dtype in _COMPLEX_DTYPES and op == "sum":
        return found
    if dtype.kind != "b" and not is_native(dtype):
        raise InputError(
            f"{name}: dtype {found.dtype}: expected int8 … int64, uint8 … uint64, float16, bfloat16, float32 or float64"
            f"{', or complex numbers, which have sums and products only' if dtype.kind == 'c' else ''}"
        )
    check_defined(found.dtype, op, name)
    return found


def check_defined(dtype: np.dtype[Any], op: str, name: str) -> None:
    """Raise `InputError` unless `op` supports this dtype. The dtype is one that the native module supports."""
    if dtype.kind == "b" and op in ("sum", "prod"):
        raise InputError(f"{name}: op={op!r} of booleans: convert to an integer type, or use 'or' or 'and'")
    if op in BITWISE and dtype.kind not in "biu":
        raise InputError(f"{name}: op={op!r} of dtype {dtype}: expected integers or booleans")


def in_place(out: Any, name: str = "out") -> NDArray[Any]:
    """Return `out` itself, checked to be an array that can receive data."""
    if not isinstance(out, np.ndarray):
        raise InputError(f"{name}: expected a NumPy array, got {type(out).__name__}")
    check_unmasked(out, name)
    if out.dtype.hasobject:
        raise InputError(f"{name}: dtype {out.dtype} holds Python objects, which cannot be received in place")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise InputError(f"{name}: expected a C-contiguous, writable array (shape {out.shape}, strides {out.strides})")
    return out


def check_combinable(out: NDArray[Any], op: str, name: str) -> NDArray[Any]:
    """Return `out` itself, after a check that the native module can combine its elements by `op`."""
    reducible(in_place(out), op, name)
    if not out.dtype.isnative:
        native = out.dtype.newbyteorder("=")
        raise InputError(f"{name}: out: dtype {out.dtype.str} is of foreign byte order: expected {native}")
    return out


def is_alike(out: NDArray[Any], value: Any) -> bool:
    """Whether `value` is an array with the dtype of `out`."""
    found = out if value is out else as_array(value)
    return found is not None and found.dtype == out.dtype


def required(value: Any, name: str) -> NDArray[Any]:
    """Return `value` as an array without Python objects."""
    check_unmasked(value, name)
    found = np.asarray(value) if isinstance(value, np.ndarray) else as_array(value)
    if found is None or found.dtype.hasobject:
        raise InputError(f"{name}: expected an array of numbers, got {type(value).__name__}")
    return found


def in_rows(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return `array`, checked to have rows."""
    if array.ndim == 0:
        raise InputError(f"{name}: shape (): expected an array with at least one axis")
    return array


def empty_rows(counts: list[int], rows: NDArray[Any]) -> NDArray[Any]:
    """Return an array for the rows of all ranks, `counts` each, with rows of the form of `rows`."""
    if sum(counts) * row_size(rows) * rows.itemsize > _ROWS_MAX:
        raise InputError(f"counts={counts}: expected rows that memory can hold")
    return empty((sum(counts), *rows.shape[1:]), rows.dtype)


@overload
def empty(shape: int | Sequence[int]) -> NDArray[np.float64]: ...


@overload
def empty(shape: int | Sequence[int], dtype: np.dtype[Scalar] | type[Scalar]) -> NDArray[Scalar]: ...


@overload
def empty(shape: int | Sequence[int], dtype: DTypeLike = np.float64) -> NDArray[Any]: ...


def empty(shape: int | Sequence[int], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return an uninitialized array, as `numpy.empty`, in memory that ranks of the same host can read in place.

    From 64 KiB on, a rank sends elements to a rank of its host without an intermediate copy. Smaller arrays are
    ordinary NumPy arrays. The array can be used like any other. When it is collected, a later array of about its size
    reuses its memory. A forked process shares the array: each process sees the writes of the other.

    Parameters
    ----------
    shape : int or sequence of int
        The shape.
    dtype : data-type, default float64
        Type of the elements.

    Returns
    -------
    ndarray of `shape` and `dtype`

    Raises
    ------
    MemoryError
        The system has no memory for the array.
    """
    dtype = np.dtype(dtype)
    shape = tuple(map(operator.index, shape)) if isinstance(shape, Sequence) else (operator.index(shape),)
    size_bytes = math.prod(shape) * dtype.itemsize
    if size_bytes < ZERO_COPY_BYTES or dtype.hasobject or min(shape, default=0) < 0:
        return np.empty(shape, dtype)
    # NumPy's stubs do not accept it as a buffer before Python 3.12.
    memory: Any = _native.pooled(size_bytes)
    array: NDArray[Any] = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
    return array


def fill(out: NDArray[Any], value: Any) -> NDArray[Any]:
    """Copy `value` into `out`, which has the same shape and a compatible dtype."""
    np.copyto(out, fitting(out, value))
    return out


def fitting(out: NDArray[Any], value: Any) -> NDArray[Any]:
    """Return `value` as an array, checked to fit into `out`."""
    check_unmasked(value, "value")
    found = as_array(value)
    source = np.asarray(value) if found is None else found
    check_fits(out, source.shape, source.dtype)
    return source


def check_fits(out: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise `InputError` unless `out` has this shape and accepts elements of `dtype`."""
    if out.shape != shape or not (dtype == out.dtype or np.can_cast(dtype, out.dtype, "same_kind")):
        raise InputError(f"out: shape {out.shape} and dtype {out.dtype}: expected {shape} and {dtype}, as the value")


def check_rows_fit(out: NDArray[Any], rows: NDArray[Any], name: str) -> None:
    """Raise `InputError` unless `out` accepts rows like these, in any number."""
    if out.ndim != rows.ndim or out.shape[1:] != rows.shape[1:] or not np.can_cast(rows.dtype, out.dtype, "same_kind"):
        raise InputError(
            f"{name}: out: shape {out.shape} and dtype {out.dtype}: expected rows of shape {rows.shape[1:]} and dtype "
            f"{rows.dtype}, as the rows of this rank"
        )


def native_elements(contiguous: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Return all elements in a dtype of the native module, and the number of these per element of the input."""
    if is_native_order(contiguous.dtype):
        return contiguous, 1
    if contiguous.dtype in _COMPLEX_DTYPES:
        parts: NDArray[Any] = contiguous.reshape(-1).view(_COMPLEX_DTYPES[contiguous.dtype])
        return parts, 2
    return contiguous.reshape(-1).view(np.uint8), contiguous.dtype.itemsize


def flat_elements(contiguous: NDArray[Any]) -> NDArray[Any]:
    """Return all elements along one axis, in a dtype that the native module supports."""
    return native_elements(contiguous)[0].reshape(-1)


def row_size(rows: NDArray[Any]) -> int:
    """Return the number of elements per entry of the first axis."""
    return math.prod(rows.shape[1:])


def even_counts(row_count: int, world_size: int) -> list[int]:
    """Divide `row_count` as evenly as possible; the first ranks get one more, like `numpy.array_split`."""
    each, more = divmod(row_count, world_size)
    return [each + (rank < more) for rank in range(world_size)]


def checked_counts(counts: Sequence[int] | None, row_count: int, world_size: int, name: str = "counts") -> list[int]:
    """Return `counts` as a list of ints with the sum `row_count`, or the even division if None."""
    if counts is None:
        return even_counts(row_count, world_size)
    listed = listed_counts(counts, world_size, name)
    if sum(listed) != row_count:
        raise InputError(f"{name}={listed}: expected {world_size} non-negative numbers that add up to {row_count} rows")
    return listed


def listed_counts(counts: Sequence[int], world_size: int, name: str = "counts") -> list[int]:
    """Return `counts` as a list of ints, one per rank."""
    expected = f"expected {world_size} non-negative whole numbers, the rows of every rank"
    if not isinstance(counts, Sequence | np.ndarray) or isinstance(counts, str | bytes) or np.ndim(counts) != 1:
        raise InputError(f"{name}={counts!r}: {expected}")
    listed = [whole_number(f"{name}[{rank}]", count, 0, _ROWS_MAX) for rank, count in enumerate(counts)]
    if len(listed) != world_size:
        raise InputError(f"{name}={listed}: {expected}")
    return listed


def split(array: NDArray[Any], counts: Sequence[int]) -> list[NDArray[Any]]:
    """Return consecutive views of `counts` rows each."""
    stops = itertools.accumulate(counts)
    return [array[stop - count : stop] for count, stop in zip(counts, stops, strict=True)]


def is_tree(value: Any) -> bool:
    """Whether `value` is a container of other values."""
    return isinstance(value, _CONTAINERS)


def map_leaves(value: Any, visit: Callable[[Any], Any]) -> Any:
    """Return `value` with every leaf of its tuples, lists and dicts replaced by `visit(leaf)`.

    Keys are visited in the order of their text, so ranks agree if they filled equal dicts in different orders.
    """
    if isinstance(value, dict):
        visited = {key: map_leaves(value[key], visit) for key in sorted(value, key=repr)}
        return {key: visited[key] for key in value}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(each, visit) for each in value))
    if isinstance(value, tuple | list):
        return type(value)([map_leaves(each, visit) for each in value])
    return visit(value)


def in_order(algorithm: str | None, order: str | None) -> str | None:
    """Return an algorithm and an order of its ranks as text for the native module: ``chain@given``."""
    if algorithm is None and order is None:
        return None
    algorithm = text("algorithm", algorithm, "expected None or the name of one")
    order = text("order", order, "expected None, 'racks', 'given', 'random' or 'random:SEED'")
    return algorithm if order is None else f"{algorithm or ''}@{order}"


def elements(rows: NDArray[Any], counts: list[int]) -> tuple[NDArray[Any], list[int]]:
    """Return `rows` in a dtype that the native module knows, and the elements per rank for `counts` rows each."""
    array, scale = native_elements(rows)
    per_row = row_size(rows) * scale
    return array, [count * per_row for count in counts]


def native_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Return a writable, contiguous copy in this machine's byte order."""
    if array.nbytes < ZERO_COPY_BYTES and array.dtype.isnative:
        return array.copy()
    return copied(array, array.dtype.newbyteorder("="))


def copied(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a writable, contiguous copy of this dtype. A long copy may reuse memory of a deleted array."""
    if array.nbytes < ZERO_COPY_BYTES:
        return np.array(array, dtype, order="C", copy=True)
    copy = empty(array.shape, dtype)
    np.copyto(copy, array)
    return copy


def packed_leaves(leaves: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Copy the leaves of each dtype into one flat array. Return these arrays, and each leaf's part of them."""
    lines: list[NDArray[Any]] = []
    parts: dict[int, NDArray[Any]] = {}
    by_dtype: dict[np.dtype[Any], list[int]] = {}
    for index, leaf in enumerate(leaves):
        by_dtype.setdefault(leaf.dtype.newbyteorder("="), []).append(index)
    for dtype, indices in by_dtype.items():
        sizes = [leaves[index].size for index in indices]
        all_elements = empty(sum(sizes), dtype)
        for index, part in zip(indices, split(all_elements, sizes), strict=True):
            parts[index] = part.reshape(leaves[index].shape)
            np.copyto(parts[index], leaves[index])
        lines.append(all_elements)
    return lines, [parts[index] for index in range(len(leaves))]


def identity_like(leaf: Any, op: str) -> Any:
    """Return the identity of `op` in the form of `leaf`, a number or an array."""
    if op in ("sum", "prod") and isinstance(leaf, int | np.bool_):
        return int(op == "prod")
    return like(leaf, np.full_like(leaf, identity(op, np.asarray(leaf).dtype)))


def identity(op: str, dtype: np.dtype[Any]) -> Any:
    if op in ("sum", "or", "xor"):
        return dtype.type(0)
    if op == "prod":
        return dtype.type(1)
    if dtype.kind == "b":
        return op != "max"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return dtype.type(~dtype.type(0)) if op == "and" else dtype.type(limits.max if op == "min" else limits.min)
    return dtype.type(np.inf if op == "min" else -np.inf)


def accumulator(dtype: np.dtype[Any], op: str) -> np.dtype[Any]:
    """Return the type of the accumulator for many values and `op`; the result is then rounded to `dtype`.

    Sums and products of floats below 64 bits accumulate in float64: a sum of float32 ones in float32 ends at 2**24.
    """
    is_short = dtype.itemsize < 8 and (dtype.kind == "f" or dtype.name == "bfloat16")
    return np.dtype(np.float64) if is_short and op in ("sum", "prod") else dtype


def byte_view(contiguous: NDArray[Any]) -> NDArray[Any]:
    """Return the bytes of an array, as a flat view."""
    return contiguous.reshape(-1).view(np.uint8)


def like(leaf: Any, result: NDArray[Any]) -> Any:
    """Return `result` in the form of `leaf`: a Python number, a NumPy scalar or an array."""
    if isinstance(leaf, np.generic):
        return result[()]
    return result.item() if isinstance(leaf, _NUMBERS) else result
