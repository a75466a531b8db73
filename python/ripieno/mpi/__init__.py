"""A subset of mpi4py's interface on ranks of Ripieno: ``from ripieno import mpi as MPI``.

``ripieno run -n 4 -m ripieno.mpi script.py`` runs an unchanged script, in which ``from mpi4py import MPI`` imports this
module. The ranks join when the module is imported. The page "From mpi4py" lists missing functions.
"""

from __future__ import annotations

import sys
import time

from ripieno._version import __version__
from ripieno.launch import init
from ripieno.mpi.communicator import Comm, Group, Intracomm
from ripieno.mpi.constants import (
    ANY_SOURCE,
    ANY_TAG,
    BOTTOM,
    COMM_TYPE_SHARED,
    IN_PLACE,
    PROC_NULL,
    ROOT,
    SUCCESS,
    TAG_UB,
    THREAD_FUNNELED,
    THREAD_MULTIPLE,
    THREAD_SERIALIZED,
    THREAD_SINGLE,
    UNDEFINED,
    WTIME_IS_GLOBAL,
    Exception,
)
from ripieno.mpi.datatypes import (
    BOOL,
    BYTE,
    C_BOOL,
    C_DOUBLE_COMPLEX,
    C_FLOAT_COMPLEX,
    CHAR,
    COMPLEX,
    DOUBLE,
    DOUBLE_COMPLEX,
    DOUBLE_INT,
    FLOAT,
    FLOAT_INT,
    INT,
    INT8_T,
    INT16_T,
    INT32_T,
    INT64_T,
    INT_INT,
    LONG,
    LONG_INT,
    LONG_LONG,
    SHORT,
    SHORT_INT,
    SIGNED_CHAR,
    TWOINT,
    UINT8_T,
    UINT16_T,
    UINT32_T,
    UINT64_T,
    UNSIGNED,
    UNSIGNED_CHAR,
    UNSIGNED_LONG,
    UNSIGNED_SHORT,
    Datatype,
)
from ripieno.mpi.operations import BAND, BOR, BXOR, LAND, LOR, LXOR, MAX, MAXLOC, MIN, MINLOC, PROD, SUM, Op
from ripieno.mpi.requests import REQUEST_NULL, Request
from ripieno.mpi.status import Status

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "BAND",
    "BOOL",
    "BOR",
    "BOTTOM",
    "BXOR",
    "BYTE",
    "CHAR",
    "COMM_NULL",
    "COMM_SELF",
    "COMM_TYPE_SHARED",
    "COMM_WORLD",
    "COMPLEX",
    "C_BOOL",
    "C_DOUBLE_COMPLEX",
    "C_FLOAT_COMPLEX",
    "DOUBLE",
    "DOUBLE_COMPLEX",
    "DOUBLE_INT",
    "FLOAT",
    "FLOAT_INT",
    "INFO_NULL",
    "INT",
    "INT8_T",
    "INT16_T",
    "INT32_T",
    "INT64_T",
    "INT_INT",
    "IN_PLACE",
    "LAND",
    "LONG",
    "LONG_INT",
    "LONG_LONG",
    "LOR",
    "LXOR",
    "MAX",
    "MAXLOC",
    "MIN",
    "MINLOC",
    "PROC_NULL",
    "PROD",
    "REQUEST_NULL",
    "ROOT",
    "SHORT",
    "SHORT_INT",
    "SIGNED_CHAR",
    "SUCCESS",
    "SUM",
    "TAG_UB",
    "THREAD_FUNNELED",
    "THREAD_MULTIPLE",
    "THREAD_SERIALIZED",
    "THREAD_SINGLE",
    "TWOINT",
    "UINT8_T",
    "UINT16_T",
    "UINT32_T",
    "UINT64_T",
    "UNDEFINED",
    "UNSIGNED",
    "UNSIGNED_CHAR",
    "UNSIGNED_LONG",
    "UNSIGNED_SHORT",
    "WTIME_IS_GLOBAL",
    "Alloc_mem",
    "Comm",
    "Datatype",
    "Exception",
    "Finalize",
    "Free_mem",
    "Get_library_version",
    "Get_processor_name",
    "Get_version",
    "Group",
    "Init",
    "Intracomm",
    "Is_finalized",
    "Is_initialized",
    "Op",
    "Pcontrol",
    "Query_thread",
    "Request",
    "Status",
    "Wtick",
    "Wtime",
    "as_mpi4py",
    "get_vendor",
]

COMM_WORLD = Intracomm._of(init(), "MPI_COMM_WORLD")
COMM_SELF = Intracomm._of(COMM_WORLD._comm.group([COMM_WORLD.rank]), "MPI_COMM_SELF")
COMM_NULL = None
INFO_NULL = None

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


def Get_library_version() -> str:
    """Return the name and version of this implementation."""
    return f"Ripieno {__version__}"


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    """Return the name of this implementation, and its version as a tuple."""
    major, minor, patch, *_ = (int(part) for part in [*__version__.partition("+")[0].split("."), "0", "0"])
    return "Ripieno", (major, minor, patch)


def Init() -> None:
    """Do nothing: the ranks have joined at the import of the module."""


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


def Alloc_mem(size: int, info: None = None) -> bytearray:
    """Allocate `size` bytes."""
    return bytearray(size)


def Free_mem(memory: bytearray) -> None:
    """Do nothing: memory is freed with its last reference."""


def Pcontrol(level: int) -> None:
    """Do nothing: profiling is not supported."""


def as_mpi4py() -> None:
    """Make ``from mpi4py import MPI`` import this module in this process from now on."""
    import types

    package = types.ModuleType("mpi4py")
    package.__path__ = []
    package.MPI = sys.modules[__name__]  # type: ignore[attr-defined]
    package.rc = types.SimpleNamespace()  # type: ignore[attr-defined]
    sys.modules["mpi4py"] = package
    sys.modules["mpi4py.MPI"] = sys.modules[__name__]
