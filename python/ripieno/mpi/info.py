"""Hints in the form of a dictionary of strings. No call uses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Self

from ripieno.errors import InputError
from ripieno.mpi.unsupported import refusing


@refusing
class Info(MutableMapping[str, str]):
    """A dictionary of strings, which calls accept as hints and ignore.

    Parameters
    ----------
    info : Info, optional
        Another reference to these hints is created. By default the hints are null.
    """

    _hints: dict[str, str] | None

    def __new__(cls, info: Info | None = None) -> Self:
        if not isinstance(info, Info | None):
            raise TypeError(f"Info: a {type(info).__name__}: expected hints")
        hints = object.__new__(cls)
        hints._hints = None if info is None else info._hints
        return hints

    @classmethod
    def Create(cls, items: Mapping[str, str] | Iterable[tuple[str, str]] | None = None) -> Self:
        """Return new hints."""
        info = cls()
        info._hints = dict(items or {})
        return info

    def Dup(self) -> Self:
        """Return a copy."""
        return type(self).Create(self._defined())

    def copy(self) -> Self:
        """Return a copy. A copy of null hints is null, too."""
        return self.Dup() if self else type(self)()

    @classmethod
    def Create_env(cls, args: Sequence[str] | None = None) -> Self:
        """Return empty hints."""
        return cls.Create()

    def Free(self) -> None:
        """Turn this reference into the null hints."""
        self._defined()
        self._hints = None

    def free(self) -> None:
        """Turn this reference into the null hints, unless it is `INFO_ENV`."""
        if self is not INFO_ENV:
            self._hints = None

    def Get(self, key: str) -> str | None:
        """Return the value of a key, or None."""
        return self._defined().get(key)

    def Set(self, key: str, value: str) -> None:
        """Set the value of a key."""
        self._defined()[key] = value

    def Delete(self, key: str) -> None:
        """Remove a key."""
        if self._defined().pop(key, None) is None:
            raise InputError(f"Info: no key {key!r}: expected one of {sorted(self)}")

    def Get_nkeys(self) -> int:
        """Return the number of keys."""
        return len(self._defined())

    def Get_nthkey(self, n: int) -> str:
        """Return the key number `n`."""
        keys = list(self._defined())
        if not 0 <= n < len(keys):
            raise InputError(f"Info: key number {n}: expected 0 … {len(keys) - 1}")
        return keys[n]

    def __getitem__(self, key: str) -> str:
        return (self._hints or {})[key]

    def __setitem__(self, key: str, value: str) -> None:
        if self._hints is None:
            raise KeyError(key)
        self._hints[key] = value

    def popitem(self) -> tuple[str, str]:
        """Remove the pair that was added last, and return it."""
        if not self._hints:
            raise KeyError("Info: there is no pair")
        return self._hints.popitem()

    def __delitem__(self, key: str) -> None:
        if self._hints is None or key not in self._hints:
            raise KeyError(key)
        del self._hints[key]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._hints or {}))

    def __len__(self) -> int:
        return len(self._hints or {})

    def update(self, *pairs: Any, **named: str) -> None:
        """Add pairs. Raise KeyError for null hints."""
        if self._hints is None:
            raise KeyError("Info: INFO_NULL has no pairs")
        self._hints.update(*pairs, **named)

    def keys(self) -> list[str]:  # type: ignore[override]
        """Return the keys."""
        return list(self)

    def values(self) -> list[str]:  # type: ignore[override]
        """Return the values."""
        return [self[key] for key in self]

    def items(self) -> list[tuple[str, str]]:  # type: ignore[override]
        """Return pairs of keys and values."""
        return [(key, self[key]) for key in self]

    def __bool__(self) -> bool:
        return self._hints is not None

    def __eq__(self, other: object) -> bool:
        return self._hints is other._hints if isinstance(other, Info) else NotImplemented

    def __hash__(self) -> int:
        return id(self._hints)

    def __reduce__(self) -> Any:
        for name, constant in (("INFO_NULL", INFO_NULL), ("INFO_ENV", INFO_ENV)):
            if self == constant:
                return name if self is constant else (_copied, (type(self), name))
        return type(self).Create, (self._hints,)

    def _defined(self) -> dict[str, str]:
        if self._hints is None:
            raise InputError("Info: INFO_NULL: expected hints of Info.Create; freed hints are null")
        return self._hints


def _copied(cls: type[Info], name: str) -> Info:
    return cls(INFO_NULL if name == "INFO_NULL" else INFO_ENV)


INFO_NULL = Info()
INFO_ENV = Info.Create()
