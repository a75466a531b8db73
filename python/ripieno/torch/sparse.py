"""Reductions of sparse tensors with different rows on each rank."""

from __future__ import annotations

import numpy as np
import torch

from ripieno._types import OpName
from ripieno.comm.communicator import Communicator
from ripieno.torch.tensors import array_of, tensor_like


def sparse_sum(comm: Communicator, tensor: torch.Tensor, op: OpName) -> torch.Tensor:
    """Return the coalesced combination of all ranks' sparse tensors. Ranks exchange indices, then reduce equal rows.

    Raises
    ------
    RankFailed, CollectiveMismatch
        As in `Communicator.sparse_reduce`.
    """
    tensor = tensor.coalesce()
    shape, depth = tensor.shape, tensor.sparse_dim()
    mine = np.ravel_multi_index(tuple(tensor.indices().numpy()), shape[:depth])
    every = np.unique(np.concatenate(comm.allgather(mine)))
    rows = array_of(tensor.values().contiguous())
    sums = comm.sparse_reduce(mine, rows, every, op, size=int(np.prod(shape[:depth])))
    indices = torch.from_numpy(np.stack(np.unravel_index(every, shape[:depth])))
    values = tensor_like(sums, tensor)
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True, check_invariants=False)
