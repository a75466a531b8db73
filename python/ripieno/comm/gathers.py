"""Provide collectives that move values unchanged: from one rank to all, or from all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ripieno._types import Array, Foreign
from ripieno.comm.rank import CallBase
from ripieno.errors import InputError
from ripieno.keyed import collectives
from ripieno.keyed.collectives import KEYED
from ripieno.keyed.options import refuse_options
from ripieno.wire import objects, signatures
from ripieno.wire.arrays import (
    as_array,
    check_fits,
    checked_counts,
    copied,
    elements,
    empty_rows,
    fill,
    in_order,
    in_place,
    in_rows,
    is_alike,
    listed_counts,
    native_elements,
    required,
    split,
)
from ripieno.wire.calls import NativeCalls, StagedCall

if TYPE_CHECKING:
    from ripieno.keyed import KeyValues, Table


#: Classes of values that are not arrays.
_OBJECTS = frozenset((type(None), bool, int, float, str, tuple, list, dict))

T = TypeVar("T")
#: Data that `allgather` merges by keys or ids.
Rows = TypeVar("Rows", bound="KeyValues | Table")


class Gathers(CallBase):
    """Calls of a communicator that move values or rows unchanged: one rank's, or one per rank."""

    @overload
    def broadcast(
        self, value: Any = None, root: int = 0, *, out: Array, algorithm: str | None = None, order: str | None = None
    ) -> Array: ...

    @overload
    def broadcast(
        self, value: None = None, root: int = 0, *, algorithm: str | None = None, order: str | None = None
    ) -> Any: ...

    @overload
    def broadcast(
        self, value: Array, root: int = 0, *, algorithm: str | None = None, order: str | None = None
    ) -> Array: ...

    @overload
    def broadcast(
        self, value: Foreign, root: int = 0, *, algorithm: str | None = None, order: str | None = None
    ) -> NDArray[Any]: ...

    # Ranks other than the root omit the value, which is None then.
    @overload
    def broadcast(
        self, value: T | None, root: int = 0, *, algorithm: str | None = None, order: str | None = None
    ) -> T: ...

    def broadcast(
        self,
        value: Any = None,
        root: int = 0,
        *,
        out: NDArray[Any] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Any:
        """Send the root's `value` to every rank.

        Parameters
        ----------
        value : array or object
            Used at the root only; other ranks may omit it.
        root : int
            The rank that provides the value.
        out : ndarray, optional
            Same shape and dtype on every rank; otherwise `CollectiveMismatch` lists the differences. If the root passes
            a `value`, it is first copied there.
        algorithm : str, optional
            By default the cheapest for this size and world is chosen.
        order : {"racks", "given", "random", "random:SEED"}, optional
            The order of the ranks in chains, rings and trees, see `Communicator`.

        Returns
        -------
        array or object
            `out` if given. Otherwise a new array on every rank. For an object, the root gets its own object back.
        """
        if (
            (value is None or value is out)
            and algorithm is None
            and order is None
            and (plain := self._plain) is not None
            and self._queue.last is None
            and plain.broadcast(out, root)
        ):
            return out
        root = self._rank("root", root)
        if (
            out is None
            and algorithm is None
            and order is None
            and (self.rank != root or type(value) in _OBJECTS)
            and (native := self._idle_native) is not None
        ):
            return objects.broadcast(native, value, root, None)
        algorithm = in_order(algorithm, order)
        if out is not None:
            in_place(out)
            if value is not None and self.rank == root:
                fill(out, value)
            signature = signatures.of_array(out)
            return self._run_native(
                out, "collective", ("broadcast", root), native_elements(out)[0], algorithm, signature
            )
        array = as_array(value) if self.rank == root else None
        if array is not None and not array.dtype.hasobject:
            if (native := self._idle_native) is not None:
                # The other ranks do not wait until the root has a copy.
                objects.broadcast(native, np.asarray(array, order="C"), root, algorithm)
                return copied(array, array.dtype)
            value = copied(array, array.dtype)
        return self._do(self._object_of(root, value, algorithm, signatures.OBJECT_PART))

    def _broadcast_value(self, root: int, call: str, value: Any) -> Any:
        """Return the root's value, in a step of a call. All ranks pass the same text for the call and its options."""
        return self._do(self._object_of(root, value, None, signatures.of_object(call)))

    def _object_of(self, root: int, value: Any, algorithm: str | None, signature: str) -> StagedCall[Any]:
        return StagedCall(lambda native: objects.broadcast(native, value, root, algorithm, signature))

    def _run_steps(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run, or begin, a call of several steps."""
        native = self._idle_native
        return self._do(StagedCall(lambda native: call(native, *args))) if native is None else call(native, *args)

    def _allgather_values(self, call: str, value: Any = None) -> list[Any]:
        """Return every rank's value, in a step of a call. All ranks pass the same text for the call and its options."""
        signature = signatures.of_object(call)
        return self._do(StagedCall(lambda native: objects.allgather(native, value, None, signature)))

    @overload
    def scatter(
        self, values: Any = None, root: int = 0, *, out: Array, counts: Sequence[int], algorithm: str | None = None
    ) -> Array: ...

    @overload
    def scatter(self, values: None = None, root: int = 0, *, algorithm: str | None = None) -> Any: ...

    @overload
    def scatter(
        self, values: Array | None, root: int = 0, *, counts: Sequence[int] | None = None, algorithm: str | None = None
    ) -> Array: ...

    @overload
    def scatter(
        self,
        values: Foreign | None,
        root: int = 0,
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
    ) -> NDArray[Any]: ...

    @overload
    def scatter(self, values: Sequence[T] | None, root: int = 0, *, algorithm: str | None = None) -> T: ...

    def scatter(
        self,
        values: Any = None,
        root: int = 0,
        *,
        out: NDArray[Any] | None = None,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """Send the i-th of the root's values to rank i.

        Parameters
        ----------
        values : sequence, or ndarray
            At the root: one value per rank, or an array whose rows are divided by `counts`, by default evenly. Ignored
            elsewhere.
        root : int
            The rank that provides the values.
        out : ndarray, optional
            This rank's rows, passed on every rank together with `counts`. No sizes are exchanged then.
        counts : sequence of int, optional
            Rows of every rank.
        algorithm : str, optional
            By default the cheapest for these sizes and this world is chosen.

        Returns
        -------
        array or object
            This rank's value or rows; `out` if given.
        """
        if (
            out is not None
            and algorithm is None
            and (plain := self._plain) is not None
            and self._queue.last is None
            and plain.scatter(values, root, out, counts)
        ):
            return out
        root = self._rank("root", root)
        algorithm = in_order(algorithm, None)
        if out is None:
            parts = one_per_rank(values, counts, self.world_size, "scatter") if self.rank == root else None
            return self._run_steps(objects.scatter, parts, root, algorithm)
        if counts is None:
            raise InputError("scatter: out= needs counts=, the rows of every rank, on every rank")
        given = required(values, "scatter: values at the root") if self.rank == root else in_place(out)
        counts = listed_counts(counts, self.world_size)
        if self.rank == root:
            counts = checked_counts(counts, len(in_rows(given, "scatter: values")), self.world_size)
        check_fits(in_place(out), (counts[self.rank], *given.shape[1:]), given.dtype)
        rows = np.ascontiguousarray(given, dtype=out.dtype) if self.rank == root else empty_rows(counts, out)
        array, element_counts = elements(rows, counts)
        own_rows = split(rows, counts)[self.rank]
        call = ("collective", ("scatter", element_counts, root), array, algorithm, signatures.of_array(rows))
        return self._do(NativeCalls([call], lambda: fill(out, own_rows)))

    @overload
    def gather(
        self, value: Any = None, root: int = 0, *, out: Array, counts: Sequence[int], algorithm: str | None = None
    ) -> Array | None: ...

    @overload
    def gather(
        self,
        value: Array,
        root: int = 0,
        *,
        out: NDArray[Any] | None = None,
        counts: Sequence[int],
        algorithm: str | None = None,
    ) -> Array | None: ...

    @overload
    def gather(
        self, value: Foreign, root: int = 0, *, out: None = None, counts: Sequence[int], algorithm: str | None = None
    ) -> NDArray[Any] | None: ...

    @overload
    def gather(self, value: Array, root: int = 0, *, algorithm: str | None = None) -> list[Array] | None: ...

    @overload
    def gather(self, value: Foreign, root: int = 0, *, algorithm: str | None = None) -> list[NDArray[Any]] | None: ...

    @overload
    def gather(self, value: T, root: int = 0, *, algorithm: str | None = None) -> list[T] | None: ...

    def gather(
        self,
        value: Any = None,
        root: int = 0,
        *,
        out: NDArray[Any] | None = None,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """Return every rank's `value` at the root, and None elsewhere.

        Without `counts` the root gets a list of arrays or objects. `counts` gives the rows per rank and is the same on
        every rank. With it, the root gets one array of all rows (`out`, if given), and no sizes are exchanged. Rows are
        sent in their own dtype and converted to the dtype of `out`.
        """
        if (
            counts is not None
            and value is not None
            and algorithm is None
            and (plain := self._plain) is not None
            and self._queue.last is None
            and plain.gather(value, root, out, counts)
        ):
            return out if self.rank == root else None
        root = self._rank("root", root)
        algorithm = in_order(algorithm, None)
        if counts is None:
            if out is not None:
                raise InputError("gather: out= needs counts=, the rows of every rank, on every rank")
            return self._run_steps(objects.gather, value, root, algorithm)
        into = out if self.rank == root else None
        # Rows of another dtype are converted at the end.
        converted = (
            None if into is None or value is None or is_alike(in_place(into), required(value, "value")) else into
        )
        all_rows, rows, element_counts = self._all_rows(value, into if converted is None else None, counts)
        if converted is not None:
            check_fits(converted, all_rows.shape, all_rows.dtype)

        def finish() -> NDArray[Any] | None:
            if self.rank != root:
                return None
            return all_rows if converted is None else fill(converted, all_rows)

        call = ("collective", ("gather", element_counts, root), rows, algorithm, signatures.of_array(all_rows))
        return self._do(NativeCalls([call], finish))

    @overload
    def allgather(
        self,
        value: Any = None,
        *,
        out: Array,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Array: ...

    @overload
    def allgather(
        self, value: Array, *, counts: Sequence[int], algorithm: str | None = None, order: str | None = None
    ) -> Array: ...

    @overload
    def allgather(
        self, value: Foreign, *, counts: Sequence[int], algorithm: str | None = None, order: str | None = None
    ) -> NDArray[Any]: ...

    @overload
    def allgather(self, value: Array, *, algorithm: str | None = None, order: str | None = None) -> list[Array]: ...

    @overload
    def allgather(
        self, value: Foreign, *, algorithm: str | None = None, order: str | None = None
    ) -> list[NDArray[Any]]: ...

    @overload
    def allgather(  # type: ignore[overload-overlap]  # these are not returned as a list
        self, value: Rows, *, algorithm: str | None = None, order: str | None = None
    ) -> Rows: ...

    @overload
    def allgather(self, value: T, *, algorithm: str | None = None, order: str | None = None) -> list[T]: ...

    def allgather(
        self,
        value: Any = None,
        *,
        out: NDArray[Any] | None = None,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Any:
        """Return every rank's `value` on every rank.

        Parameters
        ----------
        value : array or object
            This rank's contribution. May be omitted if it is already in its place in `out`.
        out : ndarray, optional
            All ranks' rows, one rank's after the other along the first axis.
        counts : sequence of int, optional
            Rows of every rank. With `out`, the even division by default.
        algorithm : str, optional
            By default the cheapest for these sizes and this world is chosen.
        order : {"racks", "given", "random", "random:SEED"}, optional
            The order of the ranks in chains, rings and trees, see `Communicator`.

        Returns
        -------
        list or ndarray
            A list with one value per rank. With `out` or `counts`: one array of all rows. For key-values: one KeyValues
            with the rows of all ranks. For tables: one table with all partitions, with equal ids combined.
        """
        if (
            out is not None
            and algorithm is None
            and order is None
            and (plain := self._plain) is not None
            and self._queue.last is None
            and plain.allgather(out, counts, value)
        ):
            return out
        algorithm = in_order(algorithm, order)
        if isinstance(value, KEYED):
            refuse_options(value, out=out, counts=counts)
            return self._do(collectives.allgathered(value, algorithm))
        if out is None and counts is None:
            return self._run_steps(objects.allgather, value, algorithm)
        out, rows, element_counts = self._all_rows(value, out, counts)
        task, signature = ("allgather", element_counts), signatures.of_array(out)
        return self._run_native(out, "collective", task, rows, algorithm, signature)

    def _all_rows(
        self, value: Any, out: NDArray[Any] | None, counts: Sequence[int] | None
    ) -> tuple[NDArray[Any], NDArray[Any], list[int]]:
        """Return the array of all ranks' rows with this rank's in place, its flat form, and the elements per rank."""
        mine = None if value is None else required(value, "value")
        if out is None:
            if mine is None or counts is None:
                raise InputError("expected this rank's rows as value")
            counts = listed_counts(counts, self.world_size)
            if len(in_rows(mine, "value")) != counts[self.rank]:
                raise InputError(f"value: {len(mine)} rows: expected {counts[self.rank]}, counts[{self.rank}]")
            out = empty_rows(counts, mine)
        counts = checked_counts(counts, len(in_rows(in_place(out), "out")), self.world_size)
        if mine is not None:
            fill(split(out, counts)[self.rank], mine)
        return out, *elements(out, counts)


def one_per_rank(values: Any, counts: Sequence[int] | None, world_size: int, name: str) -> list[Any]:
    """Return a value for each rank: the items of a sequence, or the rows of an array divided by `counts`.

    Raises
    ------
    InputError
        There are more or fewer values than ranks, or `counts` does not fit them.
    """
    array = as_array(values)
    if array is not None and array.ndim:
        return split(array, checked_counts(counts, len(array), world_size))
    if counts is not None:
        raise InputError(f"counts={counts!r}: expected an array as the values of {name}, whose rows they divide")
    if not isinstance(values, Sequence) or len(values) != world_size:
        raise InputError(f"{name}: expected a sequence of {world_size} values, one per rank, or an array")
    return list(values)
