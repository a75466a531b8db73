"""Provide `ObjectPairs`: keys and values of arbitrary Python objects. `KeyValues` has columns of numbers and strings.

Source: Zhang et al., "Social image clustering with iterative MapReduce (Twister)", section 3: Key and Value objects.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from enum import Enum
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.keyed import partitioners
from ripieno.keyed.combiners import CONCAT, Combiner
from ripieno.wire.operations import PAIRWISE, check_object

_EPOCH = datetime.datetime(1970, 1, 1)
#: Attoseconds of the units of NumPy's times, from weeks on. Years and months are counted in months.
_ATTOSECONDS = {"Y": 12, "M": 1} | {
    unit: seconds * 10**18 for unit, seconds in (("W", 604_800), ("D", 86_400), ("h", 3600), ("m", 60), ("s", 1))
}
_ATTOSECONDS |= {unit: 10 ** (15 - 3 * place) for place, unit in enumerate(("ms", "us", "ns", "ps", "fs", "as"))}


class ObjectPairs:
    """Keys and a value for each, as Python objects of any kind that can be pickled.

    Parameters
    ----------
    keys : sequence of n hashable objects
        Numbers, strings, bytes, dates, enums, and tuples, frozensets and dataclasses of these. Other objects are keys
        if equal ones have the same pickle.
    values : sequence of n objects

    Attributes
    ----------
    keys, values : list

    Raises
    ------
    InputError
        A key cannot be hashed, or there are not as many values as keys.

    Examples
    --------
    >>> import ripieno as rp
    >>> rp.ObjectPairs([("b", 2), ("a", 1.5)], ["x", [1, 2]]).sorted().to_dict()
    {('a', 1.5): [1, 2], ('b', 2): 'x'}
    """

    def __init__(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        self.keys, self.values = _listed(keys), _listed(values)
        if len(self.keys) != len(self.values):
            raise InputError(f"values: {len(self.values)} objects for {len(self.keys)} keys")

    @classmethod
    def joined(cls, parts: Sequence[ObjectPairs]) -> ObjectPairs:
        """Concatenate pairs."""
        return cls([key for part in parts for key in part.keys], [value for part in parts for value in part.values])

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return iter(zip(self.keys, self.values, strict=True))

    def __repr__(self) -> str:
        return f"<ObjectPairs: {len(self)} keys>"

    def to_dict(self) -> dict[Any, Any]:
        """Return a dict of keys to values, with the last value of a repeated key."""
        return dict(zip(self.keys, self.values, strict=True))

    def sorted(self) -> ObjectPairs:
        """Return the pairs in the order of the keys, which can be compared with each other."""
        order = sorted(range(len(self)), key=self.keys.__getitem__)
        return ObjectPairs([self.keys[at] for at in order], [self.values[at] for at in order])


class MergedPairs:
    """The combined value of each key, in the order of the keys' arrival.

    Parameters
    ----------
    combiner
        An operation on two values, or "concat", which collects the values of a key in a list.
    """

    def __init__(self, combiner: Combiner) -> None:
        self._values: dict[Any, Any] = {}
        self._is_concat = combiner.name == CONCAT and combiner.function is None
        self._combine: Callable[[Any, Any], Any] | None = combiner.function
        if self._combine is None and not self._is_concat:
            self._combine = PAIRWISE[combiner.name].on_objects

    def add(self, pairs: ObjectPairs) -> None:
        """Add single values.

        Raises
        ------
        InputError
            A key cannot be hashed, or two values cannot be combined.
        """
        for key, value in pairs:
            self._add(key, [value] if self._is_concat else value)

    def merge(self, pairs: ObjectPairs) -> None:
        """Add combined values."""
        for key, value in pairs:
            self._add(key, value)

    @property
    def pairs(self) -> ObjectPairs:
        """The keys and their combined values."""
        return ObjectPairs(list(self._values), list(self._values.values()))

    def parts(self, partitioner: Any, world_size: int) -> list[ObjectPairs]:
        """Return the pairs of each rank."""
        keys = list(self._values)
        if callable(partitioner):
            owners = partitioners.owners_of(partitioner, keys, world_size)
        else:
            owners = np.array([owner_of(key, world_size) for key in keys], np.uint32)
        values = list(self._values.values())
        chosen = (np.flatnonzero(owners == rank).tolist() for rank in range(world_size))
        return [ObjectPairs([keys[at] for at in places], [values[at] for at in places]) for places in chosen]

    def _add(self, key: Any, value: Any) -> None:
        try:
            is_new = key not in self._values
        except TypeError as error:
            raise InputError(f"key {key!r}: {error}: expected an object with a hash") from error
        if is_new:
            self._values[key] = value
        elif self._is_concat:
            self._values[key].extend(value)
        else:
            assert self._combine is not None, "without concat there is a function"
            left = self._values[key]
            self._values[key] = check_object(self._combine, self._combine(left, value), left, value)


def are_objects(keys: Any, values: Any) -> bool:
    """Return whether keys and values are lists, tuples or arrays of objects without a column type in `KeyValues`."""
    if not all(isinstance(each, list | tuple | np.ndarray) for each in (keys, values)):
        return False
    if not len(keys) or not len(values):
        return False
    return not isinstance(keys[0], int | np.integer | str | bytes) or isinstance(keys[0], bool) or _is_object(values)


def owner_of(key: Any, world_size: int) -> int:
    """Return the rank that owns a key; it is the same in all processes, and for equal keys."""
    return int.from_bytes(hashlib.blake2b(_canonical(key), digest_size=8).digest(), "little") % world_size


def _is_object(values: Any) -> bool:
    first = values[0]
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return False
    if isinstance(first, list | tuple | np.ndarray):
        # Rows of one length are columns.
        is_ragged = len({len(each) if hasattr(each, "__len__") else -1 for each in values}) > 1
        return is_ragged or (len(first) > 0 and not isinstance(first[0], Number | np.generic))
    return isinstance(first, complex) or not isinstance(first, Number | np.bool_ | np.number)


def _listed(column: Sequence[Any] | NDArray[Any]) -> list[Any]:
    if isinstance(column, np.ndarray):
        return list(column) if column.ndim > 1 else column.tolist()
    return list(column)


def _canonical(key: Any) -> bytes:
    """Return bytes that are the same for equal keys in all processes."""
    if isinstance(key, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64):
        return b"time" if key != key else f"time {_attoseconds(key)}".encode()
    if isinstance(key, Number | Decimal | np.generic) and not isinstance(key, np.str_ | np.bytes_):
        # Python hashes equal numbers of all types alike, in all processes.
        return b"number" if key != key else f"number {hash(key)}".encode()
    # An enum that is also a string, bytes or a tuple equals them.
    if isinstance(key, str):
        return b"text " + key.encode(errors="surrogatepass")
    if isinstance(key, bytes):
        return b"bytes " + key
    if isinstance(key, tuple):
        return b"tuple " + b"".join(_framed(each) for each in key)
    if isinstance(key, frozenset):
        return b"set " + b"".join(sorted(map(_framed, key)))
    if isinstance(key, Enum):
        return f"enum {type(key).__qualname__} {key.name}".encode()
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        fields = (getattr(key, field.name) for field in dataclasses.fields(key) if field.compare)
        return f"{type(key).__qualname__} ".encode() + b"".join(map(_framed, fields))
    return b"pickle " + pickle.dumps(key, protocol=5)


def _attoseconds(key: Any) -> int:
    """Return a date, time or duration as a number, which is the same for equal ones of all types and units.

    Hashes of dates and times differ between processes. The number of a duration in years or months counts months.
    """
    if isinstance(key, np.datetime64 | np.timedelta64):
        unit, count = np.datetime_data(key.dtype)
        if unit in ("Y", "M") and isinstance(key, np.datetime64):
            key, unit, count = key.astype("M8[D]"), "D", 1
        return int(key.astype(np.int64)) * count * _ATTOSECONDS[unit]
    if isinstance(key, datetime.datetime):
        key = (key if key.tzinfo is None else key.astimezone(datetime.UTC).replace(tzinfo=None)) - _EPOCH
    elif isinstance(key, datetime.date):
        return (key - _EPOCH.date()).days * _ATTOSECONDS["D"]
    return int(key // datetime.timedelta(microseconds=1)) * _ATTOSECONDS["us"]


def _framed(key: Any) -> bytes:
    content = _canonical(key)
    return f"{len(content)}:".encode() + content
