"""Provide `Communicator`: collectives for arrays, numbers and any other Python objects.

Every rank calls the same methods in the same order. Calls never change their arguments. Results are new objects unless
``out=`` names an array for the result: then the data moves once, directly into it, and no other message is exchanged.
Without ``out=`` (or ``counts=``, where a call has it) ranks may pass values of different types and sizes, and a small
message with types and sizes precedes the data. Sums and other reductions need no such message.

An *array* is a NumPy array or any object that shares its memory by the buffer protocol or DLPack. Every other object
is sent as pickle protocol 5. The memory of arrays inside it is sent and received in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._checks import whole_number
from ripieno._types import Array, Op
from ripieno.comm import sparse_trials
from ripieno.comm.costs import Costs
from ripieno.comm.exchanges import Exchanges
from ripieno.comm.file_distribution import FileDistribution
from ripieno.comm.frames import FrameCalls
from ripieno.comm.gathers import Gathers
from ripieno.comm.groups import SplitCalls
from ripieno.comm.keyed_data import KeyedData
from ripieno.comm.local_tasks import LocalTasks
from ripieno.comm.memory_checkpoints import MemoryCheckpoints
from ripieno.comm.messages import MessageCalls
from ripieno.comm.mpi_names import advice
from ripieno.comm.own_plans import OwnPlans
from ripieno.comm.reductions import Reductions
from ripieno.comm.sparse_reduce import SparseReduce
from ripieno.comm.thread_statistics import thread_statistics
from ripieno.errors import InputError
from ripieno.flight.waiting import Waiting
from ripieno.sparse.reduction import DENSE_ABOVE, indices_of, options_of, reduced, rows_of
from ripieno.wire import packing
from ripieno.wire.arrays import resolved_operation
from ripieno.wire.calls import Handle, NativeCalls, PostedCall, StagedCall, run_now

P = ParamSpec("P")
R = TypeVar("R")


def _asynchronous(
    method: Callable[Concatenate[Communicator, P], R],
) -> Callable[Concatenate[Communicator, P], Handle[R]]:
    """Return a variant of `method` that returns a handle at once."""

    def begin(self: Communicator, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        return method(AsyncCommunicator(self), *args, **kwargs)  # type: ignore[return-value]

    functools.update_wrapper(begin, method)
    begin.__name__ = f"{method.__name__}_async"
    begin.__qualname__ = f"Communicator.{begin.__name__}"
    begin.__doc__ = (
        f"As `{method.__name__}`, but returns a `Handle` at once; its ``wait()`` returns the result. While it is in "
        "flight together with another call, cyclic waits are not detected."
    )
    return begin


class Communicator(
    Costs,
    FrameCalls,
    KeyedData,
    SplitCalls,
    MemoryCheckpoints,
    MessageCalls,
    Exchanges,
    FileDistribution,
    Gathers,
    LocalTasks,
    OwnPlans,
    Reductions,
):
    """One rank's access to all other ranks: collectives, messages, checkpoints and files.

    Programs do not construct a communicator: `ripieno.launch` passes one to the program, `ripieno.init` returns one to
    a script.

    Attributes
    ----------
    rank : int
        The number of this process, 0 … world_size - 1.
    world_size : int
        The number of ranks.
    hosts : list of str
        The host of every rank.
    nodes : list of int
        The node of every rank. Ranks with equal node numbers can share memory.
    racks : list of str or None
        The rack of every rank, or None if it is not known; see `ripieno.launch.racks` and `adopt_racks`.
    threads : int
        The number of threads for the computation of this rank. The cores of a host are divided among its ranks.
    replicas : int
        The number of replicas of each rank; see `replicate`.
    replica : int
        The index of this process among the replicas of its rank, 0 … replicas - 1.
    restarts_on_failure : bool
        Whether the program restarts after ranks are lost, so that a `checkpoint` is useful.
    first_ranks : list of int
        The rank that each rank had in the launched world. It differs from the present one after `split` or `shrink`.
    cache : dict
        Values that programs keep on this rank from one `Job.run` to the next, under keys of their choice. Closing the
        communicator empties it; `shrink` passes it to the new communicator. After a failure the next program gets a new
        communicator with an empty `cache`.

    Notes
    -----
    ``algorithm=`` names one of `ripieno._native.algorithms`. ``order=`` is the order of the ranks in chains, in rings
    and in the trees over them. It is the same on every rank. The default, "racks", sorts by rack and node, so that data
    crosses uplinks and links between nodes as rarely as possible. "given" sorts by rank, and "random:SEED" is a random
    order ("random" uses seed 0). Algorithms in which every pair of ranks communicates have no order. The environment
    variable RIPIENO_ALGORITHM, set on all ranks, overrides the defaults: ``ring``,
    ``allreduce=ring,broadcast=chain@given``.

    Raises
    ------
    RankFailed
        A rank died, stopped responding, raised, or left while others waited for it. Any communicating call may raise
        it.
    CollectiveMismatch
        Ranks called different collectives, or the same one with different sizes, types, shapes, keys or roots. Any
        communicating call may raise it.
    InputError
        An argument is wrong; nothing has been sent.
    CommunicatorClosed
        The communicator is closed, or this process was forked from a rank. A forked process may compute, but it is no
        rank.
    """

    if not TYPE_CHECKING:
        # Hidden from type checkers, which would accept any attribute name otherwise.
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"a Communicator has no attribute {name!r}{advice(name, type(self))}")

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
        """Prepare reductions of sparse data: send the indices once; later reductions send rows of values only.

        Every rank calls this method with its own indices and the same options. Rows pass down the layers of a nested
        butterfly. At each layer of degree `d`, each rank of a group of `d` ranks combines the rows of the group in its
        part of the index range. Results return through the same groups. The `threads` of a rank sort and merge the
        indices here, and order its rows in each reduction.

        Parameters
        ----------
        out_indices : array of shape (n_out,), of whole numbers
            The indices that this rank contributes to, in any order. Rows with a repeated index are combined.
        in_indices : array of shape (n_in,), of whole numbers
            The indices of the combined rows for this rank, in any order. Repeated indices get equal rows.
        size : int, optional
            The exclusive upper bound of the indices. The default is one more than the largest index of any rank.
        degrees : {"direct", "binary", "tried"}, str such as "8x4x2", int, or sequence of int, optional
            The number of ranks that exchange at each layer. The product is the number of ranks; a single number means
            one layer. The default is designed from the indices of all ranks. "tried" times the leading designs on
            reductions of zeros and keeps the fastest: use it for index sets that are reduced often. Different degrees
            add in different orders, so floating-point sums may differ in their last bits between trials.
        missing : {"error", "zero"}
            The result for in-indices that no rank contributes to: `MissingIndicesError` on every rank, or zeros.
        dense_above : float
            If the ranks of a layer hold more than this share of the indices of their range, they exchange rows of the
            whole range, without index maps. They always use index maps with a share above 1, or if all sets together
            hold less than one index in 32 of the range.
        replicas : int, optional
            ``comm.sparse(..., replicas=2)`` is short for ``comm.replicate(2).sparse(...)``; see `replicate`.

        Returns
        -------
        SparseReduce
            Its ``reduce(values)`` runs the reduction.

        Raises
        ------
        InputError
            Indices are negative or not less than `size`; then nothing has been sent. Or ranks passed different options;
            then every rank raises.
        MissingIndicesError
            On every rank: some in-indices have no contributing rank.

        Notes
        -----
        Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section III.
        """
        if replicas is not None and replicas != self.replicas:
            logical = self._logical(replicas)
            return logical.sparse(
                out_indices, in_indices, size=size, degrees=degrees, missing=missing, dense_above=dense_above
            )
        out_array = indices_of(out_indices, "out_indices")
        in_array = indices_of(in_indices, "in_indices")
        if degrees == sparse_trials.TRIED:
            options = options_of(size, None, missing, dense_above)
            if self.replicas > 1:
                # The trial times would differ between the replicas of a rank.
                raise InputError("degrees='tried': not supported with replicas: expected other degrees")

            def configure(name: str) -> _native.SparseReduce:
                return _native.sparse(self._native, out_array, in_array, options[0], name, *options[2:], self.threads)

            designed = _native.sparse(self._native, out_array, in_array, *options, self.threads)
            return SparseReduce(self, sparse_trials.best(self, designed, configure))
        options = options_of(size, degrees, missing, dense_above)
        return SparseReduce(self, _native.sparse(self._native, out_array, in_array, *options, self.threads))

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
        """Return ``sparse(out_indices, in_indices, ...).reduce(values, op)``, with indices and values sent together.

        Use it for index sets that are reduced once, such as the features of a minibatch. Parameters, errors and the
        bits of the result equal those documented for `sparse` and `SparseReduce.reduce`.
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
        out_array = indices_of(out_indices, "out_indices")
        in_array = indices_of(in_indices, "in_indices")
        name = resolved_operation(op, values)
        rows = rows_of(values, name, len(out_array))
        options = options_of(size, degrees, missing, dense_above)

        def reduce(values: NDArray[Any], into: NDArray[Any], width: int, row: str) -> None:
            _native.sparse_reduce(
                self._native, out_array, values, in_array, into, width, name, row, *options, self.threads
            )

        return reduced(reduce, rows, len(in_array), out)

    # Variants that return a `Handle` at once. Until it is done, the caller must not change the arrays or read `out`.
    # Calls are numbered in the order of their start, blocking ones included. A call that needs no exchange of sizes is
    # in flight at once. The others run one after the other, and any later call waits for them.

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
    run_async = _asynchronous(OwnPlans.run)
    send_async = _asynchronous(MessageCalls.send)
    _send_receipt_async = _asynchronous(MessageCalls._send_receipt)
    send_into_async = _asynchronous(MessageCalls.send_into)
    recv_async = _asynchronous(MessageCalls.recv)
    sendrecv_async = _asynchronous(MessageCalls.sendrecv)

    # Statistics

    @overload
    def stats(self, *, all_ranks: Literal[False] = False) -> dict[str, Any]: ...

    @overload
    def stats(self, *, all_ranks: Literal[True]) -> Waiting: ...

    def stats(self, *, all_ranks: bool = False) -> dict[str, Any] | Waiting:
        """Return the calls, bytes and seconds of communication of this rank since the start, and its waits per rank.

        Parameters
        ----------
        all_ranks : bool
            Combine the waits of all ranks. The call is then a collective, which every rank calls.

        Returns
        -------
        dict
            Statistics of this rank: "call_count", "seconds_communicating", "bytes_sent", "zero_copy_bytes" (the part of
            them that receivers read from the memory of this rank), "bytes_received", "seconds_serializing" (time spent
            on serializing and deserializing objects), and "seconds_waited_for", a list with one number per rank of this
            communicator: the seconds that this process has waited for that rank, in any communicator. Waits of less
            than a microsecond may be missing. "threads" has a dict for each thread that has computed in kernels of this
            process: the number of its "team", its "index" (0 is the caller's thread), its operating-system id
            "thread", the number of "kernels" that it ran, "computing_s" in them, and "waiting_s" for other threads. The
            other entries are counters of the operating system since the thread began, or None where it does not report
            them: "running_s" on a core, "runnable_s" waiting for a core, "voluntary_switches", "involuntary_switches",
            "migrations" between cores, "minor_faults" (first touches of pages) and "major_faults" (pages read from
            disk).
        Waiting
            The waits of all ranks: a printable table of the waits of each rank for each other rank, and the straggler
            that caused the longest waits.
        """
        world_waits = self._native.flight(0)["seconds_waited_for"]
        seconds_waited_for = [world_waits[rank] for rank in self._native.world_ranks]
        if all_ranks and self.replicas > 1:
            raise InputError(
                "all_ranks=True: each replica of a rank has its own waits; call it without all_ranks on each rank"
            )
        if not all_ranks:
            waited = {"seconds_waited_for": seconds_waited_for, "seconds_serializing": packing.spent_s()}
            return {**self._native.statistics(), **waited, "threads": thread_statistics()}
        return Waiting(np.array(self._allgather_values("stats", np.array(seconds_waited_for))))

    def flight(self, count: int | None = None) -> list[dict[str, Any]]:
        """Return the latest collectives of this rank, oldest first: at most `count`, by default all recorded ones.

        Each is a dict: "collective", "sequence", "communicator", "algorithm", "dtype", "op", "bytes", "peer_count" (the
        number of peers with exchanged bytes), "start_s" and "end_s" (on `time.monotonic`), "waiting_s",
        "waited_for" (the rank with the longest wait, or None), "moving_s", "outcome" ("done", "failed", "interrupted"
        or "in flight"), "text" (a readable summary) and "number" (its position among all collectives that this rank
        began).

        The list covers all communicators of this process. "waited_for" is always a rank of the world, also in a group.

        The recorder keeps 4096 collectives. A short call that never waited has no times; it ran between the calls
        before and after it. With RIPIENO_FLIGHT set to a folder, the recorder keeps 65,536 collectives, all with times.
        """
        if count is not None:
            count = whole_number("count", count, 0, 2**63 - 1)
        records: list[dict[str, Any]] = self._native.flight(count)["records"]
        return records


class AsyncCommunicator(Communicator):
    """A communicator with asynchronous calls: each returns a `Handle`."""

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
            # In a world of one rank no call waits for another rank, so calls need no thread.
            begin = run_now if self.world_size == 1 and not self._queue.is_busy else self._queue.add
            job = begin(lambda: call.run(native))
            return Handle([job], job.wait, self)
        return Handle([getattr(native, name)(*args, later=True) for name, *args in call.calls], call.finish, self)

    def _run_native(self, result: Any, name: str, *args: Any) -> Any:
        return self._do(NativeCalls([(name, *args)], lambda: result))
