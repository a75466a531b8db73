"""Registration of the backend, its ranks and a store with `torch.distributed`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.rendezvous import _rendezvous_handlers

from ripieno.comm.communicator import Communicator
from ripieno.errors import InputError
from ripieno.files import disk
from ripieno.launch import init
from ripieno.torch.backend import RipienoBackend
from ripieno.torch.work import complete_wrappers

# Store, rank and world size.
JoinedStore = tuple[dist.Store, int, int]

_NAME = "ripieno"
# The open files of stores.
_files: list[BinaryIO] = []
_HANDLERS: dict[str, Any] = _rendezvous_handlers


def register() -> None:
    """Register the backend with PyTorch, and the ranks of a job if the environment sets none.

    PyTorch calls it when a process group names the backend. Repeated calls are allowed.
    """
    dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu"])
    if _NAME not in _HANDLERS:
        complete_wrappers()
        dist.register_rendezvous_handler(_NAME, _rendezvous)
        # ``init_process_group("ripieno")`` reads the environment. In programs of a job it has no such variables.
        by_environment = _HANDLERS["env"]
        _HANDLERS["env"] = lambda url, **options: _rendezvous_or(by_environment, url, **options)
        # With ``TORCH_DISTRIBUTED_DEBUG=DETAIL`` PyTorch compares the ranks' calls through a second group (Gloo).
        wrap = distributed_c10d._create_process_group_wrapper
        distributed_c10d._create_process_group_wrapper = partial(_wrapped_unless_ripieno, wrap)


def _wrapped_unless_ripieno(wrap: Any, wrapped_pg: Any, **options: Any) -> Any:
    """Return Ripieno's backend unwrapped, because it always compares calls; wrap others as PyTorch does."""
    return wrapped_pg if isinstance(wrapped_pg, RipienoBackend) else wrap(wrapped_pg=wrapped_pg, **options)


def _rendezvous_or(by_environment: Any, url: str, **options: Any) -> Iterator[JoinedStore]:
    """Use torchrun's own store if it has one. Other stores would listen on the rendezvous port of the ranks."""
    has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return by_environment(url, **options) if has_store else _rendezvous(url, **options)


def _rendezvous(url: str, timeout: timedelta | None = None, **_: Any) -> Iterator[JoinedStore]:
    """Yield the ranks of the job with a PyTorch store: a private file, or on several nodes a server."""
    comm = init()
    if comm.world_size == 1:
        yield dist.HashStore(), 0, 1
    elif len(set(comm.nodes)) == 1:
        yield _in_file(comm), comm.rank, comm.world_size
    else:
        yield _served(comm), comm.rank, comm.world_size


def _in_file(comm: Communicator) -> dist.Store:
    """Return a store in a file without a name. Nothing remains of it even if the ranks are killed."""
    folder = tempfile.mkdtemp(prefix="ripieno-torch-") if comm.rank == 0 else None
    try:
        path = os.path.join(comm.broadcast(folder), "store")
        if folder is not None:
            disk.create(path).close()
        comm.barrier()
        # The store opens the file again for each access, through this descriptor.
        _files.append(disk.update(path))
        comm.barrier()
    finally:
        if folder is not None:
            disk.remove_folder(Path(folder))
    return dist.FileStore(f"/proc/self/fd/{_files[-1].fileno()}", comm.world_size)


def _served(comm: Communicator) -> dist.Store:
    store = None
    if comm.rank == 0:
        store = dist.TCPStore(comm.hosts[0], 0, comm.world_size, is_master=True, wait_for_workers=False)
    port = comm.broadcast(store.port if store is not None else None)
    return store or dist.TCPStore(comm.hosts[0], port, comm.world_size, is_master=False)


def _create(options: Any, _: Any) -> RipienoBackend:
    comm = init()
    ranks = list(options.global_ranks_in_group)
    if not ranks and (options.group_rank, options.group_size) != (comm.rank, comm.world_size):
        raise InputError(
            f"rank {options.group_rank} of {options.group_size}: this process is rank {comm.rank} of {comm.world_size}"
            " in its job; leave rank and world_size out, or start that many ranks"
        )
    return RipienoBackend(comm.group(ranks) if ranks else comm, options.group_id, options.timeout, options.store)
