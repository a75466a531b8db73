"""Stand-ins for what lies on a rank already: pickled, they are names; on a rank they become what it has there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ripieno.errors import SerializationError

_place = threading.local()


class Here:
    """Among a program's arguments it becomes ``local[name]`` of the rank that receives it.

    Parameters
    ----------
    name : str
        The same on every rank.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"Here({self._name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, (self._name,)


@contextmanager
def standing_for(local: dict[str, Any]) -> Iterator[None]:
    """Meanwhile this thread, a rank's own, unpickles stand-ins as what `local` has under their names."""
    before = getattr(_place, "local", None)
    _place.local = local
    try:
        yield
    finally:
        _place.local = before


def local() -> dict[str, Any]:
    """What the rank that this thread serves has under names."""
    found: dict[str, Any] | None = getattr(_place, "local", None)
    if found is None:
        raise SerializationError("this value belongs to the ranks of a job, and was unpickled outside of them")
    return found


def forget(names: list[str]) -> None:
    """Let the rank that this thread serves have nothing under `names` any more."""
    for name in names:
        local().pop(name, None)


def _found(name: str) -> Any:
    try:
        return local()[name]
    except KeyError:
        raise SerializationError(f"this rank has nothing under the name {name!r}") from None
