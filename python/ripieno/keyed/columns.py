"""Provide columns of keys and values: check input in any supported form, and convert it to NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno.errors import InputError
from ripieno.wire.arrays import NATIVE_DTYPES, as_array, check_unmasked, is_native

EXPECTED_KEYS = "expected whole numbers (of any integer type) or strings"
EXPECTED_VALUES = "expected booleans or numbers: int8 … int64, uint8 … uint64, float16, bfloat16, float32 or float64"


class Strings(NamedTuple):
    """A column of n strings: string i is ``data[offsets[i]:offsets[i + 1]]``.

    Attributes
    ----------
    offsets : int64 array of shape (n + 1,)
    data : uint8 array
    is_text : bool
        Whether the strings are UTF-8 rather than arbitrary bytes.
    """

    offsets: NDArray[Any]
    data: NDArray[Any]
    is_text: bool

    @property
    def count(self) -> int:  # type: ignore[override]  # of strings, not of equal members
        return len(self.offsets) - 1

    @property
    def used(self) -> NDArray[Any]:
        """Return the bytes of these strings, a part of an array that may be larger."""
        return self.data[self.offsets[0] : self.offsets[-1]]


Keys = NDArray[Any] | Strings

_KEYS = ("int64", "string", "binary")
_DTYPES = ("", "bool", *sorted(dtype.name for dtype in NATIVE_DTYPES), "bfloat16")


class KeyedSchema(NamedTuple):
    """The schema of keys and rows. All ranks have the same one.

    Attributes
    ----------
    keys : {"int64", "string", "binary"}
    dtype : str
        Dtype of the values; empty if there are only keys.
    width : int or None
        Elements per row; None for one-dimensional values.
    """

    keys: str
    dtype: str
    width: int | None

    def __str__(self) -> str:
        if not self.dtype:
            return f"{self.keys} keys without values"
        return f"{self.keys} keys, {self.dtype} values" + ("" if self.width is None else f" of width {self.width}")

    @property
    def label(self) -> int:
        """A 64-bit number that encodes the schema."""
        return (self.width or 0) << 8 | _DTYPES.index(self.dtype) << 2 | _KEYS.index(self.keys)

    @classmethod
    def of_label(cls, label: int) -> KeyedSchema:
        """Return the schema with this label."""
        return cls(_KEYS[label & 3], _DTYPES[label >> 2 & 63], label >> 8 or None)

    @property
    def native(self) -> tuple[str, str, int, int]:
        """Kind of keys, dtype, width and label, as arguments of the native module."""
        width = 1 if self.width is None else self.width
        # The native module stores booleans as bytes.
        dtype = "uint8" if self.dtype in ("", "bool") else self.dtype
        return "int64" if self.keys == "int64" else "string", dtype, width if self.dtype else 0, self.label

    @property
    def empty(self) -> tuple[Keys, NDArray[Any] | None]:
        """Return no keys and no values, in this schema."""
        none = np.empty(0, np.int64)
        keys = (
            none if self.keys == "int64" else Strings(np.zeros(1, np.int64), none.view(np.uint8), self.keys == "string")
        )
        return keys, self.rows_of(np.empty(0, self.dtype or np.uint8))

    def keys_of(self, native: Any) -> Keys:
        """Return keys of the native module as a column."""
        if self.keys == "int64":
            keys: NDArray[np.int64] = native
            return keys
        offsets, data = native
        return Strings(offsets, data, self.keys == "string")

    def rows_of(self, flat: NDArray[Any]) -> NDArray[Any] | None:
        """Return values of the native module as rows."""
        if not self.dtype:
            return None
        flat = flat.view(np.bool_) if self.dtype == "bool" else flat
        return flat.reshape(-1) if self.width is None else flat.reshape(-1, self.width)


def schema_of(keys: Keys, values: NDArray[Any] | None) -> KeyedSchema:
    kind = ("string" if keys.is_text else "binary") if isinstance(keys, Strings) else "int64"
    if values is None:
        return KeyedSchema(kind, "", None)
    return KeyedSchema(kind, values.dtype.name, values.shape[1] if values.ndim == 2 else None)


def key_count(keys: Keys) -> int:
    return keys.count if isinstance(keys, Strings) else len(keys)


def native_keys(keys: Keys) -> Any:
    """Return keys in the form of the native module."""
    return (keys.offsets, keys.data) if isinstance(keys, Strings) else keys


def native_values(values: NDArray[Any] | None, count: int) -> NDArray[Any]:
    """Return values in the form of the native module."""
    if values is None:
        return np.empty((count, 0), np.uint8)
    return values.view(np.uint8) if values.dtype == np.bool_ else values


def widened(values: NDArray[Any], op: str) -> NDArray[Any]:
    """Return `values` in the dtype that pandas and polars use for sums and products: integers in 64 bits."""
    if op not in ("sum", "prod") or values.dtype.kind not in "biu":
        return values
    return values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False)


def keys_of(given: Any, name: str = "keys") -> Keys:
    """Return `given` as a column of keys. int64 arrays and large strings are not copied.

    Raises
    ------
    InputError
        Keys are not integers or strings, have more than one axis, or are missing.
    """
    if isinstance(given, Strings):
        return given
    if _is_arrow(given):
        return _arrow_keys(given, name)
    array = _array(given, name)
    if array is None:
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise InputError(f"{name}: a {type(given).__name__}: {EXPECTED_KEYS}, in an array, a list or a column")
        if given and isinstance(given[0], str | bytes):
            return _arrow_keys(given, name)
        array = _listed(given, name, EXPECTED_KEYS)
    if array.ndim != 1:
        raise InputError(f"{name}: shape {array.shape}: expected one axis")
    if array.dtype.kind in "USTO" and array.size:
        return _arrow_keys(array, name)
    if array.dtype.kind not in "iu" and array.size:
        raise InputError(f"{name}: dtype {array.dtype}: {EXPECTED_KEYS}")
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and array.size and int(array.max()) >= 2**63:
        raise InputError(f"{name}: {array.max()}: expected whole numbers below 2**63")
    return aligned(array, np.int64)


def values_of(given: Any, count: int, name: str = "values") -> NDArray[Any] | None:
    """Return `given` as `count` contiguous rows of shape (count,) or (count, width), or None; copied only if necessary.

    Raises
    ------
    InputError
        The number of rows differs, rows have different lengths, values are missing, or their type is not numeric.
    """
    if given is None:
        return None
    array = _arrow_values(given, name) if _is_arrow(given) else _array(given, name)
    if array is None:
        array = _listed(given, name, EXPECTED_VALUES)
    if array.ndim not in (1, 2) or array.shape[1:] == (0,):
        raise InputError(f"{name}: shape {array.shape}: expected (n,) or (n, width), with a width of 1 or more")
    native = array.dtype.newbyteorder("=")
    if not is_native(native) and native != np.bool_:
        raise InputError(f"{name}: dtype {array.dtype}: {EXPECTED_VALUES}")
    if len(array) != count:
        raise InputError(f"{name}: {len(array)} rows for {count} keys: expected one for each")
    return aligned(array, native)


def aligned(array: NDArray[Any], dtype: np.dtype[Any] | type) -> NDArray[Any]:
    """Return `array` in the layout of the native module: contiguous and aligned; copied only if necessary."""
    return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])


def joined_keys(columns: Sequence[Keys]) -> Keys:
    """Concatenate columns of one kind."""
    if len(columns) == 1:
        return columns[0]
    strings = [column for column in columns if isinstance(column, Strings)]
    if not strings:
        return np.concatenate([column for column in columns if not isinstance(column, Strings)])
    data = np.concatenate([column.used for column in strings])
    offsets = np.zeros(sum(column.count for column in strings) + 1, np.int64)
    at = 0
    for column in strings:
        begin = offsets[at]
        np.add(column.offsets[1:], begin - column.offsets[0], out=offsets[at + 1 : at + 1 + column.count])
        at += column.count
    return Strings(offsets, data, strings[0].is_text)


def slice_keys(keys: Keys, begin: int, end: int) -> Keys:
    """Return the keys of rows `begin` … `end` - 1, on the same memory."""
    if isinstance(keys, Strings):
        return Strings(keys.offsets[begin : end + 1], keys.data, keys.is_text)
    return keys[begin:end]


def taken_keys(keys: Keys, rows: NDArray[Any]) -> Keys:
    """Return the keys of some rows, in the order of `rows`."""
    if not isinstance(keys, Strings):
        taken: NDArray[np.int64] = keys[rows]
        return taken
    lengths = np.diff(keys.offsets)[rows]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return Strings(offsets, _native.joined_pieces(keys.data, keys.offsets[:-1][rows], lengths), keys.is_text)


def _array(given: Any, name: str) -> NDArray[Any] | None:
    check_unmasked(given, name)
    return np.asarray(given) if isinstance(given, np.ndarray) else as_array(given)


def _listed(given: Any, name: str, expected: str) -> NDArray[Any]:
    """Return a list of numbers as an array."""
    try:
        array = np.asarray(given)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name}: {error}: {expected}, rows of equal length") from None
    if array.size and array.dtype.kind not in ("biuf" if expected is EXPECTED_VALUES else "iuf"):
        raise InputError(f"{name}: a {type(given).__name__} that becomes an array of {array.dtype}: {expected}")
    if array.dtype.kind == "f" and (np.abs(array) >= 2**53).any():
        numbers = zip(np.asarray(given, object).ravel().tolist(), array.ravel().tolist(), strict=True)
        for number, found in numbers:
            if isinstance(number, int) and number != found:
                raise InputError(f"{name}: {number} is not exact as a {array.dtype}: expected an array of one dtype")
    return array


def _is_arrow(given: Any) -> bool:
    return hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")


# Imported on use: PyArrow takes half a second to import.


def _arrow_keys(given: Any, name: str) -> Keys:
    from ripieno.keyed import arrow

    return arrow.keys_of(given, name)


def _arrow_values(given: Any, name: str) -> NDArray[Any]:
    from ripieno.keyed import arrow

    return arrow.values_of(given, name)
