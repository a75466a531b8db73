"""Compute the fingerprint of a program: equal for the same functions in another process, different after a change.

A function contributes its code, its default arguments, its closure, the arguments of a `functools.partial`, the object
of a method, and the attributes of a callable object. Numbers, strings, paths, arrays, functions, and containers or
dataclasses of these contribute their values. Other objects contribute nothing, for example accumulators, which exist
only after the job. Global variables, and functions called by a global name, contribute nothing either.
"""

from __future__ import annotations

import dataclasses
import dis
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
#: Types with a repr that determines the value.
_PLAIN = (NoneType, int, float, complex, str, bytes, bytearray, range, Enum, PurePath)
_DATA = (*_PLAIN, np.ndarray, np.generic, tuple, list, set, frozenset, dict, CodeType)


def fingerprint(parts: Mapping[str, Any]) -> str:
    """Return the fingerprint of a program that consists of named functions and options."""
    # Other versions of Python compile the same source to different code.
    return _digest((f"{sys.version_info[:2]}", *(_of((name, part), ()) for name, part in sorted(parts.items()))))


def code_of(function: Any) -> str | None:
    """Return a digest of the code of a function and of the constants bound to it, or None if it has no code in Python.

    The digest ignores mutable objects and variables that the function assigns, because each rank has its own.
    """
    if isinstance(function, functools.partial):
        arguments = (*function.args, *sorted(function.keywords.items()))
        inner = code_of(function.func)
        return inner and _of((inner, *filter(_is_constant, arguments)), ())
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):
        function = getattr(type(function), "__call__", None)  # noqa: B004
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return None
    assigned = _assigned(code)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    bound = [*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())]
    bound += [cell.cell_contents for name, cell in cells if name not in assigned and cell != CellType()]
    constants = [code_of(value) or value for value in bound if _is_constant(value)]
    return _of((code, *constants), ())


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_constant, value))
    return (isinstance(value, _PLAIN) and not isinstance(value, bytearray)) or hasattr(value, "__code__")


@functools.lru_cache(maxsize=256)
def _assigned(code: CodeType) -> frozenset[str]:
    """Return the variables of enclosing functions that the code assigns."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname == "STORE_DEREF"}
    return frozenset(found & set(code.co_freevars))


def _of(part: Any, parents: tuple[int, ...]) -> str:
    """Return the digest of a part. `parents` are the ids of its containers."""
    if id(part) in parents:
        return "itself"
    return _digest(_pieces(part, (*parents, id(part))))


def _pieces(part: Any, parents: tuple[int, ...]) -> Iterator[str]:
    if isinstance(part, CellType):
        try:
            part = part.cell_contents
        except ValueError:  # the cell is not assigned yet
            return
    if not (isinstance(part, _DATA) or callable(part) or dataclasses.is_dataclass(part)):
        return
    yield f"{type(part).__module__}.{type(part).__qualname__}"
    if isinstance(part, _PLAIN):
        yield repr(part)
    elif isinstance(part, np.ndarray | np.generic):
        yield f"{part.dtype!r} {part.shape}"
        yield _of(part.tolist(), parents) if part.dtype.hasobject else _digest((part.tobytes(),))
    elif isinstance(part, tuple | list):
        for each in part:
            yield _of(each, parents)
    elif isinstance(part, set | frozenset | dict):
        # Sets, and therefore some dicts, have a different order in each process.
        yield from sorted(_of(each, parents) for each in (part.items() if isinstance(part, dict) else part))
    elif isinstance(part, CodeType):
        yield f"{part.co_name} {part.co_code.hex()} {part.co_names} {part.co_varnames} {part.co_freevars}"
        yield _of(part.co_consts, parents)
    elif isinstance(part, functools.partial):
        yield _of((part.func, part.args, part.keywords), parents)
    elif isinstance(part, MethodType):
        yield _of((part.__func__, part.__self__, _attributes(part.__self__)), parents)
    elif hasattr(part, "__code__"):
        names = ("__code__", "__defaults__", "__kwdefaults__", "__closure__")
        yield _of([getattr(part, name, None) for name in names], parents)
    elif isinstance(part, type):
        yield f"{part.__module__}.{part.__qualname__}"
    elif callable(part):
        yield getattr(part, "__name__", "")
        call = getattr(type(part), "__call__", None)  # noqa: B004
        yield _of((call if hasattr(call, "__code__") else None, _attributes(part)), parents)
    else:
        yield _of(_attributes(part), parents)


def _attributes(part: Any) -> dict[str, Any]:
    """Return the attributes of an object. A class has none here, because its attributes are its code."""
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
