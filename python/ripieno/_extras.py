"""Optional packages: an error for a missing package names the extra that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ripieno.errors import MissingExtra


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Wrap imports of an extra's packages: raise `MissingExtra` if one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(error.name or "a package", extra) from error
