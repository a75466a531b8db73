"""Packages that not everybody has: what is missing is told with the extra that brings it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ripieno.errors import MissingExtra


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Around imports of packages of an extra: `MissingExtra` if one is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "a package", extra) from error
