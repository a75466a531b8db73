"""Error handlers. Every error is an exception, which ends all ranks unless the program catches it."""

from __future__ import annotations

from typing import Any, Self

from ripieno.errors import InputError
from ripieno.mpi.unsupported import refusing


@refusing
class Errhandler:
    """A name for the handling of errors.

    Parameters
    ----------
    errhandler : Errhandler, optional
        Another reference to this handler is created. By default the handler is null.
    """

    _name: str

    def __new__(cls, errhandler: Errhandler | None = None) -> Self:
        if not isinstance(errhandler, Errhandler | None):
            raise TypeError(f"Errhandler: a {type(errhandler).__name__}: expected an error handler")
        return cls._of("ERRHANDLER_NULL" if errhandler is None else errhandler._name)

    @classmethod
    def _of(cls, name: str) -> Self:
        instance = object.__new__(cls)
        instance._name = name
        return instance

    def Free(self) -> None:
        """Turn this reference into the null handler."""
        if not self:
            raise InputError("Free: ERRHANDLER_NULL: expected an error handler")
        self._name = "ERRHANDLER_NULL"

    def free(self) -> None:
        """Turn this reference into the null handler, unless it is one of the module's constants."""
        if _CONSTANTS[self._name] is not self:
            self._name = "ERRHANDLER_NULL"

    def __bool__(self) -> bool:
        return self._name != "ERRHANDLER_NULL"

    def __eq__(self, other: object) -> bool:
        return self._name == other._name if isinstance(other, Errhandler) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"<Errhandler {self._name}>"

    def __reduce__(self) -> Any:
        return self._name if _CONSTANTS[self._name] is self else (_copied, (type(self), self._name))


class HasErrhandler:
    """The calls of a communicator or window on its error handler."""

    _errhandler: Errhandler

    def Get_errhandler(self) -> Errhandler:
        """Return the handler of `Set_errhandler`; by default `ERRORS_RETURN`."""
        if not self:
            raise InputError(f"Get_errhandler: {self!r}: expected a communicator or window")
        return Errhandler(getattr(self, "_errhandler", ERRORS_RETURN))

    def Set_errhandler(self, errhandler: Errhandler) -> None:
        """Keep a handler for `Get_errhandler`. Errors always raise exceptions."""
        if not self or not errhandler:
            raise InputError(f"Set_errhandler: {errhandler!r} of {self!r}: expected handles that are not null")
        self._errhandler = Errhandler(errhandler)


ERRHANDLER_NULL = Errhandler()
ERRORS_RETURN = Errhandler._of("ERRORS_RETURN")
ERRORS_ARE_FATAL = Errhandler._of("ERRORS_ARE_FATAL")
ERRORS_ABORT = Errhandler._of("ERRORS_ABORT")
_CONSTANTS = {each._name: each for each in (ERRHANDLER_NULL, ERRORS_RETURN, ERRORS_ARE_FATAL, ERRORS_ABORT)}


def _copied(cls: type[Errhandler], name: str) -> Errhandler:
    return cls(_CONSTANTS[name])
