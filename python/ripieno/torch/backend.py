"""The backend: maps each call of a process group to a call of a communicator, and returns a `RipienoWork`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from ripieno._types import OpName
from ripieno.comm.communicator import Communicator
from ripieno.torch.monitored import monitored_barrier
from ripieno.torch.sparse import sparse_sum
from ripieno.torch.tensors import ContiguousTensors, array_of, copy_parts, flat_array_of, flat_length, op_of
from ripieno.torch.work import RipienoWork, WorkThreads
from ripieno.wire.calls import Handle


class RipienoBackend(dist.distributed_c10d.C10DBackend):
    """The backend of one rank in a process group.

    Parameters
    ----------
    comm
        Communicator of the group.
    name
        Name of the group.
    timeout
        Time limit of a call from its start. After it, every rank raises, and the job ends.
    store
        Store of the group, for `monitored_barrier`.
    """

    supports_splitting = True
    supports_coalescing = True

    def __init__(self, comm: Communicator, name: str, timeout: timedelta, store: dist.Store) -> None:
        super().__init__(comm.rank, comm.world_size)
        self._comm = comm
        self._name = name
        self._limit_s = timeout.total_seconds()
        self._store = store
        self._threads = WorkThreads(self._abort)
        # Works started while PyTorch coalesces several calls.
        self._coalesced: list[RipienoWork] | None = None
        # Number of calls of all ranks that have started.
        self._sequence_number = 0
        self._monitored_count = 0

    def name(self) -> str:
        return "ripieno"

    def getBackendName(self) -> str:
        return "ripieno"

    def set_timeout(self, timeout: timedelta) -> None:
        self._limit_s = timeout.total_seconds()

    def shutdown(self) -> None:
        self._threads.close()

    def abort(self) -> None:
        self._abort("the process group was aborted")
        self._threads.close()

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: numbers start at 0 on every rank."""

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence_number

    @property
    def options(self) -> Any:
        return dist.distributed_c10d.C10DBackend.Options("ripieno", timedelta(seconds=self._limit_s))

    def split(self, store: dist.Store, ranks: list[int], opts: Any) -> RipienoBackend | None:
        """Return the backend of some ranks of this group; None on a rank outside of them."""
        if self.rank() not in ranks:
            return None
        # All parts of a split have the same store.
        part_store = dist.PrefixStore(str(min(ranks)), store)
        return RipienoBackend(self._comm.group(ranks), opts.group_name or self._name, opts._timeout, part_store)

    # From one rank to all, and from all ranks to one or all

    def broadcast(self, tensors: list[Tensor], opts: Any) -> RipienoWork:
        buffers = ContiguousTensors(tensors)
        handles = [self._comm.broadcast_async(None, opts.rootRank, out=array) for array in buffers.arrays]
        return self._started("broadcast", handles, buffers.put_back, tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> RipienoWork:
        flats = [torch.empty((self.size(), *tensor.shape), dtype=tensor.dtype) for tensor in inputs]
        handles = [self._gathered(flat, tensor) for flat, tensor in zip(flats, inputs, strict=True)]

        def finish() -> None:
            for parts, flat in zip(outputs, flats, strict=True):
                copy_parts(flat, parts)

        return self._started("allgather", handles, finish, [part for parts in outputs for part in parts])

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> RipienoWork:
        # Here, outputs are one list per rank.
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> RipienoWork:
        return self.all_gather_single_coalesced([output], [given], opts)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> RipienoWork:
        buffers = ContiguousTensors(outputs)
        handles = [self._gathered(into, tensor) for into, tensor in zip(buffers.tensors, inputs, strict=True)]
        return self._started("all_gather", handles, buffers.put_back, outputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> RipienoWork:
        rows = flat_array_of(inputs[0].contiguous())
        counts = [rows.size] * self.size()
        if self.rank() != opts.rootRank:
            handle = self._comm.gather_async(rows, opts.rootRank, counts=counts)
            return self._started("gather", [handle], _nothing, [])
        flat = torch.empty((self.size(), *inputs[0].shape), dtype=inputs[0].dtype)
        handle = self._comm.gather_async(rows, opts.rootRank, out=flat_array_of(flat), counts=counts)
        return self._started("gather", [handle], lambda: copy_parts(flat, outputs[0]), outputs[0])

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> RipienoWork:
        buffers = ContiguousTensors(outputs)
        into = buffers.arrays[0]
        given = None
        if self.rank() == opts.rootRank:
            given = flat_array_of(torch.cat([part.contiguous().reshape(-1) for part in inputs[0]]))
        handle = self._comm.scatter_async(given, opts.rootRank, out=into, counts=[into.size] * self.size())
        return self._started("scatter", [handle], buffers.put_back, outputs)

    # Reductions

    def allreduce(self, tensors: list[Tensor], opts: Any) -> RipienoWork:
        if tensors[0].is_sparse:
            return self.allreduce_sparse(tensors, opts)
        op = op_of(opts.reduceOp, tensors[0].dtype)
        buffers = ContiguousTensors(tensors)
        handles = [self._comm.allreduce_async(array, _summed(op), out=array) for array in buffers.arrays]
        return self._started("all_reduce", handles, self._averaged(op, buffers), tensors)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> RipienoWork:
        return self.allreduce(tensors, opts)

    def allreduce_sparse(self, tensors: list[Tensor], opts: Any) -> RipienoWork:
        """Reduce sparse tensors: the ranks exchange their indices, and then reduce rows with equal indices."""
        op = op_of(opts.reduceOp, tensors[0].dtype)
        results = [sparse_sum(self._comm, tensor, _summed(op)) for tensor in tensors]

        def finish() -> None:
            for tensor, result in zip(tensors, results, strict=True):
                tensor.copy_(result / self.size() if op == "avg" else result)

        return self._started("all_reduce of sparse tensors", [], finish, tensors)

    def reduce(self, tensors: list[Tensor], opts: Any) -> RipienoWork:
        op = op_of(opts.reduceOp, tensors[0].dtype)
        is_root = self.rank() == opts.rootRank
        buffers = ContiguousTensors(tensors)
        handles = [
            self._comm.reduce_async(array, _summed(op), opts.rootRank, out=array if is_root else None)
            for array in buffers.arrays
        ]
        return self._started("reduce", handles, self._averaged(op, buffers) if is_root else _nothing, tensors)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> RipienoWork:
        # Parts may differ in size.
        flats = [torch.cat([part.contiguous().reshape(-1) for part in parts]) for parts in inputs]
        counts = [[flat_length(part) for part in parts] for parts in inputs]
        return self._reduced_parts(outputs, flats, counts, opts)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any) -> RipienoWork:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> RipienoWork:
        counts = [[flat_length(output)] * self.size() for output in outputs]
        return self._reduced_parts(outputs, [tensor.contiguous().reshape(-1) for tensor in inputs], counts, opts)

    # Exchanges

    def all_to_all_single(
        self, output: Tensor, given: Tensor, output_sizes: list[int], input_sizes: list[int], opts: Any = None
    ) -> RipienoWork:
        buffers = ContiguousTensors([output])
        into, rows = array_of(buffers.tensors[0]), array_of(given.contiguous())
        handle = self._comm.alltoall_async(rows, out=into, counts=input_sizes or None, out_counts=output_sizes or None)
        return self._started("all_to_all_single", [handle], buffers.put_back, [output])

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> RipienoWork:
        given = torch.cat([tensor.contiguous().reshape(-1) for tensor in inputs])
        sizes = [tensor.numel() for tensor in outputs]
        flat = torch.empty(sum(sizes), dtype=given.dtype)
        counts, out_counts = [flat_length(tensor) for tensor in inputs], [flat_length(tensor) for tensor in outputs]
        handle = self._comm.alltoall_async(
            flat_array_of(given), out=flat_array_of(flat), counts=counts, out_counts=out_counts
        )

        def finish() -> None:
            for tensor, part in zip(outputs, flat.split(sizes), strict=True):
                tensor.copy_(part.view(tensor.shape))

        return self._started("all_to_all", [handle], finish, outputs)

    def send(self, tensors: list[Tensor], to: int, tag: int) -> RipienoWork:
        rows = flat_array_of(tensors[0].contiguous())
        handle = self._comm.send_async(rows, to, tag=tag) if tag else self._comm.send_into_async(rows, to)
        return self._started("send", [handle], _nothing, tensors)

    def recv(self, tensors: list[Tensor], source: int, tag: int) -> RipienoWork:
        buffers = ContiguousTensors(tensors)
        handle = self._comm.recv_async(source, out=buffers.arrays[0], tag=tag or None)
        return self._started("recv", [handle], buffers.put_back, tensors)

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> RipienoWork:
        buffers = ContiguousTensors(tensors)
        handle = self._comm.recv_async(out=buffers.arrays[0], tag=tag or None, envelope=True)
        return self._started("recv", [handle], buffers.put_back, tensors, lambda: handle.wait().source)

    def barrier(self, opts: Any = None) -> RipienoWork:
        return self._started("barrier", [self._comm.barrier_async()], _nothing, [])

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """Return when every rank has called it; raise `RuntimeError` with the missing ranks after the time limit."""
        limit_s = opts.timeout.total_seconds()
        # A negative timeout stands for the timeout of the group.
        limit_s = self._limit_s if limit_s < 0 else limit_s
        self._sequence_number += 1
        self._monitored_count += 1
        monitored_barrier(
            self._store, self.rank(), self.size(), self._monitored_count, limit_s, wait_all_ranks=wait_all_ranks
        )

    # Coalescing

    def start_coalescing(self) -> None:
        self._coalesced = []

    def end_coalescing(self) -> RipienoWork:
        works, self._coalesced = self._coalesced or [], None
        result = [tensor for work in works for tensor in work.result()]

        def finish() -> None:
            for work in works:
                work.end()

        handles = [handle for work in works for handle in work.handles]
        return self._started("coalesced calls", handles, finish, result)

    # Shared by all calls

    def _started(
        self,
        kind: str,
        handles: Sequence[Handle[Any]],
        finish: Callable[[], None],
        result: Sequence[Tensor],
        sender: Callable[[], int] | None = None,
    ) -> RipienoWork:
        if kind not in ("send", "recv"):
            self._sequence_number += 1
        work = RipienoWork(f"{kind} in process group {self._name}", handles, finish, result, self._threads, sender)
        self._threads.limit(work, self._limit_s)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _abort(self, reason: str) -> None:
        self._comm.abort(reason)

    def _gathered(self, into: Tensor, given: Tensor) -> Handle[Any]:
        rows = flat_array_of(given.contiguous())
        return self._comm.allgather_async(rows, out=flat_array_of(into), counts=[rows.size] * self.size())

    def _reduced_parts(
        self, outputs: list[Tensor], flats: list[Tensor], counts: list[list[int]], opts: Any
    ) -> RipienoWork:
        op = op_of(opts.reduceOp, outputs[0].dtype)
        buffers = ContiguousTensors(outputs)
        handles = [
            self._comm.reduce_scatter_async(flat_array_of(flat), _summed(op), out=into, counts=each)
            for flat, into, each in zip(flats, buffers.arrays, counts, strict=True)
        ]
        return self._started("reduce_scatter", handles, self._averaged(op, buffers), outputs)

    def _averaged(self, op: str, buffers: ContiguousTensors) -> Callable[[], None]:
        if op != "avg":
            return buffers.put_back

        def finish() -> None:
            for tensor in buffers.tensors:
                tensor.div_(self.size())
            buffers.put_back()

        return finish


def _summed(op: OpName | Literal["avg"]) -> OpName:
    return "sum" if op == "avg" else op


def _nothing() -> None:
    """Do nothing: the result is already in place."""
