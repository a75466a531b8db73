"""Provide stand-ins for values that a rank already holds: pickled by name, and replaced by the value on the rank."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ripieno.errors import SerializationError

_place = threading.local()


class RankValue:
    """An argument of a program that becomes ``local[name]`` of the rank that receives it.

    Parameters
    ----------
    name : str
        Name of the value, equal on every rank.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"RankValue({self._name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _value_named, (self._name,)


@contextmanager
def rank_values(local: dict[str, Any]) -> Iterator[None]:
    """Unpickle stand-ins in this thread, which belongs to one rank, as the values of `local`."""
    before = getattr(_place, "local", None)
    _place.local = local
    try:
        yield
    finally:
        _place.local = before


def local() -> dict[str, Any]:
    """Return the named values of the rank that this thread serves."""
    found: dict[str, Any] | None = getattr(_place, "local", None)
    if found is None:
        raise SerializationError("this value belongs to the ranks of a job, and was unpickled outside of them")
    return found


def forget(names: list[str]) -> None:
    """Delete the values under `names` of the rank that this thread serves."""
    for name in names:
        local().pop(name, None)


def _value_named(name: str) -> Any:
    try:
        return local()[name]
    except KeyError:
        raise SerializationError(f"this rank has nothing under the name {name!r}") from None
