"""Rank programs that call `torch.distributed` with either backend and return their observations."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "complex64": torch.complex64,
}
SHAPES = ((), (5,), (3, 4), (0, 2))


@contextmanager
def group(backend="ripieno", **options):
    """Create the process group of all ranks with a backend."""
    import ripieno.torch

    torch.set_num_threads(1)
    ripieno.torch.register()
    dist.init_process_group("ripieno", **options)
    try:
        yield None if backend == "ripieno" else dist.new_group(backend=backend)
    finally:
        dist.destroy_process_group()


def digest(module):
    """Return a digest of the bits of all parameters."""
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in module.parameters())).hexdigest()


def given(rank, shape, dtype):
    """Return small integers, so that sums in any order are bitwise equal."""
    numbers = torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(rank))
    return numbers.to(dtype)


def listed(tensors):
    return [(tensor.dtype, tuple(tensor.shape), tensor.to(torch.complex128).tolist()) for tensor in tensors]


def every_call(comm, backend, dtype):
    """Return the result of each call of a process group by name and shape; None for unsupported calls."""
    with group(backend) as g:
        return {
            (name, shape): _seen(call, g, comm.rank, comm.world_size, shape, DTYPES[dtype])
            for name, call in CALLS.items()
            for shape in SHAPES
            if not (name in _COMPARING and DTYPES[dtype].is_complex)
            if shape or name not in _OF_ROWS
            if comm.world_size > 1 or name not in _OF_PAIRS
        }


def _seen(call, *args):
    try:
        return listed(call(*args))
    except RuntimeError as error:
        if "Invalid scalar type" in str(error):
            return None
        raise


def _all_reduce(op):
    def call(g, rank, size, shape, dtype):
        tensor = given(rank, shape, dtype)
        dist.all_reduce(tensor, op, group=g)
        return [tensor]

    return call


def _transposed(g, rank, size, shape, dtype):
    tensor = given(rank, (*shape, 3, 2), dtype).transpose(-1, -2)
    dist.all_reduce(tensor, group=g)
    return [tensor]


def _reduce(g, rank, size, shape, dtype):
    tensor = given(rank, shape, dtype)
    dist.reduce(tensor, dst=size - 1, group=g)
    return [tensor] if rank == size - 1 else []


def _broadcast(g, rank, size, shape, dtype):
    tensor = given(rank, shape, dtype)
    dist.broadcast(tensor, src=size - 1, group=g)
    return [tensor]


def _all_gather(g, rank, size, shape, dtype):
    outputs = [torch.zeros(shape, dtype=dtype) for _ in range(size)]
    dist.all_gather(outputs, given(rank, shape, dtype), group=g)
    return outputs


def _all_gather_into_tensor(g, rank, size, shape, dtype):
    output = torch.zeros((size * shape[0], *shape[1:]), dtype=dtype)
    dist.all_gather_into_tensor(output, given(rank, shape, dtype), group=g)
    return [output]


def _gather(g, rank, size, shape, dtype):
    outputs = [torch.zeros(shape, dtype=dtype) for _ in range(size)] if rank == 0 else None
    dist.gather(given(rank, shape, dtype), outputs, dst=0, group=g)
    return outputs or []


def _scatter(g, rank, size, shape, dtype):
    output = torch.zeros(shape, dtype=dtype)
    inputs = [given(each, shape, dtype) for each in range(size)] if rank == 0 else None
    dist.scatter(output, inputs, src=0, group=g)
    return [output]


def _reduce_scatter_tensor(g, rank, size, shape, dtype):
    output = torch.zeros(shape, dtype=dtype)
    dist.reduce_scatter_tensor(output, given(rank, (size * shape[0], *shape[1:]), dtype), group=g)
    return [output]


def _all_to_all_single(g, rank, size, shape, dtype):
    output = torch.zeros((size * shape[0], *shape[1:]), dtype=dtype)
    dist.all_to_all_single(output, given(rank, (size * shape[0], *shape[1:]), dtype), group=g)
    return [output]


def _all_to_all_single_of_parts(g, rank, size, shape, dtype):
    """Rank i gets i rows from every rank."""
    inputs, outputs = list(range(size)), [rank] * size
    output = torch.zeros((sum(outputs), *shape[1:]), dtype=dtype)
    dist.all_to_all_single(output, given(rank, (sum(inputs), *shape[1:]), dtype), outputs, inputs, group=g)
    return [output]


def _send_and_recv(g, rank, size, shape, dtype):
    tensor = torch.zeros(shape, dtype=dtype)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, tensor, (rank - 1) % size, group=g),
            dist.P2POp(dist.isend, given(rank, shape, dtype), (rank + 1) % size, group=g),
        ]
    )
    for work in works:
        work.wait()
    return [tensor]


_OPS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
CALLS = {f"all_reduce of {name}": _all_reduce(op) for name, op in _OPS.items()} | {
    "all_reduce, transposed": _transposed,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "all_to_all_single": _all_to_all_single,
    "all_to_all_single, uneven": _all_to_all_single_of_parts,
    "isend and irecv": _send_and_recv,
}
# Complex numbers have no order, and PyTorch transfers their parts separately, so products are undefined.
_COMPARING = ("all_reduce of product", "all_reduce of min", "all_reduce of max")
# Calls that divide a tensor along its first axis.
_OF_ROWS = (
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "all_to_all_single, uneven",
)
_OF_PAIRS = ("isend and irecv",)


def network():
    """Return a small classifier with the same weights on every rank."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3))


def rows():
    """Return rows that a linear classifier can separate."""
    generator = torch.Generator().manual_seed(7)
    X = torch.randn(192, 20, generator=generator)
    return X, (X @ torch.randn(20, 3, generator=generator)).argmax(1)


def trained_together(comm, backend):
    """Return the bits of a network after some steps with several gradient buckets, and of steps under `no_sync`."""
    with group(backend) as g:
        module = network()
        parallel = DistributedDataParallel(module, bucket_cap_mb=0.005, process_group=g)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
        X, y = rows()
        for step in range(6):
            batch = slice(32 * step + comm.rank, 32 * (step + 1), comm.world_size)
            if step % 3 == 1:
                with parallel.no_sync():
                    nn.functional.cross_entropy(parallel(X[batch]), y[batch]).backward()
            nn.functional.cross_entropy(parallel(X[batch]), y[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
        return digest(module)


def sharded(comm, backend, folder):
    """Return the bits of a network with sharded parameters, and whether a checkpoint restores them."""
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def build(mesh):
        module = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
        module.load_state_dict({f"{at}.{name}": torch.full(shape, 0.1) for at, name, shape in _PARTS})
        for layer in (module[0], module[2], module):
            fully_shard(layer, mesh=mesh)
        return module, torch.optim.AdamW(module.parameters(), lr=0.01)

    with group(backend) as g:
        mesh = init_device_mesh("cpu", (comm.world_size,)) if g is None else DeviceMesh.from_group(g, "cpu")
        module, optimizer = build(mesh)
        X, y = rows()
        for step in range(4):
            batch = slice(32 * step + comm.rank, 32 * (step + 1), comm.world_size)
            nn.functional.cross_entropy(module(X[batch]), y[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
        whole = {name: value.full_tensor() for name, value in module.state_dict().items()}
        bits = hashlib.sha256(b"".join(value.numpy().tobytes() for value in whole.values())).hexdigest()
        state = dict(zip(("module", "optimizer"), get_state_dict(module, optimizer), strict=True))
        checkpoint.save(state, checkpoint_id=folder, process_group=g)
        again, its_optimizer = build(mesh)
        state = dict(zip(("module", "optimizer"), get_state_dict(again, its_optimizer), strict=True))
        checkpoint.load(state, checkpoint_id=folder, process_group=g)
        set_state_dict(again, its_optimizer, model_state_dict=state["module"], optim_state_dict=state["optimizer"])
        loaded = {name: value.full_tensor() for name, value in again.state_dict().items()}
        return bits, all(torch.equal(whole[name], loaded[name]) for name in whole)


_PARTS = ((0, "weight", (64, 20)), (0, "bias", (64,)), (2, "weight", (3, 64)), (2, "bias", (3,)))


def embedded(comm, backend):
    """Return gradients of an embedding with different rows on each rank."""
    with group(backend) as g:
        torch.manual_seed(0)
        module = nn.Embedding(50, 4, sparse=True)
        parallel = DistributedDataParallel(module, process_group=g)
        parallel(torch.tensor([comm.rank, comm.rank + 1, 40])).sum().backward()
        return module.weight.grad.coalesce().to_dense().tolist()


def meshed(comm):
    """Return sums along rows and columns of a mesh of 2 x 2 ranks, and in a group created only by its members."""
    from torch.distributed.device_mesh import init_device_mesh

    with group():
        mesh = init_device_mesh("cpu", (2, comm.world_size // 2), mesh_dim_names=("row", "column"))
        sums = []
        for name in ("row", "column"):
            tensor = torch.tensor([float(comm.rank)])
            dist.all_reduce(tensor, group=mesh.get_group(name))
            sums.append(tensor.item())
        if comm.rank in (1, 3):
            alone = dist.new_group([1, 3], use_local_synchronization=True)
            tensor = torch.tensor([10.0**comm.rank])
            dist.all_reduce(tensor, group=alone)
            sums.append(tensor.item())
        return sums


def coalesced(comm):
    """Return sums that start together, and parts that are gathered together."""
    with group():
        tensors = [torch.full((3,), float(comm.rank + at)) for at in range(4)]
        with dist._coalescing_manager(async_ops=True) as together:
            for tensor in tensors:
                dist.all_reduce(tensor)
        together.wait()
        work = dist.all_reduce(torch.ones(2), async_op=True)
        then = work.get_future().then(lambda future: future.value()[0].sum().item())
        return [tensor[0].item() for tensor in tensors], then.wait()


def nested(comm):
    """Return a sum of three rounds; each round starts and waits in the callback of the previous one."""

    def again(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()

    with group():
        future = dist.all_reduce(torch.ones(2), async_op=True).get_future()
        for _ in range(3):
            future = future.then(again)
        return future.wait()[0].tolist()


def compressed(comm, backend):
    """Return the bits of a network with gradients compressed to products of small matrices."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    with group(backend) as g:
        module = network()
        parallel = DistributedDataParallel(module, process_group=g)
        state = powerSGD_hook.PowerSGDState(g, start_powerSGD_iter=2, min_compression_rate=0.5)
        parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
        X, y = rows()
        for step in range(5):
            batch = slice(32 * step + comm.rank, 32 * (step + 1), comm.world_size)
            nn.functional.cross_entropy(parallel(X[batch]), y[batch]).backward()
            optimizer.step()
            optimizer.zero_grad()
        return digest(module)


def split(comm):
    """Return sums in the even and odd groups, the number of the latest call, and a barrier with a timeout."""
    with group():
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        number = dist.group.WORLD._get_sequence_number_for_group()
        dist.monitored_barrier(timeout=timedelta(seconds=60))
        ranks = list(range(comm.world_size))
        part = dist.split_group(split_ranks=[ranks[::2], ranks[1::2]])
        dist.all_reduce(tensor, group=part)
        return tensor.item(), number, part.size()


def missed(comm):
    """Return the errors of barriers that rank 0 calls alone at first, and a sum that rank 0 sends to rank 1 again."""

    def error_of(timeout_s, **options):
        try:
            dist.monitored_barrier(timeout=timedelta(seconds=timeout_s), **options)
        except RuntimeError as error:
            return str(error)
        return ""

    with group():
        errors = []
        for timeout_s, options in ((0.1, {}), (0.1, {"wait_all_ranks": True}), (0, {})):
            if comm.rank == 0:
                errors.append(error_of(timeout_s, **options))
            dist.barrier()
            if comm.rank != 0:
                errors.append(error_of(60))
        errors.append(error_of(60))
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        # Nothing of a barrier that the others never call is ahead of a message.
        if comm.rank == 0:
            error_of(0)
            dist.send(tensor, 1)
        elif comm.rank == 1:
            dist.recv(tensor.zero_(), 0)
        return errors, tensor.item()


def passed(comm):
    """Return messages requested before a sum and sent after it, and messages sent before it."""
    with group():
        mine, pending = [torch.full((2,), float(tag)) for tag in range(3)], []
        received = [torch.zeros(2) for _ in mine]
        for tag, tensor in enumerate(received if comm.rank == 0 else mine):
            call = dist.irecv if comm.rank == 0 else dist.isend
            if comm.rank == 0 or tag == 1:
                pending.append(call(tensor, 1 - comm.rank, tag=tag + 1))
        dist.all_reduce(torch.ones(3))
        if comm.rank == 1:
            pending.extend(dist.isend(mine[tag], 0, tag=tag + 1) for tag in (0, 2))
        for work in pending:
            work.wait()
        return [tensor[0].item() for tensor in received]


def tagged(comm):
    """Return messages of one rank, received in a different order than sent."""
    with group():
        found = []
        if comm.rank == 0:
            for tag in (1, 2, 3):
                dist.send(torch.full((2,), float(tag)), 1, tag=tag)
        elif comm.rank == 1:
            for tag in (3, 1, 2):
                tensor = torch.zeros(2)
                dist.recv(tensor, 0, tag=tag)
                found.append(tensor[0].item())
        return found


def averaged(comm):
    with group():
        tensor = torch.full((2,), float(comm.rank))
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        part = torch.zeros(1)
        dist.reduce_scatter_tensor(part, torch.full((comm.world_size,), float(comm.rank)), dist.ReduceOp.AVG)
        return [*tensor.tolist(), part.item()]


def late(comm):
    """Wait, on all ranks except rank 0, for a call that rank 0 makes too late."""
    import time

    with group(timeout=timedelta(seconds=1)):
        if comm.rank == 0:
            time.sleep(4)
        dist.all_reduce(torch.ones(3))


def killed(comm):
    import os
    import signal

    with group():
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(3))


def mismatched(comm):
    with group():
        dist.all_reduce(torch.ones(3 + comm.rank))


def refused(comm):
    """Return the error of an unsupported call of the backend."""
    from ripieno.errors import InputError

    with group():
        try:
            dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG)
        except InputError as error:
            return str(error)
    return None


def from_any(comm, tag):
    """Return, on rank 0, the ranks from which messages came, and their contents."""
    with group():
        tensor, found = torch.full((2,), float(comm.rank)), []
        if comm.rank > 0:
            dist.send(tensor, 0, tag=tag)
        else:
            for _ in range(comm.world_size - 1):
                source = dist.recv(tensor, tag=tag)
                found.append((source, tensor.tolist()))
        return sorted(found)


def polled(comm):
    """Return, on rank 0, the state of a receive before and after its message was sent."""
    with group():
        tensor = torch.ones(2)
        if comm.rank > 0:
            dist.barrier()
            dist.send(tensor, 0)
            return None
        tensor = torch.zeros(2)
        work = dist.irecv(tensor, 1)
        before = work.is_completed(), work.is_success()
        dist.barrier()
        while not work.is_completed():
            pass
        return before, tensor.tolist(), work.is_success(), work.exception(), work.result()[0] is tensor


def optimized(comm, backend):
    """Return the bits of a network whose optimizer state is sharded, and whose gradients a compiled function scales."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    @torch.compile(backend="aot_eager", fullgraph=True)
    def mean(tensor, g):
        return functional.all_reduce(tensor, "sum", g) / comm.world_size

    with group(backend) as g:
        g = g or dist.group.WORLD
        module = network()
        optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.AdamW, process_group=g, lr=0.01)
        X, y = rows()
        for step in range(3):
            batch = slice(32 * step + comm.rank, 32 * (step + 1), comm.world_size)
            nn.functional.cross_entropy(module(X[batch]), y[batch]).backward()
            for parameter in module.parameters():
                parameter.grad = mean(parameter.grad, g)
            optimizer.step()
            optimizer.zero_grad()
        optimizer.consolidate_state_dict(to=0)
        return digest(module), len(optimizer.state_dict()["state"]) if comm.rank == 0 else None


def distributed_product(comm, backend):
    """Return a product of a matrix with sharded rows and one with sharded columns, and its parts by columns."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    with group(backend) as g:
        mesh = init_device_mesh("cpu", (comm.world_size,)) if g is None else DeviceMesh.from_group(g, "cpu")
        numbers = torch.arange(12.0).reshape(3, 4)
        left, right = (distribute_tensor(each, mesh, [Shard(0)]) for each in (numbers, numbers.T.contiguous()))
        product = left @ right
        parts = product.redistribute(mesh, [Shard(1)]).to_local()
        return product.full_tensor().tolist(), parts.tolist(), product.redistribute(mesh, [Replicate()]).sum().item()
