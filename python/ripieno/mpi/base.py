"""Base class of all calls of a communicator: rank, size and name."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from ripieno.comm.communicator import Communicator
from ripieno.errors import InputError
from ripieno.mpi.attributes import HasAttributes

#: Communicators that every rank has.
_NAMED = ("COMM_WORLD", "COMM_SELF", "COMM_NULL")


class _NullCommunicator:
    """Stands for the communicator of a null or freed handle."""

    closed = True

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InputError("communicator: COMM_NULL: expected a communicator; a freed communicator is null")


NULL: Any = _NullCommunicator()


class MpiRank(HasAttributes):
    """One rank of a communicator, with the method names of MPI."""

    _comm: Communicator
    name: str

    def __new__(cls, comm: MpiRank | None = None) -> Self:
        if not isinstance(comm, MpiRank | None):
            raise TypeError(f"{cls.__name__}: a {type(comm).__name__}: expected a communicator")
        if comm is None:
            return cls._of(NULL, "MPI_COMM_NULL")
        instance = cls._of(comm._comm, comm.name)
        instance._attributes = comm._attributes
        return instance

    @classmethod
    def _of(cls, comm: Communicator, name: str = "") -> Self:
        instance = object.__new__(cls)
        instance._comm, instance.name, instance._attributes = comm, name, {}
        return instance

    def Get_rank(self) -> int:
        """Return this rank."""
        return self._comm.rank

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return self._comm.world_size

    @property
    def rank(self) -> int:
        """This rank."""
        return self._comm.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._comm.world_size

    def Get_name(self) -> str:
        """Return the name of the communicator."""
        return self.name

    def Set_name(self, name: str) -> None:
        """Set the name of the communicator."""
        self.name = name

    def Is_inter(self) -> bool:
        """Return False: intercommunicators are not supported."""
        return False

    def Is_intra(self) -> bool:
        """Return True: all communicators are intracommunicators."""
        return True

    def toint(self) -> int:
        """Return -1: there is no handle of C or Fortran."""
        return -1

    py2f = toint
    is_inter, is_intra = property(Is_inter), property(Is_intra)

    def __reduce__(self) -> Any:
        from ripieno import mpi

        name = next((each for each in _NAMED if getattr(mpi, each) == self), None)
        if name is None:
            raise InputError(f"communicator {self.name!r}: only COMM_WORLD and COMM_SELF can be pickled")
        return _named, (name, None if getattr(mpi, name) is self else type(self))

    def __bool__(self) -> bool:
        return self._comm is not NULL

    def __eq__(self, other: object) -> bool:
        return other._comm is self._comm if isinstance(other, MpiRank) else NotImplemented

    def __hash__(self) -> int:
        return hash(id(self._comm))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} rank {self.rank} of {self.size}>" if self else "<COMM_NULL>"


def _named(name: str, copied_as: type[MpiRank] | None) -> MpiRank:
    from ripieno import mpi

    constant: MpiRank = getattr(mpi, name)
    return constant if copied_as is None else copied_as(constant)
