"""Provide the pickler of values for other processes: arrays in place, objects by name, and read-only arrays."""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from ripieno.wire import main_module
from ripieno.wire.zero_copy import ZeroCopyFields


class ProcessPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """A pickler with rules for arrays.

    A view of a mapped file is sent as the file's name and an offset, unless `files_by_name` is false. With `read_only`
    the receiver cannot write to arrays of any kind. With `zero_copy` the rows of an estimator's fit stay in this
    process, and receivers read them there.
    """

    files_by_name = True
    read_only = False
    zero_copy = False

    def reducer_override(self, obj: Any) -> Any:
        if self.zero_copy and isinstance(obj, ZeroCopyFields):
            return type(obj), obj.field_descriptors()
        if isinstance(obj, np.ndarray):
            reduced = self._array(obj)
            if reduced is not None:
                return reduced
        return main_module.by_name(obj, super().reducer_override(obj))

    def _array(self, array: NDArray[Any]) -> tuple[Any, ...] | None:
        """Return the reduction of `array`; None leaves it to NumPy."""
        if type(array) in (np.ndarray, np.memmap) and not array.dtype.hasobject:
            in_file = _file_view(array) if self.files_by_name else None
            if in_file is not None:
                return _open_file_view, in_file
            array = np.asarray(array if array.flags.forc else np.ascontiguousarray(array))
            if array.dtype.kind in "mM":
                # NumPy exports no buffer of dates and times.
                return _as_dtype, (array.view(np.int64), array.dtype)
        reduced: Any = array.__reduce_ex__(5)
        if self.read_only and not any(isinstance(each, pickle.PickleBuffer) for each in reduced[1]):
            return _read_only_array, reduced[:3]
        return reduced if type(array) is np.ndarray else None


def _as_dtype(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return numbers.view(dtype)


def _read_only_array(make: Callable[..., NDArray[Any]], args: tuple[Any, ...], state: Any = None) -> NDArray[Any]:
    array = make(*args)
    if state is not None:
        array.__setstate__(state)
    array.flags.writeable = False
    return array


def _file_view(array: NDArray[Any]) -> tuple[Any, ...] | None:
    """Return, for a view of a mapped file, the file name, first byte and length, and the array's position there."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray) and not isinstance(mapped.base, mmap.mmap):
        mapped = mapped.base
    # A copy-on-write mapping may differ from its file.
    if not isinstance(mapped, np.memmap) or mapped.mode == "c" or not mapped.filename or array.size == 0:
        return None
    name = os.fspath(mapped.filename)
    # NumPy 1 has the function in another module.
    bounds: Any = getattr(np, "byte_bounds", None) or np.lib.array_utils.byte_bounds
    low, high = bounds(array)
    base = mapped.__array_interface__["data"][0]
    start, length = mapped.offset + low - base, high - low
    if not os.path.isfile(name) or os.path.getsize(name) < start + length:
        return None
    if mapped.mode != "r":
        mapped.flush()
    inner = array.__array_interface__["data"][0] - low
    return name, start, length, inner, array.shape, array.strides, array.dtype


def _open_file_view(
    name: str,
    start: int,
    length: int,
    inner: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    window = np.memmap(name, np.uint8, mode="r", offset=start, shape=(length,))
    return np.ndarray(shape, dtype, buffer=window, offset=inner, strides=strides)
