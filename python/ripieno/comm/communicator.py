"""`Communicator`: the collectives, for arrays, numbers and any other Python objects.

Every rank calls the same methods in the same order. Arguments are never changed and results are new, unless ``out=``
says where a result belongs: then the data moves once, straight into it, and nothing else is exchanged. Without ``out=``
(or ``counts=``, where there is one) ranks may give values of different kinds and sizes, and a small message with these
goes ahead of the data. Sums and other reductions need no such message.

An *array* is a NumPy array or whatever shares its memory with one: the buffer protocol, or DLPack. Everything else
travels as pickle protocol 5, with the memory of the arrays inside it sent from, and received into, its place.
"""

from __future__ import annotations

import ctypes
import functools
import os
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
import ripieno.flight as flight
from ripieno._checks import number, whole
from ripieno._types import Array, CombineOne, Foreign
from ripieno.comm.sparse_reduce import SparseReduce
from ripieno.errors import CommunicatorClosed, InputError
from ripieno.flight.waiting import Waiting
from ripieno.keyed import collectives
from ripieno.keyed.collectives import KEYED
from ripieno.keyed.options import refuse_options
from ripieno.keyed.regroup import regrouping
from ripieno.simulation import Cluster, Explanation, explain
from ripieno.sparse.reduction import DENSE_ABOVE, indices_of, options_of, reduced, rows_of
from ripieno.wire import forms, objects, wholes
from ripieno.wire.arrays import (
    ARITHMETIC,
    as_array,
    check_combinable,
    check_fits,
    check_op,
    check_rows_fit,
    checked_counts,
    elements,
    empty,
    empty_rows,
    fill,
    fitting,
    identity_like,
    in_order,
    in_place,
    in_rows,
    is_alike,
    is_native,
    is_tree,
    known,
    like,
    line,
    listed_counts,
    map_leaves,
    octets,
    own,
    reducible,
    required,
    split,
    together,
)
from ripieno.wire.calls import CallQueue, Handle, NativeCalls, StagedCall

if TYPE_CHECKING:
    from os import PathLike

    from ripieno._native import Communicator as NativeCommunicator
    from ripieno._native import PacketCurve
    from ripieno.keyed import Groups, KeyValues, Table
    from ripieno.keyed.combiners import Combine
    from ripieno.keyed.partitioners import Partitioner

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
#: What comes together by its keys or ids.
Rows = TypeVar("Rows", bound="KeyValues | Table")


def _asynchronous(
    method: Callable[Concatenate[Communicator, P], R],
) -> Callable[Concatenate[Communicator, P], Handle[R]]:
    """`method`, returning a handle at once."""

    def begin(self: Communicator, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        return method(AsyncCommunicator(self), *args, **kwargs)  # type: ignore[return-value]

    functools.update_wrapper(begin, method)
    begin.__name__ = f"{method.__name__}_async"
    begin.__qualname__ = f"{method.__qualname__}_async"
    begin.__doc__ = (
        f"As `{method.__name__}`, but returns a `Handle` at once; its ``wait()`` gives the result. While it is in "
        "flight beside another call, ranks that wait for each other in a circle are not told."
    )
    return begin


#: What a process that is forked from this one must leave alone.
_living: weakref.WeakSet[Communicator] = weakref.WeakSet()


class Communicator:
    """One rank's part in the conversation of all ranks.

    Programs do not make one: `ripieno.launch` hands it to the program, `ripieno.init` to a script.

    Attributes
    ----------
    rank : int
        This process's number, 0 … world_size - 1.
    world_size : int
        How many ranks there are.
    hosts : list of str
        The host of every rank.
    nodes : list of int
        The node of every rank: ranks of equal number can share memory.
    racks : list of str or None
        The rack of every rank, or None if it is not known; see `ripieno.launch.racks`.
    threads : int
        The number of threads for this rank's computation, so that the ranks of a host share its cores.
    replicas : int
        How many copies there are of each rank, see `replicate`.
    replica : int
        Which of the copies of its rank this process is, 0 … replicas - 1.
    kept : dict
        Values that programs keep on this rank from one `Job.run` to the next, under keys of their own. It is emptied
        when the communicator is closed. After a failure the next program gets a new communicator with an empty `kept`.

    Notes
    -----
    ``algorithm=`` names one of `ripieno._native.algorithms`. ``order=`` is the order of the ranks in chains, rings and
    the trees over them, and is the same on every rank. "racks" is the default: rack by rack and node by node, so that
    uplinks and cables are crossed the fewest times possible. "given" is by rank, and "random:SEED" is random ("random"
    is seed 0). Algorithms in which every rank talks to every other have no order. RIPIENO_ALGORITHM in the environment
    of all ranks overrides the defaults: ``ring``, ``allreduce=ring,broadcast=chain@given``.

    Raises
    ------
    RankFailed
        A rank died, fell silent, raised, or left while others waited for it. Every call that communicates may raise it.
    CollectiveMismatch
        Ranks called different collectives, or the same with other sizes, types, shapes, keys or roots. Every call that
        communicates may raise it.
    InputError
        An argument is wrong; nothing has been sent.
    CommunicatorClosed
        The communicator has been closed, or this process was forked from the rank's. It may compute, but is no rank.
    """

    def __init__(
        self,
        native: NativeCommunicator,
        *,
        threads: int = 1,
        on_event: Callable[[dict[str, Any]], None] | None = None,
        parent: Communicator | None = None,
    ) -> None:
        self._native_or_none: NativeCommunicator | None = native
        self._on_event = on_event
        self._parent = parent
        self._replicated: Communicator | None = None
        self._queue: CallQueue = CallQueue() if parent is None else parent._queue
        self.rank: int = native.rank
        self.world_size: int = native.world_size
        self.replicas: int = native.replicas
        self.replica: int = native.replica
        self.hosts: list[str] = list(native.hosts)
        self.nodes: list[int] = list(native.nodes)
        self.racks: list[str | None] = list(native.racks)
        self.threads = threads
        self.kept: dict[Any, Any] = {}
        self._is_forked = False
        _living.add(self)

    def __repr__(self) -> str:
        state = "" if self._native_or_none is not None else ", closed"
        return f"<Communicator rank {self.rank} of {self.world_size}{state}>"

    # Collectives

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

    # None is what others than the root leave out.
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
        """Every rank gets the root's `value`.

        Parameters
        ----------
        value : array or object
            Used at the root only; other ranks may leave it out.
        root : int
            The rank whose value it is.
        out : ndarray, optional
            Same shape and dtype on every rank; if not, `CollectiveMismatch` lists those of the ranks. The root's
            `value` is copied there first, if one is given.
        algorithm : str, optional
            By default the cheapest for this size and world is chosen.
        order : {\"racks\", \"given\", \"random\", \"random:SEED\"}, optional
            The order of the ranks in chains, rings and trees, see `Communicator`.

        Returns
        -------
        array or object
            `out` if given. Otherwise a new array on every rank; of an object, the root gets back its own.
        """
        root = self._rank("root", root)
        algorithm = in_order(algorithm, order)
        if out is not None:
            in_place(out)
            if value is not None and self.rank == root:
                fill(out, value)
            return self._do(
                NativeCalls([("broadcast", known(out)[0], root, algorithm, forms.of_array(out))], lambda: out)
            )
        if self.rank != root:
            return self._do(
                StagedCall(
                    lambda native: objects.receive(lambda piece: native.broadcast(piece, root, algorithm, forms.OBJECT))
                )
            )
        array = as_array(value)
        if array is not None and not array.dtype.hasobject:
            value = np.array(array, order="C", copy=True)

        def talk(native: NativeCommunicator) -> Any:
            objects.send(value, lambda piece: native.broadcast(piece, root, algorithm, forms.OBJECT))
            return value

        return self._do(StagedCall(talk))

    @overload
    def allreduce(
        self, value: Any, op: str | None = None, *, out: Array, algorithm: str | None = None, order: str | None = None
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
        self, value: Array, op: str | None = None, *, algorithm: str | None = None, order: str | None = None
    ) -> Array: ...

    @overload
    def allreduce(
        self, value: Foreign, op: str | None = None, *, algorithm: str | None = None, order: str | None = None
    ) -> NDArray[Any]: ...

    @overload
    def allreduce(self, value: Rows, op: Combine | None = None) -> Rows: ...

    @overload
    def allreduce(
        self, value: T, op: str | None = None, *, algorithm: str | None = None, order: str | None = None
    ) -> T: ...

    def allreduce(
        self,
        value: Any,
        op: Combine | None = None,
        *,
        out: NDArray[Any] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Any:
        """Every rank gets the elementwise combination of all ranks' values, equal to the last bit on every rank.

        Parameters
        ----------
        value : array, number, or tuple, list, dict of these; KeyValues; Table
            Same kinds of containers, keys, shapes and dtypes on every rank; if not, `CollectiveMismatch` lists those of
            the ranks. All parts of one dtype travel together. Key-values and tables may differ from rank to rank. Every
            rank gets one row per key, or one partition per id, of those of all ranks.
        op : {"sum", "prod", "min", "max", "and", "or", "xor"}, optional
            How two elements are combined, by default "sum"; "and", "or", "xor" work on the bits of integers, and on
            booleans. For rows of key-values also a function, see `regroup`; a table has its own, and no other.
        out : ndarray, optional
            Receives the result; it may be `value` itself.
        algorithm : str, optional
            By default the cheapest for this size and world is chosen.
        order : {\"racks\", \"given\", \"random\", \"random:SEED\"}, optional
            The order of the ranks in chains, rings and trees, see `Communicator`.

        Returns
        -------
        array, number, or tuple, list, dict of these
            Of the same form as `value`; numbers come back as numbers.

        Notes
        -----
        Sums and products of Python's whole numbers are exact, however large they become; each number is smaller than
        2**72, and True counts as 1. For other operations they are int64. Arrays and numbers of NumPy keep their dtype,
        and wrap around as they do in NumPy.
        """
        if algorithm is not None or order is not None:
            algorithm = in_order(algorithm, order)
        if op is None and not isinstance(value, KEYED):
            op = "sum"
        if out is not None and out is value and op in ARITHMETIC and type(out) is np.ndarray and is_native(out.dtype):
            # Nothing to copy, and every microsecond counts: the native module checks all that has to be checked.
            return self._allreduce_in_place(out, op, algorithm)
        if isinstance(value, KEYED):
            refuse_options(value, out=out, algorithm=algorithm)
            return self._do(collectives.allreduced(value, op, self.world_size, self.threads))
        return self._do(self._reduced("allreduce", value, op, out, (op, algorithm)))

    @overload
    def reduce(
        self,
        value: Any,
        op: str = "sum",
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
        op: str = "sum",
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
        op: str = "sum",
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
        op: str = "sum",
        root: int = 0,
        *,
        out: None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> T | None: ...

    def reduce(
        self,
        value: Any,
        op: str = "sum",
        root: int = 0,
        *,
        out: NDArray[Any] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Any:
        """Like `allreduce`, but only the root gets the result; the others get None and need no `out`.

        Values are combined in their own dtype. `out` may have another dtype.
        """
        root = self._rank("root", root)
        args = (op, root, in_order(algorithm, order))
        if self.rank != root:
            return self._do(NativeCalls(self._reduced("reduce", value, op, None, args).calls, lambda: None))
        if out is None or is_alike(check_combinable(out, op, "reduce"), value):
            return self._do(self._reduced("reduce", value, op, out, args))
        fitting(out, value)
        calls, finish = self._reduced("reduce", value, op, None, args)
        return self._do(NativeCalls(calls, lambda: fill(out, finish())))

    @overload
    def scan(self, value: Any, op: str = "sum", *, out: Array, algorithm: str | None = None) -> Array: ...

    @overload
    def scan(self, value: bool, op: Literal["sum", "prod"] = "sum", *, algorithm: str | None = None) -> int: ...

    @overload
    def scan(self, value: Array, op: str = "sum", *, algorithm: str | None = None) -> Array: ...

    @overload
    def scan(self, value: Foreign, op: str = "sum", *, algorithm: str | None = None) -> NDArray[Any]: ...

    @overload
    def scan(self, value: T, op: str = "sum", *, algorithm: str | None = None) -> T: ...

    def scan(
        self, value: Any, op: str = "sum", *, out: NDArray[Any] | None = None, algorithm: str | None = None
    ) -> Any:
        """Rank i gets the elementwise combination of the values of ranks 0 … i.

        Parameters, results and errors are those of `allreduce`; the order of the combination is that of the ranks.
        """
        return self._do(self._reduced("scan", value, op, out, (op, in_order(algorithm, None))))

    @overload
    def exscan(self, value: Any, op: str = "sum", *, out: Array, algorithm: str | None = None) -> Array: ...

    @overload
    def exscan(self, value: bool, op: Literal["sum", "prod"] = "sum", *, algorithm: str | None = None) -> int: ...

    @overload
    def exscan(self, value: Array, op: str = "sum", *, algorithm: str | None = None) -> Array: ...

    @overload
    def exscan(self, value: Foreign, op: str = "sum", *, algorithm: str | None = None) -> NDArray[Any]: ...

    @overload
    def exscan(self, value: T, op: str = "sum", *, algorithm: str | None = None) -> T: ...

    def exscan(
        self, value: Any, op: str = "sum", *, out: NDArray[Any] | None = None, algorithm: str | None = None
    ) -> Any:
        """Rank i gets the elementwise combination of the values of ranks 0 … i - 1, rank 0 the identity of `op`.

        The identity is 0 for "sum", "or" and "xor", 1 for "prod", all bits set for "and", and the largest (smallest)
        value of the dtype for "min" ("max"). Parameters, results and errors are those of `allreduce`.
        """
        work = self._reduced("exscan", value, op, out, (op, in_order(algorithm, None)))
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
    def allgather(self, value: Rows) -> Rows: ...  # type: ignore[overload-overlap]  # these do not come as a list

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
        """Every rank gets every rank's `value`.

        Parameters
        ----------
        value : array or object
            This rank's contribution. May be left out if it is already in its place in `out`.
        out : ndarray, optional
            All ranks' rows, one rank's after the other along the first axis.
        counts : sequence of int, optional
            Rows of every rank. With `out`, the even division by default.
        algorithm : str, optional
            By default the cheapest for these sizes and this world is chosen.
        order : {\"racks\", \"given\", \"random\", \"random:SEED\"}, optional
            The order of the ranks in chains, rings and trees, see `Communicator`.

        Returns
        -------
        list or ndarray
            A list with one value per rank; with `out` or `counts`, one array of all rows. Of key-values, those of all
            ranks in one; of tables, one with the partitions of all, equal ids combined.
        """
        algorithm = in_order(algorithm, order)
        if isinstance(value, KEYED):
            refuse_options(value, out=out, counts=counts, algorithm=algorithm)
            return self._do(collectives.allgathered(value))
        if out is None and counts is None:
            return self._do(StagedCall(lambda native: objects.allgather(native, value, algorithm)))
        out, rows, element_counts = self._all_rows(value, out, counts)
        return self._do(NativeCalls([("allgather", rows, element_counts, algorithm, forms.of_array(out))], lambda: out))

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
        """The root gets every rank's `value`, the others None.

        Without `counts` the root gets a list of arrays or objects. With `counts`, rows per rank and the same on every
        rank, it gets one array of all rows (`out`, if given), and no sizes are exchanged. Rows travel in their own
        dtype; an `out` of another takes them.
        """
        root = self._rank("root", root)
        algorithm = in_order(algorithm, None)
        if counts is None:
            if out is not None:
                raise InputError("gather: out= needs counts=, the rows of every rank, on every rank")
            return self._do(StagedCall(lambda native: objects.gather(native, value, root, algorithm)))
        into = out if self.rank == root else None
        # Rows of another dtype are converted at the end.
        other = None if into is None or value is None or is_alike(in_place(into), required(value, "value")) else into
        every, rows, element_counts = self._all_rows(value, into if other is None else None, counts)
        if other is not None:
            check_fits(other, every.shape, every.dtype)

        def finish() -> NDArray[Any] | None:
            if self.rank != root:
                return None
            return every if other is None else fill(other, every)

        return self._do(NativeCalls([("gather", rows, element_counts, root, algorithm, forms.of_array(every))], finish))

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
        """Rank i gets the i-th of the root's values.

        Parameters
        ----------
        values : sequence, or ndarray
            At the root: one value per rank, or an array whose rows are divided by `counts`, by default evenly. Ignored
            elsewhere.
        root : int
            The rank whose values they are.
        out : ndarray, optional
            This rank's rows, given on every rank together with `counts`: then no sizes are exchanged.
        counts : sequence of int, optional
            Rows of every rank.
        algorithm : str, optional
            By default the cheapest for these sizes and this world is chosen.

        Returns
        -------
        array or object
            This rank's value or rows; `out` if given.
        """
        root = self._rank("root", root)
        algorithm = in_order(algorithm, None)
        if out is None:
            parts = self._one_per_rank(values, counts, "scatter") if self.rank == root else None
            return self._do(StagedCall(lambda native: objects.scatter(native, parts, root, algorithm)))
        if counts is None:
            raise InputError("scatter: out= needs counts=, the rows of every rank, on every rank")
        given = required(values, "scatter: values at the root") if self.rank == root else in_place(out)
        counts = listed_counts(counts, self.world_size)
        if self.rank == root:
            counts = checked_counts(counts, len(in_rows(given, "scatter: values")), self.world_size)
        check_fits(in_place(out), (counts[self.rank], *given.shape[1:]), given.dtype)
        rows = np.ascontiguousarray(given, dtype=out.dtype) if self.rank == root else empty_rows(counts, out)
        array, element_counts = elements(rows, counts)
        mine = split(rows, counts)[self.rank]
        call = ("scatter", array, element_counts, root, algorithm, forms.of_array(rows))
        return self._do(NativeCalls([call], lambda: fill(out, mine)))

    @overload
    def reduce_scatter(
        self,
        value: Any,
        op: str = "sum",
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
        op: str = "sum",
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Array: ...

    @overload
    def reduce_scatter(
        self,
        value: Foreign,
        op: str = "sum",
        *,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> NDArray[Any]: ...

    def reduce_scatter(
        self,
        value: Any,
        op: str = "sum",
        *,
        out: NDArray[Any] | None = None,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> NDArray[Any]:
        """Rank i gets the i-th part of the elementwise combination of all ranks' arrays.

        Parameters
        ----------
        value : array
            Same shape and dtype on every rank; its rows are divided among the ranks.
        op : {"sum", "prod", "min", "max", "and", "or", "xor"}
            How two elements are combined.
        out : ndarray, optional
            Receives this rank's rows.
        counts : sequence of int, optional
            Rows of every rank; as even as possible by default, the first ranks taking one more.
        algorithm : str, optional
            By default the cheapest for this size and world is chosen.
        order : {\"racks\", \"given\", \"random\", \"random:SEED\"}, optional
            The order of the ranks in chains, rings and trees, see `Communicator`.

        Returns
        -------
        ndarray
            This rank's rows, of the dtype of `value`; `out` if given.
        """
        check_op(op)
        scratch = own(reducible(value, op, "reduce_scatter"))
        if scratch.ndim == 0:
            raise InputError("reduce_scatter: expected an array with at least one axis")
        counts = checked_counts(counts, len(scratch), self.world_size)
        array, element_counts = elements(scratch, counts)
        algorithm = in_order(algorithm, order)
        mine = split(scratch, counts)[self.rank]
        if out is not None:
            check_fits(in_place(out), mine.shape, mine.dtype)
        return self._do(
            NativeCalls(
                [("reduce_scatter", array, element_counts, op, algorithm, forms.of_array(scratch))],
                # A copy, for a view would keep all ranks' rows in memory.
                lambda: mine.copy() if out is None else fill(out, mine),
            )
        )

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
        """Rank i's j-th value goes to rank j, where it is the i-th.

        Parameters
        ----------
        values : sequence, or ndarray
            One value per rank; with `out`, an array whose rows are divided by `counts`.
        out : ndarray, optional
            Receives the rows of all ranks, divided by `out_counts`; rows of one shape on all ranks.
        counts, out_counts : sequence of int, optional
            Rows to, and from, every rank; even divisions by default.
        algorithm : str, optional
            By default the cheapest for these sizes and this world is chosen.

        Returns
        -------
        list or ndarray
            A list with one value from every rank, or `out`.
        """
        algorithm = in_order(algorithm, None)
        if out is None:
            if out_counts is not None:
                raise InputError(f"alltoall: out_counts={out_counts!r}: out_counts= needs out=, whose rows they divide")
            parts = self._one_per_rank(values, counts, "alltoall")
            return self._do(StagedCall(lambda native: objects.alltoall(native, parts, algorithm)))
        given = required(values, "alltoall: values")
        check_rows_fit(in_rows(in_place(out), "alltoall: out"), given, "alltoall")
        sent = np.ascontiguousarray(given, dtype=out.dtype)
        if np.may_share_memory(sent, out):
            # What arrives must not overwrite what has still to leave.
            sent = sent.copy()
        counts = checked_counts(counts, len(sent), self.world_size)
        out_counts = checked_counts(out_counts, len(out), self.world_size, "out_counts")
        element_counts, out_element_counts = elements(sent, counts)[1], elements(out, out_counts)[1]
        form = forms.of_rows(out)
        call = ("alltoall", line(sent), element_counts, line(out), out_element_counts, algorithm, form)
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
        """Rank i gets the block of rank i - `distance`, around the ring.

        Parameters
        ----------
        block : array or object
            The block that this rank passes on. Blocks may differ in kind, shape and size from rank to rank.
        distance : int
            How many ranks further; negative ones go the other way.
        out : ndarray, optional
            Receives the block, with as many rows as the sender's has; then no sizes are exchanged, and the dtype and
            the shape of rows are the same on all ranks.
        algorithm : str, optional
            By default the cheapest is chosen.

        Returns
        -------
        array or object
            The block that came; `out` if given.
        """
        distance = whole("distance", distance, -(2**63), 2**63 - 1) % self.world_size
        algorithm = in_order(algorithm, None)
        if out is None:
            return self._do(StagedCall(lambda native: objects.rotate(native, block, distance, algorithm)))
        given = required(block, "rotate: block")
        check_rows_fit(in_place(out), given, "rotate")
        sent = np.ascontiguousarray(given, dtype=out.dtype)
        if np.may_share_memory(sent, out):
            # What arrives must not overwrite what has still to leave.
            sent = sent.copy()
        call = ("rotate", line(sent), line(out), distance, algorithm, forms.of_rows(out))
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
        """Every rank gives a value to each of its neighbours, and gets their values for it.

        Parameters
        ----------
        values : dict of int to array or object
            The value for each rank that gets one.
        out : dict of int to ndarray, optional
            Receives the array of each rank that has one for this rank, of that array's size and dtype. Then only
            neighbours talk; otherwise all ranks exchange sizes first.
        algorithm : str, optional
            By default the cheapest is chosen.

        Returns
        -------
        dict of int to array or object
            By rank, in ascending order; `out` if given.
        """
        algorithm = in_order(algorithm, None)
        for name, given in (("values", values), ("out", {} if out is None else out)):
            if not isinstance(given, Mapping):
                raise InputError(f"{name}: a {type(given).__name__}: expected a dict of ranks to arrays or objects")
        values = {self._rank("peer", peer): values[peer] for peer in values}
        if out is None:
            return self._do(StagedCall(lambda native: objects.neighbour_exchange(native, values, algorithm)))
        sent = [octets(np.ascontiguousarray(required(value, "neighbour_exchange"))) for value in values.values()]
        targets = [octets(in_place(array, f"out[{peer}]")) for peer, array in out.items()]
        line = np.concatenate([*sent, np.empty(0, np.uint8)])
        came = empty(sum(target.size for target in targets), np.uint8)
        out_peers = [(peer, piece.size) for peer, piece in zip(values, sent, strict=True)]
        in_peers = [(self._rank("peer", peer), target.size) for peer, target in zip(out, targets, strict=True)]

        def finish() -> dict[int, Any]:
            for target, piece in zip(targets, split(came, [target.size for target in targets]), strict=True):
                target[:] = piece
            return dict(out)

        return self._do(NativeCalls([("neighbour_exchange", line, out_peers, came, in_peers, algorithm)], finish))

    def barrier(self, *, algorithm: str | None = None) -> None:
        """Return when every rank has called it."""
        return self._do(NativeCalls([("barrier", in_order(algorithm, None))], lambda: None))

    # Point to point

    def send(self, value: Any, to: int) -> None:
        """Send `value` to rank `to`, which calls `recv`.

        A value that does not fit into the link waits for the receiver. Ranks that exchange large values take turns, the
        lower one sending first, or call `alltoall`. Ranks that wait for each other in a circle get an error after some
        seconds. For a `recv` with ``out=`` send the array with `send_into`.
        """
        to = self._other("to", to)
        calls: list[tuple[Any, ...]] = []
        objects.send(value, lambda piece: calls.append(("send", piece, to, forms.OBJECT)))
        return self._do(NativeCalls(calls, lambda: None))

    def send_into(self, array: Any, to: int) -> None:
        """Send the elements of `array` to rank `to`, which receives them with ``recv(source, out=...)``."""
        to = self._other("to", to)
        sent = required(array, "send_into")
        sent = np.ascontiguousarray(sent).reshape(sent.shape)
        return self._do(NativeCalls([("send", known(sent)[0], to, forms.of_array(sent))], lambda: None))

    @overload
    def recv(self, source: int, *, out: Array) -> Array: ...

    @overload
    def recv(self, source: int) -> Any: ...

    def recv(self, source: int, *, out: NDArray[Any] | None = None) -> Any:
        """The value that rank `source` sends; with `out`, the array of this shape and dtype that `send_into` sends."""
        source = self._other("source", source)
        if out is None:
            return self._do(
                StagedCall(lambda native: objects.receive(lambda piece: native.receive(piece, source, forms.OBJECT)))
            )
        return self._do(NativeCalls([("receive", known(in_place(out))[0], source, forms.of_array(out))], lambda: out))

    # Sparse reductions

    def sparse(
        self,
        out_indices: Any,
        in_indices: Any,
        *,
        size: int | None = None,
        degrees: str | int | Sequence[int] | None = None,
        missing: Literal["error", "zero"] = "error",
        dense_above: float = DENSE_ABOVE,
        replicas: int | None = None,
    ) -> SparseReduce:
        """Prepare reductions of sparse data: the indices travel once, here, and only rows of values afterwards.

        Every rank calls it, with its own indices and the same options. Rows go down the layers of a nested butterfly.
        At each layer they are combined with those of `d` ranks. They come back by the same ranks.

        Parameters
        ----------
        out_indices : array of shape (n_out,), of whole numbers
            The indices that this rank contributes to, in any order. Rows of a repeated one are combined.
        in_indices : array of shape (n_in,), of whole numbers
            The indices whose combined rows this rank gets, in any order; repeated ones get equal rows.
        size : int, optional
            Indices are smaller than this; by default one more than the largest that any rank gives.
        degrees : {"direct", "binary"}, str such as "8x4x2", int, or sequence of int, optional
            How many ranks meet at each layer; their product is the number of ranks, and a single number is the only
            layer. By default designed from the indices of all ranks.
        missing : {"error", "zero"}
            The result for in-indices that no rank contributes to: `MissingIndicesError` on every rank, or zeros.
        dense_above : float
            If the ranks of a layer have more than this share of the indices of their range, they exchange rows of the
            whole range, without index maps. They never do so with a share above 1, nor if their sets together have
            less than one index in 32 of the range.
        replicas : int, optional
            ``comm.sparse(..., replicas=2)`` is short for ``comm.replicate(2).sparse(...)``, see `replicate`.

        Returns
        -------
        SparseReduce
            Its ``reduce(values)`` runs the reduction.

        Raises
        ------
        InputError
            Indices are negative or not less than `size`, and nothing has been sent; or, on every rank, ranks gave
            different options.
        MissingIndicesError
            On every rank: in-indices that no rank contributes to.

        Notes
        -----
        Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.
        """
        if replicas is not None and replicas != self.replicas:
            logical = self._logical(replicas)
            return logical.sparse(
                out_indices, in_indices, size=size, degrees=degrees, missing=missing, dense_above=dense_above
            )
        given = indices_of(out_indices, "out_indices")
        wanted = indices_of(in_indices, "in_indices")
        options = options_of(size, degrees, missing, dense_above)
        return SparseReduce(self, _native.sparse(self._native, given, wanted, *options))

    @overload
    def sparse_reduce(
        self,
        out_indices: Any,
        values: Any,
        in_indices: Any,
        op: str = "sum",
        *,
        out: Array,
        size: int | None = None,
        degrees: str | int | Sequence[int] | None = None,
        missing: Literal["error", "zero"] = "error",
        dense_above: float = DENSE_ABOVE,
        replicas: int | None = None,
    ) -> Array: ...

    @overload
    def sparse_reduce(
        self,
        out_indices: Any,
        values: Array,
        in_indices: Any,
        op: str = "sum",
        *,
        size: int | None = None,
        degrees: str | int | Sequence[int] | None = None,
        missing: Literal["error", "zero"] = "error",
        dense_above: float = DENSE_ABOVE,
        replicas: int | None = None,
    ) -> Array: ...

    @overload
    def sparse_reduce(
        self,
        out_indices: Any,
        values: Any,
        in_indices: Any,
        op: str = "sum",
        *,
        out: NDArray[Any] | None = None,
        size: int | None = None,
        degrees: str | int | Sequence[int] | None = None,
        missing: Literal["error", "zero"] = "error",
        dense_above: float = DENSE_ABOVE,
        replicas: int | None = None,
    ) -> NDArray[Any]: ...

    def sparse_reduce(
        self,
        out_indices: Any,
        values: Any,
        in_indices: Any,
        op: str = "sum",
        *,
        out: NDArray[Any] | None = None,
        size: int | None = None,
        degrees: str | int | Sequence[int] | None = None,
        missing: Literal["error", "zero"] = "error",
        dense_above: float = DENSE_ABOVE,
        replicas: int | None = None,
    ) -> NDArray[Any]:
        """``sparse(out_indices, in_indices, ...).reduce(values, op)`` in one pass: indices and values travel together.

        For index sets that are reduced once, such as those of a minibatch. Parameters, errors and bits of the result
        are those of `sparse` and of `SparseReduce.reduce`.
        """
        if replicas is not None and replicas != self.replicas:
            return self._logical(replicas).sparse_reduce(
                out_indices,
                values,
                in_indices,
                op,
                out=out,
                size=size,
                degrees=degrees,
                missing=missing,
                dense_above=dense_above,
            )
        given = indices_of(out_indices, "out_indices")
        wanted = indices_of(in_indices, "in_indices")
        rows = rows_of(values, op, len(given))
        options = options_of(size, degrees, missing, dense_above)

        def reduce(values: NDArray[Any], into: NDArray[Any], width: int, row: str) -> None:
            _native.sparse_reduce(self._native, given, values, wanted, into, width, op, row, *options)

        return reduced(reduce, rows, len(wanted), out)

    # Keyed data

    @overload
    def regroup(
        self,
        rows: KeyValues | Table,
        *,
        combine: Combine | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
        on_block: Callable[[Any], None],
    ) -> None: ...

    @overload
    def regroup(
        self,
        rows: Table,
        *,
        combine: Combine | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
    ) -> Table: ...

    @overload
    def regroup(
        self,
        rows: KeyValues,
        *,
        combine: Literal["concat"],
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
    ) -> Groups: ...

    @overload
    def regroup(
        self,
        rows: KeyValues,
        *,
        combine: CombineOne | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
    ) -> KeyValues: ...

    @overload
    def regroup(
        self,
        rows: KeyValues,
        *,
        combine: Combine | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
    ) -> KeyValues | Groups: ...

    def regroup(
        self,
        rows: KeyValues | Table,
        *,
        combine: Combine | None = None,
        partitioner: Partitioner = None,
        local_reduction: bool = True,
        memory_limit: int | None = None,
        spill_directory: str | PathLike[str] | None = None,
        on_block: Callable[[Any], None] | None = None,
    ) -> Any:
        """Bring equal keys of all ranks together on one rank, their home, combined. Every rank calls it.

        Rows of equal keys are combined before anything is sent, and again at their home. Orders are fixed: the result
        is the same bits in every run, for every number of threads. It comes in an order that depends on the keys.

        Parameters
        ----------
        rows : KeyValues or Table
            Keys of one kind, values of one dtype and width on all ranks; a rank without rows takes those of the others.
        combine : {"sum", "prod", "mul", "min", "max", "and", "or", "xor", "concat"} or callable, optional
            How rows of a key become one; by default "sum", or the operation of the table. "concat" keeps them all, side
            by side. A function takes two blocks of rows, of shape (m,) or (m, width), and gives one of the same shape
            and dtype, as NumPy's ufuncs do; it is associative.
        partitioner : {"hash", "balanced"} or callable, optional
            Where keys are at home. "hash", the default, goes by a hash that is the same on every machine. "balanced",
            the default of "concat", deals the ranges of hashes so that ranks get about equal amounts. A function takes
            an array of keys and gives an array of ranks, equal ones for equal keys on every rank. Ids of tables are at
            home at ``id % world_size``, or at the rank that a function gives. Python's builtin ``hash`` means "hash".
        local_reduction : bool
            False sends every row, which shows how much local reduction saves.
        memory_limit : int, optional
            Bytes beyond which rows go to temporary files on their way. The result is in memory. Keys are divided into
            256 parts, or 4 for each rank if that is more. A part is merged and handed on whole, so a part that is
            larger than half of the limit, for instance because a key has many rows, exceeds it. The limit does not
            change the bits, unless a function combines: it then folds the rows of a key in several goes.
        spill_directory : path, optional
            Where temporary files are; by default where Python's are. They have no names, so none is left behind.
        on_block : callable, optional
            Gets the result in pieces, KeyValues or Groups, each as soon as its keys are complete.

        Returns
        -------
        KeyValues, Groups, Table or None
            The keys that are at home here: Groups for "concat", None with `on_block`.

        Raises
        ------
        InputError
            An argument is wrong; or `combine` or `partitioner` gave another shape or dtype, or a rank that is not
            there.
        SpillError
            Temporary files cannot be written.
        CollectiveMismatch
            On every rank: ranks differ in the kind of keys, dtype, width, `combine` or `partitioner`.

        Notes
        -----
        Errors of `combine`, `partitioner` or `on_block` go to the caller; other ranks get `RankFailed`.
        """
        call = regrouping(
            rows,
            self.world_size,
            self.threads,
            combine=combine,
            partitioner=partitioner,
            local_reduction=local_reduction,
            memory_limit=memory_limit,
            spill_directory=spill_directory,
            on_block=on_block,
        )
        return self._do(StagedCall(lambda native: call(native)[0]))

    # The same, returning a `Handle` at once. Arrays must not be changed, `out` not even read, until it is done. Calls
    # count in the order in which they are made, these and the blocking ones together. What needs no exchange of sizes
    # is in flight at once; the others follow each other, and what is called after one waits for it.

    broadcast_async = _asynchronous(broadcast)
    allreduce_async = _asynchronous(allreduce)
    reduce_async = _asynchronous(reduce)
    scan_async = _asynchronous(scan)
    exscan_async = _asynchronous(exscan)
    allgather_async = _asynchronous(allgather)
    gather_async = _asynchronous(gather)
    scatter_async = _asynchronous(scatter)
    reduce_scatter_async = _asynchronous(reduce_scatter)
    alltoall_async = _asynchronous(alltoall)
    rotate_async = _asynchronous(rotate)
    neighbour_exchange_async = _asynchronous(neighbour_exchange)
    barrier_async = _asynchronous(barrier)
    regroup_async = _asynchronous(regroup)
    send_async = _asynchronous(send)
    send_into_async = _asynchronous(send_into)
    recv_async = _asynchronous(recv)

    # Packets

    def measure_packets(self, sizes_bytes: Sequence[int] | None = None, *, budget_s: float = 1.0) -> PacketCurve:
        """Measure the cost of packets by their size, while every rank sends to several ranks at once. Collective.

        From now on the degrees of sparse reductions on this communicator are designed for the measured costs, not for
        the usual ones of the memory of one node, or of links between nodes.

        Parameters
        ----------
        sizes_bytes : sequence of int, optional
            Sizes to try, ascending, the same on every rank; by default 64 bytes to 16 MiB in steps of a factor of 4.
        budget_s : float
            About how many seconds it takes. Sizes that need more are left out, except for the first two.

        Returns
        -------
        PacketCurve
            The same on every rank: "points" of (bytes, seconds), "latency_s" until the last packet is there, "crowd_s"
            that each peer beyond 8 adds to every packet, and, from the points, "alpha_s", "beta_s_per_byte",
            "best_throughput" in bytes per second and "efficient_bytes", the smallest packet that reaches 80 % of it.
        """
        sizes = _native.PACKET_SIZES_BYTES
        if sizes_bytes is not None:
            if not isinstance(sizes_bytes, Sequence | np.ndarray) or isinstance(sizes_bytes, str | bytes):
                raise InputError(f"sizes_bytes={sizes_bytes!r}: expected None or ascending whole numbers")
            sizes = [whole("sizes_bytes", size, 1, 2**40) for size in sizes_bytes]
        return _native.measure_packets(self._native, sizes, number("budget_s", budget_s, "expected seconds"))

    # Explanations

    def explain(self, collective: str, *, nbytes: int, order: str | None = None, root: int = 0) -> Explanation:
        """Price every algorithm of a collective for these ranks, where they stand. Any rank may call it alone.

        Links cost what :meth:`measure_packets` has measured, or else what is usual; uplinks of racks are taken to be
        never in the way.

        Parameters
        ----------
        collective : str
            "allreduce", "broadcast" and so on.
        nbytes : int
            Of the vector; of a rank's block for allgather, gather and scatter; all that a rank sends for alltoall.
        order : str, optional
            In which order chains and rings run: "racks" by default, "given" or "random:SEED".
        root : int
            Of a collective that has one.

        Returns
        -------
        Explanation
            "candidates", the fastest first, with "seconds" on this group and the terms of their formulae; "fastest",
            "chosen", which runs by default, and "why". It prints as a table.
        """
        packets, native = _native.packet_curve(self._native), self._native
        cluster = Cluster.of_ranks(native.nodes, native.racks, packets.alpha_s, packets.beta_s_per_byte)
        return explain(collective, cluster, nbytes=nbytes, order=order, root=root)

    # Groups

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Divide the ranks: those of one color get a communicator of their own.

        Parameters
        ----------
        color : int or None
            Not negative. Ranks of the same color come together. A rank with None is in no new communicator.
        key : int
            Members are numbered in the order of their keys, and of their ranks here where these are equal.

        Returns
        -------
        Communicator or None
            It uses the connections of this one, may be split again, and is closed with the world at the latest. Its
            ranks are numbered anew, but `RankFailed.rank` and "waited_for" of `flight` are ranks of the world, as a
            failure is one of the whole world.
        """
        if color is not None:
            color = whole("color", color, 0, 2**32 - 1, f"expected None or a whole number, 0 … {2**32 - 1}")
        native = self._native.split(color, whole("key", key, -(2**63), 2**63 - 1))
        return (
            None if native is None else Communicator(native, threads=self.threads, on_event=self._on_event, parent=self)
        )

    def replicate(self, replicas: int) -> Communicator:
        """The communicator of logical ranks. A logical rank lives as long as one of its copies does.

        In a world started with ``replicas=s`` (`ripieno.launch`, ``ripieno run --replicas``, or RIPIENO_REPLICAS in the
        environment of every rank) the ranks ``i``, ``i + m``, ``i + 2m`` … of the world, with ``m = world_size / s``,
        are copies of logical rank ``i``. They hold the same data and make the same calls. Every message goes to all
        copies of its receiver, which takes each byte from the copy of the sender that brings it first. So every
        collective ends with the same bits on every living rank, as long as one copy of each logical rank lives. When
        the last copy of a rank dies, all calls raise `RankFailed`. Once any rank has died, so does every call on the
        world itself, or on a communicator that was split from it. An exception in one copy ends the job, because its
        copies would raise it, too.

        Parameters
        ----------
        replicas : int
            As many as the world was started with.

        Returns
        -------
        Communicator
            Of ``m`` ranks: `rank` is the logical rank, `replica` says which copy of it this process is. It may be
            split. `RankFailed.rank` and "waited_for" of `flight` are ranks of the world.

        Raises
        ------
        InputError
            This is not the communicator of the world, or the world was started with another number of copies.

        Notes
        -----
        Copies must give the same bytes. Other objects than arrays travel as pickles, so times, random numbers without a
        common seed and the like have no place in them. Ripieno's launchers set PYTHONHASHSEED where ranks have copies
        and it is not set, so that sets of strings have one order; other launchers have to.

        When a call has ended, a slower copy may still have to send. These bytes are taken from its link during the next
        calls. A rank sends to all copies to the end. So a copy holds the others back if it lags by more than the links
        hold (1 MiB each in shared memory).
        """
        native = self._native.replicate(whole("replicas", replicas, 1, 2**32 - 1))
        return Communicator(native, threads=self.threads, on_event=self._on_event, parent=self)

    @property
    def lost_ranks(self) -> list[int]:
        """The ranks of the world that have died while a copy of each lives, as far as this rank knows."""
        return self._native.lost()

    # Life

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._native_or_none is None or (self._parent is not None and self._parent.closed)

    def emit(self, event: dict[str, Any]) -> None:
        """Hand a small dict to the process that launched the job (``on_event=``); without a listener it is dropped."""
        self._check_process()
        if not isinstance(event, Mapping):
            raise InputError(f"emit: a {type(event).__name__}: expected a dict")
        if self._on_event is not None:
            self._on_event(event)

    @overload
    def stats(self, *, all_ranks: Literal[False] = False) -> dict[str, Any]: ...

    @overload
    def stats(self, *, all_ranks: Literal[True]) -> Waiting: ...

    def stats(self, *, all_ranks: bool = False) -> dict[str, Any] | Waiting:
        """Calls, bytes and seconds that this rank has communicated since the start, and the ranks it has waited for.

        Parameters
        ----------
        all_ranks : bool
            Bring the waits of all ranks together: then it is a collective, which every rank calls.

        Returns
        -------
        dict
            Of this rank: "call_count", "seconds_communicating", "bytes_sent", "bytes_received", and
            "seconds_waited_for", a list with one number per rank of this communicator: how long this process has
            waited for that one, in whatever communicator. Waits of less than a microsecond may be missing.
        Waiting
            Of all ranks: a table of the waits of each rank for each other, and the straggler that made the others wait.
            Print it.
        """
        of_world = self._native.flight(0)["seconds_waited_for"]
        seconds_waited_for = [of_world[rank] for rank in self._native.world_ranks]
        if all_ranks and self.replicas > 1:
            raise InputError(
                "all_ranks=True: copies of a rank have waited for others each; ask without it on each rank"
            )
        if not all_ranks:
            return {**self._native.statistics(), "seconds_waited_for": seconds_waited_for}
        return Waiting(np.array(self.allgather(np.array(seconds_waited_for))))

    def flight(self, count: int | None = None) -> list[dict[str, Any]]:
        """The latest collectives of this rank, at most `count`, oldest first; by default all that are kept.

        Each is a dict: "collective", "sequence", "communicator", "algorithm", "dtype", "op", "bytes", "peer_count" (how
        many ranks it exchanged bytes with), "start_s" and "end_s" (on `time.monotonic`), "waiting_s", "waited_for" (the
        rank that was waited for longest, or None), "moving_s", "outcome" ("done", "failed", "interrupted" or
        "in flight"), "text" (the same for people) and "number" (its place among all that this rank began).

        They are of all communicators of this process: "waited_for" is a rank of the world, also in those of a group.

        4096 are kept. A short call that never waited has no times: it lies between its neighbours. With RIPIENO_FLIGHT
        set to a folder 65,536 are kept, all with times.
        """
        if count is not None:
            count = whole("count", count, 0, 2**63 - 1)
        records: list[dict[str, Any]] = self._native.flight(count)["records"]
        return records

    def abort(self, cause: str, traceback: str = "") -> None:
        """Tell every rank that this one has failed: their calls raise `RankFailed` with `cause` and `traceback`."""
        self._check_process()
        native = self._native_or_none
        if native is None:
            raise CommunicatorClosed(f"the communicator of rank {self.rank} is closed")
        # Not behind calls that wait: these end by it, and then the recorder is free to be asked.
        native.abort(cause, traceback)
        flight.leave_file(native)

    def close(self) -> None:
        """End the calls in flight, then the connections. May be called again.

        Communicators that were split from the world are closed with it. Closing such a communicator leaves the world as
        it is. Its calls on arrays that are in flight go on to their end. Its calls on objects that are queued behind
        others raise `CommunicatorClosed` from ``wait()``.
        """
        native, self._native_or_none = self._native_or_none, None
        self.kept.clear()
        if native is not None:
            if self._parent is None:
                self._queue.drain()
                flight.leave_file(native)
            native.close()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._native_or_none is not None:
            self.abort(*describe(error))
        self.close()

    # Below: how values become arrays for the native module

    @property
    def _native(self) -> NativeCommunicator:
        if self._native_or_none is None:
            self._check_process()
            raise CommunicatorClosed(f"the communicator of rank {self.rank} is closed")
        if self._queue.is_busy:
            # Calls count in the order in which they are made.
            self._queue.drain()
        return self._native_or_none

    def _check_process(self) -> None:
        if self._is_forked:
            raise CommunicatorClosed(
                f"this process was forked from that of rank {self.rank} and is no rank itself: have it return what it "
                "finds, and call collectives there"
            )

    def _leave(self) -> None:
        """In a process that was forked from the rank's: end nothing here, for all of it is the rank's."""
        native, self._native_or_none = self._native_or_none, None
        self._is_forked = True
        if native is not None:
            # Never collected, as that would close it: its links and threads are those of the other process.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))

    def _logical(self, replicas: int) -> Communicator:
        """The communicator for calls with ``replicas=``, always the same."""
        if self._replicated is None or self._replicated.closed or self._replicated.replicas != replicas:
            self._replicated = self.replicate(replicas)
        return self._replicated

    def _do(self, call: NativeCalls[R] | StagedCall[R]) -> R:
        """Carry a call out; a `AsyncCommunicator` begins it only."""
        return call.run(self._native)

    def _allreduce_in_place(self, out: NDArray[Any], op: str, algorithm: str | None) -> NDArray[Any]:
        self._native.allreduce(out, op, algorithm)
        return out

    def _rank(self, name: str, rank: int) -> int:
        return whole(name, rank, 0, self.world_size - 1, f"expected a rank, 0 … {self.world_size - 1}")

    def _other(self, name: str, rank: int) -> int:
        rank = self._rank(name, rank)
        if rank == self.rank:
            raise InputError(f"{name}={rank}: expected another rank than this one")
        return rank

    def _reduced(
        self, what: str, value: Any, op: Any, out: NDArray[Any] | None, args: tuple[Any, ...]
    ) -> NativeCalls[Any]:
        """The native calls of `what`, each on an array of its own or `out`, and the result in the form of `value`."""
        check_op(op)
        if out is not None:
            check_combinable(out, op, what)
            if value is not out:
                fill(out, value)
            return NativeCalls([(what, known(out)[0], *args, forms.of_array(out))], lambda: out)
        if isinstance(value, np.ndarray):
            # The common case, where every microsecond counts.
            result = own(reducible(value, op, what))
            return NativeCalls([(what, known(result)[0], *args, forms.of_array(result))], lambda: result)
        if is_tree(value) or wholes.is_whole(value, op):
            return self._reduced_leaves(what, value, op, args)
        result = own(reducible(value, op, what))
        return NativeCalls([(what, known(result)[0], *args, forms.of_array(result))], lambda: like(value, result))

    def _reduced_leaves(self, what: str, value: Any, op: str, args: tuple[Any, ...]) -> NativeCalls[Any]:
        """As `_reduced`, of Python's whole numbers, and of tuples, lists and dicts."""
        leaves, names = [], []

        def visit(leaf: Any) -> None:
            if wholes.is_whole(leaf, op):
                leaves.append(wholes.words(leaf, what))
                names.append(forms.WHOLE)
            else:
                leaves.append(reducible(leaf, op, what))
                names.append(forms.of_leaf(leaves[-1]))

        map_leaves(value, visit)
        form = forms.of_tree(value, iter(names))
        gathered = [index for index, name in enumerate(names) if name is forms.WHOLE and op == "prod"]
        lines, parts = together([leaf for index, leaf in enumerate(leaves) if index not in gathered])
        calls = [(what, known(each)[0], *args, form) for each in lines]
        factors = np.empty((self.world_size, len(gathered), wholes.WORDS), np.int64)
        if gathered:
            factors[self.rank] = [leaves[index] for index in gathered]
            counts = [factors[0].size] * self.world_size
            calls.append(("allgather", line(factors), counts, None, f"{what} of {form}"))
        if not calls:
            # Nothing to combine, but the others may have something.
            calls.append((what, np.empty(0, np.uint8), *args, form))

        def finish() -> Any:
            results = iter(parts)
            products = iter(factors[self._ranks_of(what)].swapaxes(0, 1))

            def restore(leaf: Any) -> Any:
                if not wholes.is_whole(leaf, op):
                    return like(leaf, next(results))
                result = wholes.product(next(products)) if op == "prod" else wholes.number(next(results))
                return np.int64(result) if isinstance(leaf, np.bool_) else result

            return map_leaves(value, restore)

        return NativeCalls(calls, finish)

    def _ranks_of(self, what: str) -> slice:
        """The ranks whose values this one gets the combination of."""
        return slice({"scan": self.rank + 1, "exscan": self.rank}.get(what, self.world_size))

    def _all_rows(
        self, value: Any, out: NDArray[Any] | None, counts: Sequence[int] | None
    ) -> tuple[NDArray[Any], NDArray[Any], list[int]]:
        """The array of all ranks' rows with this rank's in place, its flat form, and elements per rank of that form."""
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

    def _one_per_rank(self, values: Any, counts: Sequence[int] | None, what: str) -> list[Any]:
        array = as_array(values)
        if array is not None and array.ndim:
            return split(array, checked_counts(counts, len(array), self.world_size))
        if counts is not None:
            raise InputError(f"counts={counts!r}: expected an array as the values of {what}, whose rows they divide")
        if not isinstance(values, Sequence) or len(values) != self.world_size:
            raise InputError(f"{what}: expected a sequence of {self.world_size} values, one per rank, or an array")
        return list(values)


def _leave_all() -> None:
    for comm in _living:
        comm._leave()


os.register_at_fork(after_in_child=_leave_all)


def describe(error: BaseException) -> tuple[str, str]:
    """Cause in short and traceback text of an exception, as `Communicator.abort` takes them."""
    cause = f"{type(error).__qualname__}: {error}".rstrip(": ")
    return cause, "".join(traceback.format_exception(error))


class AsyncCommunicator(Communicator):
    """A communicator whose calls are begun only: each returns a `Handle`."""

    def __init__(self, comm: Communicator) -> None:
        self.__dict__ = comm.__dict__

    def _do(self, call: NativeCalls[R] | StagedCall[R]) -> Handle[R]:  # type: ignore[override]  # as `_asynchronous` says
        native = self._native_or_none
        if native is None:
            self._check_process()
            raise CommunicatorClosed(f"the communicator of rank {self.rank} is closed")
        if isinstance(call, StagedCall) or self._queue.is_busy:
            job = self._queue.add(lambda: call.run(native))
            return Handle([job], job.wait, self)
        return Handle([getattr(native, name)(*args, later=True) for name, *args in call.calls], call.finish, self)

    def _allreduce_in_place(self, out: NDArray[Any], op: str, algorithm: str | None) -> Any:
        return self._do(NativeCalls([("allreduce", out, op, algorithm)], lambda: out))
