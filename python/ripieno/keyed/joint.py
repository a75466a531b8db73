"""What comes together in its own way when ranks bring it to a collective: key-values and tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ripieno.errors import InputError
from ripieno.wire.calls import StagedCall

if TYPE_CHECKING:
    from ripieno.comm.communicator import Communicator


class Joint(ABC):
    """A value of many parts with keys or ids; the parts of all ranks meet by these, not by their places."""

    @abstractmethod
    def allreduce(self, comm: Communicator, op: Any) -> StagedCall:
        """The call by which every rank gets the parts of all ranks, equal keys combined by `op`, None being its own."""

    @abstractmethod
    def allgather(self) -> StagedCall:
        """The call by which every rank gets the parts of all ranks."""


def refuse_options(value: Joint, **options: Any) -> Joint:
    """`value`, for which collectives have no options."""
    for name, option in options.items():
        if option is not None:
            raise InputError(f"{name}={option!r} beside {type(value).__name__}: expected to be left out")
    return value
