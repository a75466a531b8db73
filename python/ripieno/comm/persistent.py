"""Provide persistent collectives on fixed arrays, as in MPI 4: arguments are checked once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from numpy.typing import NDArray

from ripieno._types import Array

if TYPE_CHECKING:
    from ripieno.comm.rank import CallBase


class PersistentCall(Generic[Array]):
    """A collective on fixed arrays. Calling the object runs it, any number of times.

    Every rank makes the same calls in the same order, persistent and other ones together. The arrays are fixed at
    creation. Each call reads their present contents; their shape and dtype must not change.

    Raises
    ------
    CommunicatorClosed
        The call came after its communicator was closed, or in a process that was forked from a rank.
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
        """Run the collective and return the array with the result."""
        comm, value, out, op = self._comm, self._value, self._out, self._op
        plain = comm._plain
        if op is None or plain is None or comm._queue.last is not None or not plain.allreduce(out, op, value):
            if value is not None:
                out[...] = value
            comm._run_native(out, "collective", *self._args)
        return out
