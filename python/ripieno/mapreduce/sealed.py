"""Values on their way from the driver to its tasks.

A sealed value is a pickle beside the raw memory of its arrays, which is not converted; it is copied once, into memory
that all workers of the machine read. Only the rank that needs the value opens it. Its arrays are read-only.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from ripieno.errors import InputError, SerializationError
from ripieno.launch.job.accumulators import Accumulator, AccumulatorTotals
from ripieno.launch.process import parcel


class SerializedValue:
    """`value`, ready to travel; the accumulators among what it refers to are opened as the receiver's ends of them."""

    def __init__(self, value: Any, what: str, accumulators: Sequence[Accumulator] = ()) -> None:
        def persistent_id(each: Any) -> tuple[int, tuple[int, ...], str] | None:
            if type(each) is not Accumulator:
                return None
            if not any(each is own for own in accumulators):
                raise InputError("an accumulator of another job")
            return each.number, getattr(each.value, "shape", ()), each.op

        try:
            self._pickled, self._buffers = parcel.pack(value, persistent_id)
        except SerializationError as error:
            raise SerializationError(f"{what} cannot be sent to workers: {error}") from error

    @property
    def size_bytes(self) -> int:
        """What travels."""
        return len(self._pickled) + sum(buffer.nbytes for buffer in self._buffers)

    def open(self, ledger: AccumulatorTotals) -> Any:
        """The value, on the memory in which it has come."""
        buffers = []
        for buffer in self._buffers:
            # Where nothing has travelled this is the driver's own memory.
            readable = buffer.view()
            readable.flags.writeable = False
            buffers.append(readable)
        return _Opener(self._pickled, buffers, ledger).load()


class _Opener(pickle.Unpickler):
    def __init__(self, pickled: bytes, buffers: list[Any], ledger: AccumulatorTotals) -> None:
        super().__init__(io.BytesIO(pickled), buffers=buffers)
        self._ledger = ledger

    def persistent_load(self, pid: tuple[int, tuple[int, ...], str]) -> Any:
        return self._ledger.adder(*pid)
