"""Windows: memory that the ranks of one node share."""

from __future__ import annotations

import mmap
import os
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ripieno.errors import InputError
from ripieno.mpi.buffer import buffer
from ripieno.mpi.constants import (
    LOCK_EXCLUSIVE,
    PROC_NULL,
    WIN_BASE,
    WIN_CREATE_FLAVOR,
    WIN_DISP_UNIT,
    WIN_FLAVOR_SHARED,
    WIN_MODEL,
    WIN_SIZE,
    WIN_UNIFIED,
)
from ripieno.mpi.errhandlers import HasErrhandler
from ripieno.mpi.groups import Group
from ripieno.mpi.info import Info
from ripieno.mpi.unsupported import refusing

#: Segments begin at multiples of this number of bytes.
_ALIGNMENT_BYTES = 64


class _Segments(NamedTuple):
    """The shared memory, and the part of each rank in it."""

    comm: Any
    memory: NDArray[np.uint8]
    starts: list[int]
    sizes: list[int]
    units: list[int]


@refusing
class Win(HasErrhandler):
    """Memory of all ranks of a communicator, which must be on one node. Each rank reads and writes all of it.

    Parameters
    ----------
    win : Win, optional
        Another reference to this window is created. By default the window is null.
    """

    _segments: _Segments | None
    name: str

    def __new__(cls, win: Win | None = None) -> Self:
        if not isinstance(win, Win | None):
            raise TypeError(f"Win: a {type(win).__name__}: expected a window; Allocate_shared creates one")
        instance = object.__new__(cls)
        instance._segments = None if win is None else win._segments
        instance.name = "MPI_WIN_NULL" if win is None else win.name
        return instance

    @classmethod
    def Allocate_shared(cls, size: int, disp_unit: int = 1, info: Info | None = None, comm: Any = None) -> Win:
        """Return a window with `size` bytes of each rank, initially 0. All ranks call it; sizes may differ."""
        from ripieno.mpi import COMM_SELF

        if size < 0 or disp_unit < 1:
            raise InputError(f"Allocate_shared: size={size}, disp_unit={disp_unit}: expected bytes")
        comm = COMM_SELF if comm is None else comm
        if len(set(comm._comm.nodes)) > 1:
            raise InputError("Allocate_shared: ranks on several nodes: expected ranks of Split_type(COMM_TYPE_SHARED)")
        comm = comm._duplicate()
        given = comm.allgather((int(size), int(disp_unit)))
        sizes = [each for each, _ in given]
        starts = [0]
        for each in sizes:
            starts.append(starts[-1] - (-each // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
        window = cls()
        window._segments = _Segments(comm, _shared(comm, starts[-1]), starts[:-1], sizes, [unit for _, unit in given])
        window.name = ""
        return window

    def Shared_query(self, rank: int) -> tuple[buffer, int]:
        """Return the memory of a rank, and its unit; for `PROC_NULL`, of the first rank with memory."""
        segments = self._allocated()
        if rank == PROC_NULL:
            rank = next((each for each, size in enumerate(segments.sizes) if size), 0)
        if not 0 <= rank < len(segments.sizes):
            raise InputError(f"Shared_query: rank {rank}: expected 0 … {len(segments.sizes) - 1}")
        start = segments.starts[rank]
        return buffer.frombuffer(segments.memory[start : start + segments.sizes[rank]]), segments.units[rank]

    def tomemory(self) -> buffer:
        """Return the memory of this rank."""
        return self.Shared_query(self._allocated().comm.rank)[0]

    def Fence(self, assertion: int = 0) -> None:
        """Return when all ranks have called it; they then see each other's writes."""
        self._allocated().comm.Barrier()

    def Lock(self, rank: int, lock_type: int = LOCK_EXCLUSIVE, assertion: int = 0) -> None:
        """Refuse an exclusive lock of a window of several ranks; do nothing for a shared lock."""
        if lock_type == LOCK_EXCLUSIVE and self._allocated().comm.size > 1:
            raise InputError("Lock: LOCK_EXCLUSIVE: expected LOCK_SHARED; order the writes by Fence or messages")

    def Unlock(self, rank: int) -> None:
        """Do nothing: writes are visible to ranks that synchronize with this rank afterwards."""

    def Lock_all(self, assertion: int = 0) -> None:
        """Do nothing: the memory is always accessible."""

    Unlock_all = Sync = Flush_all = Flush_local_all = lambda self: None

    def Flush(self, rank: int) -> None:
        """Do nothing: writes are visible to ranks that synchronize with this rank afterwards."""

    Flush_local = Flush

    def Get_attr(self, keyval: int) -> Any:
        """Return the address, size, unit, flavor or model; None for any other attribute."""
        memory, unit = self.Shared_query(self._allocated().comm.rank)
        return {
            WIN_BASE: memory.ctypes.data,
            WIN_SIZE: memory.size,
            WIN_DISP_UNIT: unit,
            WIN_CREATE_FLAVOR: WIN_FLAVOR_SHARED,
            WIN_MODEL: WIN_UNIFIED,
        }.get(keyval)

    attrs = property(lambda self: tuple(self.Get_attr(each) for each in (WIN_BASE, WIN_SIZE, WIN_DISP_UNIT)))
    flavor = property(lambda self: self.Get_attr(WIN_CREATE_FLAVOR))
    model = property(lambda self: self.Get_attr(WIN_MODEL))

    def Get_group(self) -> Group:
        """Return the group of its ranks."""
        group: Group = self._allocated().comm.Get_group()
        return group

    group = property(Get_group)
    group_size = property(lambda self: self._allocated().comm.size)
    group_rank = property(lambda self: self._allocated().comm.rank)

    def Get_info(self) -> Info:
        """Return empty hints: no call uses them."""
        return Info.Create()

    def Set_info(self, info: Info) -> None:
        """Do nothing: no call uses hints."""

    info = property(Get_info, Set_info)

    def Get_name(self) -> str:
        """Return the name of the window."""
        return self.name

    def Set_name(self, name: str) -> None:
        """Set the name of the window."""
        self.name = name

    def Free(self) -> None:
        """Turn this reference into the null window. All ranks call it. Arrays on the memory remain valid."""
        comm = self._allocated().comm
        comm.Barrier()
        comm.Free()
        self._segments, self.name = None, "MPI_WIN_NULL"

    def free(self) -> None:
        """Turn this reference into the null window, unless it is one."""
        if self:
            self.Free()

    def __bool__(self) -> bool:
        return self._segments is not None

    def __eq__(self, other: object) -> bool:
        return self._segments is other._segments if isinstance(other, Win) else NotImplemented

    def __hash__(self) -> int:
        return id(self._segments)

    def __reduce__(self) -> Any:
        if self._segments is not None:
            raise InputError("a window cannot be pickled; each rank calls Allocate_shared")
        return "WIN_NULL" if self is WIN_NULL else (type(self), ())

    def _allocated(self) -> _Segments:
        if self._segments is None:
            raise InputError("window: WIN_NULL: expected one of Allocate_shared; a freed window is null")
        return self._segments


def _shared(comm: Any, size_bytes: int) -> NDArray[np.uint8]:
    """Return memory that all ranks of a node map."""
    # The memory has no name in the file system, so nothing remains if a rank dies here.
    descriptor = os.memfd_create("ripieno-window", os.MFD_CLOEXEC) if comm.rank == 0 else -1
    if comm.rank == 0:
        os.ftruncate(descriptor, max(size_bytes, 1))
    path = comm.bcast(f"/proc/{os.getpid()}/fd/{descriptor}")
    try:
        if comm.rank > 0:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        failure = None
    except OSError as error:
        failure = str(error)
    # Exchange failures, so that all ranks raise them. Rank 0 closes its descriptor after the others have opened theirs.
    failures = [each for each in comm.allgather(failure) if each]
    try:
        if failures:
            raise InputError(f"Allocate_shared: {failures[0]}: expected ranks that see each other's processes")
        return np.frombuffer(mmap.mmap(descriptor, max(size_bytes, 1)), np.uint8)[:size_bytes]
    finally:
        if descriptor >= 0:
            os.close(descriptor)


WIN_NULL = Win()
