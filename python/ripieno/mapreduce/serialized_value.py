"""Serialize values that the driver sends to its tasks.

A serialized value is a pickle and the raw memory of its arrays, without conversion. It is copied once, into memory that
all workers of the machine read. Only the rank that needs the value deserializes it. Its arrays are read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ripieno.errors import InputError, SerializationError
from ripieno.launch.job.accumulators import Accumulator, AccumulatorTotals, Addition
from ripieno.wire import packing


class SerializedValue:
    """A serialized `value`. Accumulators inside it become the receiver's accumulators when it is opened."""

    def __init__(self, value: Any, name: str, accumulators: Sequence[Accumulator] = ()) -> None:
        def persistent_id(each: Any) -> tuple[int, Addition] | None:
            if type(each) is not Accumulator:
                return None
            if not any(each is own for own in accumulators):
                raise InputError("an accumulator of another job")
            return each.number, each.addition

        try:
            self._pickled, self._buffers = packing.pack_for_process(value, persistent_id)
        except SerializationError as error:
            raise SerializationError(f"{name} cannot be sent to workers: {error}") from error

    @property
    def size_bytes(self) -> int:
        """The size of the message."""
        return len(self._pickled) + sum(buffer.nbytes for buffer in self._buffers)

    def open(self, totals: AccumulatorTotals) -> Any:
        """Return the value, with arrays in the memory that received it."""
        buffers = []
        for buffer in self._buffers:
            # Without a transfer this is the driver's own memory, so make it read-only.
            readable = buffer.view()
            readable.flags.writeable = False
            buffers.append(readable)
        return packing.unpack(self._pickled, buffers, lambda pid: totals.adder(*pid))
