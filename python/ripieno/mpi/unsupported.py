"""Calls of mpi4py that this package does not support, with their alternatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from ripieno.errors import UnsupportedError

T = TypeVar("T", bound=type)

_INTERCOMM = "there are no intercommunicators; Split the world into groups, and send between ranks of COMM_WORLD"
_SPAWN = "no ranks are added to a running job; start all of them with `ripieno run -n COUNT`, or use rp.launch"
_PORTS = "worlds do not connect to each other; start one world with `ripieno run`, and Split it"
_ONE_SIDED = "there is no one-sided access; use Win.Allocate_shared within a node, and Send and Recv between nodes"
_FILES = "there are no parallel files; write one file per rank, or use np.memmap with disjoint parts"
_ERRORS = "errors are exceptions; catch MPI.Exception, or a class of ripieno.errors"
_HANDLES = "there is no C library of MPI; pass rp.Communicator, or arrays, to other code"
_PARTITIONED = "there are no partitioned messages; Isend each part with a tag of its own"
_DARRAY = "there are no distributed array types; use Create_subarray for each block"
_FORTRAN = "there are no types of a given precision; use the named types, such as REAL8"
_SESSIONS = "there are no sessions; use COMM_WORLD, and Create_group for parts of it"
_REQUESTS = "requests are calls of this package; use a thread or concurrent.futures for other work"
_REPAIR = "failures are handled by Communicator.shrink and Communicator.agree; see the page on failures"
_GUIDED = "only ranks that share memory are known: Split_type(COMM_TYPE_SHARED)"

#: Unsupported names by class and reason. Classes of the last table have no other names.
_REFUSED: dict[str, dict[str, tuple[str, ...]]] = {
    "Datatype": {
        _DARRAY: ("Create_darray",),
        _FORTRAN: ("Create_f90_integer", "Create_f90_real", "Create_f90_complex", "Match_size", "Get_value_index"),
        _HANDLES: ("fromhandle", "tohandle", "f2py", "py2f", "fromint", "toint"),
        "types have no attributes; keep a dict": (
            *("Create_keyval", "Free_keyval", "Get_attr", "Set_attr", "Delete_attr"),
        ),
        "packed elements have the format of this machine; use Pack and Unpack": (
            *("Pack_external", "Unpack_external", "Pack_external_size"),
        ),
    },
    "Comm": {
        _INTERCOMM: ("Create_intercomm", "Get_remote_group", "Get_remote_size", "Merge"),
        _SPAWN: ("Spawn", "Spawn_multiple", "Get_parent"),
        _PORTS: ("Accept", "Connect", "Join"),
        _ERRORS: ("Call_errhandler", "Create_errhandler"),
        _HANDLES: ("fromhandle", "tohandle", "f2py", "fromint"),
        _PARTITIONED: ("Psend_init", "Precv_init"),
        _REPAIR: ("Revoke", "Is_revoked", "Shrink", "Ishrink", "Agree", "Iagree", "Get_failed", "Ack_failed"),
    },
    "Op": {_HANDLES: ("fromhandle", "tohandle", "f2py", "py2f", "fromint", "toint")},
    "Errhandler": {_HANDLES: ("fromhandle", "tohandle", "f2py", "py2f", "fromint", "toint")},
    "Group": {
        _HANDLES: ("fromhandle", "tohandle", "f2py", "py2f", "fromint", "toint"),
        _SESSIONS: ("Create_from_session_pset",),
    },
    "Request": {
        _HANDLES: ("fromhandle", "tohandle", "f2py", "py2f", "fromint", "toint"),
        _PARTITIONED: ("Parrived", "Pready", "Pready_list", "Pready_range"),
    },
    "Win": {
        _ONE_SIDED: (
            *("Create", "Allocate", "Create_dynamic", "Attach", "Detach", "Get", "Put", "Accumulate", "Get_accumulate"),
            *("Fetch_and_op", "Compare_and_swap", "Rget", "Rput", "Raccumulate", "Rget_accumulate"),
            *("Start", "Post", "Complete", "Wait", "Test"),
        ),
        _ERRORS: ("Call_errhandler", "Create_errhandler"),
        _HANDLES: ("fromhandle", "tohandle", "f2py", "py2f", "fromint", "toint"),
        "windows have no attributes of the program; keep a dict": (
            *("Create_keyval", "Free_keyval", "Set_attr", "Delete_attr"),
        ),
    },
    "Info": {_HANDLES: ("fromhandle", "tohandle", "f2py", "py2f", "fromint", "toint")},
    "Message": {_HANDLES: ("fromhandle", "tohandle", "f2py", "py2f", "fromint", "toint")},
    "Status": {_HANDLES: ("f2py", "py2f", "frommemory", "tomemory")},
}
#: Names of the module.
_MISSING = {
    _INTERCOMM: ("Intercomm",),
    _FILES: ("File", "FILE_NULL", "Register_datarep"),
    _SESSIONS: ("Session", "SESSION_NULL"),
    _REQUESTS: ("Grequest",),
    _GUIDED: ("Get_hw_resource_info",),
    _HANDLES: (
        *("Get_abi_info", "Get_abi_fortran_info", "_sizeof", "_addressof", "_handleof"),
        *("F_SOURCE", "F_TAG", "F_ERROR", "F_STATUS_SIZE"),
    ),
    _ERRORS: (
        *("Add_error_class", "Add_error_code", "Add_error_string"),
        *("Remove_error_class", "Remove_error_code", "Remove_error_string"),
    ),
    _PORTS: ("Open_port", "Close_port", "Publish_name", "Unpublish_name", "Lookup_name"),
}

#: Names of `ripieno.mpi.futures`.
_MISSING_FUTURES: dict[str, tuple[str, ...]] = {
    "use concurrent.futures.ThreadPoolExecutor": ("ThreadPoolExecutor",),
    "use MPIPoolExecutor": ("ProcessPoolExecutor",),
    "use concurrent.futures.wait, and the results of its futures": ("collect",),
    "use Future.add_done_callback": ("compose",),
}


def refusing(cls: T) -> T:
    """Add the unsupported calls to a class. Each raises `UnsupportedError`."""
    for alternative, names in _REFUSED[cls.__name__].items():
        for name in names:
            setattr(cls, name, staticmethod(_refusal(f"{cls.__name__}.{name}", alternative)))
    cls.handle = property(_without_handle)  # type: ignore[attr-defined]
    return cls


def _without_handle(given: object) -> NoReturn:
    raise AttributeUnsupportedError(f"{type(given).__name__}.handle: {_HANDLES}")


class AttributeUnsupportedError(UnsupportedError, AttributeError):
    """An attribute of mpi4py that this package does not have; `hasattr` returns False for it."""


def missing(name: str) -> Any:
    """Return a stand-in for a name that this package does not have; raise AttributeError for an unknown name."""
    return _stand_in("ripieno.mpi", _MISSING, name)


def missing_in_futures(name: str) -> Any:
    """Return a stand-in for a name that `ripieno.mpi.futures` does not have, as `missing` does."""
    return _stand_in("ripieno.mpi.futures", _MISSING_FUTURES, name)


def _stand_in(module: str, known: dict[str, tuple[str, ...]], name: str) -> Any:
    for alternative, names in known.items():
        if name in names:
            return _Refused(name, alternative)
    raise AttributeError(f"module {module!r} has no attribute {name!r}; the page on mpi4py lists the names it has")


def _refusal(call: str, alternative: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(f"{call}: {alternative}")

    return refuse


class _Refused:
    """A class of mpi4py without support: every call raises `UnsupportedError`."""

    def __init__(self, name: str, alternative: str) -> None:
        self._name, self._alternative = name, alternative

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _refusal(f"{self._name}.{name}", self._alternative)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(f"{self._name}: {self._alternative}")

    def __instancecheck__(self, value: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return not self._name.endswith("_NULL")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        # A program may define a subclass that it never uses.
        return ()

    def __repr__(self) -> str:
        return f"<{self._name}, which ripieno.mpi does not have>"
