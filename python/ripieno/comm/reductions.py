"""Provide collectives that combine the values of ranks element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ripieno._types import Array, Foreign, OpName
from ripieno.comm.functions import Function, arg_extremum, is_function
from ripieno.comm.functions import reduced as functions_reduced
from ripieno.comm.persistent import PersistentCall
from ripieno.comm.rank import CallBase
from ripieno.errors import InputError
from ripieno.keyed import collectives
from ripieno.keyed.collectives import KEYED
from ripieno.keyed.options import refuse_options
from ripieno.wire import numbers, signatures
from ripieno.wire.arrays import (
    byte_view,
    check_combinable,
    check_fits,
    checked_counts,
    elements,
    fill,
    fitting,
    flat_elements,
    identity_like,
    in_order,
    in_place,
    is_alike,
    is_plain,
    is_tree,
    like,
    map_leaves,
    native_copy,
    native_elements,
    packed_leaves,
    reducible,
    resolved_operation,
    split,
)
from ripieno.wire.calls import NativeCalls
from ripieno.wire.operations import check_op, named

if TYPE_CHECKING:
    from ripieno.keyed import KeyValues, Table
    from ripieno.keyed.combiners import Combine


T = TypeVar("T")
#: Data that `allreduce` merges by keys or ids.
Rows = TypeVar("Rows", bound="KeyValues | Table")


class Reductions(CallBase):
    """Calls of a communicator that combine arrays, numbers, trees of these, and keyed data."""

    @overload
    def allreduce(
        self,
        value: Any,
        op: OpName | Function | None = None,
        *,
        out: Array,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Array: ...

    @overload
    def allreduce(
        self,
        value: bool,
        op: Literal["sum", "prod"] | None = None,
        *,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> int: ...

    @overload
    def allreduce(
        self,
        value: Array,
        op: OpName | Function | None = None,
        *,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Array: ...

    @overload
    def allreduce(
        self,
        value: Foreign,
        op: OpName | Function | None = None,
        *,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> NDArray[Any]: ...

    @overload
    def allreduce(self, value: Rows, op: Combine | None = None, *, algorithm: str | None = None) -> Rows: ...

    @overload
    def allreduce(
        self, value: T, op: OpName | Function | None = None, *, algorithm: str | None = None, order: str | None = None
    ) -> T: ...

    def allreduce(
        self,
        value: Any,
        op: Any = None,
        *,
        out: NDArray[Any] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Any:
        """Return the elementwise combination of all ranks' values, equal to the last bit on every rank.

        Parameters
        ----------
        value : array, number, or tuple, list, dict of these; KeyValues; Table
            Same kinds of containers, keys, shapes and dtypes on every rank; otherwise `CollectiveMismatch` lists the
            differences. Python numbers may differ in type. All parts of one dtype are sent together. Key-values and
            tables may differ between ranks: every rank gets one row per key, or one partition per id, from all ranks.
        op : {"sum", "prod", "min", "max", "and", "or", "xor"} or callable, optional
            The combination of two elements, by default "sum". "and", "or", "xor" apply to the bits of integers, and to
            booleans. Functions of Python and NumPy stand for the operation: ``sum``, ``np.add`` and ``operator.add``
            mean "sum", ``max`` and ``np.maximum`` mean "max". ``np.logical_and``, ``np.logical_or`` and
            ``np.logical_xor`` combine truth values. Any other function combines the rows of two arrays and returns an
            array of the same shape and dtype; ranks compare its code. For rows of key-values see `regroup`; a table has
            its own operation only.
        out : ndarray, optional
            Receives the result; it may be `value` itself.
        algorithm : str, optional
            By default the cheapest for this size and world is chosen. For key-values and tables: "allgather",
            "regroup-allgather" or "bidirectional-exchange". Tables of the same ids, shapes and dtypes on all ranks
            accept the algorithms of arrays, too.
        order : {"racks", "given", "random", "random:SEED"}, optional
            The order of the ranks in chains, rings and trees, see `Communicator`. Not for key-values and tables.

        Returns
        -------
        array, number, or tuple, list, dict of these
            In the form of `value`; numbers are returned as numbers.

        Notes
        -----
        Python numbers may be whole on some ranks and floats on others: the result is a float on every rank if one rank
        has a float. Sums and products of whole numbers are exact, however large they become. Each must be smaller than
        2**72, and True counts as 1. For other operations they are int64. Bits of booleans and of integers are not
        combined with each other. NumPy arrays and numbers have a dtype, the same on all ranks, and overflow as in
        NumPy; only a NumPy float64 is a Python float, too.

        Floats are combined in their own dtype and rounded after each of the p - 1 combinations of an element. A sum is
        within (p - 1) half units in the last place of the sum of the absolute values. float16 and bfloat16 are combined
        in float32 and rounded each time. The algorithm fixes the order of the ranks, so the bits are the same on every
        rank and in every run with the same size, world and algorithm. Another algorithm or world may produce other
        bits. For a result that does not depend on the number of ranks to float32 precision, pass float64. Sums of
        key-values and tables accumulate in float64; see `regroup`.
        """
        if algorithm is not None or order is not None:
            algorithm = in_order(algorithm, order)
        elif (plain := self._plain) is not None and self._queue.last is None:
            # Fast path for the common cases, as in other calls: short messages are latency-bound.
            if out is not None:
                if plain.allreduce(out, op, value):
                    return out
            elif (result := plain.allreduced(value, op)) is not NotImplemented:
                return result
        if op is None and not isinstance(value, KEYED):
            op = "sum"
        if isinstance(value, KEYED):
            refuse_options(value, out=out, order=order)
            return self._do(collectives.allreduced(value, op, self.world_size, self.threads, algorithm))
        op = resolved_operation(op, value)
        if is_function(op):
            return self._reduced_by_function(op, "allreduce", value, out=out, algorithm=algorithm)
        return self._do(self._reduced(("allreduce", op), value, op, out, algorithm))

    def allreduce_init(
        self,
        value: Array,
        op: Any = "sum",
        *,
        out: Array,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> PersistentCall[Array]:
        """Prepare an `allreduce` of fixed arrays, to be run any number of times. Nothing is sent yet.

        Parameters
        ----------
        value : ndarray
            Each call reads its present contents.
        op : {"sum", "prod", "min", "max", "and", "or", "xor"}, default="sum"
            As for `allreduce`, without other functions.
        out : ndarray
            Receives each result. It may be `value` itself, which avoids a copy.
        algorithm, order : str, optional
            As for `allreduce`.

        Returns
        -------
        PersistentCall
            ``call()`` is ``comm.allreduce(value, op, out=out)``.

        Raises
        ------
        InputError
            The arrays do not match, or cannot be combined in place.

        Examples
        --------
        >>> import numpy as np, ripieno as rp
        >>> def program(comm):
        ...     gradient, total = np.ones(3), np.empty(3)
        ...     add_up = comm.allreduce_init(gradient, out=total)
        ...     for step in range(3):
        ...         gradient[:] = step
        ...         add_up()
        ...     return total.tolist()
        >>> with rp.launch(workers=2) as job:
        ...     job.run(program)[0]
        [4.0, 4.0, 4.0]
        """
        op = named(op)
        check_op(op)
        if not isinstance(value, np.ndarray):
            raise InputError(f"value: expected a NumPy array, got {type(value).__name__}")
        if op == "prod" and value.dtype.kind == "c":
            raise InputError("allreduce_init: op='prod' of complex numbers: expected another operation; use allreduce")
        into = check_combinable(out, op, "allreduce_init")
        source = None if value is out else fitting(into, value)
        algorithm = in_order(algorithm, order)
        args = (("allreduce", op), native_elements(into)[0], algorithm, signatures.of_array(into))
        return PersistentCall(self, source, out, op, args, is_short=algorithm is None)

    @overload
    def reduce(
        self,
        value: Any,
        op: OpName | Function = "sum",
        root: int = 0,
        *,
        out: Array,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Array | None: ...

    @overload
    def reduce(
        self,
        value: bool,
        op: Literal["sum", "prod"] = "sum",
        root: int = 0,
        *,
        out: None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> int | None: ...

    @overload
    def reduce(
        self,
        value: Array,
        op: OpName | Function = "sum",
        root: int = 0,
        *,
        out: NDArray[Any] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Array | None: ...

    @overload
    def reduce(
        self,
        value: Foreign,
        op: OpName | Function = "sum",
        root: int = 0,
        *,
        out: None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> NDArray[Any] | None: ...

    @overload
    def reduce(
        self,
        value: T,
        op: OpName | Function = "sum",
        root: int = 0,
        *,
        out: None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> T | None: ...

    def reduce(
        self,
        value: Any,
        op: Any = "sum",
        root: int = 0,
        *,
        out: NDArray[Any] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Any:
        """Return the result of `allreduce` at the root only; the other ranks get None and need no `out`.

        Values are combined in their own dtype. `out` may have another dtype.
        """
        root = self._rank("root", root)
        if (
            algorithm is None
            and order is None
            and (out is None or self.rank != root or _can_receive(out, value))
            and (plain := self._plain) is not None
            and self._queue.last is None
            and (result := plain.reduced(value, root, op)) is not NotImplemented
        ):
            return result if out is None or result is None else fill(out, result)
        op = resolved_operation(op, value)
        if is_function(op):
            return self._reduced_by_function(
                op, "reduce", value, root=root, out=out, algorithm=in_order(algorithm, order)
            )
        task, algorithm = ("reduce", op, root), in_order(algorithm, order)
        if self.rank != root:
            return self._do(NativeCalls(self._reduced(task, value, op, None, algorithm).calls, lambda: None))
        if out is None:
            return self._do(self._reduced(task, value, op, None, algorithm))
        check_op(op)
        if is_alike(check_combinable(out, op, "reduce"), value):
            return self._do(self._reduced_into(out, task, value, algorithm))
        fitting(out, value)
        calls, finish = self._reduced(task, value, op, None, algorithm)
        return self._do(NativeCalls(calls, lambda: fill(out, finish())))

    @overload
    def scan(self, value: Any, op: OpName | Function = "sum", *, out: Array, algorithm: str | None = None) -> Array: ...

    @overload
    def scan(self, value: bool, op: Literal["sum", "prod"] = "sum", *, algorithm: str | None = None) -> int: ...

    @overload
    def scan(self, value: Array, op: OpName | Function = "sum", *, algorithm: str | None = None) -> Array: ...

    @overload
    def scan(self, value: Foreign, op: OpName | Function = "sum", *, algorithm: str | None = None) -> NDArray[Any]: ...

    @overload
    def scan(self, value: T, op: OpName | Function = "sum", *, algorithm: str | None = None) -> T: ...

    def scan(
        self, value: Any, op: Any = "sum", *, out: NDArray[Any] | None = None, algorithm: str | None = None
    ) -> Any:
        """Return the elementwise combination of the values of ranks 0 … i at rank i.

        Parameters, results and errors are as for `allreduce`. Values are combined in rank order.
        """
        op = resolved_operation(op, value)
        if is_function(op):
            return self._reduced_by_function(op, "scan", value, out=out, algorithm=algorithm)
        return self._do(self._reduced(("scan", op), value, op, out, in_order(algorithm, None)))

    @overload
    def exscan(
        self, value: Any, op: OpName | Function = "sum", *, out: Array, algorithm: str | None = None
    ) -> Array: ...

    @overload
    def exscan(self, value: bool, op: Literal["sum", "prod"] = "sum", *, algorithm: str | None = None) -> int: ...

    @overload
    def exscan(self, value: Array, op: OpName | Function = "sum", *, algorithm: str | None = None) -> Array: ...

    @overload
    def exscan(
        self, value: Foreign, op: OpName | Function = "sum", *, algorithm: str | None = None
    ) -> NDArray[Any]: ...

    @overload
    def exscan(self, value: T, op: OpName | Function = "sum", *, algorithm: str | None = None) -> T: ...

    def exscan(
        self, value: Any, op: Any = "sum", *, out: NDArray[Any] | None = None, algorithm: str | None = None
    ) -> Any:
        """Return, at rank i, the elementwise combination of the values of ranks 0 … i - 1.

        Rank 0 gets the identity of `op`: 0 for "sum", "or" and "xor", 1 for "prod", all bits set for "and", and the
        largest (smallest) value of the dtype for "min" ("max"). Parameters, results and errors are as for `allreduce`.
        """
        op = resolved_operation(op, value)
        if is_function(op):
            return self._reduced_by_function(op, "exscan", value, out=out, algorithm=algorithm)
        work = self._reduced(("exscan", op), value, op, out, in_order(algorithm, None))
        if self.rank > 0:
            return self._do(work)

        def finish() -> Any:
            result = work.finish()
            if out is not None:
                out[...] = identity_like(out, op)
                return out
            return map_leaves(result, lambda leaf: identity_like(leaf, op))

        return self._do(NativeCalls(work.calls, finish))

    @overload
    def reduce_scatter(
        self,
        value: Any,
        op: OpName | Function = "sum",
        *,
        out: Array,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Array: ...

    @overload
    def reduce_scatter(
        self,
        value: Array,
        op: OpName | Function = "sum",
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Array: ...

    @overload
    def reduce_scatter(
        self,
        value: Foreign,
        op: OpName | Function = "sum",
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> NDArray[Any]: ...

    def reduce_scatter(
        self,
        value: Any,
        op: Any = "sum",
        *,
        out: NDArray[Any] | None = None,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> NDArray[Any]:
        """Return the i-th part of the elementwise combination of all ranks' arrays at rank i.

        Parameters
        ----------
        value : array
            Same shape and dtype on every rank; its rows are divided among the ranks.
        op : {"sum", "prod", "min", "max", "and", "or", "xor"} or callable
            As for `allreduce`.
        out : ndarray, optional
            Receives this rank's rows.
        counts : sequence of int, optional
            Rows of every rank. By default they are as even as possible; the first ranks get one row more.
        algorithm : str, optional
            By default the cheapest for this size and world is chosen.
        order : {"racks", "given", "random", "random:SEED"}, optional
            The order of the ranks in chains, rings and trees, see `Communicator`.

        Returns
        -------
        ndarray
            This rank's rows, in the dtype of `value`; `out` if given.
        """
        if (
            out is not None
            and algorithm is None
            and order is None
            and (plain := self._plain) is not None
            and self._queue.last is None
            and plain.reduce_scatter(value, op, out, counts)
        ):
            return out
        op = resolved_operation(op, value)
        if is_function(op):
            algorithm = in_order(algorithm, order)
            part: NDArray[Any] = self._reduced_by_function(
                op, "reduce_scatter", value, out=out, counts=counts, algorithm=algorithm
            )
            return part
        check_op(op)
        scratch = native_copy(reducible(value, op, "reduce_scatter"))
        if scratch.ndim == 0:
            raise InputError("reduce_scatter: expected an array with at least one axis")
        counts = checked_counts(counts, len(scratch), self.world_size)
        array, element_counts = elements(scratch, counts)
        algorithm = in_order(algorithm, order)
        own_rows = split(scratch, counts)[self.rank]
        if out is not None:
            check_fits(in_place(out), own_rows.shape, own_rows.dtype)
        task = ("reduce_scatter", element_counts, op)
        return self._do(
            NativeCalls(
                [("collective", task, array, algorithm, signatures.of_array(scratch))],
                # Copy, because a view would keep all ranks' rows in memory.
                lambda: own_rows.copy() if out is None else fill(out, own_rows),
            )
        )

    def argmin(self, value: Any, index: Any = None, *, algorithm: str | None = None) -> tuple[Any, Any]:
        """Return the elementwise minimum of all ranks' values and its index, on every rank.

        Parameters
        ----------
        value : array, or number
            Integers or floats, with the same shape and dtype on every rank. A NaN is less than any number, as in NumPy.
        index : int, or array of int, optional
            The index of this rank's elements; by default its rank. Numbers are broadcast to the shape of `value`.
        algorithm : str, optional
            An algorithm that combines in rank order.

        Returns
        -------
        tuple of (array, array), or (number, int)
            The values, and the index of the lowest rank that has each value.

        Examples
        --------
        >>> import numpy as np, ripieno as rp
        >>> def program(comm):
        ...     return comm.argmin(np.array([3.0, 1.0, 2.0]) * (comm.rank + 1))
        >>> with rp.launch(workers=2) as job:
        ...     job.run(program)[0]
        (array([3., 1., 2.]), array([0, 0, 0]))
        """
        return self._do(arg_extremum("argmin", self.rank, value, index, algorithm))

    def argmax(self, value: Any, index: Any = None, *, algorithm: str | None = None) -> tuple[Any, Any]:
        """Return the elementwise maximum and its index; see `argmin`. A NaN is greater than any number, as in NumPy."""
        return self._do(arg_extremum("argmax", self.rank, value, index, algorithm))

    def _reduced_by_function(self, function: Function, collective: str, value: Any, **options: Any) -> Any:
        """Run a reduction by a function of the program."""
        return self._do(functions_reduced(collective, (self.rank, self.world_size), value, function, **options))

    def _reduced(
        self, task: tuple[Any, ...], value: Any, op: Any, out: NDArray[Any] | None, algorithm: str | None
    ) -> NativeCalls[Any]:
        """Return the native calls of a task, each on its own array or `out`, with a result in the form of `value`."""
        collective = task[0]
        check_op(op)
        if out is not None:
            return self._reduced_into(check_combinable(out, op, collective), task, value, algorithm)
        if is_tree(value) or numbers.is_number(value, op):
            return self._reduced_leaves(task, value, op, algorithm)
        result = native_copy(reducible(value, op, collective))
        call = ("collective", task, native_elements(result)[0], algorithm, signatures.of_array(result))
        return NativeCalls([call], lambda: like(value, result))

    def _reduced_into(
        self, out: NDArray[Any], task: tuple[Any, ...], value: Any, algorithm: str | None
    ) -> NativeCalls[Any]:
        """Return the same as `_reduced`, for an array that can be combined in place."""
        if value is not out:
            fill(out, value)
        call = ("collective", task, native_elements(out)[0], algorithm, signatures.of_array(out))
        return NativeCalls([call], lambda: out)

    def _reduced_leaves(self, task: tuple[Any, ...], value: Any, op: str, algorithm: str | None) -> NativeCalls[Any]:
        """Return the same as `_reduced`, for Python numbers, tuples, lists and dicts."""
        collective = task[0]
        leaves, names = [], []

        def is_factor(leaf: Any) -> bool:
            """Whether every rank multiplies the values of all ranks: they are numbers or complex."""
            return op == "prod" and (numbers.is_number(leaf, op) or np.iscomplexobj(leaf))

        def visit(leaf: Any) -> None:
            if numbers.is_number(leaf, op):
                leaves.append(numbers.words(leaf, op, collective))
                names.append(signatures.NUMBER)
            else:
                leaves.append(reducible(leaf, "sum" if is_factor(leaf) else op, collective))
                names.append(signatures.of_leaf(leaves[-1]))

        factors: list[bool] = []
        map_leaves(value, visit)
        map_leaves(value, lambda leaf: factors.append(is_factor(leaf)))
        signature = signatures.of_tree(value, names)
        lines, parts = packed_leaves([leaf for leaf, is_one in zip(leaves, factors, strict=True) if not is_one])
        calls = [("collective", task, native_elements(each)[0], algorithm, signature) for each in lines]
        own = [native_copy(leaf) for leaf, is_one in zip(leaves, factors, strict=True) if is_one]
        of_ranks = np.empty((self.world_size, sum(each.nbytes for each in own)), np.uint8)
        if own:
            of_ranks[self.rank] = np.concatenate([byte_view(each) for each in own])
            gathering = ("allgather", [of_ranks.shape[1]] * self.world_size)
            calls.append(("collective", gathering, flat_elements(of_ranks), None, f"{collective} of {signature}"))
        if not calls:
            # Nothing to combine here, but other ranks may have data.
            calls.append(("collective", task, np.empty(0, np.uint8), algorithm, signature))

        def finish() -> Any:
            results, contributing = iter(parts), of_ranks[self._ranks_of(collective)]
            blocks = np.split(contributing, np.cumsum([each.nbytes for each in own]), axis=1)
            leaf_factors = iter(
                [
                    np.ascontiguousarray(block).view(each.dtype).reshape(len(block), *each.shape)
                    for block, each in zip(blocks, own, strict=False)
                ]
            )

            def restore(leaf: Any) -> Any:
                if numbers.is_number(leaf, op):
                    result = numbers.product(next(leaf_factors)) if op == "prod" else numbers.number(next(results), op)
                    return np.asarray(result)[()] if isinstance(leaf, np.generic) else result
                if is_factor(leaf):
                    return like(leaf, np.asarray(np.multiply.reduce(next(leaf_factors))))
                return like(leaf, next(results))

            return map_leaves(value, restore)

        return NativeCalls(calls, finish)

    def _ranks_of(self, collective: str) -> slice:
        """Return the ranks that contribute to the result of this one; at least one, which gives the type."""
        return slice({"scan": self.rank + 1, "exscan": max(self.rank, 1)}.get(collective, self.world_size))


def _can_receive(out: NDArray[Any], value: Any) -> bool:
    """Whether `out` can receive an array like `value` without conversion."""
    return is_plain(out) and type(value) is np.ndarray and (out.shape, out.dtype) == (value.shape, value.dtype)
