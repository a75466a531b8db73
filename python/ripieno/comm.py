"""`Communicator`: the collectives, for arrays, numbers and any other Python objects.

Every rank calls the same methods in the same order. Arguments are never changed and results are new, unless ``out=``
says where a result belongs: then the data moves once, straight into it, and nothing else is exchanged. Without ``out=``
(or ``counts=``, where there is one) ranks may give values of different kinds and sizes, and a small message with these
goes ahead of the data. Sums and other reductions need no such message.

An *array* is a NumPy array or whatever shares its memory with one: the buffer protocol, or DLPack. Everything else
travels as pickle protocol 5, with the memory of the arrays inside it sent from, and received into, its place.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ripieno import _objects, flight
from ripieno._arrays import (
    OPS,
    as_array,
    checked_counts,
    empty,
    fill,
    flat,
    in_order,
    in_place,
    is_native,
    map_leaves,
    reducible,
    required,
    row_size,
    split,
)
from ripieno.errors import CommunicatorClosed, InputError
from ripieno.flight.waiting import Waiting

if TYPE_CHECKING:
    from ripieno._native import Communicator as NativeCommunicator


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
        The rack of every rank; None where nobody said, see `ripieno.launch.racks`.
    threads : int
        How many threads this rank should compute with, so that the ranks of a host share its cores.

    Notes
    -----
    ``algorithm=`` names one of `ripieno._native.algorithms`. ``order=`` says how the ranks of chains, rings and the
    trees over them follow each other: "racks" (the default; rack by rack and node by node, so that uplinks and cables
    are crossed the fewest times possible), "given" (by rank) or "random:SEED" ("random" is seed 0), the same on every
    rank. Algorithms in which every rank talks to every other have no order to follow. RIPIENO_ALGORITHM in the
    environment of all ranks overrides the defaults: ``ring``, ``allreduce=ring,broadcast=chain@given``.

    Raises
    ------
    RankFailed
        By every call that communicates: a rank died, fell silent, raised, or left while others waited for it.
    CollectiveMismatch
        Likewise: ranks called different collectives, or the same with other sizes, types or roots.
    InputError
        An argument is wrong; nothing has been sent.
    CommunicatorClosed
        It has been closed.
    """

    def __init__(
        self,
        native: NativeCommunicator,
        *,
        threads: int = 1,
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._native_or_none: NativeCommunicator | None = native
        self._on_event = on_event
        self.rank: int = native.rank
        self.world_size: int = native.world_size
        self.hosts: list[str] = list(native.hosts)
        self.nodes: list[int] = list(native.nodes)
        self.racks: list[str | None] = list(native.racks)
        self.threads = threads

    def __repr__(self) -> str:
        state = "" if self._native_or_none is not None else ", closed"
        return f"<Communicator rank {self.rank} of {self.world_size}{state}>"

    # Collectives

    def broadcast(
        self,
        value: Any = None,
        root: int = 0,
        *,
        out: np.ndarray | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Any:
        """Every rank gets the root's `value`.

        Parameters
        ----------
        value : array or object
            Only the root's counts; others may leave it out.
        root : int
            The rank whose value it is.
        out : ndarray, optional
            Same shape and dtype on every rank. The root's `value` is copied there first, if one is given.
        algorithm : str, optional
            By default the cheapest for this size and world is chosen.
        order : {\"racks\", \"given\", \"random\", \"random:SEED\"}, optional
            How the ranks of chains, rings and trees follow each other, see `Communicator`.

        Returns
        -------
        array or object
            `out` if given. Otherwise a new array on every rank; of an object, the root gets back its own.
        """
        root = self._rank("root", root)
        algorithm = in_order(algorithm, order)
        if out is not None:
            if value is not None and self.rank == root:
                fill(out, value)
            self._native.broadcast(flat(in_place(out))[0], root, algorithm)
            return out
        if self.rank != root:
            return _objects.receive(lambda piece: self._native.broadcast(piece, root, algorithm))
        array = as_array(value)
        if array is not None and not array.dtype.hasobject:
            value = np.array(array, order="C", copy=True)
        _objects.send(value, lambda piece: self._native.broadcast(piece, root, algorithm))
        return value

    def allreduce(
        self,
        value: Any,
        op: str = "sum",
        *,
        out: np.ndarray | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Any:
        """Every rank gets the elementwise combination of all ranks' values, equal to the last bit on every rank.

        Parameters
        ----------
        value : array, number, or tuple, list, dict of these
            Same shapes and dtypes on every rank. All parts of one dtype travel together.
        op : {"sum", "prod", "min", "max", "and", "or", "xor"}
            How two elements are combined; "and", "or", "xor" work on the bits of integers, and on booleans.
        out : ndarray, optional
            Receives the result; it may be `value` itself.
        algorithm : str, optional
            By default the cheapest for this size and world is chosen.
        order : {\"racks\", \"given\", \"random\", \"random:SEED\"}, optional
            How the ranks of chains, rings and trees follow each other, see `Communicator`.

        Returns
        -------
        array, number, or tuple, list, dict of these
            Of the same form as `value`; numbers come back as numbers.
        """
        if order is not None:
            algorithm = in_order(algorithm, order)
        if out is not None and out is value and type(out) is np.ndarray and is_native(out.dtype):
            # Nothing to copy, and every microsecond counts: the native module checks all that has to be checked.
            self._native.allreduce(out, op, algorithm)
            return out
        return self._reduced("allreduce", value, op, out, lambda array: self._native.allreduce(array, op, algorithm))

    def reduce(
        self,
        value: Any,
        op: str = "sum",
        root: int = 0,
        *,
        out: np.ndarray | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> Any:
        """Like `allreduce`, but only the root gets the result; the others get None and need no `out`."""
        root = self._rank("root", root)
        algorithm = in_order(algorithm, order)
        result = self._reduced(
            "reduce",
            value,
            op,
            out if self.rank == root else None,
            lambda array: self._native.reduce(array, op, root, algorithm),
        )
        return result if self.rank == root else None

    def allgather(
        self,
        value: Any = None,
        *,
        out: np.ndarray | None = None,
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
            How the ranks of chains, rings and trees follow each other, see `Communicator`.

        Returns
        -------
        list or ndarray
            A list with one value per rank; with `out` or `counts`, one array of all rows.
        """
        algorithm = in_order(algorithm, order)
        if out is None and counts is None:
            return _objects.allgather(self._native, value, algorithm)
        out, rows, element_counts = self._all_rows(value, out, counts)
        self._native.allgather(rows, element_counts, algorithm)
        return out

    def gather(
        self,
        value: Any = None,
        root: int = 0,
        *,
        out: np.ndarray | None = None,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
    ) -> Any:
        """The root gets every rank's `value`, the others None.

        Without `counts` the root gets a list of arrays or objects. With `counts`, rows per rank and the same on every
        rank, it gets one array of all rows (`out`, if given), and no sizes are exchanged.
        """
        root = self._rank("root", root)
        if counts is None:
            if out is not None:
                raise InputError("gather: out= needs counts=, the rows of every rank, on every rank")
            return _objects.gather(self._native, value, root, algorithm)
        out, rows, element_counts = self._all_rows(value, out if self.rank == root else None, counts)
        self._native.gather(rows, element_counts, root, algorithm)
        return out if self.rank == root else None

    def scatter(
        self,
        values: Any = None,
        root: int = 0,
        *,
        out: np.ndarray | None = None,
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
        if out is None:
            parts = self._one_per_rank(values, counts, "scatter") if self.rank == root else None
            return _objects.scatter(self._native, parts, root, algorithm)
        if counts is None:
            raise InputError("scatter: out= needs counts=, the rows of every rank, on every rank")
        if self.rank == root:
            rows = np.ascontiguousarray(required(values, "scatter: values at the root"), dtype=in_place(out).dtype)
        else:
            rows = empty((sum(counts), *in_place(out).shape[1:]), out.dtype)
        counts = checked_counts(counts, len(rows), self.world_size)
        line, element_counts = _elements(rows, counts)
        self._native.scatter(line, element_counts, root, algorithm)
        return fill(out, split(rows, counts)[self.rank])

    def reduce_scatter(
        self,
        value: Any,
        op: str = "sum",
        *,
        out: np.ndarray | None = None,
        counts: Sequence[int] | None = None,
        algorithm: str | None = None,
        order: str | None = None,
    ) -> np.ndarray:
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
            How the ranks of chains, rings and trees follow each other, see `Communicator`.

        Returns
        -------
        ndarray
            This rank's rows, of the dtype of `value`; `out` if given.
        """
        _check_op(op)
        scratch = _own(reducible(value, op, "reduce_scatter"))
        if scratch.ndim == 0:
            raise InputError("reduce_scatter: expected an array with at least one axis")
        counts = checked_counts(counts, len(scratch), self.world_size)
        line, element_counts = _elements(scratch, counts)
        self._native.reduce_scatter(line, element_counts, op, in_order(algorithm, order))
        mine = split(scratch, counts)[self.rank]
        # A copy, for a view would keep all ranks' rows in memory.
        return mine.copy() if out is None else fill(in_place(out), mine)

    def alltoall(
        self,
        values: Any,
        *,
        out: np.ndarray | None = None,
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
            Receives the rows of all ranks, divided by `out_counts`.
        counts, out_counts : sequence of int, optional
            Rows to, and from, every rank; even divisions by default.
        algorithm : str, optional
            By default the cheapest for these sizes and this world is chosen.

        Returns
        -------
        list or ndarray
            A list with one value from every rank, or `out`.
        """
        if out is None:
            parts = self._one_per_rank(values, counts, "alltoall")
            return _objects.alltoall(self._native, parts, algorithm)
        sent = np.ascontiguousarray(required(values, "alltoall: values"), dtype=in_place(out).dtype)
        if np.may_share_memory(sent, out):
            # What arrives must not overwrite what has still to leave.
            sent = sent.copy()
        counts = checked_counts(counts, len(sent), self.world_size)
        out_counts = checked_counts(out_counts, len(out), self.world_size, "out_counts")
        (line, element_counts), (out_line, out_element_counts) = _elements(sent, counts), _elements(out, out_counts)
        self._native.alltoall(line, element_counts, out_line, out_element_counts, algorithm)
        return out

    def barrier(self, *, algorithm: str | None = None) -> None:
        """Return when every rank has called it."""
        self._native.barrier(algorithm)

    # Point to point

    def send(self, value: Any, to: int) -> None:
        """Send `value` to rank `to`, which calls `recv`.

        What does not fit into the link waits for the receiver: ranks that exchange large values take turns, the lower
        one sending first, or call `alltoall`. Ranks that wait for each other in a circle are told after some seconds.
        For a `recv` with ``out=``, wrap nothing and send the array with `send_into`.
        """
        to = self._rank("to", to)
        _objects.send(value, lambda piece: self._native.send(piece, to))

    def send_into(self, array: Any, to: int) -> None:
        """Send the elements of `array` to rank `to`, which receives them with ``recv(source, out=...)``."""
        to = self._rank("to", to)
        self._native.send(flat(np.ascontiguousarray(required(array, "send_into")))[0], to)

    def recv(self, source: int, *, out: np.ndarray | None = None) -> Any:
        """The value that rank `source` sends; with `out`, the elements that it sends with `send_into`."""
        source = self._rank("source", source)
        if out is None:
            return _objects.receive(lambda piece: self._native.receive(piece, source))
        self._native.receive(flat(in_place(out))[0], source)
        return out

    # Life

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._native_or_none is None

    def emit(self, event: dict[str, Any]) -> None:
        """Hand a small dict to whoever launched the job (``on_event=``); without a listener it is dropped."""
        if self._on_event is not None:
            self._on_event(event)

    @overload
    def stats(self, *, all_ranks: Literal[False] = False) -> dict[str, Any]: ...

    @overload
    def stats(self, *, all_ranks: Literal[True]) -> Waiting: ...

    def stats(self, *, all_ranks: bool = False) -> dict[str, Any] | Waiting:
        """What this rank has communicated since the start, and for whom it has waited.

        Parameters
        ----------
        all_ranks : bool
            Bring the waits of all ranks together: then it is a collective, which every rank calls.

        Returns
        -------
        dict
            Of this rank: "call_count", "seconds_communicating", "bytes_sent", "bytes_received", and
            "seconds_waited_for", a list with one number per rank. Waits of less than a microsecond may be missing.
        Waiting
            Of all ranks: a table of who waited for whom, and which rank made the others wait. Print it.
        """
        seconds_waited_for = self._native.flight(0)["seconds_waited_for"]
        if not all_ranks:
            return {**self._native.statistics(), "seconds_waited_for": seconds_waited_for}
        return Waiting(np.array(self.allgather(np.array(seconds_waited_for))))

    def flight(self, count: int | None = None) -> list[dict[str, Any]]:
        """The latest collectives of this rank, at most `count`, oldest first; by default all that are kept.

        Each is a dict: "collective", "sequence", "communicator", "algorithm", "dtype", "op", "bytes", "peer_count" (how
        many ranks it exchanged bytes with), "start_s" and "end_s" (on `time.monotonic`), "waiting_s", "waited_for" (the
        rank that was waited for longest, or None), "moving_s", "outcome" ("done", "failed", "interrupted" or
        "in flight"), "text" (the same for people) and "number" (its place among all that this rank began).

        4096 are kept. A short call that never waited has no times: it lies between its neighbours. With RIPIENO_FLIGHT
        set to a folder 65,536 are kept, all with times.
        """
        return self._native.flight(count)["records"]

    def abort(self, cause: str, traceback: str = "") -> None:
        """Tell every rank that this one has failed: their calls raise `RankFailed` with `cause` and `traceback`."""
        flight.leave_file(self._native)
        self._native.abort(cause, traceback)

    def close(self) -> None:
        """End the connections. May be called again."""
        native, self._native_or_none = self._native_or_none, None
        if native is not None:
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
            raise CommunicatorClosed(f"the communicator of rank {self.rank} is closed")
        return self._native_or_none

    def _rank(self, name: str, rank: int) -> int:
        if not 0 <= rank < self.world_size:
            raise InputError(f"{name}={rank}: expected a rank, 0 … {self.world_size - 1}")
        return int(rank)

    def _reduced(
        self, what: str, value: Any, op: str, out: np.ndarray | None, collective: Callable[[np.ndarray], None]
    ) -> Any:
        _check_op(op)
        if out is not None:
            reducible(in_place(out), op, what)
            if value is not out:
                fill(out, value)
            collective(flat(out)[0])
            return out
        if isinstance(value, np.ndarray):
            # The common case, where every microsecond counts.
            result = _own(reducible(value, op, what))
            collective(flat(result)[0])
            return result
        leaves: list[np.ndarray] = []
        map_leaves(value, lambda leaf: leaves.append(reducible(leaf, op, what)))
        results = iter(_together(leaves, collective))
        return map_leaves(value, lambda leaf: _like(leaf, next(results)))

    def _all_rows(
        self, value: Any, out: np.ndarray | None, counts: Sequence[int] | None
    ) -> tuple[np.ndarray, np.ndarray, list[int]]:
        """The array of all ranks' rows with this rank's in place, its flat form, and elements per rank of that form."""
        mine = None if value is None else required(value, "value")
        if out is None:
            if mine is None or counts is None:
                raise InputError("expected this rank's rows as value")
            out = empty((sum(counts), *mine.shape[1:]), mine.dtype)
        counts = checked_counts(counts, len(in_place(out)), self.world_size)
        if mine is not None:
            fill(split(out, counts)[self.rank], mine)
        return out, *_elements(out, counts)

    def _one_per_rank(self, values: Any, counts: Sequence[int] | None, what: str) -> list[Any]:
        array = as_array(values)
        if array is not None and array.ndim:
            return split(array, checked_counts(counts, len(array), self.world_size))
        if not isinstance(values, Sequence) or len(values) != self.world_size:
            raise InputError(f"{what}: expected a sequence of {self.world_size} values, one per rank, or an array")
        return list(values)


def describe(error: BaseException) -> tuple[str, str]:
    """Cause in short and traceback text of an exception, as `Communicator.abort` takes them."""
    cause = f"{type(error).__qualname__}: {error}".rstrip(": ")
    return cause, "".join(traceback.format_exception(error))


def _elements(rows: np.ndarray, counts: list[int]) -> tuple[np.ndarray, list[int]]:
    """The flat form of `rows`, and how many of its elements belong to each rank, for `counts` rows each."""
    line, scale = flat(rows)
    per_row = row_size(rows) * scale
    return line, [count * per_row for count in counts]


def _check_op(op: str) -> None:
    if op not in OPS:
        raise InputError(f"op={op!r}: expected one of {', '.join(OPS)}")


def _own(array: np.ndarray) -> np.ndarray:
    """A contiguous copy that may be written to, in this machine's byte order."""
    own = empty(array.shape, array.dtype.newbyteorder("="))
    np.copyto(own, array)
    return own


def _together(leaves: list[np.ndarray], collective: Callable[[np.ndarray], None]) -> list[np.ndarray]:
    """Run `collective` once for all leaves of one dtype, on copies, and return each leaf's part of the result."""
    results: dict[int, np.ndarray] = {}
    by_dtype: dict[np.dtype, list[int]] = {}
    for index, leaf in enumerate(leaves):
        by_dtype.setdefault(leaf.dtype.newbyteorder("="), []).append(index)
    for dtype, indices in by_dtype.items():
        sizes = [leaves[index].size for index in indices]
        line = empty(sum(sizes), dtype)
        for index, part in zip(indices, split(line, sizes), strict=True):
            results[index] = part.reshape(leaves[index].shape)
            np.copyto(results[index], leaves[index])
        collective(flat(line)[0])
    return [results[index] for index in range(len(leaves))]


def _like(leaf: Any, result: np.ndarray) -> Any:
    """`result` in the form of `leaf`: a Python number, a NumPy scalar or an array."""
    if isinstance(leaf, np.generic):
        return result[()]
    return result.item() if isinstance(leaf, bool | int | float) else result
