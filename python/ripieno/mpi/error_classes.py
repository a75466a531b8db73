"""Provide numbers of errors: the error class of MPI for each exception of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ripieno.errors import InputError, RankFailed, RipienoError, UnsupportedError
from ripieno.mpi import constants
from ripieno.mpi.constants import ERR_ARG, ERR_OTHER, ERR_PROC_FAILED, ERR_UNSUPPORTED_OPERATION

_NAMES = {number: name for name, number in vars(constants).items() if name.startswith("ERR_")}
_NAMES[constants.SUCCESS] = "SUCCESS"
_CLASSES = {
    RankFailed: ERR_PROC_FAILED,
    UnsupportedError: ERR_UNSUPPORTED_OPERATION,
    InputError: ERR_ARG,
    RipienoError: ERR_OTHER,
}


def Get_error_class(errorcode: int) -> int:
    """Return the class of an error code, which is the code itself."""
    Get_error_string(errorcode)
    return errorcode


def Get_error_string(errorcode: int) -> str:
    """Return the name of an error class."""
    if errorcode not in _NAMES:
        raise InputError(f"error code {errorcode}: expected one of the constants ERR_…")
    return f"MPI_{_NAMES[errorcode]}"


def _class_of(error: RipienoError) -> int:
    """Return the class of the error: `ERR_PROC_FAILED`, `ERR_UNSUPPORTED_OPERATION`, `ERR_ARG` or `ERR_OTHER`."""
    return next(number for kind, number in _CLASSES.items() if isinstance(error, kind))


def add_methods() -> None:
    """Give all exceptions of this package the methods of `MPI.Exception`."""
    methods: dict[str, Callable[[RipienoError], Any]] = {
        "Get_error_class": _class_of,
        "Get_error_code": _class_of,
        "Get_error_string": str,
    }
    for name, method in methods.items():
        setattr(RipienoError, name, lambda self, method=method: method(self))
        setattr(RipienoError, name.removeprefix("Get_"), property(method))
