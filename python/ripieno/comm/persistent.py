"""Collectives on arrays that stay the same, as MPI 4 has them: what can be checked once is checked once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from numpy.typing import NDArray

from ripieno._types import Array

if TYPE_CHECKING:
    from ripieno.comm.rank import CallBase


class PersistentCall(Generic[Array]):
    """A collective on certain arrays, to be made by calling it, as often as is wanted.

    Every rank makes the same calls in the same order, persistent and other ones together. The arrays are those of the
    beginning: what is in them counts when it is called, and their shape and dtype must not be changed.

    Raises
    ------
    CommunicatorClosed
        When it is called after its communicator was closed, or in a process that was forked from the rank's.
    """

    __slots__ = ("_args", "_comm", "_op", "_out", "_value")

    def __init__(
        self, comm: CallBase, value: NDArray[Any] | None, out: Array, op: str, args: tuple[Any, ...], *, is_short: bool
    ) -> None:
        self._comm = comm
        self._value = value
        self._out = out
        self._op = op if is_short else None
        self._args = args

    def __call__(self) -> Array:
        """Make the call; returns the array that has the result."""
        comm, value, out, op = self._comm, self._value, self._out, self._op
        plain = comm._plain
        if op is None or plain is None or comm._queue.last is not None or not plain.allreduce(out, op, value):
            if value is not None:
                out[...] = value
            comm._once(out, "allreduce", *self._args)
        return out
