"""A subset of mpi4py's interface on ranks of Ripieno: ``from ripieno import mpi as MPI``.

``ripieno run -n 4 -m ripieno.mpi script.py`` runs an unchanged script, in which ``from mpi4py import MPI`` imports this
module. The ranks join when the module is imported. The page "From mpi4py" lists missing functions.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from ripieno._version import __version__
from ripieno.errors import RipienoError
from ripieno.launch import init
from ripieno.mpi.buffer import buffer
from ripieno.mpi.buffers import octets_of
from ripieno.mpi.communicator import Comm, Intracomm
from ripieno.mpi.constants import *  # noqa: F403
from ripieno.mpi.constants import BUFFER_AUTOMATIC, THREAD_SERIALIZED
from ripieno.mpi.datatypes import Datatype
from ripieno.mpi.errhandlers import ERRHANDLER_NULL, ERRORS_ABORT, ERRORS_ARE_FATAL, ERRORS_RETURN, Errhandler
from ripieno.mpi.error_classes import Get_error_class, Get_error_string, add_methods
from ripieno.mpi.groups import GROUP_EMPTY, GROUP_NULL, Group, world_place
from ripieno.mpi.info import INFO_ENV, INFO_NULL, Info
from ripieno.mpi.matched import MESSAGE_NO_PROC, MESSAGE_NULL, Message
from ripieno.mpi.named_types import *  # noqa: F403
from ripieno.mpi.operations import (
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    NO_OP,
    OP_NULL,
    PROD,
    REPLACE,
    SUM,
    Op,
)
from ripieno.mpi.pickling import Pickle, pickle
from ripieno.mpi.requests import REQUEST_NULL, Prequest, Request
from ripieno.mpi.status import Status
from ripieno.mpi.topologies import Cartcomm, Compute_dims, Distgraphcomm, Graphcomm, Topocomm
from ripieno.mpi.unsupported import missing
from ripieno.mpi.windows import WIN_NULL, Win

__all__ = [
    "BAND",
    "BOR",
    "BXOR",
    "COMM_NULL",
    "COMM_SELF",
    "COMM_WORLD",
    "ERRHANDLER_NULL",
    "ERRORS_ABORT",
    "ERRORS_ARE_FATAL",
    "ERRORS_RETURN",
    "GROUP_EMPTY",
    "GROUP_NULL",
    "INFO_ENV",
    "INFO_NULL",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MAXLOC",
    "MESSAGE_NO_PROC",
    "MESSAGE_NULL",
    "MIN",
    "MINLOC",
    "NO_OP",
    "OP_NULL",
    "PROD",
    "REPLACE",
    "REQUEST_NULL",
    "SUM",
    "WIN_NULL",
    "Aint_add",
    "Aint_diff",
    "Alloc_mem",
    "Attach_buffer",
    "Cartcomm",
    "Comm",
    "Compute_dims",
    "Datatype",
    "Detach_buffer",
    "Distgraphcomm",
    "Errhandler",
    "Exception",
    "Finalize",
    "Flush_buffer",
    "Free_mem",
    "Get_abi_version",
    "Get_address",
    "Get_error_class",
    "Get_error_string",
    "Get_library_version",
    "Get_processor_name",
    "Get_version",
    "Graphcomm",
    "Group",
    "Iflush_buffer",
    "Info",
    "Init",
    "Init_thread",
    "Intracomm",
    "Is_finalized",
    "Is_initialized",
    "Is_thread_main",
    "Message",
    "Op",
    "Pcontrol",
    "Pickle",
    "Prequest",
    "Query_thread",
    "Request",
    "Status",
    "Topocomm",
    "Win",
    "Wtick",
    "Wtime",
    "as_mpi4py",
    "buffer",
    "get_vendor",
    "memory",
    "pickle",
]

#: Base class of all errors that calls raise: invalid arguments, mismatched calls, failed ranks.
Exception = RipienoError
add_methods()

COMM_WORLD = Intracomm._of(init(), "MPI_COMM_WORLD")
COMM_SELF = Intracomm._of(COMM_WORLD._comm.group([COMM_WORLD.rank]), "MPI_COMM_SELF")
COMM_NULL = Comm()
world_place[:] = COMM_WORLD._comm.first_ranks[COMM_WORLD.rank], COMM_WORLD.size

#: The former name of `buffer`.
memory = buffer

Wtime = time.perf_counter


def Wtick() -> float:
    """Return the resolution of `Wtime` in seconds."""
    return time.get_clock_info("perf_counter").resolution


def Get_processor_name() -> str:
    """Return the host name of this rank."""
    return COMM_WORLD._comm.hosts[COMM_WORLD.rank]


def Get_version() -> tuple[int, int]:
    """Return the version of the MPI standard that defines these names; only a part of it is implemented."""
    return (4, 0)


def Get_abi_version() -> tuple[int, int]:
    """Return (-1, -1): there is no C library of MPI."""
    return (-1, -1)


def Get_library_version() -> str:
    """Return the name and version of this implementation."""
    return f"Ripieno {__version__}"


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """Return the name of this implementation, and its version as a tuple."""
    major, minor, patch, *_ = (int(part) for part in [*__version__.partition("+")[0].split("."), "0", "0"])
    return "Ripieno", (major, minor, patch)


def Init() -> None:
    """Do nothing: the ranks have joined at the import of the module."""


def Init_thread(required: int = THREAD_SERIALIZED) -> int:
    """Return the thread level: the ranks have joined at the import of the module."""
    return Query_thread()


def Is_initialized() -> bool:
    """Return whether the ranks have joined."""
    return True


def Is_finalized() -> bool:
    """Return whether this rank has left."""
    return COMM_WORLD._comm.closed


def Finalize() -> None:
    """Close the communicator of all ranks."""
    COMM_WORLD._comm.close()


def Query_thread() -> int:
    """Return the thread level: any thread may make calls, one at a time."""
    return THREAD_SERIALIZED


def Is_thread_main() -> bool:
    """Return whether this is the main thread."""
    import threading

    return threading.current_thread() is threading.main_thread()


def Alloc_mem(size: int, info: Info | None = None) -> buffer:
    """Return `size` bytes that ranks of the same host can read in place, like memory of `ripieno.empty`."""
    return buffer.allocate(size)


def Free_mem(memory: buffer) -> None:
    """Do nothing: memory is freed with its last reference."""


def Get_address(location: Any) -> int:
    """Return the address of a buffer, for displacements of `Datatype.Create_struct`."""
    return octets_of(location, "Get_address").ctypes.data


def Aint_add(base: int, disp: int) -> int:
    """Return an address at a distance from another one."""
    return base + disp


def Aint_diff(addr1: int, addr2: int) -> int:
    """Return the distance of two addresses."""
    return addr1 - addr2


def _typecode(datatype: Datatype) -> str | None:
    """Return NumPy's character for a type, for mpi4py.util.dtlib; None for a derived type."""
    return datatype.typechar if datatype.layout.is_plain and not datatype.dtype.names else None


def _typealign(datatype: Datatype) -> int | None:
    """Return the alignment of a type, for mpi4py.util.dtlib; None for a derived type."""
    return datatype.dtype.alignment if datatype.is_named else None


def Pcontrol(level: int) -> None:
    """Do nothing: profiling is not supported."""


_attached: list[Any] = []


def Attach_buffer(buf: Any) -> None:
    """Keep a buffer until `Detach_buffer`; buffered messages do not need it."""
    _attached[:] = [buf if buf is BUFFER_AUTOMATIC else buffer.writable(buf)]


def Detach_buffer() -> Any:
    """Return the buffer of `Attach_buffer`."""
    return _attached.pop() if _attached else BUFFER_AUTOMATIC


def Flush_buffer() -> None:
    """Do nothing: buffered messages are sent before their calls return."""


def Iflush_buffer() -> Request:
    """Return a request that is complete."""
    return COMM_WORLD.Iflush_buffer()


def as_mpi4py() -> None:
    """Make ``from mpi4py import MPI`` import this module in this process from now on."""
    import types

    from ripieno.mpi import futures, pkl5

    package = types.ModuleType("mpi4py")
    package.__path__ = []
    package.MPI, package.futures = sys.modules[__name__], futures  # type: ignore[attr-defined]
    package.rc = types.SimpleNamespace()  # type: ignore[attr-defined]
    sys.modules["mpi4py"] = package
    sys.modules["mpi4py.MPI"] = sys.modules[__name__]
    sys.modules["mpi4py.futures"] = futures
    package.util = types.ModuleType("mpi4py.util")  # type: ignore[attr-defined]
    package.util.__path__, package.util.pkl5 = [], pkl5
    sys.modules["mpi4py.util"] = package.util
    sys.modules["mpi4py.util.pkl5"] = pkl5


if not TYPE_CHECKING:
    # Hidden from type checkers: with a module-level `__getattr__` they accept any name.
    def __getattr__(name: str) -> Any:
        return missing(name)
