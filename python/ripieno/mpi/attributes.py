"""Attributes: values that a program attaches to a communicator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from ripieno.errors import InputError
from ripieno.mpi.constants import KEYVAL_INVALID


class _Functions(NamedTuple):
    """The functions of a key; each takes the communicator, the key and the value."""

    copy: Callable[[Any, int, Any], Any] | bool
    delete: Callable[[Any, int, Any], Any] | None


_functions: dict[int, _Functions] = {}
#: The numbers of predefined keys are larger.
_keys = itertools.count(1)


class HasAttributes:
    """The calls of a communicator on its attributes."""

    #: The values by their keys; references to one communicator share them.
    _attributes: dict[int, Any]

    @classmethod
    def Create_keyval(
        cls,
        copy_fn: Callable[[Any, int, Any], Any] | bool | None = None,
        delete_fn: Callable[[Any, int, Any], Any] | None = None,
        nopython: bool = False,
    ) -> int:
        """Return a new key for attributes.

        Parameters
        ----------
        copy_fn : callable or bool, optional
            Returns the value for a duplicate, or NotImplemented to attach none. True attaches the same value.
        delete_fn : callable, optional
            Called when an attribute is replaced or deleted, or its communicator is freed.
        nopython : bool
            Not used: there are no attributes of C.
        """
        keyval = next(_keys)
        _functions[keyval] = _Functions(copy_fn or False, delete_fn)
        return keyval

    @classmethod
    def Free_keyval(cls, keyval: int) -> int:
        """Free a key, and return `KEYVAL_INVALID`. Attributes with this key are no longer copied."""
        _of(keyval)
        del _functions[keyval]
        return KEYVAL_INVALID

    def Set_attr(self, keyval: int, attrval: Any) -> None:
        """Attach a value."""
        _of(keyval)
        if keyval in self._attributes:
            self.Delete_attr(keyval)
        self._attributes[keyval] = attrval

    def Delete_attr(self, keyval: int) -> None:
        """Remove a value."""
        if keyval not in self._attributes:
            raise InputError(f"Delete_attr: key {keyval}: expected one of {sorted(self._attributes)}")
        delete = _functions[keyval].delete if keyval in _functions else None
        if delete is not None:
            delete(self, keyval, self._attributes[keyval])
        del self._attributes[keyval]

    def _copy_attributes_to(self, duplicate: HasAttributes) -> None:
        for keyval, value in self._attributes.items():
            copy = _functions[keyval].copy if keyval in _functions else False
            copied = copy(self, keyval, value) if callable(copy) else value if copy else NotImplemented
            if copied is not NotImplemented:
                duplicate._attributes[keyval] = copied

    def _delete_attributes(self) -> None:
        for keyval in list(self._attributes):
            self.Delete_attr(keyval)


def _of(keyval: int) -> _Functions:
    if keyval not in _functions:
        raise InputError(f"key {keyval}: expected one of Create_keyval")
    return _functions[keyval]
