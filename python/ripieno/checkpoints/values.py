"""Encode the values of a checkpoint as JSON with blobs.

A value is a list of its kind and its content. Numbers and strings are JSON; the content of lists, tuples and dicts is a
list of values. Arrays are .npy files, which hold no code; their content is the number of the blob. Keyed data consists
of arrays. Other objects are pickles, and loading a pickle can run any code: load only checkpoints that you would run
as programs.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, BinaryIO

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from ripieno.errors import CheckpointError, SerializationError
from ripieno.files.npy import read_array
from ripieno.keyed import Groups, KeyValues, Table
from ripieno.keyed.columns import Strings

# Keyed data types, and their constructor arguments.
_KEYED: dict[str, tuple[type, Callable[[Any], tuple[Any, ...]]]] = {
    "strings": (Strings, tuple),
    "key_values": (KeyValues, lambda rows: rows.__reduce__()[1]),
    "groups": (Groups, lambda groups: (groups.key_column, groups.offsets, groups.values)),
    "table": (Table, lambda table: (dict(table), table.combiner.function or table.combiner.name)),
}

#: The content of a blob, in pieces.
Blob = list[Any]


def encode(value: Any, keep: Callable[[Blob], int], *, objects: bool = True) -> Any:
    """Return `value` as JSON. `keep` stores a blob and returns its number.

    Raises
    ------
    SerializationError
        It holds an object that cannot be pickled, or any object if `objects` is false.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return ["value", value]
    if kind in (list, tuple):
        return [kind.__name__, [encode(each, keep, objects=objects) for each in value]]
    if kind is dict:
        return ["dict", [[encode(part, keep, objects=objects) for part in item] for item in value.items()]]
    if (kind is np.ndarray or isinstance(value, np.generic)) and _has_npy(value.dtype):
        return ["array" if kind is np.ndarray else "scalar", keep(_npy(np.asarray(value)))]
    for name, (keyed, parts_of) in _KEYED.items():
        if kind is keyed:
            return [name, encode(tuple(parts_of(value)), keep, objects=objects)]
    if not objects:
        raise SerializationError(f"a {kind.__name__} cannot be kept in a checkpoint of arrays and numbers: {value!r}")
    try:
        return ["pickle", keep([cloudpickle.dumps(value, protocol=5)])]
    except Exception as error:
        message = f"a {kind.__name__} cannot be kept in a checkpoint: {type(error).__name__}: {error}"
        raise SerializationError(message) from error


def decode(encoded: Any, blob: Callable[[int], BinaryIO], *, objects: bool = True) -> Any:
    """Return the value from the result of `encode`. `blob` returns a file at the begin of a blob.

    Raises
    ------
    CheckpointError
        It holds a pickle, and `objects` is false.
    """

    def value_of(encoded: Any) -> Any:
        kind, content = encoded
        if kind == "value":
            return content
        if kind in ("list", "tuple"):
            parts = [value_of(each) for each in content]
            return parts if kind == "list" else tuple(parts)
        if kind == "dict":
            return {value_of(key): value_of(each) for key, each in content}
        if kind in ("array", "scalar"):
            array = read_array(blob(content))
            return array if kind == "array" else array[()]
        if kind in _KEYED:
            return _KEYED[kind][0](*value_of(content))
        if kind != "pickle":
            raise ValueError(f"the kind {kind!r} is not known")
        if not objects:
            raise CheckpointError("holds a pickle, which could run code, where arrays and numbers belong")
        return pickle.load(blob(content))

    return value_of(encoded)


def _has_npy(dtype: np.dtype[Any]) -> bool:
    """Whether the .npy format stores this dtype, and not only its item size."""
    if dtype.hasobject:
        return False
    return np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype)) == dtype


def _npy(array: NDArray[Any]) -> list[Any]:
    array = np.asarray(array, order="C")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    return [header.getvalue(), array.reshape(-1).view(np.uint8).data]
