"""`Communicator`: the collectives, for arrays, numbers and any other Python objects.

Every rank calls the same methods in the same order. Arguments are never changed and results are new, unless ``out=``
says where a result belongs: then the data moves once, straight into it, and nothing else is exchanged. Without ``out=``
(or ``counts=``, where there is one) ranks may give values of different kinds and sizes, and a small message with these
goes ahead of the data. Sums and other reductions need no such message.

An *array* is a NumPy array or whatever shares its memory with one: the buffer protocol, or DLPack. Everything else
travels as pickle protocol 5, with the memory of the arrays inside it sent from, and received into, its place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._checks import whole
from ripieno._types import Array, Op
from ripieno.comm import sparse_trials
from ripieno.comm.costs import Costs
from ripieno.comm.exchanges import Exchanges
from ripieno.comm.file_distribution import FileDistribution
from ripieno.comm.frames import Frames
from ripieno.comm.gathers import Gathers
from ripieno.comm.groups import SplitCalls
from ripieno.comm.keyed_data import KeyedData
from ripieno.comm.local_tasks import LocalTasks
from ripieno.comm.memory_checkpoints import MemoryCheckpoints
from ripieno.comm.messages import MessageCalls
from ripieno.comm.reductions import Reductions
from ripieno.comm.sparse_reduce import SparseReduce
from ripieno.comm.thread_statistics import thread_statistics
from ripieno.errors import InputError
from ripieno.flight.waiting import Waiting
from ripieno.sparse.reduction import DENSE_ABOVE, indices_of, options_of, reduced, rows_of
from ripieno.wire import packing
from ripieno.wire.arrays import meant
from ripieno.wire.calls import Handle, NativeCalls, PostedCall, StagedCall

P = ParamSpec("P")
R = TypeVar("R")


def _asynchronous(
    method: Callable[Concatenate[Communicator, P], R],
) -> Callable[Concatenate[Communicator, P], Handle[R]]:
    """`method`, returning a handle at once."""

    def begin(self: Communicator, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        return method(AsyncCommunicator(self), *args, **kwargs)  # type: ignore[return-value]

    functools.update_wrapper(begin, method)
    begin.__name__ = f"{method.__name__}_async"
    begin.__qualname__ = f"Communicator.{begin.__name__}"
    begin.__doc__ = (
        f"As `{method.__name__}`, but returns a `Handle` at once; its ``wait()`` gives the result. While it is in "
        "flight beside another call, ranks that wait for each other in a circle are not told."
    )
    return begin


class Communicator(
    Costs,
    Frames,
    KeyedData,
    SplitCalls,
    MemoryCheckpoints,
    MessageCalls,
    Exchanges,
    FileDistribution,
    Gathers,
    LocalTasks,
    Reductions,
):
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
        How many replicas there are of each rank, see `replicate`.
    replica : int
        Which of the replicas of its rank this process is, 0 … replicas - 1.
    begins_again : bool
        Whether the program begins again if ranks are lost, so that it is worth a `checkpoint`.
    first_ranks : list of int
        Which rank each had in the world that was launched: another one where `split` or `shrink` made this.
    kept : dict
        Values that programs keep on this rank from one `Job.run` to the next, under keys of their own. It is emptied
        when the communicator is closed; `shrink` hands it on. After a failure the next program gets a new communicator
        with an empty `kept`.

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
        At each layer they are combined with those of `d` ranks. They come back by the same ranks. The `threads` of a
        rank sort and merge indices, here, and bring its rows in order in each reduction.

        Parameters
        ----------
        out_indices : array of shape (n_out,), of whole numbers
            The indices that this rank contributes to, in any order. Rows of a repeated one are combined.
        in_indices : array of shape (n_in,), of whole numbers
            The indices whose combined rows this rank gets, in any order; repeated ones get equal rows.
        size : int, optional
            Indices are smaller than this; by default one more than the largest that any rank gives.
        degrees : {"direct", "binary", "tried"}, str such as "8x4x2", int, or sequence of int, optional
            How many ranks meet at each layer; their product is the number of ranks, and a single number is the only
            layer. By default designed from the indices of all ranks. With "tried" the leading designs make some
            reductions of zeros, and the fastest stays: for sets that are reduced often. Other degrees add in another
            order, so that floating-point sums may differ in their last bits from one trial to the next.
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
        if degrees == sparse_trials.TRIED:
            options = options_of(size, None, missing, dense_above)
            if self.replicas > 1:
                # Replicas of a rank take different times.
                raise InputError("degrees='tried': expected other degrees where ranks have replicas")

            def configure(name: str) -> _native.SparseReduce:
                return _native.sparse(self._native, given, wanted, options[0], name, *options[2:], self.threads)

            designed = _native.sparse(self._native, given, wanted, *options, self.threads)
            return SparseReduce(self, sparse_trials.best(self, designed, configure))
        options = options_of(size, degrees, missing, dense_above)
        return SparseReduce(self, _native.sparse(self._native, given, wanted, *options, self.threads))

    @overload
    def sparse_reduce(
        self,
        out_indices: Any,
        values: Any,
        in_indices: Any,
        op: Op = "sum",
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
        op: Op = "sum",
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
        op: Op = "sum",
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
        op: Op = "sum",
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
        name = meant(op, values)
        rows = rows_of(values, name, len(given))
        options = options_of(size, degrees, missing, dense_above)

        def reduce(values: NDArray[Any], into: NDArray[Any], width: int, row: str) -> None:
            _native.sparse_reduce(self._native, given, values, wanted, into, width, name, row, *options, self.threads)

        return reduced(reduce, rows, len(wanted), out)

    # The same, returning a `Handle` at once. Arrays must not be changed, `out` not even read, until it is done. Calls
    # count in the order in which they are made, these and the blocking ones together. What needs no exchange of sizes
    # is in flight at once; the others follow each other, and what is called after one waits for it.

    broadcast_async = _asynchronous(Gathers.broadcast)
    allreduce_async = _asynchronous(Reductions.allreduce)
    reduce_async = _asynchronous(Reductions.reduce)
    scan_async = _asynchronous(Reductions.scan)
    exscan_async = _asynchronous(Reductions.exscan)
    allgather_async = _asynchronous(Gathers.allgather)
    gather_async = _asynchronous(Gathers.gather)
    scatter_async = _asynchronous(Gathers.scatter)
    reduce_scatter_async = _asynchronous(Reductions.reduce_scatter)
    alltoall_async = _asynchronous(Exchanges.alltoall)
    rotate_async = _asynchronous(Exchanges.rotate)
    neighbour_exchange_async = _asynchronous(Exchanges.neighbour_exchange)
    barrier_async = _asynchronous(Exchanges.barrier)
    regroup_async = _asynchronous(KeyedData.regroup)
    argmin_async = _asynchronous(Reductions.argmin)
    argmax_async = _asynchronous(Reductions.argmax)
    send_async = _asynchronous(MessageCalls.send)
    send_into_async = _asynchronous(MessageCalls.send_into)
    recv_async = _asynchronous(MessageCalls.recv)
    sendrecv_async = _asynchronous(MessageCalls.sendrecv)

    # What happened

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
            Of this rank: "call_count", "seconds_communicating", "bytes_sent", "bytes_received", "seconds_serializing"
            (how long this process has made bytes of objects and objects of bytes), and "seconds_waited_for", a list
            with one number per rank of this communicator: how long this process has
            waited for that one, in whatever communicator. Waits of less than a microsecond may be missing.
            "threads" has a dict for each thread that has computed in kernels of this process: its "index", 0 for that
            of the caller, its "thread" as the kernel numbers it, the count of "kernels" that it was part of,
            "computing_s" in them, and "waiting_s" for the others. Beside them stand what the kernel has counted since
            the thread began, None where it does not tell: "running_s" on a core and "runnable_s" of waiting for one,
            "voluntary_switches", "involuntary_switches", "migrations" from core to core, "minor_faults" of pages
            touched first, and "major_faults" of pages read.
        Waiting
            Of all ranks: a table of the waits of each rank for each other, and the straggler that made the others wait.
            Print it.
        """
        of_world = self._native.flight(0)["seconds_waited_for"]
        seconds_waited_for = [of_world[rank] for rank in self._native.world_ranks]
        if all_ranks and self.replicas > 1:
            raise InputError(
                "all_ranks=True: replicas of a rank have waited for others each; ask without it on each rank"
            )
        if not all_ranks:
            waited = {"seconds_waited_for": seconds_waited_for, "seconds_serializing": packing.spent_s()}
            return {**self._native.statistics(), **waited, "threads": thread_statistics()}
        return Waiting(np.array(self._said_by_all("stats", np.array(seconds_waited_for))))

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


class AsyncCommunicator(Communicator):
    """A communicator whose calls are begun only: each returns a `Handle`."""

    def __init__(self, comm: Communicator) -> None:
        self.__dict__ = comm.__dict__
        self._plain = None

    def _do(  # type: ignore[override]  # see `_asynchronous`
        self, call: NativeCalls[R] | StagedCall[R] | PostedCall[R]
    ) -> Handle[R]:
        native = self._native_or_none
        if native is None:
            self._check_process()
            raise self._closed_error()
        if isinstance(call, PostedCall):
            part = call.begin(native)
            return Handle([part], lambda: call.finish(part), self)
        if isinstance(call, StagedCall) or self._queue.is_busy:
            job = self._queue.add(lambda: call.run(native))
            return Handle([job], job.wait, self)
        return Handle([getattr(native, name)(*args, later=True) for name, *args in call.calls], call.finish, self)

    def _once(self, result: Any, name: str, *args: Any) -> Any:
        return self._do(NativeCalls([(name, *args)], lambda: result))
