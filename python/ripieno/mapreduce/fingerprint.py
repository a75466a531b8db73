"""A program's fingerprint: equal for the same functions in another process, different as soon as their code is.

Data that functions refer to and functions that they call are no part of it.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

DIGEST_BYTES = 16


def fingerprint(parts: Mapping[str, Any]) -> str:
    """Of a program that consists of functions and options, by name."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    # Other Pythons compile the same source to other code.
    digest.update(f"{sys.version_info[:2]}".encode())
    for name, part in sorted(parts.items()):
        for piece in (name, *_pieces(part)):
            digest.update(f"{len(piece)}:{piece};".encode())
    return digest.hexdigest()


def _pieces(part: Any) -> Iterator[str]:
    if isinstance(part, functools.partial):
        yield "partial"
        yield from _pieces(part.func)
    elif hasattr(part, "__code__"):
        yield from _code(part.__code__)
    elif callable(part):
        kind = part if isinstance(part, type) else type(part)
        yield f"{kind.__module__}.{kind.__qualname__} {getattr(part, '__name__', '')}"
        call = getattr(getattr(kind, "__call__", None), "__code__", None)  # noqa: B004
        if call is not None:
            yield from _code(call)
    else:
        yield repr(part)


def _code(code: CodeType) -> Iterator[str]:
    yield f"{code.co_name} {code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            # The order of a set differs from process to process.
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
