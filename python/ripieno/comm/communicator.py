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
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

import ripieno._native as _native
from ripieno._checks import number, whole
from ripieno._types import Array
from ripieno.comm import cost_probes, rack_probes
from ripieno.comm.exchanges import Exchanges
from ripieno.comm.file_distribution import FileDistribution
from ripieno.comm.gathers import Gathers
from ripieno.comm.groups import Groups
from ripieno.comm.keyed_data import KeyedData
from ripieno.comm.local_tasks import LocalTasks
from ripieno.comm.memory_checkpoints import MemoryCheckpoints
from ripieno.comm.rank import Rank
from ripieno.comm.reductions import Reductions
from ripieno.comm.sparse_reduce import SparseReduce
from ripieno.comm.thread_statistics import thread_statistics
from ripieno.errors import InputError
from ripieno.flight.waiting import Waiting
from ripieno.simulation import Cluster, Explanation, MeasuredCosts, explain, link_costs
from ripieno.sparse.reduction import DENSE_ABOVE, indices_of, options_of, reduced, rows_of
from ripieno.wire.calls import Handle, NativeCalls, StagedCall

if TYPE_CHECKING:
    from ripieno._native import PacketCurve
    from ripieno.topology import Topology

P = ParamSpec("P")
R = TypeVar("R")


def _measured_costs(comm: Rank) -> MeasuredCosts | None:
    """Those of `Communicator.tune`, of this communicator or kept for its hosts."""
    return comm.kept.get(MeasuredCosts) or link_costs.kept(comm.hosts)


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


class Communicator(KeyedData, Groups, MemoryCheckpoints, Exchanges, FileDistribution, Gathers, LocalTasks, Reductions):
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
    send_async = _asynchronous(Exchanges.send)
    send_into_async = _asynchronous(Exchanges.send_into)
    recv_async = _asynchronous(Exchanges.recv)

    # What it costs, and what happened

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

    def explain(self, collective: str, *, nbytes: int, order: str | None = None, root: int = 0) -> Explanation:
        """Price every algorithm of a collective for these ranks, where they stand. Any rank may call it alone.

        Links cost what :meth:`tune` has measured, here or in an earlier program on the same hosts. Else they cost what
        :meth:`measure_packets` has measured, or what is usual, and uplinks of racks are never in the way.

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
            "chosen", which runs by default, "why", and "costs": where those of links come from. It prints as a table.
        """
        native = self._native
        measured = _measured_costs(self) or _measured_costs(self._world)
        if measured is not None:
            cluster, costs = measured.cluster(native.nodes, native.racks), measured.source
        else:
            packets = _native.packet_curve(native)
            cluster = Cluster.of_ranks(native.nodes, native.racks, packets.alpha_s, packets.beta_s_per_byte)
            costs = "of packets, measured or usual; comm.tune() or ripieno tune measures them by kind"
        return explain(collective, cluster, nbytes=nbytes, order=order, root=root, costs=costs)

    def tune(self, *, budget_s: float = 1.0) -> MeasuredCosts:
        """Measure what links, memory and cores cost here, and keep it for this cluster. Collective.

        Up to three pairs of each kind of link, one after the other, exchange short and long messages: ranks of a node,
        nodes of a rack, racks. With racks told, all hosts of two racks exchange at once, which shows what an uplink
        carries. From now on `explain` counts with these costs, here and in later programs on the same hosts: each host
        has them in a file under ``XDG_CACHE_HOME``, or ``~/.cache``. Keep network and hosts quiet meanwhile.

        Which algorithm runs by default does not depend on it.

        Parameters
        ----------
        budget_s : float
            About how many seconds it takes.

        Returns
        -------
        MeasuredCosts
            The same on every rank: "memory", "cable" and "uplink" with "latency_s" and "bytes_per_s", what an uplink
            carries, and seconds to add and to copy a byte. It prints as a table, and `cluster` is a modelled one.

        Raises
        ------
        InputError
            The time is not positive, or ranks have replicas.
        """
        if not number("budget_s", budget_s, "expected seconds") > 0:
            raise InputError(f"budget_s={budget_s!r}: expected more than 0 seconds")
        measured = self.kept[MeasuredCosts] = cost_probes.measure(self, budget_s)
        if self.hosts.index(self.hosts[self.rank]) == self.rank:
            link_costs.keep(measured)
        self.barrier()
        return measured

    def topology(self, *, measure: bool = False, round_s: float = 0.25) -> Topology:
        """The hosts of these ranks, their racks, cores and NUMA nodes. Collective.

        Racks that a file, an option or a launcher has told are taken as they are. Otherwise they are found: round by
        round, pairs of hosts exchange bytes, and pairs of several racks are slower while their uplinks are full. With
        uplinks that are never full all hosts are one rack. Keep the network quiet meanwhile.

        Parameters
        ----------
        measure : bool
            Measure even if racks were told.
        round_s : float
            About how many seconds a round takes. Of 32 hosts there are some 40.

        Returns
        -------
        Topology
            The same on every rank: "hosts", "racks" by host, "source", and how "sure" the least certain host is. It
            prints as a tree, and `toml` is a file of racks.
        """
        if not number("round_s", round_s, "expected seconds") > 0:
            raise InputError(f"round_s={round_s!r}: expected more than 0 seconds")
        return rack_probes.topology(self, measures=measure, round_s=round_s)

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
            waited = {"seconds_waited_for": seconds_waited_for}
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

    def _do(self, call: NativeCalls[R] | StagedCall[R]) -> Handle[R]:  # type: ignore[override]  # see `_asynchronous`
        native = self._native_or_none
        if native is None:
            self._check_process()
            raise self._closed_error()
        if isinstance(call, StagedCall) or self._queue.is_busy:
            job = self._queue.add(lambda: call.run(native))
            return Handle([job], job.wait, self)
        return Handle([getattr(native, name)(*args, later=True) for name, *args in call.calls], call.finish, self)

    def _once(self, result: Any, name: str, *args: Any) -> Any:
        return self._do(NativeCalls([(name, *args)], lambda: result))
