"""Provide collectives that exchange values between some or all ranks, and the barrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ripieno._checks import whole_number
from ripieno._types import Array, Foreign
from ripieno.comm.gathers import one_per_rank
from ripieno.comm.rank import CallBase
from ripieno.errors import CollectiveMismatch, InputError
from ripieno.wire import objects, signatures
from ripieno.wire.arrays import (
    byte_view,
    check_rows_fit,
    checked_counts,
    elements,
    empty,
    flat_elements,
    in_order,
    in_place,
    in_rows,
    required,
    split,
)
from ripieno.wire.calls import NativeCalls, StagedCall

T = TypeVar("T")

#: Bytes of the text of a dtype before the elements that a neighbor sends.
_DTYPE_BYTES = 32


class Exchanges(CallBase):
    """Calls of a communicator that exchange values with some or all ranks, and the barrier."""

    @overload
    def alltoall(
        self,
        values: Any,
        *,
        out: Array,
        counts: Sequence[int] | None = None,
        out_counts: Sequence[int] | None = None,
        algorithm: str | None = None,
    ) -> Array: ...

    @overload
    def alltoall(
        self, values: Array, *, counts: Sequence[int] | None = None, algorithm: str | None = None
    ) -> list[Array]: ...

    @overload
    def alltoall(
        self, values: Foreign, *, counts: Sequence[int] | None = None, algorithm: str | None = None
    ) -> list[NDArray[Any]]: ...

    @overload
    def alltoall(self, values: Sequence[T], *, algorithm: str | None = None) -> list[T]: ...

    def alltoall(
        self,
        values: Any,
        *,
        out: NDArray[Any] | None = None,
        counts: Sequence[int] | None = None,
        out_counts: Sequence[int] | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """Send rank i's j-th value to rank j, which receives it as its i-th value.

        Parameters
        ----------
        values : sequence, or ndarray
            One value per rank; with `out`, an array whose rows are divided by `counts`.
        out : ndarray, optional
            Receives the rows of all ranks, divided by `out_counts`; rows of one shape on all ranks.
        counts, out_counts : sequence of int, optional
            Rows to every rank and from every rank; even divisions by default.
        algorithm : str, optional
            By default the cheapest for these sizes and this world is chosen.

        Returns
        -------
        list or ndarray
            A list with one value from every rank, or `out`.
        """
        if (
            out is not None
            and algorithm is None
            and (plain := self._plain) is not None
            and self._queue.last is None
            and plain.alltoall(values, out, counts, out_counts)
        ):
            return out
        algorithm = in_order(algorithm, None)
        if out is None:
            if out_counts is not None:
                raise InputError(f"alltoall: out_counts={out_counts!r}: out_counts= needs out=, whose rows they divide")
            parts = one_per_rank(values, counts, self.world_size, "alltoall")
            return self._do(StagedCall(lambda native: objects.alltoall(native, parts, algorithm)))
        given = required(values, "alltoall: values")
        check_rows_fit(in_rows(in_place(out), "alltoall: out"), given, "alltoall")
        sent = np.ascontiguousarray(given, dtype=out.dtype)
        if np.may_share_memory(sent, out):
            # Received rows must not overwrite rows that are still to be sent.
            sent = sent.copy()
        counts = checked_counts(counts, len(sent), self.world_size)
        out_counts = checked_counts(out_counts, len(out), self.world_size, "out_counts")
        element_counts, out_element_counts = elements(sent, counts)[1], elements(out, out_counts)[1]
        task, signature = ("alltoall", element_counts, out_element_counts), signatures.of_rows(out)
        call = ("collective", task, flat_elements(sent), algorithm, signature, flat_elements(out))
        return self._do(NativeCalls([call], lambda: out))

    @overload
    def rotate(self, block: Any, distance: int = 1, *, out: Array, algorithm: str | None = None) -> Array: ...

    @overload
    def rotate(self, block: Array, distance: int = 1, *, algorithm: str | None = None) -> Array: ...

    @overload
    def rotate(self, block: Foreign, distance: int = 1, *, algorithm: str | None = None) -> NDArray[Any]: ...

    @overload
    def rotate(self, block: T, distance: int = 1, *, algorithm: str | None = None) -> T: ...

    def rotate(
        self, block: Any, distance: int = 1, *, out: NDArray[Any] | None = None, algorithm: str | None = None
    ) -> Any:
        """Return the block of rank i - `distance` at rank i, around the ring.

        Parameters
        ----------
        block : array or object
            The block that this rank sends. Blocks may differ in type, shape and size between ranks.
        distance : int
            The distance in ranks. Negative distances reverse the direction.
        out : ndarray, optional
            Receives the block, with as many rows as the sender's block. No sizes are exchanged then; the dtype and the
            shape of rows are the same on all ranks.
        algorithm : str, optional
            By default the cheapest is chosen.

        Returns
        -------
        array or object
            The received block; `out` if given.
        """
        distance = whole_number("distance", distance, -(2**63), 2**63 - 1) % self.world_size
        algorithm = in_order(algorithm, None)
        if out is None:
            return self._do(StagedCall(lambda native: objects.rotate(native, block, distance, algorithm)))
        given = required(block, "rotate: block")
        check_rows_fit(in_place(out), given, "rotate")
        sent = np.ascontiguousarray(given, dtype=out.dtype)
        if np.may_share_memory(sent, out):
            # Received rows must not overwrite rows that are still to be sent.
            sent = sent.copy()
        task, signature = ("rotate", distance), signatures.of_rows(out)
        call = ("collective", task, flat_elements(sent), algorithm, signature, flat_elements(out))
        return self._do(NativeCalls([call], lambda: out))

    @overload
    def neighbour_exchange(
        self, values: Mapping[int, Any], *, out: Mapping[int, Array], algorithm: str | None = None
    ) -> dict[int, Array]: ...

    @overload
    def neighbour_exchange(self, values: Mapping[int, T], *, algorithm: str | None = None) -> dict[int, T]: ...

    def neighbour_exchange(
        self,
        values: Mapping[int, Any],
        *,
        out: Mapping[int, NDArray[Any]] | None = None,
        algorithm: str | None = None,
    ) -> dict[int, Any]:
        """Send a value to each neighbor of this rank, and return the values that neighbors send.

        Parameters
        ----------
        values : dict of int to array or object
            The value for each receiving rank.
        out : dict of int to ndarray, optional
            Receives the array of each rank that sends to this rank, with the size and dtype of that array; another
            dtype raises `CollectiveMismatch`. Only neighbors communicate then; otherwise all ranks exchange sizes
            first.
        algorithm : str, optional
            By default the cheapest is chosen.

        Returns
        -------
        dict of int to array or object
            Values by rank, in ascending order; `out` if given.
        """
        algorithm = in_order(algorithm, None)
        for name, given in (("values", values), ("out", {} if out is None else out)):
            if not isinstance(given, Mapping):
                raise InputError(f"{name}: a {type(given).__name__}: expected a dict of ranks to arrays or objects")
        values = {self._rank("peer", peer): values[peer] for peer in values}
        if out is None:
            return self._do(StagedCall(lambda native: objects.neighbour_exchange(native, values, algorithm)))
        sent = [_with_dtype(np.ascontiguousarray(required(each, "neighbour_exchange"))) for each in values.values()]
        sent_bytes = np.concatenate([*sent, np.empty(0, np.uint8)])
        sizes_bytes = [_DTYPE_BYTES + in_place(array, f"out[{peer}]").nbytes for peer, array in out.items()]
        received = empty(sum(sizes_bytes), np.uint8)
        out_peers = [(peer, piece.size) for peer, piece in zip(values, sent, strict=True)]
        in_peers = [(self._rank("peer", peer), size) for peer, size in zip(out, sizes_bytes, strict=True)]

        def finish() -> dict[int, Any]:
            for (peer, array), piece in zip(out.items(), split(received, sizes_bytes), strict=True):
                theirs, own = bytes(piece[:_DTYPE_BYTES]), _dtype_text(array)
                if theirs != own:
                    sends, has = (text.decode(errors="replace").rstrip() for text in (theirs, own))
                    raise CollectiveMismatch(
                        f"neighbour_exchange: rank {peer} sends {sends}, out[{peer}] has {has}: expected one dtype"
                    )
                byte_view(array)[:] = piece[_DTYPE_BYTES:]
            return dict(out)

        task = ("neighbour_exchange", out_peers, in_peers)
        return self._do(NativeCalls([("collective", task, sent_bytes, algorithm, None, received)], finish))

    def barrier(self, *, algorithm: str | None = None) -> None:
        """Return when every rank has called it."""
        plain = self._plain
        if algorithm is None and plain is not None and self._queue.last is None:
            return plain.barrier()
        return self._run_native(None, "barrier", in_order(algorithm, None))


def _with_dtype(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the text of an array's dtype and the bytes of its elements."""
    return np.concatenate([np.frombuffer(_dtype_text(array), np.uint8), byte_view(array)])


def _dtype_text(array: NDArray[Any]) -> bytes:
    return str(array.dtype).encode()[:_DTYPE_BYTES].ljust(_DTYPE_BYTES)
