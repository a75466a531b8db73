"""A program's fingerprint: equal for the same functions in another process, different as soon as they are others.

To a function belong its code, its default arguments, what it has closed over, the arguments of a `functools.partial`,
the object of a method, the attributes of a callable object. What among these is a number, a string, a path, an array,
a function or a container or dataclass of such counts by its value. Any other object does not count, such as an
accumulator, which is there only after the job; nor do global variables and functions that are called by a global name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from types import CellType, CodeType, MethodType, NoneType
from typing import Any

import numpy as np

DIGEST_BYTES = 16
#: What is itself wherever its repr is the same.
_PLAIN = (NoneType, int, float, complex, str, bytes, bytearray, range, Enum, PurePath)
_DATA = (*_PLAIN, np.ndarray, np.generic, tuple, list, set, frozenset, dict, CodeType)


def fingerprint(parts: Mapping[str, Any]) -> str:
    """Of a program that consists of functions and options, by name."""
    # Other Pythons compile the same source to other code.
    return _digest((f"{sys.version_info[:2]}", *(_of((name, part), ()) for name, part in sorted(parts.items()))))


def _of(part: Any, within: tuple[int, ...]) -> str:
    """The digest of a part of the objects with the ids `within`."""
    if id(part) in within:
        return "itself"
    return _digest(_pieces(part, (*within, id(part))))


def _pieces(part: Any, within: tuple[int, ...]) -> Iterator[str]:
    if isinstance(part, CellType):
        try:
            part = part.cell_contents
        except ValueError:  # what is assigned later
            return
    if not (isinstance(part, _DATA) or callable(part) or dataclasses.is_dataclass(part)):
        return
    yield f"{type(part).__module__}.{type(part).__qualname__}"
    if isinstance(part, _PLAIN):
        yield repr(part)
    elif isinstance(part, np.ndarray | np.generic):
        yield f"{part.dtype!r} {part.shape}"
        yield _of(part.tolist(), within) if part.dtype.hasobject else _digest((part.tobytes(),))
    elif isinstance(part, tuple | list):
        for each in part:
            yield _of(each, within)
    elif isinstance(part, set | frozenset | dict):
        # The order of a set differs from process to process, so that of a dict may, too.
        yield from sorted(_of(each, within) for each in (part.items() if isinstance(part, dict) else part))
    elif isinstance(part, CodeType):
        yield f"{part.co_name} {part.co_code.hex()} {part.co_names} {part.co_varnames} {part.co_freevars}"
        yield _of(part.co_consts, within)
    elif isinstance(part, functools.partial):
        yield _of((part.func, part.args, part.keywords), within)
    elif isinstance(part, MethodType):
        yield _of((part.__func__, part.__self__, _attributes(part.__self__)), within)
    elif hasattr(part, "__code__"):
        names = ("__code__", "__defaults__", "__kwdefaults__", "__closure__")
        yield _of([getattr(part, name, None) for name in names], within)
    elif isinstance(part, type):
        yield f"{part.__module__}.{part.__qualname__}"
    elif callable(part):
        yield getattr(part, "__name__", "")
        call = getattr(type(part), "__call__", None)  # noqa: B004
        yield _of((call if hasattr(call, "__code__") else None, _attributes(part)), within)
    else:
        yield _of(_attributes(part), within)


def _attributes(part: Any) -> dict[str, Any]:
    """Those of an object, but not those of a class, which are its code."""
    if isinstance(part, type):
        return {}
    if dataclasses.is_dataclass(part):
        return {field.name: getattr(part, field.name, None) for field in dataclasses.fields(part)}
    return getattr(part, "__dict__", {})


def _digest(pieces: Iterable[str | bytes]) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for piece in pieces:
        data = piece.encode(errors="surrogatepass") if isinstance(piece, str) else piece
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()
