"""Base class of all calls of a communicator: rank, size and name."""

from __future__ import annotations

from typing import Any, Self

from ripieno.comm.communicator import Communicator
from ripieno.errors import InputError

#: Communicators that every rank has, with their names in `ripieno.mpi`.
_NAMED = {"MPI_COMM_WORLD": "COMM_WORLD", "MPI_COMM_SELF": "COMM_SELF"}


class MpiRank:
    """One rank of a communicator, with the method names of MPI."""

    _comm: Communicator
    name: str
    #: Pending receives, which a blocking send progresses.
    _waiting: list[Any]

    def __new__(cls, comm: MpiRank | None = None) -> Self:
        if comm is None:
            raise InputError("a communicator is created from another: Split, Dup, Create_group")
        return cls._of(comm._comm, comm.name)

    @classmethod
    def _of(cls, comm: Communicator, name: str = "") -> Self:
        made = object.__new__(cls)
        made._comm, made.name, made._waiting = comm, name, []
        return made

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

    def __reduce__(self) -> tuple[Any, ...]:
        if self.name not in _NAMED:
            raise TypeError(
                f"communicator {self.name!r}: expected MPI_COMM_WORLD or MPI_COMM_SELF, which every rank has"
            )
        return _named, (self.name,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MpiRank) and other._comm is self._comm

    def __hash__(self) -> int:
        return hash(id(self._comm))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} rank {self.rank} of {self.size}>"


def _named(name: str) -> MpiRank:
    from ripieno import mpi

    place: MpiRank = getattr(mpi, _NAMED[name])
    return place
